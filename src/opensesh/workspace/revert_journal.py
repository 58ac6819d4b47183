"""Records of reverts on disk: the journal of one that is being applied or in effect, and the trash of committed ones.

The journal is a folder for each session, below our state folder. ``next.json`` is written before the first file is
touched. Once all of it is done, a revert becomes ``standing.json`` and stays until it is undone or committed. Contents
that no snapshot has are kept beside them. After a crash, a ``next.json`` can be completed by any process, because
every file is either as it was or as it becomes.
"""

from __future__ import annotations

import json  # msgspec cannot encode file names with bytes that are not UTF-8
import os
import shutil
from itertools import chain
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec import MsgspecError, Struct, convert, to_builtins
from msgspec.structs import replace

from .. import ids
from ..errors import NotFoundError, RecordError
from ..records import as_list, as_object, dumps, loads_object, object_at, order
from ..storage.disk import Disk, names_in, read_file
from ..storage.protocol import StoredMessage
from ..storage.session_state import session_state, store_folders
from .files import FileState, blob_id, read_file_or_link

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ..records import Document, Revert
    from ..sessions import Sessions
    from ..storage.protocol import Store
    from .git import SnapshotObjects
    from .originals import Originals

MESSAGES_FILE = "messages.json"
_NEXT, _STANDING = "next.json", "standing.json"
_OVERWRITTEN = "overwritten"
_DAY_MS = 86_400_000


class JournalEntry(Struct, frozen=True, kw_only=True):
    """One file of a revert."""

    name: str
    was: FileState
    """Before this revert."""
    becomes: FileState
    origin: FileState
    """Before the session was reverted at all."""


class RevertedFile(NamedTuple):
    """What a revert that is in effect did to a file."""

    origin: FileState
    becomes: FileState


class JournalRecord(Struct, frozen=True):
    """A revert, or the undoing of one."""

    kind: Literal["revert", "unrevert"]
    message_id: str
    part_id: str | None = None
    snapshot: str | None = None
    files: tuple[JournalEntry, ...] = ()

    def matches(self, revert: Revert | None) -> bool:
        """Return whether this is the revert that a session's record names."""
        own = (self.message_id, self.part_id, self.snapshot)
        return revert is not None and own == (revert.message_id, revert.part_id, revert.snapshot)

    @property
    def reverted(self) -> dict[str, RevertedFile]:
        """The files that are not at their origin."""
        return {
            entry.name: RevertedFile(entry.origin, entry.becomes)
            for entry in self.files
            if not entry.becomes.fits(entry.origin)
        }

    @property
    def document(self) -> Document:
        """As a session's ``revert`` stores it, before the diff is known."""
        fields = {"messageID": self.message_id, "partID": self.part_id, "snapshot": self.snapshot}
        return {name: value for name, value in fields.items() if value is not None}


