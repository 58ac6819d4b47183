"""OpenCode's databases (1.2 and later)."""

from __future__ import annotations

import logging
import os
import time
from contextlib import contextmanager, suppress
from heapq import merge
from itertools import chain
from threading import RLock
from typing import TYPE_CHECKING, Any

from ...errors import InvalidKeyError, NotFoundError, RecordError, StoreError
from ...records.codec import as_object, dumps_compact, loads
from ..json_tree.store import JsonTree
from ..keys import check_key
from ..locations import user_setting
from ..protocol import Conventions, Key, RecordChange, StoredMessage, log_damage
from ..stream_journal import StreamJournals, with_streamed_text
from .other_programs import Follower, other_processes, running_since
from .record_reader import RecordReader, kinds_below
from .rows import canonical, restore_message
from .sqlite_reader import SqliteReader
from .sqlite_writer import WRITE_BUSY_SECONDS, Transactions, read_only
from .table_rows import TableRows
from .tables import DEPTH

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterator, Sequence
    from sqlite3 import Connection
    from types import TracebackType

    from ...records import Document
    from ..change_feeds import ChangeFeed
    from ..protocol import Leases, Report, Subscriber
    from ..queries import SessionQuery
    from .record_writer import RecordWriter
    from .waking import ClientWaker


_DIFFS = "session_diff"
_SHOWN = ("session", "message", "todo")
"""Records whose change is announced to a server of OpenCode's: parts change with their messages."""
_USER_FIELDS = ("title", "permission", "share", "revert", "metadata")
_UNDONE_SECONDS = 0.05
_REPEATS = 3
_log = logging.getLogger("opensesh.storage")


