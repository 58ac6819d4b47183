"""Other programs that use a database at the same time: which processes have it open, what they run, what they write.

**Running.** OpenCode has no lease on a session. An answer that is not finished may be running, or its process may have
died; rows that changed a moment ago, in a database that another process has open, say that it is running. So do a
prompt that was stored a moment ago, and tool calls that ended then: the answer to them is about to begin.

**Following.** SQLite tells at little cost whether another connection has committed anything. Then the event log, which
OpenCode keeps since 1.16, tells what: the numbers of each session continue, and a session whose numbers are gone was
removed. Before 1.16 there is no log, and only the rows of sessions are compared.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING, Any

from ... import ids
from ...errors import StoreError
from ...records.codec import loads_object, object_at
from ..protocol import RecordChange
from .companions import companion

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from sqlite3 import Connection

    from ..protocol import Key
    from .sqlite_reader import SqliteReader

_POLL_SECONDS = 0.05
_ANSWER_SECONDS = 60
"""An unfinished answer that has not changed for this long is not being written any more."""
_BETWEEN_STEPS_SECONDS = 5
"""A prompt without an answer, or tool calls without another step, that are older than this are not continued."""
_OPEN_BYTE = 128
"""SQLite holds a shared lock on this byte of the ``-shm`` file as long as a connection is open."""
_SESSION_COLUMNS = ("id", "project_id", "time_updated", "time_archived", "title", "revert")
SessionRow = tuple[Any, ...]
"""The values of a session's columns after its id, the project first."""
_log = logging.getLogger("opensesh.storage")


def other_processes(path: str) -> list[int]:
    """Return the ids of other processes of this host that have the database open, as far as the system tells."""
    try:
        inode = os.stat(companion(path, "-shm")).st_ino
        with open("/proc/locks", encoding="ascii") as file:
            lines = [line.split() for line in file]
    except (OSError, UnicodeDecodeError):
        return []  # no such file: the database has no write-ahead log, or this is not Linux
    # A line is "1: POSIX ADVISORY READ 4711 08:01:1234 128 128": process, device and inode, first and last byte. Lines
    # about processes that wait for a lock have one field more.
    processes = {
        int(pid)
        for _, _, _, _, pid, device, start, end, *_ in (line for line in lines if len(line) == 8)
        if device.rpartition(":")[2] == str(inode)
        and int(start) <= _OPEN_BYTE
        and (end == "EOF" or int(end) >= _OPEN_BYTE)
    }
    return sorted(processes - {os.getpid(), -1})


def running_since(connection: Connection, session_id: str, own: Collection[str]) -> float | None:
    """Return how many seconds ago the newest message changed, if a program that is not done seems to have written it.

    That is an answer without an end, or for a moment a prompt without an answer, or tool calls whose results have not
    been sent yet. ``own`` are the messages that this program wrote.
    """
    newest = connection.execute(
        "SELECT id, time_updated, data FROM message WHERE session_id = ? ORDER BY time_created DESC, id DESC LIMIT 1",
        [session_id],
    ).fetchone()
    if newest is None:
        return None
    message_id, updated, data = newest
    message = loads_object(data)
    if message_id.decode() in own or "error" in message:
        return None
    is_answer = message.get("role") == "assistant"
    is_complete = "completed" in object_at(message, "time")
    if is_answer and is_complete and message.get("finish") != "tool-calls":
        return None
    (part,) = connection.execute("SELECT max(time_updated) FROM part WHERE message_id = ?", [message_id]).fetchone()
    age = (ids.now_ms() - max(int(updated), int(part or 0))) / 1000
    return age if age <= (_ANSWER_SECONDS if is_answer and not is_complete else _BETWEEN_STEPS_SECONDS) else None


