"""Sessions of every project, newest first."""

from __future__ import annotations

import heapq
import os
import time
from typing import TYPE_CHECKING, Any

from ..errors import NotFound, RecordError, UsageError
from ..records import Project, Session, as_object, view
from ..storage import open_store
from ..storage.store import Damage, Store
from . import output
from .choose import find_projects, project_title, read_sessions

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from .app import Parser

_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.add_argument("--project", metavar="NAME", help="only of this project: name, folder or id, roughly")
    parser.add_argument("--here", action="store_true", help="only of the project of this directory")
    parser.add_argument("--children", action="store_true", help="subagents' sessions too")
    parser.add_argument("--archived", action="store_true", help="archived sessions too")
    parser.add_argument("--since", metavar="T", help="updated since: 2026-08-01, 2026-08-01T12:00, 90m, 12h, 3d, 2w")
    parser.add_argument("--until", metavar="T", help="updated before")
    parser.add_argument("--limit", type=int, default=50, metavar="N", help="how many at the most; 0 for all (50)")


def run(options: Namespace) -> int:
    """Print the newest sessions that fit, and say how many there are."""
    store = open_store(options.store)
    damage: list[Damage] = []
    projects = {each.id: each for each in read_projects(store, damage)}
    fits = _filter(options, projects)
    total = 0

    def counted(session: Session) -> bool:
        nonlocal total
        total += 1
        return True

    found = (each for each in read_sessions(store, damage) if fits(each) and counted(each))
    shown = sorted(found, key=_newest) if options.limit <= 0 else heapq.nsmallest(options.limit, found, key=_newest)
    if options.json:
        output.print_json({"total": total, "sessions": [_entry(store, each, damage) for each in shown]})
    else:
        _print(store, shown, projects, utc=options.utc)
        _tell(len(shown), total, store)
    output.tell_damage(damage)
    return 0


def read_projects(store: Store, damage: list[Damage]) -> list[Project]:
    """Every project record that can be read."""
    found: list[Project] = []
    for key, record in store.scan(("project",), report=damage.append):
        try:
            found.append(view(record, Project))
        except RecordError as error:
            damage.append(Damage(store.locate(key), f"{error.place}: {error.reason}"))
    return found


def moment(text: str) -> int:
    """Milliseconds of a date, a date and time (local unless it says otherwise), or so long ago."""
    if text[:-1].isdigit() and text[-1:] in _UNITS:
        return int((time.time() - int(text[:-1]) * _UNITS[text[-1]]) * 1000)
    from datetime import datetime

    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise UsageError(f"{text!r} is no time; write 2026-08-01, 2026-08-01T12:00, 90m, 12h, 3d or 2w") from None


def _newest(session: Session) -> tuple[int, str]:
    return -session.updated, session.id


def _filter(options: Namespace, projects: dict[str, Project]) -> Callable[[Session], bool]:
    since = moment(options.since) if options.since else 0
    until = moment(options.until) if options.until else None
    wanted = _wanted_projects(options, projects)

    def fits(session: Session) -> bool:
        return (
            (options.children or session.parent_id is None)
            and (options.archived or not session.archived)
            and session.updated >= since
            and (until is None or session.updated < until)
            and (wanted is None or session.project_id in wanted or session.directory in wanted)
        )

    return fits


def _wanted_projects(options: Namespace, projects: dict[str, Project]) -> set[str] | None:
    """Project ids to keep, or directories for what is filed under ``global``; ``None`` keeps all."""
    if options.here:
        from ..project import GLOBAL, other_ids, resolve

        place = resolve(os.getcwd())
        return {place.directory} if place.id == GLOBAL else {place.id, *other_ids(place)}
    if not options.project:
        return None
    found = find_projects(projects.values(), options.project)
    if not found:
        raise NotFound(f"no project resembles {options.project!r}. 'opensesh projects' shows them.")
    return {each.id for each in found}


def _entry(store: Store, session: Session, damage: list[Damage]) -> dict[str, Any]:
    costs = [info.get("cost") for info in _messages(store, session.id, damage)]
    cost = sum(each for each in costs if isinstance(each, (int, float)))
    home = store.locate(("session", session.project_id or "global", session.id))
    return session.document | {"store": home, "messages": len(costs), "cost": cost}


def _messages(store: Store, session_id: str, damage: list[Damage]) -> list[dict[str, Any]]:
    found = (as_object(info) for _, info in store.scan(("message", session_id), report=damage.append))
    return [info for info in found if info is not None]


def _print(store: Store, sessions: list[Session], projects: dict[str, Project], *, utc: bool) -> None:
    if not sessions:
        return
    rows = [
        (
            session.id,
            output.when(session.updated, utc=utc),
            str(len(store.list(("message", session.id)))),
            _project_name(session, projects),
            session.title,
        )
        for session in sessions
    ]
    output.table(("SESSION", "UPDATED", "MSGS", "PROJECT", "TITLE"), rows)


def _project_name(session: Session, projects: dict[str, Project]) -> str:
    project = projects.get(session.project_id)
    if project is None or project.worktree == "/":
        return output.clip(os.path.basename(session.directory) or session.project_id, 20)
    return output.clip(project_title(project), 20)


def _tell(shown: int, total: int, store: Store) -> None:
    import sys

    if total == 0:
        print(f"No sessions fit in {store.place}.", file=sys.stderr)
    elif shown < total:
        print(f"{shown} of {total:,} sessions; --limit 0 shows all.", file=sys.stderr)
    else:
        print(f"{total:,} {'session' if total == 1 else 'sessions'}.", file=sys.stderr)
