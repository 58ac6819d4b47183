"""Filing sessions under another folder: the folder was moved or renamed, or they were begun in the wrong one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..project import register, resolve
from ..records import as_object, as_whole, codec, dumps
from ..storage.json_tree.store import read_file
from ..storage.json_tree.undo import Change
from .trash import Bulk, change_records, free, record_paths, with_children, writable_tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..project import ProjectLocation
    from ..records import Session
    from ..storage.json_tree import JsonTree
    from ..storage.protocol import Store


def move(store: Store, sessions: Sequence[Session], folder: str, *, base: str = "", dry_run: bool = False) -> Bulk:
    """File sessions, and all below them, under ``folder`` and the project it belongs to.

    With ``base``, the folder that became ``folder``, a session that worked below it is filed under the same folder
    below the new one, if there is one. What was said and done keeps the paths it had.
    """
    tree = writable_tree(store)
    wanted = with_children(store, sessions)
    places = {where: resolve(where) for where in {_below(folder, each.directory, base) for each in wanted}}
    if not dry_run:
        for place in places.values():
            register(tree, place)  # before anything is looked for: it takes in what was begun before the first commit
    filed = record_paths(tree)
    chosen, left = free(tree, wanted, filed)
    changes: list[Change] = []
    moved: list[Session] = []
    for session in chosen:
        made = list(_changes(tree, filed[session.id], places[_below(folder, session.directory, base)]))
        moved += [session] if made else []
        changes += made
    return change_records(tree, "move", moved, left, changes, dry_run=dry_run)


def _changes(tree: JsonTree, paths: Sequence[str], place: ProjectLocation) -> Iterator[Change]:
    """What files the newest of a session's records where it belongs, and puts the others aside."""
    copies = {path: codec.loads_object(read_file(os.path.join(tree.root, path)), path) for path in paths}
    path = max(paths, key=lambda each: as_whole((as_object(copies[each].get("time")) or {}).get("updated")))
    yield from (Change(path=each, aside=True) for each in paths if each != path)
    after = copies[path] | {"projectID": place.id, "directory": place.directory}
    there = os.path.join("session", place.id, os.path.basename(path))
    if after != copies[path] or there != path:
        yield Change(path=path, data=dumps(after), to=there if there != path else "")


def _below(folder: str, directory: str, base: str) -> str:
    if base and directory.startswith(os.path.join(base, "")):
        same = os.path.join(folder, os.path.relpath(directory, base))
        return same if os.path.isdir(same) else folder
    return folder
