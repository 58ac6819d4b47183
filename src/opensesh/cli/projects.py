"""Projects, found by fuzzy name, worktree, folder or remote, with how many sessions each has."""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import TYPE_CHECKING

from ..errors import NotFound
from ..history.library import Library
from . import output
from .choose import find_projects, project_title

if TYPE_CHECKING:
    from argparse import Namespace

    from ..records import Project
    from .arguments import Parser


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="part of a name, worktree or folder; need not be exact")


def run(options: Namespace) -> int:
    """Print the projects that fit, most recently used first."""
    library = Library(options.store)
    found = library.projects
    if options.name:
        found = find_projects(found, options.name)
        if not found:
            raise NotFound(f"no project resembles {options.name!r} in {library.store.place}")
    else:
        found.sort(key=lambda each: -(each.time.updated or each.time.created))
    sessions: Counter[str] = Counter()
    latest: dict[str, int] = {}
    for _, session in library.records():
        sessions[session.project_id] += 1
        latest[session.project_id] = max(latest.get(session.project_id, 0), session.updated)
    if options.json:
        entries = [
            each.document | {"sessions": sessions[each.id], "latest": latest.get(each.id), "missing": _is_gone(each)}
            for each in found
        ]
        output.print_json({"total": len(entries), "projects": entries})
    elif found:
        rows = [
            (
                output.clip(project_title(each), 24),
                f"{sessions[each.id]:,}",
                output.when(latest[each.id], utc=options.utc) if each.id in latest else "-",
                output.clip(each.id, 12),
                each.worktree + (" (gone)" if _is_gone(each) else ""),
            )
            for each in found
        ]
        output.table(("PROJECT", "SESSIONS", "LAST USED", "ID", "WORKTREE"), rows)
    else:
        print(f"No projects in {library.store.place}.", file=sys.stderr)
    output.tell_damage(library.damage)
    return 0


def _is_gone(project: Project) -> bool:
    """Whether its folder was moved, renamed or removed since."""
    return not os.path.isdir(project.worktree)
