"""Journals of changes to several files of a tree: what a process that was killed had begun is completed.

All new contents are in temporary files before the first file changes, so a journal is a list of renames and removals.
Completing them skips a file that has been changed since: then another program has gone on from it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import DecodeError, Struct, json

from ...errors import OpenseshError
from .. import unfinished
from ..disk import Disk
from ..protocol import FileTree, member_stores

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager

    from ..protocol import Store

_KIND = "batch"


class _FileChange(Struct, array_like=True):
    path: str
    """Relative to the root of the tree, as the temporary file is."""
    temporary: str | None
    """The file that replaces it; ``None`` to remove it."""
    before: tuple[int, int] | None
    """Modification time and size; ``None`` if there was no file."""


class _Journal(Struct):
    root: bytes
    """As bytes, because a path need not be UTF-8."""
    changes: list[_FileChange]


def journaled(
    root: str, changes: Iterable[tuple[str, str | None]], *, durable: bool
) -> AbstractContextManager[unfinished.Note]:
    """Keep a journal while the block renames temporary files to their paths, or removes those without one, in order."""
    listed = [
        _FileChange(os.path.relpath(path, root), temporary and os.path.relpath(temporary, root), _state(path))
        for path, temporary in changes
    ]
    return unfinished.noted(_KIND, json.encode(_Journal(os.fsencode(os.path.abspath(root)), listed)), durable=durable)


def complete_journals(store: Store) -> int:
    """Complete the changes to the trees of a store that processes which ended had begun; return how many files."""
    trees = {os.path.realpath(tree.root): tree for tree in member_stores(store) if isinstance(tree, FileTree)}
    disk = Disk()
    completed = 0
    for note, content in unfinished.abandoned(_KIND):
        try:
            journal = json.decode(content, type=_Journal)
        except DecodeError:
            unfinished.forget(note)  # not ours
            continue
        root = os.fsdecode(journal.root)
        tree = trees.get(os.path.realpath(root))
        if tree is None:
            continue
        with tree.locks.hold():
            completed += sum(_complete(root, change, disk) for change in journal.changes)
        unfinished.forget(note)
    return completed


def _complete(root: str, change: _FileChange, disk: Disk) -> bool:
    path = os.path.join(root, change.path)
    temporary = os.path.join(root, change.temporary) if change.temporary is not None else None
    if temporary is not None and not os.path.exists(temporary):
        return False  # it was renamed
    is_unchanged = _state(path) == change.before
    try:
        if not is_unchanged:
            if temporary is not None:
                disk.discard(temporary)
        elif temporary is not None:
            disk.move_into_place(temporary, path)
            disk.sync_name(path)
        elif change.before is not None:
            disk.remove(path)
            disk.remove_empty(os.path.dirname(path))
    except OpenseshError:
        return False  # refused by the system, as it may have been for the process that ended; doctor reports the rest
    return is_unchanged


def _state(path: str) -> tuple[int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
