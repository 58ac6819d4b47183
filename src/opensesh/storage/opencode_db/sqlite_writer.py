"""Writing an SQLite database that another program uses: its connections, and transactions on its tables."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING
from weakref import finalize

from ...errors import ReadOnlyStoreError, StoreError, WriteError
from .companions import companion
from .record_writer import RecordWriter
from .sqlite_reader import DISK_FULL, LOCKED, FileIdentity, connect, error_code, explain, is_disk_full
from .table_schema import NEWEST, Schema, examine, tables_version

if TYPE_CHECKING:
    from collections.abc import Generator

WRITE_BUSY_SECONDS = 15.0
"""How long a write waits for another program's transaction. OpenCode itself gives up after 5 seconds."""
MIGRATION_PAUSE_SECONDS = 1.0
"""How long the tables must have stayed the same before the next write."""
_CHECKPOINT_PAGES = 1_000
_LOOK_SECONDS = 0.05
_PAGES_PER_COMMIT = 18
"""About how many pages a message, a part and their events dirty."""
_PAGE_BYTES = 4_096
_REFUSED = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)


def checkpoints_safely(version: tuple[int, ...]) -> bool:
    """Return whether this version of SQLite may checkpoint while another connection writes.

    Before 3.51.3 (and 3.50.7 and 3.44.6 of their lines) two checkpoints close together could lose pages that were
    committed in between.
    """
    return version >= (3, 51, 3) or (3, 50, 7) <= version < (3, 51) or (3, 44, 6) <= version < (3, 45)


class SqliteWriter:
    """The one writing connection of a process to a database file, for any number of threads.

    Transactions begin with the write lock, are short, and see every earlier commit. A failure is a
    :class:`~opensesh.errors.StoreError` that names the file, and has changed nothing. Where SQLite is too old to
    checkpoint beside other writers, it does so only while a transaction of this process keeps all others out.
    """

    def __init__(self, path: str, busy_seconds: float = WRITE_BUSY_SECONDS) -> None:
        self.path = os.path.abspath(path)
        self._busy_seconds = busy_seconds
        self._lock = RLock()
        self._is_busy = False
        self._identity = FileIdentity(self.path)
        self._guards_checkpoints = not checkpoints_safely(sqlite3.sqlite_version_info)
        self._connection: sqlite3.Connection | None = None
        self._checkpointer: sqlite3.Connection | None = None
        self._pages = 0
        self._is_closed = False
        self._tables_version: int | None = None
        self._tables_changed = float("-inf")
        self.damage = ""
        """What a write found to be damaged; nothing is written after that."""

    def close(self) -> None:
        """Close the connections. Closing twice is not an error."""
        with self._lock:
            self._is_closed = True
            self._disconnect()

    @contextmanager
    def transaction(self, *, cascades: bool = True) -> Generator[sqlite3.Connection]:
        """Hold the write lock of the database for the block, and commit at its end; roll back if it raises.

        Without ``cascades``, foreign keys are not enforced.
        """
        with self._lock:
            if self._is_busy:  # by this thread: any other waits for the lock
                raise StoreError("a store was called from inside its own update; that would wait forever")
            self._is_busy = True
            try:
                connection = self._connect()
                self._await_migrations(connection)
                connection.execute(f"PRAGMA foreign_keys = {'ON' if cascades else 'OFF'}")
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    _roll_back(connection)
                    raise
                self._pages += _PAGES_PER_COMMIT
                if self._guards_checkpoints and self._pages >= _CHECKPOINT_PAGES:
                    self._checkpoint(connection)
            except sqlite3.Error as error:
                raise self._explain(error) from None
            finally:
                self._is_busy = False

    def _await_migrations(self, connection: sqlite3.Connection) -> None:
        """Wait until the tables stay the same for a while.

        An OpenCode that is started after an upgrade changes them in many transactions, some of which read before they
        write. A commit or a lock of another connection in between ends them with an error, and OpenCode with them.
        """
        while True:
            (version,) = connection.execute("PRAGMA schema_version").fetchone()
            now = time.monotonic()
            if version != self._tables_version:
                self._tables_changed = float("-inf") if self._tables_version is None else now
                self._tables_version = version
            if now >= self._tables_changed + MIGRATION_PAUSE_SECONDS:
                return
            time.sleep(_LOOK_SECONDS)

    def count_bytes(self, number: int) -> None:
        """Note how much a transaction writes, to know when a checkpoint is due."""
        self._pages += number // _PAGE_BYTES

    def _explain(self, error: sqlite3.Error) -> StoreError:
        if error_code(error) in _REFUSED:
            reason = DISK_FULL if is_disk_full(self.path) else error
            return WriteError(f"{self.path}: could not be written ({reason}). Nothing was changed.", path=self.path)
        explained = explain(self.path, error, self._busy_seconds)
        if error_code(error) == sqlite3.SQLITE_CORRUPT and "damaged" in explained.message:
            self.damage = explained.message.removeprefix(f"{self.path}: ")
        elif error_code(error) in LOCKED:
            return WriteError(f"{explained.message} Nothing was changed.", path=self.path)
        return explained

    def _connect(self) -> sqlite3.Connection:
        if self._is_closed:
            raise StoreError(f"{self.path}: closed", path=self.path)
        if self._connection is not None and self._identity.has_changed():
            self._disconnect()  # the file was replaced; the old one is no longer the store
        if self._connection is None:
            self._identity = FileIdentity(self.path)
            self._connection = self._open()
            self._tables_version = None
        return self._connection

    def _open(self) -> sqlite3.Connection:
        def set_up(connection: sqlite3.Connection) -> None:
            connection.execute("PRAGMA synchronous = FULL")
            if self._guards_checkpoints:
                connection.execute("PRAGMA wal_autocheckpoint = 0")

        connection = connect(self.path, "mode=rw", self._busy_seconds, set_up)
        finalize(self, connection.close)  # for callers that do not close the store
        return connection

    def _disconnect(self) -> None:
        for connection in (self._checkpointer, self._connection):
            if connection is not None:
                connection.close()
        self._connection = self._checkpointer = None

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        """Copy the write-ahead log into the database while no other connection can start it over.

        A checkpoint that cannot be made now is made later; the commit before it is safe either way.
        """
        self._pages = 0
        try:
            if self._checkpointer is None:
                self._checkpointer = self._open()
            connection.execute("BEGIN IMMEDIATE")
            try:
                self._checkpointer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            finally:
                _roll_back(connection)
        except sqlite3.Error:
            return


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


