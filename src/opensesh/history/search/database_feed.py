"""An OpenCode database as the index sees it.

While its files have neither a new time nor a new size, nothing has changed and it is not even opened. After that, how
many messages and parts each session has and when they were updated tells which sessions differ, and the times of their
rows which rows do. OpenCode sets these times on every write.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any
from zlib import crc32

from ...errors import InvalidKeyError, RecordError
from ...storage.keys import check_key, is_plain
from ...storage.protocol import Damage
from .feeds import JUST_NOW_NS, UNSURE, Document, Look, Survey, mark, spelled

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from sqlite3 import Connection

    from ...storage.opencode_db.rows import Row
    from ...storage.opencode_db.sqlite_reader import SqliteReader
    from ...storage.opencode_db.tables import Source

_BATCH = 500


class DatabaseFeed:
    """See :class:`~opensesh.history.search.feeds.Feed`. Opened only when something must be read."""

    def __init__(self, path: str) -> None:
        self.place = spelled(path)
        self._path = path
        self.damage: list[Damage] = []
        self._file: SqliteReader | None = None
        self._sources: dict[str, list[Source]] = {}
        self._columns: dict[str, set[str]] = {}

    def survey(self, before: int, held: Mapping[str, int]) -> Survey:
        """Compare the files; then, if they differ, the sums of each session."""
        found = self._signature()
        if found == before and found != UNSURE:
            return Survey(found, {})
        seen: dict[str, int] = {}
        with self._reader().snapshot() as connection:
            sums = self._sums(connection)
            for source in self._kinds(connection, "session"):
                for name, own in self._heads(connection, source):
                    seen[name] = mark(*own, *sums.get(name, ()))
        changed = {name: value for name, value in seen.items() if held.get(name) != value}
        return Survey(found, changed, [name for name in held if name not in seen])

    def session(self, name: str) -> Document | None:
        """A session's record."""
        for source in self._known("session"):
            for row in self._rows(source, "t.id = ?", [name]):
                for _, document in self._records(source, row):
                    return document
        return None

    def look(self, session: str, known: Mapping[str, int], *, closely: bool) -> Iterator[Look]:
        """Every message, with the times of its parts."""
        with self._reader().snapshot() as connection:
            found = list(self._looks(connection, session))
        yield from found

    def look_at(self, session: str, message: str) -> Look | None:
        """Nothing: a survey misses no change."""
        return None

    def messages(self, session: str, names: Sequence[str]) -> Iterator[tuple[str, Document]]:
        """Those that can be read."""
        wanted = set(names)
        for key, document in self._wanted("message", session, [(name, name) for name in names]):
            if key[2] in wanted:
                yield key[2], document

    def parts(self, session: str, names: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, Document]]:
        """Those that can be read, a batch of rows at a time."""
        wanted = set(names)
        for key, document in self._wanted("part", session, names):
            if key[1:] in wanted:
                yield key[1], key[2], document

    def part(self, session: str, message: str, name: str) -> Document | None:
        """One part; without a name, the message itself."""
        kind, key = ("part", (message, name)) if name else ("message", (session, message))
        for found, document in self._wanted(kind, session, [(message, name or message)]):
            if found[1:] == key:
                return document
        return None

    def close(self) -> None:
        """Let go of the database."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _signature(self) -> int:
        newest = 0
        numbers: list[int] = []
        for path in (self._path, self._path + "-wal"):
            try:
                status = os.stat(path)
            except OSError:
                continue
            if status.st_size:  # whoever reads may leave an empty log behind
                newest = max(newest, status.st_mtime_ns)
                numbers += (status.st_mtime_ns, status.st_size)
        return UNSURE if newest > time.time_ns() - JUST_NOW_NS else mark(*numbers)

    def _reader(self) -> SqliteReader:
        if self._file is None:
            from ...storage.opencode_db.sqlite_reader import SqliteReader

            self._file = SqliteReader(self._path)
        return self._file

    def _kinds(self, connection: Connection, kind: str) -> list[Source]:
        if not self._sources:
            from ...storage.opencode_db.tables import read_layout, sources

            self._columns = read_layout(connection, self.place)
            self._sources = sources(self._columns)
        return self._sources.get(kind, [])

    def _known(self, kind: str) -> list[Source]:
        with self._reader().snapshot() as connection:
            return self._kinds(connection, kind)

    def _sums(self, connection: Connection) -> dict[str, tuple[int, ...]]:
        """How many rows each session has in each table of messages and parts, and when they were updated."""
        found: dict[str, tuple[int, ...]] = {}
        tables = {source.table for kind in ("message", "part") for source in self._kinds(connection, kind)}
        for table in sorted(tables):
            updated = self._updated(table)
            words = ("SELECT session_id, count(*), total(", updated, "), max(", updated, ") FROM", table)
            for name, count, total, newest in connection.execute(" ".join((*words, "GROUP BY session_id"))):
                if isinstance(name, bytes):
                    key = name.decode(errors="replace")
                    found[key] = (*found.get(key, ()), count, int(total), _whole(newest))
        return found

    def _heads(self, connection: Connection, source: Source) -> Iterator[tuple[str, tuple[int, ...]]]:
        columns = self._columns[source.table]
        shown = ", ".join(name if name in columns else "NULL" for name in ("time_updated", "time_archived", "title"))
        sql = ("SELECT t.id,", shown, "FROM", source.table, "t WHERE", source.where)
        for name, updated, archived, title in connection.execute(" ".join(sql)):
            plain = name.decode(errors="replace") if isinstance(name, bytes) else ""
            if is_plain(plain):
                yield plain, (_whole(updated), _whole(archived), crc32(title if isinstance(title, bytes) else b""))

    def _looks(self, connection: Connection, session: str) -> Iterator[Look]:
        parts: dict[str, dict[str, int]] = {}
        for source in self._kinds(connection, "part"):
            if source.whole:
                for message, name, updated in self._times(connection, source, "message_id", session):
                    parts.setdefault(message, {})[name] = mark(updated)
        for source in self._kinds(connection, "message"):
            if source.whole:
                for name, _, updated in self._times(connection, source, "id", session):
                    yield Look(name, mark(updated), parts.get(name, {}))
            else:
                yield from self._looks_v2(connection, source, session)

    def _times(
        self, connection: Connection, source: Source, owner: str, session: str
    ) -> Iterator[tuple[str, str, int]]:
        sql = (
            "SELECT",
            owner,
            ", id,",
            self._updated(source.table),
            "FROM",
            source.table,
            "t WHERE session_id = ? AND",
        )
        for message, name, updated in connection.execute(" ".join((*sql, source.where)), [session]):
            if isinstance(message, bytes) and isinstance(name, bytes):
                yield message.decode(errors="replace"), name.decode(errors="replace"), _whole(updated)

    def _looks_v2(self, connection: Connection, source: Source, session: str) -> Iterator[Look]:
        """2.x keeps a message and its parts in one row, so the row must be read to know what is in it."""
        from ...storage.opencode_db.v2 import messages_of, read_row

        for row in source.select(connection, f"t.session_id = ? AND {source.where}", [session]):
            try:
                for info, parts in messages_of(read_row(row)):
                    found = mark(_whole(row["time_updated"]))
                    yield Look(info["id"], found, {part["id"]: found for part in parts})
            except (InvalidKeyError, RecordError) as error:
                self.damage.append(self._damage(source, row, error))

    def _updated(self, table: str) -> str:
        return "time_updated" if "time_updated" in self._columns[table] else "time_created"

    def _wanted(
        self, kind: str, session: str, names: Sequence[tuple[str, str]]
    ) -> Iterator[tuple[tuple[str, ...], Document]]:
        """The records of a session; of a few, not many more than those named (message, record)."""
        from ...storage.opencode_db.v2 import row_id

        for source in self._known(kind):
            condition = "t.session_id = ?"
            values = [session]
            if len(names) <= _BATCH:
                rows = {name if source.whole else row_id(message) for message, name in names}
                condition += f" AND t.id IN ({', '.join('?' * len(rows))})"
                values += rows
            for row in self._rows(source, condition, values):
                yield from self._records(source, row)

    def _rows(self, source: Source, condition: str, values: Sequence[str]) -> Iterator[Row]:
        """Rows by a condition, a batch at a time: no view of the database is held while the caller works on them."""
        after = 0
        while True:
            with self._reader().snapshot() as connection:
                where = f"{condition} AND t.rowid > {after} AND {source.where}"
                sql = ("SELECT t.rowid FROM", source.table, "t WHERE", where, "ORDER BY t.rowid LIMIT", str(_BATCH))
                numbers = [number for (number,) in connection.execute(" ".join(sql), values)]
                rows = list(source.select(connection, f"t.rowid IN ({', '.join(map(str, numbers))})", []))
            yield from rows
            if len(numbers) < _BATCH:
                return
            after = numbers[-1]

    def _records(self, source: Source, row: Row) -> Iterator[tuple[tuple[str, ...], Document]]:
        try:
            for key, value in source.records(row):
                yield check_key(key), value
        except (InvalidKeyError, RecordError) as error:
            self.damage.append(self._damage(source, row, error))

    def _damage(self, source: Source, row: Row, error: InvalidKeyError | RecordError) -> Damage:
        reason = error.reason if isinstance(error, RecordError) else error.message
        return Damage(f"{self.place}#{source.place(row)}", reason)


def _whole(value: Any) -> int:
    return int(value) if isinstance(value, (int, float)) else 0
