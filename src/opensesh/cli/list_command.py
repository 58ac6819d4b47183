"""Sessions of every project, newest first."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..history.library import Library, SessionFilter, session_totals
from ..storage.keys import GLOBAL
from . import output
from .arguments import PROJECT, TIMES, count
from .choose import is_global, project_title

if TYPE_CHECKING:
    from argparse import Namespace

    from ..history.library import Overview
    from ..records import Project, Session
    from ..storage.protocol import Store
    from .arguments import Parser

ELSEWHERE = "'opensesh run' begins one. If yours are elsewhere, --store names the place."
"""What to say where there are no sessions at all."""
_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.add_argument("--project", metavar="NAME", help=f"only of this project: {PROJECT}")
    parser.add_argument("--here", action="store_true", help="only of the project of this directory")
    parser.add_argument("--children", action="store_true", help="subagents' sessions too")
    parser.add_argument("--archived", action="store_true", help="archived sessions too")
    parser.add_argument("--since", metavar="T", help=f"updated since: {TIMES}")
    parser.add_argument("--until", metavar="T", help="updated before")
    parser.add_argument("--limit", type=count, default=50, metavar="N", help="how many at the most; 0 for all (50)")


def run(options: Namespace) -> int:
    """Print the newest sessions that fit, and say how many there are."""
    library = Library(options.store)
    found = library.overview(session_filter(library, options), options.limit)
    if options.json:
        entries = [_entry(library, each) for each in found.sessions]
        more = {"elsewhere": found.possible_matches} if found.possible_matches else {}
        output.print_json({"total": found.total, "sessions": entries, **more})
    else:
        output.in_pages(lambda: _print(library, found.sessions, utc=options.utc))
        _tell(found, library.store, options)
    output.tell_damage(library.damage)
    return 0


def session_filter(library: Library, options: Namespace) -> SessionFilter:
    """Which sessions the options of a command mean."""
    chosen = None
    if options.here:
        from ..history.discovery import current_project

        chosen = current_project(os.getcwd())
    elif options.project:
        chosen = library.resolve_project(options.project)
    since = moment(options.since, utc=options.utc) if options.since else 0
    until = moment(options.until, utc=options.utc) if options.until else 0
    return SessionFilter(chosen, since, until, options.children, options.archived)


def moment(text: str, *, utc: bool = False) -> int:
    """Milliseconds of a month's or a day's beginning, of a day and time (local, unless ``utc`` or the text itself says
    otherwise), or so long ago."""
    if text[:-1].isdecimal() and text[-1:] in _UNITS:
        return int((time.time() - int(text[:-1]) * _UNITS[text[-1]]) * 1000)
    from datetime import UTC, datetime, timedelta

    day = {"today": 0, "yesterday": 1}.get(text)
    zone = UTC if utc else None
    try:
        written = str((datetime.now(zone) - timedelta(days=day)).date()) if day is not None else text
        begun = f"{written}-01" if re.fullmatch(r"\d{4}-\d\d", written) else written
        found = datetime.fromisoformat(begun)
        return int((found if found.tzinfo else found.replace(tzinfo=zone)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise UsageError(f"{text!r} is no time; write one of these: {TIMES}") from None


def _entry(library: Library, session: Session) -> dict[str, Any]:
    found = session_totals(library.store, session.id, library.report)
    home = library.store.locate(("session", session.project_id or GLOBAL, session.id))
    below = (session_totals(library.store, each, library.report).cost for each in library.descendants(session.id))
    costs = {"cost": float(found.cost), "inclusiveCost": float(sum(below, found.cost))}
    return session.document | {"store": home, "messages": found.messages, **costs}


def _print(library: Library, sessions: list[Session], *, utc: bool) -> None:
    if not sessions:
        return
    projects = {each.id: each for each in library.projects}
    rows = [
        (
            session.id,
            output.when(session.updated, utc=utc),
            str(len(library.store.list(("message", session.id)))),
            _project_name(session, projects),
            _marked(session),
        )
        for session in sessions
    ]
    output.table(("SESSION", "UPDATED", "MSGS", "PROJECT", "TITLE"), rows)


def _marked(session: Session) -> str:
    """The title, and what sets the session apart from the others."""
    marks = ("[archived]", session.archived), ("[shared]", bool(session.share and session.share.url))
    return " ".join([*(mark for mark, is_so in marks if is_so), session.title])


def _project_name(session: Session, projects: dict[str, Project]) -> str:
    project = projects.get(session.project_id)
    if project is None or is_global(project) or project.worktree == "/":
        return output.clip(os.path.basename(session.directory) or session.project_id, 20)
    return output.clip(project_title(project), 20)


def _tell(found: Overview, store: Store, options: Namespace) -> None:
    shown = len(found.sessions)
    others = found.children or found.archived or options.project or options.here or options.since or options.until
    if found.total == 0 and not others:
        print(f"There are no sessions in {store.place}.\n{ELSEWHERE}", file=sys.stderr)
        return
    if found.total == 0:
        told = "No sessions fit"
    elif shown < found.total:
        told = f"{shown} of {found.total:,} sessions; --limit 0 shows all"
    else:
        told = output.pluralize(found.total, "session")
    hidden = (found.children, "subagent session", "--children"), (found.archived, "archived session", "--archived")
    left = output.kinds(*hidden)
    print(f"{told}; left out: {left}." if left else f"{told}.", file=sys.stderr)
    if found.possible_matches:
        name = os.path.basename(os.getcwd()) if options.here else os.path.basename(options.project.rstrip("/\\"))
        hint = "" if name == options.project else f" 'opensesh list --project {shlex.quote(name)}' shows more of them."
        print(f"{found.possible_matches:,} more elsewhere may belong here, by folder or title.{hint}", file=sys.stderr)
