"""List projects and how many sessions each has; find one by name, worktree, folder or remote."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from typing import Any

from ..errors import NotFoundError
from ..history.library import Library
from . import output
from .command_arguments import CommandParser


def configure(parser: CommandParser) -> None:
    """Declare the arguments."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="part of a name, worktree or folder; need not be exact")


def run(options: Namespace) -> int:
    """Print the matching projects, most recently used first; sessions without a project by folder."""
    library = Library(options.store)
    uses = library.project_uses(options.name or "")
    if options.name and not uses:
        raise NotFoundError(f"no project resembles {options.name!r} in {library.store.place}")
    if options.json:
        entries: list[dict[str, Any]] = []
        for group, sessions, latest in uses:
            use = {"worktree": group.folder, "sessions": sessions, "latest": latest}
            entries.append(group.project.document | use | {"missing": not os.path.isdir(group.folder)})
        chosen = output.new_sessions_document(library.store)
        output.print_json({"total": len(entries), "newSessions": chosen, "projects": entries})
    elif uses:
        rows = [
            (
                output.clip(group.title, 24),
                f"{sessions:,}",
                output.format_time(latest, utc=options.utc) if latest is not None else "-",
                output.clip(group.project.id, 12),
                group.folder + ("" if os.path.isdir(group.folder) else " (missing)"),
            )
            for group, sessions, latest in uses
        ]
        output.table(("PROJECT", "SESSIONS", "LAST USED", "ID", "WORKTREE"), rows, paths=True)
    else:
        print(f"No projects in {library.store.place}.", file=sys.stderr)
    if not options.json and not options.quiet:
        print(output.new_sessions_line(library.store), file=sys.stderr)
    output.report_damage(library.damage)
    return 0
