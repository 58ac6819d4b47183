"""Reading records from the tables of an OpenCode database, however much of it can be read."""

from __future__ import annotations

from contextlib import closing, contextmanager
from heapq import merge
from sqlite3 import SQLITE_CORRUPT, SQLITE_NOTADB, DatabaseError
from typing import TYPE_CHECKING, Any, TypeVar

from ...errors import InvalidKeyError, RecordError
from ...records import order
from ...records.codec import dumps_compact
from ..keys import check_key, is_plain
from ..protocol import Damage, StoredMessage, log_damage
from ..queries import newest_first
from .tables import DEPTH, PAGE, read_layout, sources
from .v2 import messages_of, read_row

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator
    from sqlite3 import Connection

    from ...records import Document
    from ..protocol import Key, Report
    from ..queries import SessionQuery
    from .rows import Row
    from .sqlite_reader import SqliteReader
    from .tables import TableSource

    Sources = dict[str, list[TableSource]]
    Documents = list[Document]
    Messages = list[StoredMessage]
    Damages = list[Damage]

T = TypeVar("T")


class RecordReader:
    """The records of one database. Each call sees one state of it, except :meth:`scan`.

    A row that is not a record is reported and costs no other row; a damaged page costs only what is on it.
    """

    def __init__(self, file: SqliteReader) -> None:
        self.file = file
        self._known: tuple[tuple[int, int], Sources] = ((0, -1), {})
        """The file and the version of its schema, and the tables of that version."""
        try:
            with self.snapshot():
                pass
        except BaseException:
            self.file.close()
            raise

    @contextmanager
    def snapshot(self) -> Generator[tuple[Connection, Sources]]:
        """Open a state of the database, with its tables."""
        with self.file.snapshot() as connection:
            yield connection, self.sources(connection)

    def sources(self, connection: Connection) -> Sources:
        """Return the tables, which a newer OpenCode may have changed since the last call."""
        version = (self.file.openings, *connection.execute("PRAGMA schema_version").fetchone())
        if version != self._known[0]:
            self._known = version, sources(read_layout(connection, self.file.path))
        return self._known[1]

    def read(self, key: Key) -> Any | None:
        """Return a record; ``None`` if there is none."""
        with self.snapshot() as (connection, known):
            return self.find(connection, known, key)

    def find(self, connection: Connection, known: Sources, key: Key) -> Any | None:
        """Return the record of a key in one state of the database, if there is one.

        Raises :class:`RecordError` if it may be on a damaged page.
        """
        if len(key) != DEPTH.get(key[0]):
            return None
        damage: list[Damage] = []
        for source in known.get(key[0], []):
            for row in list(self._contained(source.below(connection, key), source, damage.append)):
                try:
                    records = source.records(row)
                except RecordError as error:
                    raise RecordError(error.reason, path=self._path(source, row), place=error.place) from None
                for record_key, value in records:
                    if record_key == key:
                        return value
        if damage:
            raise RecordError(damage[0].reason, path=self.file.path)
        return None

    def keys(self, prefix: Key) -> set[Key]:
        """Return the keys below ``prefix``."""
        with self.snapshot() as (connection, known):
            return {
                key
                for start in kinds_below(prefix)
                for source in known.get(start[0], [])
                for key in self._contained(self._keys(connection, source, start), source, log_damage)
                if key[: len(start)] == start and all(map(is_plain, key))
            }

    def scan(self, prefix: Key, report: Report) -> Iterator[tuple[Key, Any]]:
        """Iterate over the readable records of one kind, in key order, a page at a time."""
        with self.snapshot() as (_, known):
            streams = [self._scan(source, prefix, report) for source in known.get(prefix[0], [])]
        return merge(*streams, key=lambda record: record[0])

    def messages(self, session_id: str, last: int, report: Report) -> Messages:
        """Return a session's messages with their parts, oldest first; with ``last``, only the newest."""
        prefix = check_key(("message", session_id))
        messages: Messages = []
        damage: Damages = []
        with self.snapshot() as (connection, known):
            for source in known.get("message", []):
                with closing(source.below(connection, prefix, source.newest)) as rows:
                    newest = self._contained(rows, source, damage.append)
                    if source.whole:
                        infos = self._infos(source, newest, last, damage.append)
                        messages += self._with_parts(connection, known.get("part", []), infos, damage.append)
                    else:
                        messages += self._unfolded(source, newest, last, damage.append)
        for entry in damage:
            report(entry)
        return messages

    def query_sessions(self, query: SessionQuery, report: Report) -> list[tuple[Key, Document]]:
        """Return the selected sessions, newest first."""
        sessions: list[tuple[Key, Document]] = []
        damage: Damages = []
        with self.snapshot() as (connection, known):
            for source in known.get("session", []):
                condition, values = source.session_filter(query)
                rows = source.select(connection, condition, values, f"{source.updated} DESC, t.id")
                count = 0
                with closing(rows):
                    for row in self._contained(rows, source, damage.append):
                        if query.limit and count >= query.limit:
                            break
                        matches = [
                            (key, record)
                            for key, record in self.records_of(source, row, damage.append)
                            if query.matches(record)
                        ]
                        sessions += matches
                        count += len(matches)
        for entry in damage:
            report(entry)
        sessions.sort(key=newest_first)
        return sessions[: query.limit or None]

    def count_sessions(self, query: SessionQuery) -> int:
        """Return how many sessions are selected, ignoring the limit. Unreadable ones are counted."""
        with self.snapshot() as (connection, known):
            return sum(
                source.count_rows(connection, *source.session_filter(query)) for source in known.get("session", [])
            )

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _infos(self, source: TableSource, newest: Iterator[Row], last: int, report: Report) -> Documents:
        """Return the ``last`` messages of 1.x. All rows of the same time are read: their ids may not be in order."""
        infos: Documents = []
        oldest = None
        for row in newest:
            if last and len(infos) >= last and row["time_created"] != oldest:
                break
            infos += [info for _, info in self.records_of(source, row, report)]
            oldest = row["time_created"]
        return order.in_order(infos)[-last:]

    def _with_parts(
        self, connection: Connection, sources: Iterable[TableSource], infos: Documents, report: Report
    ) -> Iterator[StoredMessage]:
        parts: dict[str, Documents] = {info["id"]: [] for info in infos}
        names = dumps_compact([*parts]).decode()
        for source in sources:
            if source.whole:
                rows = source.select(connection, "t.message_id IN (SELECT value FROM json_each(?))", [names])
                for row in self._contained(rows, source, report):
                    try:
                        part = source.make(row)
                        if not is_plain(part["id"]):
                            check_key(("part", part["messageID"], part["id"]))
                        parts[part["messageID"]].append(part)
                    except (InvalidKeyError, RecordError) as error:
                        report(self.damage_of(source, row, error))
        for info in infos:
            yield StoredMessage(info, order.parts_in_order(parts[info["id"]], order.created(info)))

    def _unfolded(self, source: TableSource, newest: Iterator[Row], last: int, report: Report) -> Messages:
        """Return the ``last`` messages of 2.x, which numbers messages and stores parts with them."""
        unfolded: Messages = []
        for row in newest:
            if last and len(unfolded) >= last:
                break
            try:
                messages = messages_of(read_row(row))
                check_key(("message", *(message.info["id"] for message in messages)))
                unfolded += reversed(messages)
            except (InvalidKeyError, RecordError) as error:
                report(self.damage_of(source, row, error))
        return unfolded[::-1][-last:]

    def _scan(self, source: TableSource, prefix: Key, report: Report) -> Iterator[tuple[Key, Any]]:
        after: tuple[bytes, ...] = ()
        while True:
            with self.snapshot() as (connection, _):
                try:
                    rows = source.page(connection, prefix, after)
                except DatabaseError as error:
                    self._report_corruption(error, source, report)
                    return
            for row in rows:
                for key, value in self.records_of(source, row, report):
                    if key[: len(prefix)] == prefix:
                        yield key, value
            if len(rows) < PAGE:
                return
            after = source.mark(rows[-1])

    def _contained(self, rows: Iterable[T], source: TableSource, report: Report) -> Iterator[T]:
        """Yield rows of a table up to a damaged page, which is reported and costs no other table."""
        try:
            yield from rows
        except DatabaseError as error:
            self._report_corruption(error, source, report)

    def _report_corruption(self, error: DatabaseError, source: TableSource, report: Report) -> None:
        """Report a damaged page; raise any other error, such as one about a lock."""
        if not is_corruption(error):
            raise error
        report(Damage(self.file.path, f"the table of {source.kind} records is damaged, and read in part: {error}"))

    def records_of(self, source: TableSource, row: Row, report: Report) -> Iterator[tuple[Key, Any]]:
        """Iterate over the readable records of a row."""
        try:
            for key, value in source.records(row):
                yield check_key(key), value
        except (InvalidKeyError, RecordError) as error:
            report(self.damage_of(source, row, error))

    def _keys(self, connection: Connection, source: TableSource, prefix: Key) -> Iterator[Key]:
        if source.whole:
            yield from source.keys(connection, prefix)
            return
        for row in source.below(connection, prefix):
            try:
                yield from (key for key, _ in source.records(row))
            except RecordError:
                if source.kind == "message":
                    yield (source.kind, *(name.decode(errors="replace") for name in source.mark(row)))

    def _path(self, source: TableSource, row: Row) -> str:
        return f"{self.file.path}#{source.place(row)}"

    def damage_of(self, source: TableSource, row: Row, error: InvalidKeyError | RecordError) -> Damage:
        """Return the damage of a row that is not a record."""
        return Damage(self._path(source, row), error.detail if isinstance(error, RecordError) else error.message)


def is_corruption(error: DatabaseError) -> bool:
    """Return whether an error is about a damaged page."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (SQLITE_CORRUPT, SQLITE_NOTADB)


def kinds_below(prefix: Key) -> Iterator[Key]:
    """Iterate over the prefixes to search, each of one kind and shorter than the keys of that kind."""
    if not prefix:
        yield from ((kind,) for kind in sorted(DEPTH))
    elif len(check_key(prefix)) < DEPTH.get(prefix[0], 0):
        yield prefix