class OpencodeDB(TableRows):
    """An ``opencode.db`` of any version. See :class:`~opensesh.storage.protocol.Store`.

    Records have the keys of the JSON tree and the fields that OpenCode's server returns, in its order. Sessions of
    OpenCode 2.x appear in the format of 1.x; one that is in both layouts is read from the newer.

    **Writing.** A database is written if its tables are those of a known OpenCode; any other is only read. Every record
    is checked first, because one that OpenCode cannot read would break its lists. Each write, update and batch is one
    transaction: rows, totals and event log together. Only kinds of records that OpenCode has can be stored, a message
    needs its session and a part its message, and removing one removes what belongs to it. The diffs of a session are in
    a file beside the database, where OpenCode keeps them.

    **Reading.** OpenCode may be writing at the same time. ``read``, ``list`` and ``messages`` each see one state of the
    database. ``scan`` reads a page of rows at a time and keeps no transaction open in between: a long import neither
    blocks the checkpoints of OpenCode's write-ahead log nor returns a record twice. It does not see records that are
    written behind its position.

    Any number of threads may use one object; they take turns.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        busy_seconds: float = 5.0,
        write_busy_seconds: float = WRITE_BUSY_SECONDS,
    ) -> None:
        reader = RecordReader(SqliteReader(os.fspath(path), busy_seconds))
        super().__init__(reader, Transactions(reader.file.path, write_busy_seconds))
        self._change_lock = RLock()
        """Held while something is written and reported, so that changes are reported in their order."""
        self._subscribers: list[Subscriber] = []
        self._follower: Follower | None = None
        self._own_messages: set[str] = set()
        self._files = JsonTree(os.path.join(os.path.dirname(self.place), "storage"))
        """Where OpenCode keeps the diffs of sessions, whether or not it keeps the sessions in a database."""
        self._waker: ClientWaker | None = None
        if server := user_setting("opencodeServer"):
            from .waking import ClientWaker  # loads an HTTP client, which few need

            self._waker = ClientWaker(server, self._announced)

    def __enter__(self) -> OpencodeDB:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the database. Closing twice is not an error."""
        if self._waker is not None:
            self._waker.close()
        if self._follower is not None:
            self._follower.stop()
        self._transactions.close()
        self._reader.file.close()

    @property
    def writable(self) -> bool:
        """Whether its tables are known and the file can be written."""
        return not self.refusal

    @property
    def refusal(self) -> str:
        """Why the database is only read; empty if it is written."""
        try:
            with self._reader.snapshot() as (connection, _):
                return self._transactions.refusal(connection)
        except StoreError as error:  # a damaged database is read as far as possible, and never written
            return error.message.removeprefix(f"{self.place}: ")

    @property
    def place(self) -> str:
        """The database file."""
        return self._reader.file.path

    @property
    def id(self) -> str:
        """The real path of the database file."""
        return os.path.realpath(self.place)

    @property
    def conventions(self) -> Conventions:
        """The conventions of the OpenCode that made the database, as its columns tell."""
        with self._reader.snapshot() as (connection, _):
            schema = self._transactions.schema(connection)
        columns = schema.columns.get("session", frozenset())
        return Conventions(
            projects_by_head=schema.has_accounts,
            projects_by_remote="metadata" in columns,
            keeps_cached_projects=not schema.logs_events,
            # 1.3.3 is the first version with a table of events, and the first with snapshots of each worktree.
            snapshots_by_worktree="event" in schema.columns,
            sessions_have_paths="path" in columns,
            diffs_are_patches="path" in columns,
        )

    def change_feed(self) -> ChangeFeed:
        """Return a feed that compares counts and update times of rows."""
        from .change_feed import OpencodeDBFeed

        return OpencodeDBFeed(self.place)

    def leases(self) -> Leases:
        """Return leases that are held with file locks of this host, outside of the database."""
        from ..leases import FileLeases

        return FileLeases.of(self)

    def stream_journals(self) -> StreamJournals:
        """Return the journals of text that is being streamed."""
        return StreamJournals(self)

    def locate(self, key: Key) -> str:
        """Return the table and row of a record."""
        return f"{self.place}#{key[0]}/{key[-1]}"

    def read(self, key: Key) -> Any:
        """Return the record, or raise :class:`NotFoundError`."""
        check_key(key)
        value = self._reader.read(key)
        if value is None and key[0] == _DIFFS and len(key) == DEPTH[_DIFFS]:
            with suppress(NotFoundError):
                return self._files.read(key)
        if value is None:
            raise NotFoundError(f"nothing is stored at {self.locate(key)}", key=list(key))
        return value

    def write(self, key: Key, value: Any) -> None:
        """Store ``value`` in place of the current record, if there is one."""
        with self.batch() as batch:
            batch.write(key, value)

    def update(self, key: Key, edit: Callable[[Any], None]) -> Any:
        """Read, edit and store in one transaction. ``edit`` must not call the store."""
        check_key(key)
        if key[0] == _DIFFS:
            return self._files.update(key, edit)
        with self._change_lock:
            before, value = self._update(key, edit)
            self._notify([RecordChange(key, removed=False, own=True)])
        if key[0] == "session":
            self._keep(key, before, _guarded(value))
        return value

    def _keep(self, key: Key, before: Document, after: Document) -> None:
        """Repeat a change of a session that another program has undone.

        OpenCode 1.17 and later write whole rows that they read a moment before, and with them what was in them then.
        """
        changed = [name for name in after if before[name] != after[name]]
        if not changed or not other_processes(self.place):
            return
        for _ in range(_REPEATS):
            time.sleep(_UNDONE_SECONDS)
            try:
                now = _guarded(self.read(key))
            except (NotFoundError, RecordError):
                return
            undone = [name for name in changed if now[name] == before[name]]
            if not undone:
                return
            self._update(key, lambda info, undone=undone: _restore(info, {name: after[name] for name in undone}))

    def _update(self, key: Key, edit: Callable[[Any], None]) -> tuple[Document, Any]:
        """Return the guarded fields before the edit if it is a session, and the record after it."""
        with self._transactions.begin() as (connection, writer):
            value: Any = self._reader.find(connection, self._reader.sources(connection), key)
            if value is None and key[0] == "todo" and writer.has_session(key[1]):
                value = []  # an empty list has no rows
            if value is None:
                raise NotFoundError(f"nothing is stored at {self.locate(key)}", key=list(key))
            before = _guarded(value) if key[0] == "session" else {}
            edit(value)
            try:
                record = canonical(key, value, self.locate(key))
            except RecordError:
                stored = self._reader.find(connection, self._reader.sources(connection), key)
                if stored is not None:
                    self.check_restorable(key, stored)
                raise
            self._apply(connection, writer, [(key, record)])
        return before, value

    def remove(self, key: Key) -> None:
        """Remove the record and what belongs to it. A missing record is not an error."""
        with self.batch() as batch:
            batch.remove(key)

    @contextmanager
    def batch(self) -> Generator[_DatabaseBatch]:
        """Collect writes and removals, and apply all of them in one transaction at the end of the block.

        Their order does not matter, except that of several operations on one record the last one counts. The diffs of
        sessions, which are files, are written after the transaction.
        """
        if refusal := self.refusal:
            raise read_only(self.place, refusal)
        batch = _DatabaseBatch(self.locate)
        yield batch
        outdated: list[tuple[Key, None]] = []
        if batch.diffs:
            with self._reader.snapshot() as (connection, known):
                # Diffs in the row of a session, as an import of OpenCode's leaves them, give way to those in files.
                outdated = [
                    (key, None) for key, _ in batch.diffs if self._reader.find(connection, known, key) is not None
                ]
        with self._change_lock:
            if batch.operations or outdated:
                with self._transactions.begin() as (connection, writer):
                    self._apply(connection, writer, [*batch.operations, *outdated])
            if batch.diffs:
                with self._files.batch() as files:
                    for key, value in batch.diffs:
                        if value is None:
                            files.remove(key)
                        else:
                            files.write(key, value)
            operations = [*batch.operations, *batch.diffs]
            self._notify([RecordChange(key, removed=value is None, own=True) for key, value in operations])

    def list(self, prefix: Key = ()) -> Sequence[Key]:
        """Return the keys below ``prefix``, sorted."""
        return sorted(self._reader.keys(prefix).union(self._diff_files(prefix)))

    def scan(self, prefix: Key, *, report: Report = log_damage) -> Iterator[tuple[Key, Any]]:
        """Iterate over every readable record below ``prefix``, in key order."""
        return chain.from_iterable(
            merge(
                self._reader.scan(start, report),
                self._scan_diff_files(start, report) if start[0] == _DIFFS else (),
                key=lambda record: record[0],
            )
            for start in list(kinds_below(prefix))
        )

    def messages(self, session_id: str, *, last: int = 0, report: Report = log_damage) -> Sequence[StoredMessage]:
        """Return a session's messages with their parts, oldest first; with ``last``, only the newest."""
        return with_streamed_text(self, session_id, self._reader.messages(session_id, last, report))

    def query_sessions(self, query: SessionQuery, *, report: Report = log_damage) -> list[tuple[Key, Document]]:
        """Return the selected sessions, newest first."""
        return self._reader.query_sessions(query, report)

    def count_sessions(self, query: SessionQuery) -> int:
        """Return how many sessions are selected, ignoring the limit. Unreadable ones are counted."""
        return self._reader.count_sessions(query)

    def subscribe(self, callback: Subscriber) -> Callable[[], None]:
        """Call ``callback`` for the changes of this object, and for those that OpenCode logs a moment later."""
        with self._change_lock:
            self._subscribers.append(callback)
            if self._follower is None:
                self._follower = Follower(self._reader.file, self._notify)

        def unsubscribe() -> None:
            with self._change_lock:
                if callback in self._subscribers:
                    self._subscribers.remove(callback)
                if not self._subscribers and self._follower is not None:
                    self._follower.stop()
                    self._follower = None

        return unsubscribe

    def canonical_record(self, key: Key, value: Any) -> Any:
        """Return a record as it is read after it was written; raise :class:`RecordError` if OpenCode cannot read it."""
        record = canonical(check_key(key), value, self.locate(key))
        return restore_message(record) if key[0] == "message" else record

    def check_restorable(self, key: Key, stored: Any) -> None:
        """Raise :class:`RecordError` if OpenCode cannot read a stored record, so that it could not be stored again."""
        if key[0] == _DIFFS:
            return  # a file, of which nothing is demanded
        try:
            canonical(key, stored, self.locate(key))
        except RecordError as error:
            reason = f"{error.reason}. 'opensesh doctor --fix' repairs it"
            raise RecordError(reason, path=error.path, place=error.place) from None

    # -- other programs ------------------------------------------------------------------------------------------------

    def foreign_run(self, session_id: str) -> str:
        """Return which other program seems to be running a session now, and why; empty if none does."""
        with self._reader.snapshot() as (connection, known):
            is_known = any(source.table == "message" for source in known.get("message", []))
            age = running_since(connection, session_id, self._own_messages) if is_known else None
        if age is None:
            return ""
        processes = other_processes(self.place)
        if not processes:
            return ""
        return f"pid {', '.join(map(str, processes))}, whose turn is unfinished and changed {max(age, 0):.0f} s ago"

    def foreign_messages(self, session_id: str, known: Collection[str]) -> list[str]:
        """Return the ids of messages that are neither known nor written by this object."""
        names = (key[-1] for key in self.list(("message", session_id)))
        return [name for name in names if name not in known and name not in self._own_messages]

    def _apply(self, connection: Connection, writer: RecordWriter, operations: Sequence[tuple[Key, Any]]) -> None:
        """Apply operations inside a transaction, and note them as those of this object before others can see them."""
        writer.apply(operations)
        self._own_messages.update(key[2] for key, value in operations if key[0] == "message" and value is not None)
        if self._follower is not None:
            self._follower.skip(connection, writer.event_ids, writer.unlogged_sessions)

    def _announced(self, session_id: str) -> tuple[Document, Document | None] | None:
        """Return what a server is asked to announce: a session, and the last part of its newest answer."""
        key = next((key for key in self.list(("session",)) if key[-1] == session_id), None)
        if key is None:
            return None
        newest = self._reader.messages(session_id, 1, log_damage)
        is_finished = bool(newest) and "completed" in (as_object(newest[0].info.get("time")) or {})
        return self.read(key), newest[0].parts[-1] if is_finished and newest[0].parts else None

    def _notify(self, changes: Sequence[RecordChange]) -> None:
        if self._waker is not None:
            self._waker.note(
                {key[2 if key[0] == "session" else 1] for key, _, own in changes if own and key[0] in _SHOWN}
            )
        for subscriber in tuple(self._subscribers) if changes else ():
            try:
                subscriber(changes)
            except Exception:
                _log.exception("a subscriber to the changes of %s failed", self.id)

    # -- diffs of sessions, in files -----------------------------------------------------------------------------------

    def _diff_files(self, prefix: Key) -> list[Key]:
        """Return the keys of the diffs that are in files, for the sessions of this database."""
        if prefix not in ((), (_DIFFS,)):
            return []
        files = self._files.list((_DIFFS,))
        sessions = {key[-1] for key in self.list(("session",))} if files else set[str]()
        return [key for key in files if key[-1] in sessions]

    def _scan_diff_files(self, prefix: Key, report: Report) -> Iterator[tuple[Key, Any]]:
        keys = set(self._diff_files(prefix))
        yield from ((key, value) for key, value in self._files.scan((_DIFFS,), report=report) if key in keys)


