"""List projects and how many sessions each has; find one by name, worktree, folder or remote."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from ..errors import NotFoundError
from ..history.discovery import find_project_groups, is_global, project_groups
from ..history.library import Library
from ..storage.keys import GLOBAL
from . import output

if TYPE_CHECKING:
    from argparse import Namespace

    from ..history.discovery import ProjectGroup
    from .command_arguments import CommandParser


def configure(parser: CommandParser) -> None:
    """Declare the arguments."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="part of a name, worktree or folder; need not be exact")


def run(options: Namespace) -> int:
    """Print the matching projects, most recently used first; sessions without a project by folder."""
    library = Library(options.store)
    # The update times of the sessions of each project; of the global one, by folder.
    updates: dict[tuple[str, str], list[int]] = {}
    for _, session in library.records():
        folder = (session.directory or "/") if session.project_id == GLOBAL else ""
        updates.setdefault((session.project_id, folder), []).append(session.updated)
    projects = project_groups(library.projects, [folder for project_id, folder in updates if project_id == GLOBAL])
    if options.name:
        projects = find_project_groups(projects, options.name)
        if not projects:
            raise NotFoundError(f"no project resembles {options.name!r} in {library.store.place}")
    else:

        def last_used(project: ProjectGroup) -> int:
            recorded = project.project.time.updated or project.project.time.created
            return max(updates.get(_key(project), ()), default=recorded) if is_global(project.project) else recorded

        projects.sort(key=last_used, reverse=True)
    if options.json:
        entries: list[dict[str, Any]] = []
        for project in projects:
            times = updates.get(_key(project), [])
            more = {"sessions": len(times), "latest": max(times, default=None)}
            folder = {"worktree": project.folder, **more, "missing": not os.path.isdir(project.folder)}
            entries.append(project.project.document | folder)
        chosen = output.new_sessions_document(library.store)
        output.print_json({"total": len(entries), "newSessions": chosen, "projects": entries})
    elif projects:
        rows = [
            (
                output.clip(project.title, 24),
                f"{len(times := updates.get(_key(project), [])):,}",
                output.format_time(max(times), utc=options.utc) if times else "-",
                output.clip(project.project.id, 12),
                project.folder + ("" if os.path.isdir(project.folder) else " (missing)"),
            )
            for project in projects
        ]
        output.table(("PROJECT", "SESSIONS", "LAST USED", "ID", "WORKTREE"), rows, paths=True)
    else:
        print(f"No projects in {library.store.place}.", file=sys.stderr)
    if not options.json and not options.quiet:
        print(output.new_sessions_line(library.store), file=sys.stderr)
    output.report_damage(library.damage)
    return 0


def _key(project: ProjectGroup) -> tuple[str, str]:
    return project.project.id, project.folder if is_global(project.project) else ""