class Follower:
    """Reports the changes that other connections make, from a thread of its own, until it is stopped."""

    def __init__(self, file: SqliteReader, report: Callable[[list[RecordChange]], None]) -> None:
        self._file = file
        self._report = report
        self._own_events: set[str] = set()
        self._own_rows: dict[str, list[SessionRow | None]] = {}
        """What this store object made of the rows of sessions without an event, and what was not seen in them yet."""
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._sequences: dict[str, int] = {}
        self._sessions: dict[str, SessionRow] = {}
        try:
            self._version = file.data_version()
            with file.snapshot() as connection:
                self._sequences, self._sessions = _sequences(connection), _sessions(connection)
        except StoreError as error:  # a damaged page costs the changes of other programs, not those of this object
            _log.warning("changes of other programs are not noticed: %s", error)
            return
        threading.Thread(target=self._follow, name="opensesh-follow", daemon=True).start()

    def stop(self) -> None:
        """Stop following. Changes that are being reported may still arrive."""
        self._stopped.set()

    def skip(self, connection: Connection, event_ids: Iterable[str], unlogged_sessions: Collection[str]) -> None:
        """Note what this store object is about to commit, and reports itself: events, and sessions without an event."""
        rows = {name: _sessions(connection, name).get(name) for name in unlogged_sessions}
        with self._lock:
            self._own_events.update(event_ids)
            for name, row in rows.items():
                self._own_rows.setdefault(name, []).append(row)

    def _follow(self) -> None:
        while not self._stopped.wait(_POLL_SECONDS):
            try:
                version = self._file.data_version()
                if version != self._version:
                    self._version = version
                    with self._file.snapshot() as connection:
                        sessions, logged = _sessions(connection), set[str]()
                        changes = [*self._from_log(connection, sessions, logged)]
                        changes += self._from_sessions(sessions, logged)
                    changes = list(dict.fromkeys(changes))
                    if changes:
                        self._report(changes)
            except StoreError as error:
                _log.debug("a database could not be followed: %s", error)

    def _from_log(
        self, connection: Connection, sessions: dict[str, SessionRow], logged: set[str]
    ) -> Iterator[RecordChange]:
        """Yield the changes of the log, and add the sessions with new events to ``logged``."""
        sequences = _sequences(connection)
        for name in [name for name in sequences if sequences[name] > self._sequences.get(name, -1)]:
            logged.add(name)
            rows = connection.execute(
                "SELECT id, type, data FROM event WHERE aggregate_id = ? AND seq > ? ORDER BY seq",
                [name, self._sequences.get(name, -1)],
            )
            for event_id, kind, data in rows.fetchall():
                if self._is_own_event(event_id.decode()):
                    continue
                key = _key_of(kind.decode(), loads_object(data), sessions)
                if key is not None:
                    yield RecordChange(key, removed=b".removed." in kind, own=False)
        self._sequences = sequences

    def _from_sessions(self, sessions: dict[str, SessionRow], logged: set[str]) -> Iterator[RecordChange]:
        """Yield the removed sessions, which leave no event, and those whose row changed without an event."""
        for name in sessions.keys() | self._sessions.keys():
            before, now = self._sessions.get(name), sessions.get(name)
            is_own = before != now and self._is_own_row(name, now)
            if before != now and not is_own and not (now and name in logged):
                project = (now or before or (b"",))[0]
                yield RecordChange(("session", project.decode(), name), removed=now is None, own=False)
        self._sessions = sessions

    def _is_own_event(self, event_id: str) -> bool:
        """Return whether this store object logged it, and forget that it did."""
        with self._lock:
            is_own = event_id in self._own_events
            self._own_events.discard(event_id)
        return is_own

    def _is_own_row(self, name: str, row: SessionRow | None) -> bool:
        """Return whether this store object made a row so, or removed it, and forget that and what it made before."""
        with self._lock:
            rows = self._own_rows.pop(name, [])
            later = rows[rows.index(row) + 1 :] if row in rows else rows
            if later:
                self._own_rows[name] = later
        return row in rows


def _sequences(connection: Connection) -> dict[str, int]:
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'event_sequence'").fetchone():
        return {}
    rows = connection.execute("SELECT aggregate_id, seq FROM event_sequence")
    return {name.decode(errors="replace"): number for name, number in rows}


def _sessions(connection: Connection, name: str | None = None) -> dict[str, SessionRow]:
    """Return the rows of all sessions or one, with the columns that this version has; none if there is no table."""
    present = {column[1].decode() for column in connection.execute("PRAGMA table_info(session)")}
    columns = [name for name in _SESSION_COLUMNS if name in present]
    if columns[:2] != ["id", "project_id"]:
        return {}
    query = " ".join(("SELECT", ", ".join(columns), "FROM session"))
    rows = connection.execute(query) if name is None else connection.execute(f"{query} WHERE id = ?", [name])
    return {row[0].decode(errors="replace"): row[1:] for row in rows}


def _key_of(kind: str, data: dict[str, Any], sessions: dict[str, SessionRow]) -> Key | None:
    """Return the record that an event is about; ``None`` for unknown events and for removed sessions.

    A session is filed under the project in its row, since it may have been moved after the event.
    """
    session_id = str(data.get("sessionID", ""))
    match kind.rpartition(".")[0]:
        case "session.created" | "session.updated":
            row = sessions.get(session_id)
            return ("session", row[0].decode(), session_id) if row is not None else None
        case "message.updated":
            return ("message", session_id, str(object_at(data, "info").get("id")))
        case "message.removed":
            return ("message", session_id, str(data.get("messageID")))
        case "message.part.updated":
            part = object_at(data, "part")
            return ("part", str(part.get("messageID")), str(part.get("id")))
        case "message.part.removed":
            return ("part", str(data.get("messageID")), str(data.get("partID")))
        case _:
            return None
