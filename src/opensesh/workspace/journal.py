"""What a revert is about to do, and what one that stands has done: written before the first file is touched.

A folder a session, below our state folder. ``next`` is an intention; once all of it is done, a revert becomes
``standing`` and stays until it is undone or made final. Contents that no snapshot holds are kept beside them. Whoever
finds a ``next`` after a crash can finish it, for every file is either as it was or as it becomes.
"""

from __future__ import annotations

import json  # and not msgspec's: a name on disk may hold bytes that are no text
import os
import shutil
from typing import TYPE_CHECKING, Literal

from msgspec import MsgspecError, Struct, convert, to_builtins

from ..storage import paths
from ..storage.disk import Disk, read_file
from ..storage.keys import check_key
from ..storage.paths import digest
from .files import FileState, blob_id, read_file_or_link

if TYPE_CHECKING:
    from ..records import Document, Revert
    from ..storage.protocol import Store
    from .git import SnapshotObjects
    from .originals import Originals

_NEXT, _STANDING = "next.json", "standing.json"


class JournalEntry(Struct, frozen=True, kw_only=True):
    """One file."""

    name: str
    was: FileState
    """Before this was begun."""
    becomes: FileState
    origin: FileState
    """Before the session was reverted at all."""


class JournalRecord(Struct, frozen=True, kw_only=True):
    """A revert, or the undoing of one."""

    kind: Literal["revert", "unrevert"]
    message_id: str
    part_id: str | None = None
    snapshot: str | None = None
    files: tuple[JournalEntry, ...] = ()

    def matches(self, revert: Revert | None) -> bool:
        """Whether this is about the revert that a session's record names."""
        mine = (self.message_id, self.part_id, self.snapshot)
        return revert is not None and mine == (revert.message_id, revert.part_id, revert.snapshot)

    @property
    def record(self) -> Document:
        """As a session's ``revert`` has it, before the diff is known."""
        fields = {"messageID": self.message_id, "partID": self.part_id, "snapshot": self.snapshot}
        return {name: value for name, value in fields.items() if value is not None}


class RevertJournal:
    """The journal of one session."""

    def __init__(self, store: Store, session_id: str, *, state: str | None = None, disk: Disk | None = None) -> None:
        name = digest(store.id)
        self.folder = os.path.join(state or paths.state(), "reverts", name, *check_key((session_id,)))
        self._disk = disk or Disk()

    @property
    def next(self) -> JournalRecord | None:
        """What was begun and not finished."""
        return self._read(_NEXT)

    @property
    def standing(self) -> JournalRecord | None:
        """What was done and can be undone."""
        return self._read(_STANDING)

    def begin(self, intention: JournalRecord, contents: FileContents, root: str) -> None:
        """Write an intention, and before it every content that no snapshot holds."""
        for entry in intention.files:
            self._keep(entry.becomes.oid, contents, None)
            self._keep(entry.origin.oid, contents, os.path.join(root, entry.name))
        self._disk.replace(self._file(_NEXT), json.dumps(to_builtins(intention)).encode())

    def finish(self) -> None:
        """What was intended stands."""
        self._disk.rename(self._file(_NEXT), self._file(_STANDING))

    def abandon(self) -> None:
        """Forget an intention of which nothing was done."""
        self._disk.remove(self._file(_NEXT))

    def clear(self) -> None:
        """Nothing stands any more: the intention goes last, so that this can be run again."""
        self._disk.remove(self._file(_STANDING))
        self._disk.remove(self._file(_NEXT))
        shutil.rmtree(self.folder, ignore_errors=True)

    def move_to(self, folder: str) -> None:
        """Keep what stands, and its contents, in another folder."""
        if os.path.isdir(self.folder):
            shutil.move(self.folder, os.path.join(folder, "files"))

    def content(self, oid: str) -> bytes | None:
        """A content that is kept here, if it is whole."""
        try:
            data = read_file(self._content(oid))
        except OSError:
            return None
        return data if blob_id(data) == oid else None

    def _keep(self, oid: str, contents: FileContents, path: str | None) -> None:
        if not oid or contents.in_snapshots(oid) or self.content(oid) is not None:
            return
        data = contents.get(oid)
        if data is None and path is not None:
            data = read_file_or_link(path)
        if data is not None and blob_id(data) == oid:
            self._disk.replace(self._content(oid), data)

    def _read(self, name: str) -> JournalRecord | None:
        try:
            return convert(json.loads(read_file(self._file(name))), JournalRecord)
        except (OSError, ValueError, MsgspecError):
            return None

    def _file(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _content(self, oid: str) -> str:
        return os.path.join(self.folder, "contents", oid)


class FileContents:
    """What files hold, by name: in the snapshots, in the journal, put aside, or known since a moment ago."""

    def __init__(
        self, objects: SnapshotObjects | None, journal: RevertJournal, originals: Originals | None = None
    ) -> None:
        self._objects = objects
        self._journal = journal
        self._originals = originals
        self._known: dict[str, bytes] = {}

    def add(self, data: bytes) -> str:
        """Take note of a content; its name."""
        oid = blob_id(data)
        self._known[oid] = data
        return oid

    def get(self, oid: str) -> bytes | None:
        """A content, if it is anywhere."""
        if oid in self._known:
            return self._known[oid]
        found = self._journal.content(oid)
        if found is None and self._objects is not None:
            found = self._objects.content(oid)
        return found if found is not None or self._originals is None else self._originals.content(oid)

    def in_snapshots(self, oid: str) -> bool:
        """Whether git has it."""
        return self._objects is not None and self._objects.content(oid) is not None
