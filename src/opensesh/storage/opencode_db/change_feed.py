"""Change feed of an OpenCode database.

As long as its files have the same times and sizes, nothing has changed and the database is not even opened. Otherwise
the number of messages and parts of each session and the times of their updates tell which sessions have changed, and
the update times of their rows tell which rows have. OpenCode sets these times with every write.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, cast
from zlib import crc32

from ...errors import InvalidKeyError, RecordError, StoreError
from ..change_feeds import (
    SETTLE_NS,
    UNSTABLE,
    MessageState,
    RawRecord,
    SessionChanges,
    StoredSession,
    fingerprint,
    printable,
)
from ..keys import is_plain
from ..protocol import Damage, unreadable
from .companions import companion

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from sqlite3 import Connection

    from ...records import Document
    from ..protocol import Key
    from .record_reader import RecordReader
    from .rows import Row
    from .sqlite_reader import SqliteReader
    from .tables import TableSource

_BATCH_ROWS = 500
_V1_TABLES = """SELECT EXISTS (SELECT 1 FROM pragma_table_info('part') WHERE name = 'message_id')
    AND EXISTS (SELECT 1 FROM pragma_table_info('message'))
    AND NOT EXISTS (SELECT 1 FROM pragma_table_info('session_v2'))
    AND NOT EXISTS (SELECT 1 FROM pragma_table_info('session') WHERE name = 'fork_session_id')"""
_PART = "SELECT data FROM part WHERE id = ? AND message_id = ? AND session_id = ?"


class OpencodeDBFeed:
    """See :class:`~opensesh.storage.change_feeds.ChangeFeed`. The database is opened when something must be read."""

    persistent = True

    def __init__(self, path: str) -> None:
        self.store_id = printable(path)
        self.damage: list[Damage] = []
        self._path = path
        self._file: SqliteReader | None = None
        self._records: RecordReader | None = None
        self._is_v1: bool | None = None

    def detect_changes(self, before: int, known: Mapping[str, int]) -> SessionChanges:
        """Compare the files and, if they differ, the counts and times of each session."""
        current = self._file_fingerprint()
        if current == before and current != UNSTABLE:
            return SessionChanges(current, {})
        sessions: dict[str, int] = {}
        with self._record_reader().snapshot() as (connection, sources):
            counts = _counts(connection, sources)
            for source in sources.get("session", []):
                for name, times in _session_times(connection, source):
                    sessions[name] = fingerprint(*times, *counts.get(name, ()))
        for name in counts.keys() - sessions.keys():  # messages without a session record count as well
            if is_plain(name):
                sessions[name] = fingerprint(*counts[name])
        changed = {name: value for name, value in sessions.items() if known.get(name) != value}
        return SessionChanges(current, changed, [name for name in known if name not in sessions])

    def session(self, session_id: str) -> StoredSession | None:
        """Read a session's record."""
        for source in self._sources("session"):
            for row in self._rows(source, "t.id = ?", [session_id]):
                for key, document in self._record_reader().records_of(source, row, self.damage.append):
                    return StoredSession(key[1], document)
        return None

    def message_states(self, session_id: str, known: Mapping[str, int], *, full: bool) -> Iterator[MessageState]:
        """Return the update times of all messages and parts."""
        try:
            with self._record_reader().snapshot() as (connection, sources):
                states = list(self._states(connection, sources, session_id))
        except StoreError as error:
            self._report(unreadable(self.store_id, error))
            return
        yield from states

    def message_state(self, session_id: str, message_id: str, *, full: bool) -> MessageState | None:
        """Return ``None``: ``detect_changes`` finds every change."""
        return None

    def messages(self, session_id: str, ids: Sequence[str] | None = None) -> Iterator[RawRecord]:
        """Read messages."""
        chosen_ids = None if ids is None else set(ids)
        named = None if ids is None else [(name, name) for name in ids]
        for source, key, document in self._select("message", session_id, named):
            if chosen_ids is None or key[2] in chosen_ids:
                yield RawRecord(key[2], "", f"{self.store_id}#{source.kind}/{key[2]}", document)

    def parts(self, session_id: str, ids: Sequence[tuple[str, str]]) -> Iterator[RawRecord]:
        """Read parts by name."""
        chosen_ids = set(ids)
        for source, key, document in self._select("part", session_id, ids):
            if key[1:] in chosen_ids:
                yield RawRecord(key[2], key[1], f"{self.store_id}#{source.kind}/{key[2]}", document)

    def message_parts(self, session_id: str, message_ids: Sequence[str]) -> Iterator[RawRecord]:
        """Read all parts of some messages."""
        chosen_ids = set(message_ids)
        for source, key, document in self._select("part", session_id, None, message_ids):
            if key[1] in chosen_ids:
                yield RawRecord(key[2], key[1], f"{self.store_id}#{source.kind}/{key[2]}", document)

    def part(self, session_id: str, message_id: str, part_id: str) -> Document | None:
        """Read one part, or a message."""
        if part_id and self._has_no_v2():
            return self._plain_part(session_id, message_id, part_id)
        records = (
            self.parts(session_id, [(message_id, part_id)]) if part_id else self.messages(session_id, [message_id])
        )
        return next((record.document() for record in records), None)

    def close(self) -> None:
        """Close the database."""
        if self._file is not None:
            self._file.close()
            self._file = self._records = self._is_v1 = None

    def _file_fingerprint(self) -> int:
        newest = 0
        numbers: list[int] = []
        for path in (self._path, companion(self._path, "-wal")):
            try:
                status = os.stat(path)
            except OSError:
                continue
            if status.st_size:  # every reader may leave an empty write-ahead log
                newest = max(newest, status.st_mtime_ns)
                numbers += (status.st_mtime_ns, status.st_size)
        return UNSTABLE if newest > time.time_ns() - SETTLE_NS else fingerprint(*numbers)

    def _reader(self) -> SqliteReader:
        if self._file is None:
            from .sqlite_reader import SqliteReader

            self._file = SqliteReader(self._path)
        return self._file

    def _has_no_v2(self) -> bool:
        """Return whether every part is a row of its own, as in 1.x."""
        is_v1 = self._is_v1
        if is_v1 is None:
            with self._reader().snapshot() as connection:
                is_v1 = self._is_v1 = connection.execute(_V1_TABLES).fetchone() == (1,)
        return is_v1

    def _plain_part(self, session_id: str, message_id: str, part_id: str) -> Document | None:
        """Read one part without the modules that read every kind of row.

        They take longer to load than a page of search results to be read.
        """
        import json

        with self._reader().snapshot() as connection:
            row = connection.execute(_PART, [part_id, message_id, session_id]).fetchone()
        try:
            record: object = json.loads(row[0]) if row and isinstance(row[0], bytes) else None
        except (ValueError, RecursionError):
            return None
        ids = {"id": part_id, "sessionID": session_id, "messageID": message_id}
        return {**cast("Document", record), **ids} if isinstance(record, dict) else None

    def _record_reader(self) -> RecordReader:
        if self._records is None:
            from .record_reader import RecordReader

            self._records = RecordReader(self._reader())
        return self._records

    def _sources(self, kind: str) -> list[TableSource]:
        with self._record_reader().snapshot() as (_, sources):
            return sources.get(kind, [])

    def _states(
        self, connection: Connection, sources: Mapping[str, Sequence[TableSource]], session: str
    ) -> Iterator[MessageState]:
        parts: dict[str, dict[str, int]] = {}
        for source in sources.get("part", ()):
            if source.whole:
                for message, name, updated in _times(connection, source, "message_id", session):
                    parts.setdefault(message, {})[name] = fingerprint(updated)
        for source in sources.get("message", ()):
            if source.whole:
                for name, _, updated in _times(connection, source, "id", session):
                    yield MessageState(name, fingerprint(updated), parts.get(name, {}))
            else:
                yield from self._states_v2(connection, source, session)

    def _states_v2(self, connection: Connection, source: TableSource, session: str) -> Iterator[MessageState]:
        """Read the rows of 2.x: it keeps a message and its parts in one row."""
        from .v2 import messages_of, read_row

        for row in source.select(connection, f"t.session_id = ? AND {source.where}", [session]):
            try:
                for info, parts in messages_of(read_row(row)):
                    updated = fingerprint(_whole(row["time_updated"]))
                    yield MessageState(info["id"], updated, {part["id"]: updated for part in parts})
            except (InvalidKeyError, RecordError) as error:
                self.damage.append(self._record_reader().damage_of(source, row, error))

    def _select(
        self,
        kind: str,
        session: str,
        ids: Sequence[tuple[str, str]] | None,
        messages: Sequence[str] | None = None,
    ) -> Iterator[tuple[TableSource, Key, Document]]:
        """Read records of a session. A few ``ids`` (message, record) or ``messages`` narrow it down to their rows."""
        from .v2 import row_id

        for source in self._sources(kind):
            condition = "t.session_id = ?"
            values = [session]
            column, rows = "t.id", set[str]()
            if ids is not None:
                rows = {name if source.whole else row_id(message) for message, name in ids}
            elif messages is not None:
                column = "t.message_id" if source.whole else "t.id"
                rows = {message if source.whole else row_id(message) for message in messages}
            if 0 < len(rows) <= _BATCH_ROWS:
                condition += f" AND {column} IN ({', '.join('?' * len(rows))})"
                values += rows
            for row in self._rows(source, condition, values):
                for key, document in self._record_reader().records_of(source, row, self.damage.append):
                    yield source, key, document

    def _rows(self, source: TableSource, condition: str, values: Sequence[str]) -> Iterator[Row]:
        """Rows by a condition, a batch at a time: no view of the database is held while the caller works on them."""
        after = 0
        while True:
            where = f"{condition} AND t.rowid > {after} AND {source.where}"
            sql = ("SELECT t.rowid FROM", source.table, "t WHERE", where, "ORDER BY t.rowid LIMIT", str(_BATCH_ROWS))
            try:
                with self._reader().snapshot() as connection:
                    numbers = [number for (number,) in connection.execute(" ".join(sql), values)]
            except StoreError as error:
                self._report(unreadable(self.store_id, error))
                return
            try:
                yield from self._rows_numbered(source, numbers)
            except StoreError:  # a damaged page costs only the rows on it
                for number in numbers:
                    try:
                        yield from self._rows_numbered(source, [number])
                    except StoreError as error:
                        self._report(unreadable(self.store_id, error))
            if len(numbers) < _BATCH_ROWS:
                return
            after = numbers[-1]

    def _rows_numbered(self, source: TableSource, numbers: Sequence[int]) -> list[Row]:
        with self._reader().snapshot() as connection:
            return list(source.select(connection, f"t.rowid IN ({', '.join(map(str, numbers))})", []))

    def _report(self, damage: Damage) -> None:
        if damage not in self.damage:
            self.damage.append(damage)


