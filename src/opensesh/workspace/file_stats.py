"""What a command changed where there are no snapshots: told from the times and sizes of all files before and after."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from .originals import Write
from .states import look

if TYPE_CHECKING:
    from collections.abc import Mapping

    Stat = tuple[int, ...]

MOST_FILES = 20_000
LONGEST = 0.5
"""Seconds. A folder that takes longer to look at, or has more files, is not looked at for the sake of a command."""
_LARGEST = 8 << 20
_MOST_CHANGED = 500


def file_stats(root: str) -> Mapping[str, Stat] | None:
    """The files below ``root`` and what shows that one has changed; ``None`` if they are too many."""
    found: dict[str, Stat] = {}
    deadline = time.monotonic() + LONGEST
    folders = [root]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name != ".git":
                            folders.append(entry.path)
                    else:
                        found[entry.path] = _stat(entry)
        except OSError:
            continue  # gone by now, or not ours to read
        if len(found) > MOST_FILES or time.monotonic() > deadline:
            return None
    return found


def changed_since(root: str, before: Mapping[str, Stat] | None) -> list[Write] | None:
    """The files below ``root`` that are not as they were; ``None`` if that cannot be told.

    What they held before is known of none, for nobody looked into them.
    """
    after = file_stats(root) if before is not None else None
    if before is None or after is None:
        return None
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    return [_write(path) for path in changed] if len(changed) <= _MOST_CHANGED else None


def _write(path: str) -> Write:
    try:
        small = os.lstat(path).st_size <= _LARGEST
    except OSError:
        small = True
    state = look(path) if small else None
    return Write(path, None, state if state is None or not state.obstacle else None)


def _stat(entry: os.DirEntry[str]) -> Stat:
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode
