"""Projects, found by fuzzy name, worktree, folder or remote, with how many sessions each has."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from ..errors import NotFoundError
from ..history.library import Library
from ..storage.keys import GLOBAL
from . import output
from .choose import find_project_groups, is_global, project_groups

if TYPE_CHECKING:
    from argparse import Namespace

    from ..history.discovery import ProjectGroup
    from .arguments import Parser


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="part of a name, worktree or folder; need not be exact")


def run(options: Namespace) -> int:
    """Print the projects that fit, most recently used first; folders outside of one each by themselves."""
    library = Library(options.store)
    used = _used(library)
    found = project_groups(library.projects, [folder for name, folder in used if name == GLOBAL])
    if options.name:
        found = find_project_groups(found, options.name)
        if not found:
            raise NotFoundError(f"no project resembles {options.name!r} in {library.store.place}")
    else:
        found.sort(key=lambda each: -_last_used(each, used))
    if options.json:
        entries = [_entry(each, used.get(_key(each), [])) for each in found]
        output.print_json({"total": len(entries), "projects": entries})
    elif found:
        rows = [_row(each, used.get(_key(each), []), utc=options.utc) for each in found]
        output.table(("PROJECT", "SESSIONS", "LAST USED", "ID", "WORKTREE"), rows, paths=True)
    else:
        print(f"No projects in {library.store.place}.", file=sys.stderr)
    output.tell_damage(library.damage)
    return 0


def _used(library: Library) -> dict[tuple[str, str], list[int]]:
    """When the sessions of each project were last updated; of ``global``, those of each folder."""
    used: dict[tuple[str, str], list[int]] = {}
    for _, session in library.records():
        folder = (session.directory or "/") if session.project_id == GLOBAL else ""
        used.setdefault((session.project_id, folder), []).append(session.updated)
    return used


def _key(place: ProjectGroup) -> tuple[str, str]:
    return place.project.id, place.folder if is_global(place.project) else ""


def _last_used(place: ProjectGroup, used: dict[tuple[str, str], list[int]]) -> int:
    times = place.project.time
    if is_global(place.project):
        return max(used.get(_key(place), ()), default=times.updated or times.created)
    return times.updated or times.created


def _entry(place: ProjectGroup, moments: list[int]) -> dict[str, Any]:
    more = {"sessions": len(moments), "latest": max(moments, default=None), "missing": _is_gone(place)}
    return place.project.document | {"worktree": place.folder} | more


def _row(place: ProjectGroup, moments: list[int], *, utc: bool) -> tuple[str, ...]:
    return (
        output.clip(place.title, 24),
        f"{len(moments):,}",
        output.when(max(moments), utc=utc) if moments else "-",
        output.clip(place.project.id, 12),
        place.folder + (" (gone)" if _is_gone(place) else ""),
    )


def _is_gone(place: ProjectGroup) -> bool:
    """Whether its folder was moved, renamed or removed since."""
    return not os.path.isdir(place.folder)
