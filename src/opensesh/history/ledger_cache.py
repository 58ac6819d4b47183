"""Files in the cache, and the marks by which what they hold is known to be up to date."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ..errors import WriteFailed
from ..storage import paths
from ..storage.disk import Disk
from ..storage.json_tree import read_file, tree_name
from ..storage.keys import is_plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..storage.store import Store

    Marks = list[tuple[str, int, int]]

T = TypeVar("T")
_JUST_NOW_NS = 2_000_000_000


def cache_file(kind: str, store: Store) -> str:
    """Where what is derived from a store is kept."""
    return os.path.join(paths.cache(), kind, f"{tree_name(store.place)}.msgpack")


def load(path: str, kind: type[T]) -> T | None:
    """What is kept there; ``None`` if that is nothing, damaged, or from another version."""
    if not path:
        return None
    try:
        return msgspec.msgpack.decode(read_file(path), type=kind)
    except (OSError, msgspec.MsgspecError, UnicodeError):
        return None


def keep(path: str, value: Any) -> None:
    """Keep it for the next time. A cache that cannot be written is no reason to fail."""
    if not path:
        return
    try:
        Disk(durable=False).replace(path, msgspec.msgpack.encode(value))
    except WriteFailed:
        return


def folders(folder: str) -> list[tuple[str, int]]:
    """The folders in a folder that are named like parts of keys, each with its time of change in nanoseconds."""
    try:
        with os.scandir(folder) as found:
            return [(each.name, each.stat().st_mtime_ns) for each in found if is_plain(each.name) and each.is_dir()]
    except OSError:
        return []


def session_files(folder: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """The records of sessions, each with the project it is filed under."""
    for project, _ in folders(folder):
        try:
            with os.scandir(os.path.join(folder, project)) as found:
                yield from ((project, each) for each in found if _is_record(each.name))
        except OSError:
            continue


def records(folder: str) -> Iterable[str]:
    """The files in a folder that are named like records."""
    try:
        names = os.listdir(folder)
    except OSError:
        return ()
    return [name for name in names if _is_record(name)]


def _is_record(name: str) -> bool:
    """Whether a file is named like a record; the copies that people and programs make are not."""
    return name.endswith(".json") and is_plain(name[:-5])


def mark(path: str) -> tuple[int, int]:
    """Time of change in nanoseconds, and size; zeros for what is not there."""
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def settled(changed: int) -> int:
    """A time of change that can be relied on: not one that a change right now would leave as it is."""
    return changed if time.time_ns() - changed > _JUST_NOW_NS else 0


def database_marks(place: str) -> Marks:
    """Marks of a database's files; none if it is no file, or has changed just now."""
    if not os.path.isfile(place):
        return []
    marks = [(path, *mark(path)) for path in (place, f"{place}-wal")]
    # Whoever reads may leave an empty one behind.
    marks = [(path, changed if size else 0, size) for path, changed, size in marks]
    return marks if all(settled(changed) or not changed for _, changed, _ in marks) else []
