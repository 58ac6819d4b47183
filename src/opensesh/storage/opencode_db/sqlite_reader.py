"""Read-only access to an SQLite database that another program writes."""

from __future__ import annotations

import os
import sqlite3
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING
from weakref import finalize

from ...errors import StoreError
from .companions import companion

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

_PRIMARY = 0xFF
_URI_BYTES = frozenset(b"/:._-~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_UNTRUSTED = "unsafe use of"
LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_UNREACHABLE = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
DISK_FULL = "the disk is full"
_NEEDED_BYTES = 65_536
"""The size of the files that SQLite creates beside a database before anything is written, and a little more."""
SQLITE_FAILURES = (sqlite3.Error, UnicodeDecodeError)
"""What SQLite raises. A message may quote damaged bytes, which Python then cannot decode."""


class SqliteReader:
    """One database file, opened read-only, for any number of threads.

    Every failure is a :class:`~opensesh.errors.StoreError` that names the file; no exception of ``sqlite3`` gets
    out. Text comes back as bytes, so that a column that is not UTF-8 does not cost its neighbours.

    A database in WAL mode is read together with its ``-wal``, while its owner writes. SQLite may leave an empty
    ``-wal`` and a ``-shm`` beside it, as for any reader. Where it cannot make them (a read-only folder, a read-only
    disk), the file is read as it is, provided that no ``-wal`` holds changes that it lacks.

    Threads take turns on one connection: decoding, not SQLite, is what takes the time, and that does not run in
    parallel. The database file is never opened by other means: closing any descriptor of it would drop the locks of
    this process.
    """

    def __init__(self, path: str, busy_seconds: float = 5.0) -> None:
        self.path = os.path.abspath(path)
        self._busy_seconds = busy_seconds
        self._lock = RLock()
        self._identity = FileIdentity(self.path)
        self.openings = 0
        """How often the file was opened again because another one had replaced it."""
        self._is_closed = False
        self._connection: sqlite3.Connection | None = self._open()

    def close(self) -> None:
        """Close the file. Closing twice is not an error."""
        with self._lock:
            self._is_closed = True
            self._disconnect()

    @contextmanager
    def snapshot(self) -> Generator[sqlite3.Connection]:
        """Return a connection that sees one state of the database, for this thread only, until the block ends.

        Keep it short: while it lasts, the owner's WAL cannot start over and grows.
        """
        with self._lock:
            connection = self._connect()
            try:
                connection.execute("BEGIN")
                try:
                    yield connection
                finally:
                    connection.rollback()
            except SQLITE_FAILURES as error:
                raise explain(self.path, error, self._busy_seconds) from None

    def data_version(self) -> tuple[int, int]:
        """Return numbers that change whenever another connection has committed something or replaced the file."""
        with self._lock:
            connection = self._connect()
            try:
                (version,) = connection.execute("PRAGMA data_version").fetchone()
            except SQLITE_FAILURES as error:
                raise explain(self.path, error, self._busy_seconds) from None
            return self.openings, version

    def _connect(self) -> sqlite3.Connection:
        """Return the connection to the file that is at the path now."""
        if self._is_closed:
            raise StoreError(f"{self.path}: closed", path=self.path)
        if self._identity.has_changed() or (self._as_is and _size(companion(self.path, "-wal"))):
            self._disconnect()
        if self._connection is None:
            self._identity = FileIdentity(self.path)
            self._connection = self._open()
            self.openings += 1
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _open(self) -> sqlite3.Connection:
        if not os.path.isfile(self.path):
            what = "a folder, not a database" if os.path.isdir(self.path) else "no such file"
            raise StoreError(f"{self.path}: {what}", path=self.path)
        self._as_is = False
        try:
            return self._open_with("mode=ro")
        except SQLITE_FAILURES as error:
            has_unmerged_changes = _size(companion(self.path, "-wal")) or _size(companion(self.path, "-journal"))
            is_reachable = error_code(error) not in _UNREACHABLE and not is_disk_full(self.path)
            if is_reachable or has_unmerged_changes:
                raise explain(self.path, error, self._busy_seconds) from None
        self._as_is = True
        try:
            return self._open_with("mode=ro&immutable=1")
        except SQLITE_FAILURES as error:
            raise explain(self.path, error, self._busy_seconds) from None

    def _open_with(self, options: str) -> sqlite3.Connection:
        connection = connect(self.path, options, self._busy_seconds, _read_schema)
        finalize(self, connection.close)  # for callers that do not close the store
        return connection


def connect(
    path: str, options: str, busy_seconds: float, set_up: Callable[[sqlite3.Connection], None]
) -> sqlite3.Connection:
    """Open a database that may hold anything, for any thread, with text as bytes and without implicit transactions."""
    connection = sqlite3.connect(
        f"{file_uri(path)}?{options}", uri=True, timeout=busy_seconds, isolation_level=None, check_same_thread=False
    )
    try:
        connection.text_factory = bytes
        connection.execute("PRAGMA trusted_schema = OFF")
        set_up(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _read_schema(connection: sqlite3.Connection) -> None:
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.DatabaseError as error:
        if _UNTRUSTED not in str(error):
            raise
        # Columns that are computed with JSON functions, which old versions of SQLite do not count as harmless.
        connection.execute("PRAGMA trusted_schema = ON")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()


def explain(path: str, error: Exception, busy_seconds: float) -> StoreError:
    """Return the error that names the file, and says what happened and what to do."""
    code = error_code(error)
    message = error.object.decode(errors="replace") if isinstance(error, UnicodeDecodeError) else str(error)
    if code in LOCKED:
        reason = f"locked by another program for {busy_seconds:g} seconds. Try again when it is done."
    elif code == sqlite3.SQLITE_NOTADB:
        reason = "not an SQLite database"
    elif _UNTRUSTED in message:
        reason = f"its tables are not known ({message})"
    elif code == sqlite3.SQLITE_CORRUPT or isinstance(error, UnicodeDecodeError):
        reason = f"damaged ({message}). `.recover` of the sqlite3 shell may save what is left, from a copy."
    elif code in _UNREACHABLE and (closed := _unreadable(path)):
        reason = f"permission denied to read {closed}. 'ls -l {closed}' shows its owner and permissions."
    elif code in _UNREACHABLE and _size(companion(path, "-wal")):
        reason = (
            "its newest changes are still in the -wal file beside it, and cannot be read from there in a read-only "
            "folder. Copy both files to a folder of your own."
        )
    elif code in _UNREACHABLE and _size(companion(path, "-journal")):
        reason = "a change to it was cut short (see the -journal file). Start OpenCode once: that undoes it."
    else:
        reason = DISK_FULL if is_disk_full(path) else message
    return StoreError(f"{path}: {reason}", path=path)


def _unreadable(path: str) -> str:
    """Return which file of a database this user may not read; empty if all can be read."""
    files = (path, companion(path, "-wal"), companion(path, "-shm"))
    return next((file for file in files if os.path.exists(file) and not os.access(file, os.R_OK)), "")


def is_disk_full(path: str) -> bool:
    """Return whether there is no space for the files that SQLite needs beside a database."""
    try:
        status = os.statvfs(os.path.dirname(os.path.realpath(path)))
    except (OSError, AttributeError):  # there is no such function on Windows
        return False
    return status.f_bavail * status.f_frsize < _NEEDED_BYTES


class FileIdentity:
    """Which file is at a path. It is only looked at: opening the file would drop SQLite's locks when it is closed."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._known = self._current()

    def has_changed(self) -> bool:
        """Return whether another file is at the path now."""
        return self._current() != self._known

    def _current(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_dev, status.st_ino


def file_uri(path: str) -> str:
    """Return the ``file:`` URI of an absolute path, with any characters in it quoted for SQLite."""
    if os.name == "nt":
        path = path.replace("\\", "/")
    # Not urllib.parse.quote: loading that takes longer than a query.
    quoted = "".join(chr(byte) if byte in _URI_BYTES else f"%{byte:02X}" for byte in os.fsencode(path))
    return "file://" + ("" if path.startswith("/") else "/") + quoted


def error_code(error: Exception) -> int:
    """Return the primary result code of SQLite."""
    return getattr(error, "sqlite_errorcode", 0) & _PRIMARY


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
