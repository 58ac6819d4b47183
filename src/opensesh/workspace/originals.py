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
from ..storage.disk import Disk
from ..storage.json_tree.store import read_file, tree_name
from .states import ABSENT, FILE, LINK, PROGRAM, State, look, name_of, read

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from ..records import Document
    from ..storage.protocol import Store

log = logging.getLogger("opensesh.workspace")
LARGEST = 64 << 20
"""A larger file is not put aside; going back then names it as lost."""
_DAY = 86_400
_KEPT = re.compile(r"(100644|100755|120000|) ?([0-9a-f]{40})")


class Write(NamedTuple):
    """One file that a call changed. ``None`` is what nobody knows."""

    file: str
    """By absolute path."""
    before: State | None
    after: State | None

    @property
    def document(self) -> Document:
        """As a tool's metadata has it."""
        return {"file": self.file, "before": _spelled(self.before), "after": _spelled(self.after)}


def recorded(metadata: Document) -> list[Write] | None:
    """The files that a call changed, by its own account; ``None`` if it gave none."""
    own = as_object(metadata.get(EXTENSION_KEY)) or {}
    listed = as_list(own.get("writes"))
    if listed is None:
        return None
    found = [each for each in map(as_object, listed) if each is not None and isinstance(each.get("file"), str)]
    return [Write(each["file"], _state(each.get("before")), _state(each.get("after"))) for each in found]


class Originals:
    """The contents that were put aside for the sessions of one store. Safe to use from several threads and processes:
    a content is written whole or not at all, and never changes."""

    def __init__(self, store: Store, *, state: str | None = None) -> None:
        self.folder = os.path.join(state or paths.state(), "kept", tree_name(store.place))
        # The file that is about to be written over is not on the disk for good either.
        self._disk = Disk(durable=False)

    def put(self, path: str) -> State | None:
        """Put aside what is at ``path``; its state, or ``None`` if it could not be kept."""
        try:
            if os.path.lexists(path) and os.lstat(path).st_size > LARGEST:
                return None
            found = look(path)
            if found.obstacle or not found.oid:
                return found if not found.oid else None
            data = read(path)
            if name_of(data) != found.oid:
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
        return data if name_of(data) == oid else None

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
        found.update(each.before.oid for each in recorded(metadata) or () if each.before is not None)
    return found - {""}


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except FileNotFoundError:
        return []


def _spelled(state: State | None) -> str | None:
    return None if state is None else f"{state.mode} {state.oid}".strip()


def _state(spelled: Any) -> State | None:
    if spelled == "":
        return ABSENT
    match = _KEPT.fullmatch(spelled) if isinstance(spelled, str) else None
    return State(match[2], match[1]) if match is not None and match[1] in ("", FILE, PROGRAM, LINK) else None