class RevertJournal:
    """The journal of one session."""

    def __init__(self, store: Store, session_id: str, disk: Disk) -> None:
        self.folder = session_state("reverts", store, session_id)
        self._disk = disk

    @property
    def next(self) -> JournalRecord | None:
        """The revert that was begun and not finished."""
        return self._read(_NEXT)

    @property
    def standing(self) -> JournalRecord | None:
        """The revert that is in effect and can be undone."""
        return self._read(_STANDING)

    def begin(self, record: JournalRecord, contents: FileContents, root: str) -> None:
        """Write a record, and before it every content that no snapshot has."""
        for entry in record.files:
            self._keep(entry.becomes.oid, contents, None)
            self._keep(entry.origin.oid, contents, os.path.join(root, entry.name))
        self._write(_NEXT, record)

    def finish(self, record: JournalRecord, missed: Collection[str]) -> None:
        """Mark the revert that was begun as in effect. The files ``missed`` are still as they were."""
        files = [replace(entry, becomes=entry.was) if entry.name in missed else entry for entry in record.files]
        self._write(_STANDING, replace(record, files=tuple(files)))
        self._disk.remove(self._file(_NEXT))

    def abandon(self) -> None:
        """Drop a record of which nothing was done."""
        self._disk.remove(self._file(_NEXT))

    def clear(self) -> None:
        """Drop everything. ``next.json`` goes last, so that an interrupted call can be repeated."""
        self._disk.remove(self._file(_STANDING))
        self._disk.remove(self._file(_NEXT))
        shutil.rmtree(self.folder, ignore_errors=True)

    def move_to(self, folder: str) -> None:
        """Move the journal and its contents into another folder."""
        if os.path.isdir(self.folder):
            shutil.move(self.folder, os.path.join(folder, "files"))

    def content(self, oid: str) -> bytes | None:
        """Return a content that is kept here, unless it is missing or damaged."""
        try:
            data = read_file(self._content_file(oid))
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
            self._disk.replace(self._content_file(oid), data)

    def _write(self, name: str, record: JournalRecord) -> None:
        self._disk.replace(self._file(name), json.dumps(to_builtins(record)).encode())

    def _read(self, name: str) -> JournalRecord | None:
        try:
            return convert(json.loads(read_file(self._file(name))), JournalRecord)
        except (OSError, ValueError, MsgspecError):
            return None

    def _file(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _content_file(self, oid: str) -> str:
        return os.path.join(self.folder, "contents", oid)


class FileContents:
    """Contents of files by id: from the snapshots, the journal, the originals, and those added here."""

    def __init__(
        self, objects: SnapshotObjects | None, journal: RevertJournal, originals: Originals | None = None
    ) -> None:
        self._objects = objects
        self._journal = journal
        self._originals = originals
        self._added: dict[str, bytes] = {}

    def add(self, data: bytes) -> str:
        """Remember a content; returns its id."""
        oid = blob_id(data)
        self._added[oid] = data
        return oid

    def get(self, oid: str) -> bytes | None:
        """Return a content, or ``None`` if it is nowhere."""
        if oid in self._added:
            return self._added[oid]
        data = self._journal.content(oid)
        if data is None and self._objects is not None:
            data = self._objects.content(oid)
        return data if data is not None or self._originals is None else self._originals.content(oid)

    def in_snapshots(self, oid: str) -> bool:
        """Return whether the snapshots have it."""
        return self._objects is not None and self._objects.content(oid) is not None


class TrashedMessages(NamedTuple):
    """The messages that one committed revert removed from a session."""

    moment: int
    """When, in milliseconds."""
    folder: str
    revert: Document
    """The session's ``revert`` at that time."""
    messages: list[StoredMessage]
    """With the parts that were removed; the first message itself may have stayed."""


class RevertTrash:
    """Messages that committed reverts removed, and files that forced reverts overwrote, in one store."""

    def __init__(self, sessions: Sessions, disk: Disk | None = None) -> None:
        self._sessions = sessions
        self._disk = disk or Disk()

    def add_messages(self, session_id: str, revert: Document, messages: Sequence[StoredMessage]) -> str:
        """Copy messages that are about to be removed; returns the folder of the copy."""
        moment, folder = self._new_entry(session_id)
        document: Document = {
            "sessionID": session_id,
            "time": moment,
            "revert": revert,
            "messages": [{"info": message.info, "parts": message.parts} for message in messages],
        }
        self._disk.replace(os.path.join(folder, MESSAGES_FILE), dumps(document))
        return folder

    def add_files(self, session_id: str, files: Mapping[str, bytes]) -> str:
        """Copy files that are about to be overwritten, by name; returns the folder of the copies."""
        folder = os.path.join(self._new_entry(session_id)[1], _OVERWRITTEN)
        for name, data in files.items():
            self._disk.replace(os.path.join(folder, name), data)
        return folder

    def _new_entry(self, session_id: str) -> tuple[int, str]:
        """Return a time and the folder named after it, which does not exist yet.

        A commit that is repeated within a millisecond must not replace the copy that the first attempt made, and a
        folder with messages is deleted when they are restored.
        """
        moment = ids.now_ms()
        while os.path.exists(folder := os.path.join(self._session_folder(session_id), str(moment))):
            moment += 1
        return moment, folder

    def of_session(self, session_id: str) -> list[TrashedMessages]:
        """Return what was removed from a session, the latest last."""
        folder = self._session_folder(session_id)
        names = [name for name in names_in(folder) if name.isdigit()]
        return [trashed for name in names if (trashed := _read_messages(os.path.join(folder, name))) is not None]

    def of_all_sessions(self) -> list[TrashedMessages]:
        """Return what was removed from all sessions."""
        return [trashed for session_id in self._session_ids() for trashed in self.of_session(session_id)]

    def history_before(self, session_id: str) -> list[StoredMessage]:
        """Return the messages of a session as they were before its last committed revert, without later messages.

        Raises :class:`~opensesh.errors.NotFoundError` if there is none.
        """
        trashed = self.of_session(session_id)
        if not trashed:
            raise NotFoundError(f"no revert of {session_id} is final, or its messages were deleted for good")
        # A commit that was interrupted and repeated leaves several entries of the same revert.
        removed = [entry.messages for entry in trashed if entry.revert == trashed[-1].revert]
        point = min(order.position(message.info) for messages in removed for message in messages)
        stayed = [message for message in self._sessions.messages(session_id) if order.position(message.info) <= point]
        infos: dict[str, Document] = {}
        parts: dict[str, dict[str, Document]] = {}
        for message in chain(stayed, *removed):
            message_id = message.info["id"]
            infos[message_id] = message.info
            parts.setdefault(message_id, {}).update((part["id"], part) for part in message.parts)
        return [
            StoredMessage(info, order.parts_in_order(parts[info["id"]].values(), order.created(info)))
            for info in order.in_order(infos.values())
        ]

    def empty(self, *, days: int) -> int:
        """Delete for good what is older than ``days``; returns the number of entries."""
        oldest = ids.now_ms() - days * _DAY_MS
        removed = 0
        for session_id in self._session_ids():
            folder = self._session_folder(session_id)
            for name in names_in(folder):
                if name.isdigit() and int(name) < oldest:
                    shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
                    removed += 1
            self._disk.remove_empty(folder)
        return removed

    def _session_ids(self) -> list[str]:
        folders = store_folders("trash", self._sessions.store)
        return list(dict.fromkeys(name for folder in folders for name in names_in(folder)))

    def _session_folder(self, session_id: str) -> str:
        return session_state("trash", self._sessions.store, session_id)


def _read_messages(folder: str) -> TrashedMessages | None:
    path = os.path.join(folder, MESSAGES_FILE)
    try:
        document = loads_object(read_file(path), path)
    except (OSError, RecordError):
        return None
    messages = [as_object(message) or {} for message in as_list(document.get("messages")) or []]
    return TrashedMessages(
        moment=int(document.get("time", 0)),
        folder=folder,
        revert=object_at(document, "revert"),
        messages=[
            StoredMessage(info, [part for part in map(as_object, as_list(message.get("parts")) or ()) if part])
            for message in messages
            if (info := as_object(message.get("info"))) is not None
        ],
    )
