"""Where messages go that a revert has made final, and what it wrote over by force: out of the way, but not lost."""

from __future__ import annotations

import os
import shutil
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from .. import ids
from ..errors import NotFoundError, RecordError
from ..records import as_list, as_object, dumps, loads_object, order
from ..storage import paths
from ..storage.disk import Disk, read_file
from ..storage.keys import check_key
from ..storage.paths import digest
from ..storage.protocol import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..records import Document
    from ..sessions import Sessions

FILE = "messages.json"
_OVERWRITTEN = "overwritten"
_DAY_MS = 86_400_000


class TrashedMessages(NamedTuple):
    """What one cleaning took out of a session."""

    moment: int
    """When, in milliseconds."""
    folder: str
    revert: Document
    """The session's ``revert`` at that time."""
    messages: list[StoredMessage]
    """Each with the parts that were taken out; of the first, the message itself may have stayed."""


class RevertTrash:
    """What was taken out of the sessions of one store."""

    def __init__(self, sessions: Sessions, *, state: str | None = None, disk: Disk | None = None) -> None:
        self._sessions = sessions
        self._folder = os.path.join(state or paths.state(), "trash", digest(sessions.store.id))
        self._disk = disk or Disk()

    def throw(self, session_id: str, revert: Document, messages: Sequence[StoredMessage]) -> str:
        """Keep a copy of what is about to be removed; the folder it is in."""
        moment = ids.now_ms()
        folder = os.path.join(self._session_folder(session_id), str(moment))
        document: Document = {
            "sessionID": session_id,
            "time": moment,
            "revert": revert,
            "messages": [{"info": message.info, "parts": message.parts} for message in messages],
        }
        self._disk.replace(os.path.join(folder, FILE), dumps(document))
        return folder

    def keep(self, session_id: str, files: Mapping[str, bytes]) -> str:
        """Keep files that are about to be written over, by name; the folder they are in, each under its name."""
        moment = ids.now_ms()
        while os.path.exists(os.path.join(self._session_folder(session_id), str(moment))):
            moment += 1  # that of messages goes when they are taken back
        folder = os.path.join(self._session_folder(session_id), str(moment), _OVERWRITTEN)
        for name, data in files.items():
            self._disk.replace(os.path.join(folder, name), data)
        return folder

    def thrown(self, session_id: str) -> list[TrashedMessages]:
        """What was taken out of a session, the latest last."""
        folder = self._session_folder(session_id)
        try:
            names = sorted(name for name in os.listdir(folder) if name.isdigit())
        except FileNotFoundError:
            return []
        return [each for name in names if (each := _read(os.path.join(folder, name))) is not None]

    def everything(self) -> list[TrashedMessages]:
        """What was taken out of all sessions."""
        return [each for session_id in _names(self._folder) for each in self.thrown(session_id)]

    def history_before(self, session_id: str) -> list[StoredMessage]:
        """The messages of a session as they were before its last cleaning, which what came since does not belong to."""
        thrown = self.thrown(session_id)
        if not thrown:
            raise NotFoundError(f"no revert of {session_id} has become final, or what it took is gone for good")
        gone = [
            each.messages for each in thrown if each.revert == thrown[-1].revert
        ]  # an interrupted one leaves several
        point = min(order.position(message.info) for messages in gone for message in messages)
        stayed = [each for each in self._sessions.messages(session_id) if order.position(each.info) <= point]
        infos: dict[str, Document] = {}
        parts: dict[str, dict[str, Document]] = {}
        for message in chain(stayed, *gone):
            name = message.info["id"]
            infos[name] = message.info
            parts.setdefault(name, {}).update((part["id"], part) for part in message.parts)
        return [
            StoredMessage(info, order.parts_in_order(parts[info["id"]].values(), order.created(info)))
            for info in order.in_order(infos.values())
        ]

    def empty(self, *, days: int) -> int:
        """Remove for good what has lain here for so many days; how many cleanings that were."""
        oldest = ids.now_ms() - days * _DAY_MS
        removed = 0
        for session_id in _names(self._folder):
            folder = self._session_folder(session_id)
            for name in _names(folder):
                if name.isdigit() and int(name) < oldest:
                    shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
                    removed += 1
            self._disk.remove_empty(folder)
        return removed

    def _session_folder(self, session_id: str) -> str:
        return os.path.join(self._folder, *check_key((session_id,)))


def _read(folder: str) -> TrashedMessages | None:
    path = os.path.join(folder, FILE)
    try:
        document = loads_object(read_file(path), path)
    except (OSError, RecordError):
        return None
    messages = [as_object(message) or {} for message in as_list(document.get("messages")) or []]
    return TrashedMessages(
        moment=int(document.get("time", 0)),
        folder=folder,
        revert=as_object(document.get("revert")) or {},
        messages=[
            StoredMessage(info, [part for part in map(as_object, as_list(message.get("parts")) or ()) if part])
            for message in messages
            if (info := as_object(message.get("info"))) is not None
        ],
    )


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