class Transactions:
    """Writes to one database, each in one short transaction.

    Its tables are examined before the first write, and again when they have changed: OpenCode may be upgraded while
    the database is open here.
    """

    def __init__(self, path: str, busy_seconds: float) -> None:
        self._file = SqliteWriter(path, busy_seconds)
        self._examined_file = FileIdentity(path)
        self._examined_version = (-1, 0)
        self._schema = Schema({}, logs_events=False, has_accounts=False, refusal="")

    def close(self) -> None:
        """Close the database. Closing twice is not an error."""
        self._file.close()

    def refusal(self, connection: sqlite3.Connection) -> str:
        """Return why the database must not be written; empty if it may be."""
        return _protection(self._file.path) or self._file.damage or self.schema(connection).refusal

    def schema(self, connection: sqlite3.Connection) -> Schema:
        """Return the written tables that the database has now."""
        version = tables_version(connection)
        if version != self._examined_version or self._examined_file.has_changed():
            self._examined_file = FileIdentity(self._file.path)
            self._schema = examine(connection)
            self._examined_version = version
        return self._schema

    @contextmanager
    def begin(self, *, cascades: bool = True) -> Generator[tuple[sqlite3.Connection, RecordWriter]]:
        """Open a transaction; raise :class:`ReadOnlyStoreError` if the tables are not known.

        Without ``cascades``, deleting a row deletes none of those that refer to it.
        """
        path = self._file.path
        if reason := _protection(path):
            raise read_only(path, reason)
        with self._file.transaction(cascades=cascades) as connection:
            schema = self.schema(connection)
            if schema.refusal:
                raise read_only(path, schema.refusal)
            writer = RecordWriter(connection, schema, path)
            yield connection, writer
            self._file.count_bytes(writer.bytes)


def _protection(path: str) -> str:
    """Return which file or folder this user may not write, without which SQLite cannot write the database."""
    files = (
        ("file", path),
        ("folder", os.path.dirname(os.path.realpath(path))),
        ("-wal file", companion(path, "-wal")),
        ("-shm file", companion(path, "-shm")),
    )
    closed = (name for name, file in files if os.path.exists(file) and not os.access(file, os.W_OK))
    return next((f"its {name} is read-only" for name in closed), "")


def read_only(path: str, reason: str) -> ReadOnlyStoreError:
    """Return the error of a write to a database that is only read, and why."""
    advice = ""
    if reason != _protection(path):
        advice = (
            f" opensesh writes databases of OpenCode 1.2 to {NEWEST}, as OpenCode made them; a newer opensesh may know "
            "this one. 'opensesh import' copies its sessions into a store that can be written."
        )
    return ReadOnlyStoreError(f"{path} is only read: {reason}.{advice}", path=path, reason=reason)
