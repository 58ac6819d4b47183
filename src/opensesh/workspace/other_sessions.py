"""Writes on record of other sessions, which a revert never takes back."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from ..records import Session, object_at
from .attribution import comparable
from .changes import call_edits

if TYPE_CHECKING:
    from ..sessions import Sessions

_DAY_MS = 86_400_000


class _Write(NamedTuple):
    file: str
    began: int
    ended: float


class OtherSessions:
    """The sessions of a store without one session and its subagents."""

    def __init__(self, sessions: Sessions, session_id: str) -> None:
        self._sessions = sessions
        self._session_id = session_id
        self._others: list[Session] | None = None
        self._writes: dict[str, list[_Write]] = {}

    def writer(self, path: str, began: int, ended: int) -> str:
        """Return the id of a session that recorded a write to ``path`` in a span of time; empty if none did."""
        if self._others is None:
            own = {self._session_id, *(child.id for child in self._sessions.descendants(self._session_id))}
            self._others = [session for session in self._sessions.list() if session.id not in own]
        file = comparable(os.path.realpath(path))
        for session in self._others:
            # A session that still runs may have been updated last when its prompt came.
            if session.time.created > ended or session.time.updated < began - _DAY_MS:
                continue
            writes = self._writes_of(session.id)
            if any(write.file == file and write.began <= ended and write.ended >= began for write in writes):
                return session.id
        return ""

    def _writes_of(self, session_id: str) -> list[_Write]:
        if session_id not in self._writes:
            writes = self._writes[session_id] = []
            for part in (part for message in self._sessions.messages(session_id) for part in message.parts):
                time = object_at(part, "state", "time")
                began, ended = int(time.get("start") or 0), float(time.get("end") or "inf")
                files = [edit.path for edit in call_edits(part) if not edit.by_command]
                writes += [_Write(comparable(os.path.realpath(file)), began, ended) for file in files]
        return self._writes[session_id]
