"""List the sessions of all projects, newest first."""

from __future__ import annotations

import os
import shlex
import sys
from argparse import Namespace
from typing import Any

from ..history.discovery import current_project, session_project_name
from ..history.library import Library, Overview, SessionFilter
from ..history.user_times import TIMES, parse_time
from ..storage.keys import GLOBAL
from ..text import pluralize
from . import output
from .command_arguments import PROJECT, CommandParser, count

_SHORT_ID = 6
_WIDE = 110
"""The columns of a terminal that has space for whole ids beside the titles."""


def configure(parser: CommandParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--project", metavar="NAME", help=f"only sessions of this project: {PROJECT}")
    parser.add_argument("--here", action="store_true", help="only sessions of the project of the current directory")
    parser.add_argument("--children", action="store_true", help="include the sessions of subagents")
    parser.add_argument("--archived", action="store_true", help="include archived sessions")
    parser.add_argument("--since", metavar="T", help=f"updated at this time or later: {TIMES}")
    parser.add_argument("--until", metavar="T", help="updated before this time")
    parser.add_argument("--prompts", action="store_true", help="show the first and the last prompt of each session")
    parser.add_argument(
        "--limit", type=count, default=50, metavar="N", help="maximum number of sessions (default 50; 0 = all)"
    )


def run(options: Namespace) -> int:
    """Print the newest sessions that match, and how many there are."""
    library = Library(options.store)
    project = None
    if options.here:
        project = current_project(os.getcwd())
    elif options.project:
        project = library.resolve_project(options.project)
    since, until = (parse_time(text, utc=options.utc) for text in (options.since, options.until))
    overview = library.overview(SessionFilter(project, since, until, options.children, options.archived), options.limit)
    if options.json:
        entries: list[dict[str, Any]] = []
        for session in overview.sessions:
            own = library.totals(session.id)
            location = library.store.locate(("session", session.project_id or GLOBAL, session.id))
            children = (library.totals(child).cost for child in library.descendants(session.id))
            costs = {"cost": float(own.cost), "inclusiveCost": float(sum(children, own.cost))}
            entries.append(session.document | {"store": location, "messages": own.messages, **costs})
            if options.prompts:
                entries[-1] |= {"firstPrompt": library.prompt(own.first), "lastPrompt": library.prompt(own.last)}
        more = {"elsewhere": overview.possible_matches} if overview.possible_matches else {}
        output.print_json({"total": overview.total, "sessions": entries, **more})
    else:
        projects = {one.id: one for one in library.projects} if overview.sessions else {}
        rows: list[tuple[str, ...]] = []
        for session in overview.sessions:
            name = session_project_name(projects.get(session.project_id), session.project_id, session.directory)
            shared = library.is_shared(session)
            marks = [mark for mark, is_set in (("[archived]", session.archived), ("[shared]", shared)) if is_set]
            updated = output.format_time(session.updated, utc=options.utc)
            messages = str(len(library.store.list(("message", session.id))))
            title = " ".join([*marks, session.title])
            rows.append((session.id, updated, messages, output.clip(name, 20), title))
        if rows:
            notes = [_prompts(library, session.id) for session in overview.sessions] if options.prompts else ()
            with output.paged():
                output.table(("SESSION", "UPDATED", "MSGS", "PROJECT", "TITLE"), _short_ids(rows), notes=notes)
        _print_summary(overview, library, options)
    output.report_damage(library.damage)
    return 0


def _short_ids(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the rows with the ends of the ids, which name a session too, where the terminal has no space for both the
    ids and the titles."""
    ends = {row[0][-_SHORT_ID:] for row in rows}
    if not sys.stdout.isatty() or output.terminal_columns() >= _WIDE or len(ends) < len(rows):
        return rows
    return [(row[0][-_SHORT_ID:], *row[1:]) for row in rows]


def _prompts(library: Library, session_id: str) -> list[str]:
    """Return the first and the last prompt of a session, each in one line; one line if they are the same."""
    totals = library.totals(session_id)
    prompts = {totals.first: "first", totals.last: "last"} if totals.first != totals.last else {totals.first: "only"}
    return [f"{name:<5}  {' '.join(library.prompt(prompt).split())}" for prompt, name in prompts.items() if prompt]


def _print_summary(overview: Overview, library: Library, options: Namespace) -> None:
    filtered = options.project or options.here or options.since or options.until
    if overview.total == 0 and not (filtered or overview.children or overview.archived):
        print(f"There are no sessions in {library.store.place}.\n{output.NO_SESSIONS_HINT}", file=sys.stderr)
        return
    shown = len(overview.sessions)
    if overview.total == 0:
        summary = "No sessions match"
    elif shown < overview.total:
        summary = f"{shown} of {overview.total:,} sessions; --limit 0 shows all"
    else:
        summary = pluralize(overview.total, "session")
    hidden = output.format_counts(
        (overview.children, "subagent session", "--children"), (overview.archived, "archived session", "--archived")
    )
    print(f"{summary}; not shown: {hidden}." if hidden else f"{summary}.", file=sys.stderr)
    if overview.possible_matches:
        name = os.path.basename(os.getcwd()) if options.here else os.path.basename(options.project.rstrip("/\\"))
        hint = "" if name == options.project else f" 'opensesh list --project {shlex.quote(name)}' shows more of them."
        print(
            f"{overview.possible_matches:,} more may belong to this project, by folder or title.{hint}", file=sys.stderr
        )