def _counts(connection: Connection, sources: Mapping[str, Sequence[TableSource]]) -> dict[str, tuple[int, ...]]:
    """Count the rows of each session in each table of messages and parts, with their update times."""
    counts: dict[str, tuple[int, ...]] = {}
    tables = {source.table: _updated(source) for kind in ("message", "part") for source in sources.get(kind, ())}
    for table, updated in sorted(tables.items()):
        words = ("SELECT session_id, count(*), total(", updated, "), max(", updated, ") FROM", table, "t")
        for name, count, total, newest in connection.execute(" ".join((*words, "GROUP BY session_id"))):
            if isinstance(name, bytes):
                key = name.decode(errors="replace")
                counts[key] = (*counts.get(key, ()), count, int(total), _whole(newest))
    return counts


def _session_times(connection: Connection, source: TableSource) -> Iterator[tuple[str, tuple[int, ...]]]:
    shown = ", ".join(source.columns[name] for name in ("time_updated", "time_archived", "title"))
    sql = ("SELECT t.id,", shown, "FROM", source.table, "t WHERE", source.where)
    for name, updated, archived, title in connection.execute(" ".join(sql)):
        plain = name.decode(errors="replace") if isinstance(name, bytes) else ""
        if is_plain(plain):
            yield plain, (_whole(updated), _whole(archived), crc32(title if isinstance(title, bytes) else b""))


def _times(connection: Connection, source: TableSource, owner: str, session: str) -> Iterator[tuple[str, str, int]]:
    """Yield the owner, the id and the update time of each row of a session."""
    shown = ", ".join((owner, "id", _updated(source)))
    sql = ("SELECT", shown, "FROM", source.table, "t WHERE session_id = ? AND", source.where)
    for message, name, updated in connection.execute(" ".join(sql), [session]):
        if isinstance(message, bytes) and isinstance(name, bytes):
            yield message.decode(errors="replace"), name.decode(errors="replace"), _whole(updated)


def _updated(source: TableSource) -> str:
    """Return when a row was updated, as SQL; when it was created, in tables that do not say."""
    updated = source.columns["time_updated"]
    return source.columns["time_created"] if updated == "NULL" else updated


def _whole(value: Any) -> int:
    return int(value) if isinstance(value, (int, float)) else 0
