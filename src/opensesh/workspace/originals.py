"""Copies of files that tools overwrite, so that a revert does not need git; and a watch on files that commands change.

Before a tool changes a file, its content is kept below our state folder under the id that git would give it. The tool
call records the file's name and both ids. These records move with the session; the contents stay on this machine. A
content is stored once, however many calls refer to it.
"""

from __future__ import annotations

import logging
import os
import re
import time
import zlib
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import OpenseshError
from ..records import EXTENSION_KEY, as_list, as_object, object_at
from ..storage.disk import Disk, read_file
from ..storage.session_state import searched_folders, store_folders
from .files import ABSENT, EXECUTABLE, FILE, LINK, FileState, blob_id, file_state, read_file_or_link

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from ..records import Document
    from ..storage.protocol import Store

    Stat = tuple[int, ...]

log = logging.getLogger("opensesh.workspace")
MAX_FILE_BYTES = 64 << 20
"""A larger file is not kept; a revert then reports it as lost."""
_DAY_SECONDS = 86_400
_SPELLED_STATE = re.compile(r"(100644|100755|120000|) ?([0-9a-f]{40})")


class FileWrite(NamedTuple):
    """A file that a tool call changed. ``None`` is an unknown state."""

    file: str
    """The absolute path."""
    before: FileState | None
    after: FileState | None

    @property
    def document(self) -> Document:
        """As it is stored in the metadata of a tool call."""
        return {"file": self.file, "before": _spelled(self.before), "after": _spelled(self.after)}


def recorded_writes(part: Document) -> list[FileWrite] | None:
    """Return the files that a tool call recorded as changed; ``None`` if it recorded nothing."""
    listed = as_list(object_at(part, "state", "metadata", EXTENSION_KEY).get("writes"))
    if listed is None:
        return None
    entries = [entry for entry in map(as_object, listed) if entry is not None and isinstance(entry.get("file"), str)]
    return [FileWrite(entry["file"], _state(entry.get("before")), _state(entry.get("after"))) for entry in entries]


class Originals:
    """Kept contents of the sessions of one store. Safe for several threads and processes: a content is written
    atomically and never changes."""

    def __init__(self, store: Store, *, max_file_bytes: int = MAX_FILE_BYTES) -> None:
        self._own = store_folders("kept", store)
        self._searched = searched_folders("kept", store)
        self.folder = self._own[0]
        """Where new contents go."""
        self.max_file_bytes = max_file_bytes
        # Not synced: the file that is about to be overwritten is not either.
        self._disk = Disk(durable=False)

    def put(self, path: str) -> FileState | None:
        """Keep the content of ``path``. Returns its state, or ``None`` if it could not be kept."""
        try:
            if os.path.lexists(path) and os.lstat(path).st_size > self.max_file_bytes:
                return None
            state = file_state(path)
            if state.obstacle or not state.oid:
                return state if not state.oid else None
            data = read_file_or_link(path)
            if blob_id(data) != state.oid:
                return None  # changed meanwhile
            file = os.path.join(self.folder, _name(state.oid))
            try:
                os.utime(file)  # in use again, so it counts as new
            except FileNotFoundError:
                self._disk.replace(file, zlib.compress(data, 1))
        except (OSError, OpenseshError) as error:
            log.warning("%s is overwritten without a copy: %s", path, error)
            return None
        return state

    def has(self, oid: str) -> bool:
        """Return whether a content is kept."""
        return any(os.path.exists(os.path.join(folder, _name(oid))) for folder in self._searched)

    def content(self, oid: str) -> bytes | None:
        """Return a content, unless it is missing or damaged."""
        for folder in self._searched:
            try:
                data = zlib.decompress(read_file(os.path.join(folder, _name(oid))))
            except (OSError, zlib.error):
                continue
            if blob_id(data) == oid:
                return data
        return None

    def size(self) -> int:
        """Return the total size in bytes."""
        return sum(info.st_size for _, info in self._files())

    def drop(self, referenced: Collection[str], *, days: int) -> int:
        """Delete contents older than ``days`` that are not ``referenced``; returns the bytes freed."""
        oldest = time.time() - days * _DAY_SECONDS
        freed = 0
        for path, info in self._files():
            folder, name = os.path.split(path)
            if info.st_mtime < oldest and os.path.basename(folder) + name not in referenced:
                self._disk.remove(path)
                freed += info.st_size
        return freed

    def _files(self) -> Iterator[tuple[str, os.stat_result]]:
        for folder, _, names in chain.from_iterable(map(os.walk, self._own)):
            for name in names:
                if not name.startswith("."):
                    path = os.path.join(folder, name)
                    yield path, os.stat(path)


def _name(oid: str) -> str:
    return os.path.join(oid[:2], oid[2:])


def contents_in(parts: Iterable[Document]) -> set[str]:
    """Return the ids of all contents that tool calls recorded as overwritten."""
    oids: set[str] = set()
    for part in parts:
        oids.update(write.before.oid for write in recorded_writes(part) or () if write.before is not None)
    return oids - {""}


def _spelled(state: FileState | None) -> str | None:
    return None if state is None else f"{state.mode} {state.oid}".strip()


def _state(spelled: Any) -> FileState | None:
    if spelled == "":
        return ABSENT
    match = _SPELLED_STATE.fullmatch(spelled) if isinstance(spelled, str) else None
    return FileState(match[2], match[1]) if match is not None and match[1] in ("", FILE, EXECUTABLE, LINK) else None


MAX_WATCHED_FILES = 20_000
_MAX_LISTING_SECONDS = 0.5
"""A folder that takes longer to list, or has more files, is not watched."""
_MAX_HASHED_BYTES = 8 << 20
_MAX_CHANGED_FILES = 500


def file_stats(
    root: str, *, max_files: int = MAX_WATCHED_FILES, max_seconds: float = _MAX_LISTING_SECONDS
) -> Mapping[str, Stat] | None:
    """Return time, size, inode and mode of all files below ``root``; ``None`` if there are too many."""
    stats: dict[str, Stat] = {}
    deadline = time.monotonic() + max_seconds
    folders = [root]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name != ".git":
                            folders.append(entry.path)
                    else:
                        stats[entry.path] = _stat(entry)
        except OSError:
            continue  # deleted meanwhile, or not readable
        if len(stats) > max_files or time.monotonic() > deadline:
            return None
    return stats


def changed_since(
    root: str, before: Mapping[str, Stat] | None, *, max_files: int = MAX_WATCHED_FILES
) -> list[FileWrite] | None:
    """Return the files below ``root`` that changed; ``None`` if that is unknown.

    Their content before is unknown, because only their stats were recorded.
    """
    after = file_stats(root, max_files=max_files) if before is not None else None
    if before is None or after is None:
        return None
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    if len(changed) > _MAX_CHANGED_FILES:
        return None
    writes: list[FileWrite] = []
    for path in changed:
        # The stat of a file is its time, its size and so on; empty if it could not be read.
        size = (after.get(path) or (0, 0))[1]
        state = file_state(path) if size <= _MAX_HASHED_BYTES else None
        writes.append(FileWrite(path, None, state if state is None or not state.obstacle else None))
    return writes


def _stat(entry: os.DirEntry[str]) -> Stat:
    try:
        info = entry.stat(follow_symlinks=False)
    except OSError:
        return ()
    return info.st_mtime_ns, info.st_size, info.st_ino, info.st_mode
