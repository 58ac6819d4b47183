"""Filing sessions under another folder: the folder was moved or renamed, or they were begun in the wrong one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ...project import register, resolve
from ...records import codec, dumps
from ...storage.json_tree import read_file
from .trash import Bulk, free, records, with_children, writable_tree
from .undo import Change, perform

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...project import Place
    from ...records import Session
    from ...storage.json_tree import JsonTree
    from ...storage.store import Store


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
    filed = records(tree)
    chosen, left = free(tree, wanted, filed)
    changes: list[Change] = []
    moved: list[Session] = []
    for session in chosen:
        made = list(_changes(tree, filed[session.id], places[_below(folder, session.directory, base)]))
        moved += [session] if made else []
        changes += made
    size = sum(len(change.data or b"") for change in changes)
    if dry_run:
        return Bulk(moved, len(moved), size, left)
    about = {"sessions": {each.id: each.title for each in moved}}
    return Bulk(moved, len(moved), size, left, perform(tree, "move", changes, about))


def _changes(tree: JsonTree, path: str, place: Place) -> Iterator[Change]:
    before = codec.loads_object(read_file(os.path.join(tree.root, path)), path)
    after = before | {"projectID": place.id, "directory": place.directory}
    if after == before:
        return
    there = os.path.join("session", place.id, os.path.basename(path))
    yield Change(path=there, data=dumps(after))
    if there != path:
        yield Change(path=path, aside=True)


def _below(folder: str, directory: str, base: str) -> str:
    if base and directory.startswith(os.path.join(base, "")):
        same = os.path.join(folder, os.path.relpath(directory, base))
        return same if os.path.isdir(same) else folder
    return folder
