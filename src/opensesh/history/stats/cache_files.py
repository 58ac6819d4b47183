"""Files in the cache, and the marks by which what they hold is known to be up to date.

What is kept are plain tuples, lists and numbers in Python's own form, which takes no import and no time to read. It is
derived and disposable, and kept a version of Python apart.
"""

from __future__ import annotations

import marshal
import os
import sys
import time
import zlib
from functools import partial, reduce

from ...errors import WriteError
from ...storage import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    Mark = tuple[str, int, int]

JUST_NOW_NS = 2_000_000_000
_MAGIC = b"opensesh\1"
_HEAD = len(_MAGIC) + 4
_PIECE = 1 << 16


def cache_file(kind: str, place: str) -> str:
    """Where what is derived from a store is kept."""
    number = zlib.crc32(os.fsencode(os.path.realpath(place)))
    return os.path.join(paths.cache(), kind, f"{number:08x}.{sys.implementation.cache_tag}")


def load(path: str, place: str) -> Any:
    """What was kept of a store; ``None`` if that is nothing, damaged, or of another store."""
    if not path:
        return None
    try:
        with open(path, "rb") as file:
            # Twice through the file in small pieces: its bytes and what they become would be twice the memory.
            if file.read(_HEAD) != _head(iter(partial(file.read, _PIECE), b"")):
                return None
            file.seek(_HEAD)
            whose, value = marshal.load(file)  # noqa: S302 - our own, and whole, for its sum is right
    except (OSError, ValueError, EOFError, TypeError):
        return None
    return value if whose == os.path.realpath(place) else None


def save(path: str, place: str, value: Any) -> None:
    """Keep it for the next time. A cache that cannot be written is no reason to fail."""
    from ...storage.disk import Disk

    if not path:
        return
    data = marshal.dumps((os.path.realpath(place), value))
    try:
        Disk(durable=False).replace(path, (_head((data,)), data))
    except WriteError:
        return


def _head(pieces: Iterable[bytes]) -> bytes:
    return _MAGIC + reduce(lambda so_far, piece: zlib.crc32(piece, so_far), pieces, 0).to_bytes(4, "big")


def mark(path: str) -> tuple[int, int]:
    """Time of change in nanoseconds, and size; zeros for what is not there."""
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def settled(changed: int) -> int:
    """A time of change that can be relied on: not one that a change right now would leave as it is."""
    return changed if time.time_ns() - changed > JUST_NOW_NS else 0


def database_marks(place: str) -> list[Mark]:
    """Marks of a database's files; none if it is no file, or has changed just now."""
    if not os.path.isfile(place):
        return []
    marks = [(path, *mark(path)) for path in (place, f"{place}-wal")]
    # Whoever reads may leave an empty one behind.
    marks = [(path, changed if size else 0, size) for path, changed, size in marks]
    return marks if all(settled(changed) or not changed for _, changed, _ in marks) else []