class _DatabaseBatch:
    """The operations of a batch: the canonical record of each key, ``None`` for one to remove."""

    def __init__(self, locate: Callable[[Key], str]) -> None:
        self.operations: list[tuple[Key, Any]] = []
        self.diffs: list[tuple[Key, Any]] = []
        self._locate = locate

    def write(self, key: Key, value: Any) -> None:
        """Check the record, and add it."""
        check_key(key)
        if len(key) != DEPTH.get(key[0]):
            raise InvalidKeyError(f"OpenCode's database has no place for {'/'.join(key)}", key=list(key))
        if key[0] == _DIFFS:
            self.diffs.append((key, loads(dumps_compact(value))))
        else:
            self.operations.append((key, canonical(key, value, self._locate(key))))

    def remove(self, key: Key) -> None:
        """Add a removal."""
        check_key(key)
        if len(key) == DEPTH.get(key[0]):
            (self.diffs if key[0] == _DIFFS else self.operations).append((key, None))


def _guarded(session: Document) -> Document:
    """Return copies of the fields of a session that users set, by name; ``None`` for one that is missing."""
    fields: Document = {name: session.get(name) for name in _USER_FIELDS}
    return loads(dumps_compact(fields | {"archived": session["time"].get("archived")}))


def _restore(session: Document, fields: Document) -> None:
    """Set fields that :func:`_guarded` returned."""
    for name, value in fields.items():
        target = session["time"] if name == "archived" else session
        target.pop(name, None)
        if value is not None:
            target[name] = value
