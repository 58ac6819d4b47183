"""What tools wrote over, kept byte for byte: so that going back needs no version control.

Before a tool changes a file, what the file holds is put aside below our state folder, under the name that git would
give it. The tool's own record then says which file, what it held and what it holds; those few words travel with the
session, the contents stay on this machine. A content is stored once, however many calls name it.
"""

from __future__ import annotations

import logging
import os
import re
import time
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import OpenseshError
from ..records import EXTENSION_KEY, as_list, as_object
from ..storage import paths
from ..storage.disk import Disk, read_file
from ..storage.paths import digest
from .files import ABSENT, FILE, LINK, PROGRAM, FileState, blob_id, file_state, read_file_or_link

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from ..records import Document
    from ..storage.protocol import Store

    Stat = tuple[int, ...]

log = logging.getLogger("opensesh.workspace")
MAX_FILE_BYTES = 64 << 20
"""A larger file is not kept; a revert then reports it as lost."""
_DAY = 86_400
_KEPT = re.compile(r"(100644|100755|120000|) ?([0-9a-f]{40})")


class FileWrite(NamedTuple):
    """One file that a call changed. ``None`` is what nobody knows."""

    file: str
    """By absolute path."""
    before: FileState | None
    after: FileState | None

    @property
    def document(self) -> Document:
        """As a tool's metadata has it."""
        return {"file": self.file, "before": _spelled(self.before), "after": _spelled(self.after)}


def recorded_writes(metadata: Document) -> list[FileWrite] | None:
    """The files that a call changed, by its own account; ``None`` if it gave none."""
    own = as_object(metadata.get(EXTENSION_KEY)) or {}
    listed = as_list(own.get("writes"))
    if listed is None:
        return None
    found = [each for each in map(as_object, listed) if each is not None and isinstance(each.get("file"), str)]
    return [FileWrite(each["file"], _state(each.get("before")), _state(each.get("after"))) for each in found]


class Originals:
    """The contents that were put aside for the sessions of one store. Safe to use from several threads and processes:
    a content is written whole or not at all, and never changes."""

    def __init__(self, store: Store, *, state: str | None = None, max_file_bytes: int = MAX_FILE_BYTES) -> None:
        self.folder = os.path.join(state or paths.state(), "kept", digest(store.id))
        self.max_file_bytes = max_file_bytes
        # The file that is about to be written over is not on the disk for good either.
        self._disk = Disk(durable=False)

    def put(self, path: str) -> FileState | None:
        """Put aside what is at ``path``; its state, or ``None`` if it could not be kept."""
        try:
            if os.path.lexists(path) and os.lstat(path).st_size > self.max_file_bytes:
                return None
            found = file_state(path)
            if found.obstacle or not found.oid:
                return found if not found.oid else None
            data = read_file_or_link(path)
            if blob_id(data) != found.oid:
                return None
            self._add(found.oid, data)
        except (OSError, OpenseshError) as error:
            log.warning("%s is written over without a copy: %s", path, error)
            return None
        return found

    def has(self, oid: str) -> bool:
        """Whether a content is here."""
        return os.path.exists(self._file(oid))

    def content(self, oid: str) -> bytes | None:
        """A content, if it is here and whole."""
        try:
            data = zlib.decompress(read_file(self._file(oid)))
        except (OSError, zlib.error):
            return None
        return data if blob_id(data) == oid else None

    def size(self) -> int:
        """The bytes that all of it takes."""
        return sum(each.stat().st_size for each in self._files())

    def drop(self, wanted: Collection[str], *, days: int) -> int:
        """Remove what is older than ``days`` and not ``wanted``; how many bytes that were."""
        oldest = time.time() - days * _DAY
        freed = 0
        for each in self._files():
            found = each.stat()
            if found.st_mtime < oldest and os.path.basename(os.path.dirname(each.path)) + each.name not in wanted:
                self._disk.remove(each.path)
                freed += found.st_size
        return freed

    def _add(self, oid: str, data: bytes) -> None:
        path = self._file(oid)
        try:
            os.utime(path)  # it is wanted anew, and so is no longer old
        except FileNotFoundError:
            self._disk.replace(path, zlib.compress(data, 1))

    def _files(self) -> Iterator[os.DirEntry[str]]:
        for folder in _entries(self.folder):
            yield from (each for each in _entries(folder.path) if not each.name.startswith("."))

    def _file(self, oid: str) -> str:
        return os.path.join(self.folder, oid[:2], oid[2:])


def contents_in(parts: Iterable[Document]) -> set[str]:
    """Every content that tool calls name as what they wrote over."""
    found: set[str] = set()
    for part in parts:
        metadata = as_object((as_object(part.get("state")) or {}).get("metadata")) or {}
        found.update(each.before.oid for each in recorded_writes(metadata) or () if each.before is not None)
    return found - {""}


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except FileNotFoundError:
        return []


def _spelled(state: FileState | None) -> str | None:
    return None if state is None else f"{state.mode} {state.oid}".strip()


def _state(spelled: Any) -> FileState | None:
    if spelled == "":
        return ABSENT
    match = _KEPT.fullmatch(spelled) if isinstance(spelled, str) else None
    return FileState(match[2], match[1]) if match is not None and match[1] in ("", FILE, PROGRAM, LINK) else None


MAX_WATCHED_FILES = 20_000
LONGEST = 0.5
"""Seconds. A folder that takes longer to look at, or has more files, is not looked at for the sake of a command."""
_LARGEST = 8 << 20
_MOST_CHANGED = 500


def file_stats(root: str, *, max_files: int = MAX_WATCHED_FILES) -> Mapping[str, Stat] | None:
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
        if len(found) > max_files or time.monotonic() > deadline:
            return None
    return found


def changed_since(
    root: str, before: Mapping[str, Stat] | None, *, max_files: int = MAX_WATCHED_FILES
) -> list[FileWrite] | None:
    """The files below ``root`` that are not as they were; ``None`` if that cannot be told.

    What they held before is known of none, for nobody looked into them.
    """
    after = file_stats(root, max_files=max_files) if before is not None else None
    if before is None or after is None:
        return None
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    return [_write(path) for path in changed] if len(changed) <= _MOST_CHANGED else None


def _write(path: str) -> FileWrite:
    try:
        small = os.lstat(path).st_size <= _LARGEST
    except OSError:
        small = True
    state = file_state(path) if small else None
    return FileWrite(path, None, state if state is None or not state.obstacle else None)


def _stat(entry: os.DirEntry[str]) -> Stat:
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode
