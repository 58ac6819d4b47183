"""The SQLite file of the derived cache: its tables, and the check that a file is one of ours and of this version."""

from __future__ import annotations

import os
import sqlite3
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlite3 import Connection

VERSION = 4
"""The version of the tables and their content. Increase it with every change: other files are rebuilt then."""

TEMPORARY = ""
"""SQLite's name for a temporary database: in memory, and in a temporary file once it is large."""

MEMORY = ":memory:"
"""SQLite's name for a database in memory alone, for a full disk."""

DISK_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
"""Errors of a full disk: the second if a quota or a limit is reached."""

_APPLICATION_ID = 0x0E5E5E50
_WAL_LIMIT_BYTES = 64 << 20
_CHECKPOINT_PAGES = 8_000
_NETWORK_FILE_SYSTEMS = (
    "nfs", "cifs", "smb", "9p", "virtiofs", "fuse.", "afs", "ceph", "glusterfs", "lustre", "vboxsf", "prl_fs",
)  # fmt: skip
_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
-- Of every layer: the stores it is made from, and the sessions in each, as they were when they were last read.
CREATE TABLE source (
    id INTEGER PRIMARY KEY, layer TEXT NOT NULL, store_id TEXT NOT NULL, fingerprint INTEGER NOT NULL DEFAULT 0,
    UNIQUE (layer, store_id)
);
CREATE TABLE copy (
    source INTEGER NOT NULL, session TEXT NOT NULL, fingerprint INTEGER NOT NULL, PRIMARY KEY (source, session)
) WITHOUT ROWID;
-- The usage layer: totals of each session by quarter of an hour, and what else statistics need of its messages.
CREATE TABLE usage (
    session TEXT PRIMARY KEY, generation INTEGER NOT NULL, info TEXT, buckets TEXT NOT NULL, damage TEXT,
    watched TEXT, answers TEXT NOT NULL, fingerprints BLOB NOT NULL, entries TEXT
);
CREATE INDEX usage_watched ON usage (session) WHERE watched IS NOT NULL;
CREATE INDEX usage_damage ON usage (session) WHERE damage IS NOT NULL;
CREATE TABLE tool_usage (
    session TEXT PRIMARY KEY, generation INTEGER NOT NULL, unfinished INTEGER NOT NULL, calls TEXT NOT NULL
);
-- The text layer.
CREATE TABLE session (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, project TEXT, directory TEXT, parent TEXT, title TEXT,
    created INTEGER, updated INTEGER, archived INTEGER, checked INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX session_checked ON session (checked);
CREATE TABLE message (
    id INTEGER PRIMARY KEY, session INTEGER NOT NULL, name TEXT NOT NULL, fingerprint INTEGER NOT NULL, role TEXT,
    agent TEXT, model TEXT, time INTEGER, unfinished INTEGER
);
CREATE UNIQUE INDEX message_name ON message (session, name);
CREATE INDEX message_unfinished ON message (id) WHERE unfinished;
CREATE TABLE part (
    id INTEGER PRIMARY KEY, session INTEGER NOT NULL, message INTEGER, name TEXT NOT NULL,
    fingerprint INTEGER NOT NULL, digest INTEGER NOT NULL, kind TEXT NOT NULL, tool TEXT, time INTEGER,
    unfinished INTEGER
);
CREATE INDEX part_message ON part (message);
CREATE INDEX part_session ON part (session);
CREATE INDEX part_unfinished ON part (message) WHERE unfinished;
CREATE TABLE tombstone (id INTEGER PRIMARY KEY);
CREATE TABLE path (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, base TEXT NOT NULL);
CREATE INDEX path_base ON path (base);
CREATE TABLE touched (path INTEGER NOT NULL, part INTEGER NOT NULL, PRIMARY KEY (path, part)) WITHOUT ROWID;
CREATE TABLE term (word TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE VIRTUAL TABLE words USING fts5 (
    said, tool, input, output, error, paths, content='',
    tokenize="unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'"
);
INSERT INTO words (words, rank) VALUES ('hashsize', 8000000);
"""


def open_writer(path: str, store_id: str) -> Connection:
    """Open the cache at ``path`` for writing. It is created if it is missing or not a cache of this store and version.

    The caller must hold the lock of the cache: one lock for everything that writes or checkpoints the write-ahead log,
    because older versions of SQLite do not do that safely from several processes.
    """
    connection = _ours(path, "mode=rw", store_id) if os.path.isfile(path) else None
    if connection is not None:
        return connection
    remove(path)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))  # only the user may read it
    connection = _connect(path, "mode=rwc")
    create(connection, path, store_id)
    return connection


def open_reader(path: str, store_id: str) -> Connection | None:
    """Open the cache at ``path`` for queries, without waiting; ``None`` if there is none that can be used."""
    return _ours(path, "mode=ro", store_id) if os.path.isfile(path) else None


def open_temporary(path: str, store_id: str, source: Connection | None) -> Connection:
    """Open a temporary cache: at :data:`TEMPORARY` or in :data:`MEMORY`. It starts as a copy of ``source``."""
    connection = _prepare(sqlite3.connect(path, isolation_level=None, check_same_thread=False))
    try:
        if source is not None:
            source.backup(connection)
    except sqlite3.Error:
        source = None  # SQLite has undone what was copied
    if source is None:
        create(connection, "", store_id)
    return connection


def create(connection: Connection, path: str, store_id: str) -> None:
    """Create the tables of an empty cache.

    It uses a write-ahead log where the file system lets processes share memory, else the rollback journal.
    """
    mounts = ""
    with suppress(OSError), open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
        mounts = file.read()
    if path and not is_shared(path, mounts):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("COMMIT")
        except sqlite3.OperationalError:
            connection.execute("PRAGMA journal_mode = DELETE")
    connection.executescript(f"BEGIN;{_TABLES}COMMIT;")
    connection.execute("INSERT INTO meta VALUES ('store_id', ?)", [store_id])
    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def remove(path: str) -> None:
    """Delete a cache file and the files that SQLite keeps beside it."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        with suppress(FileNotFoundError):
            os.unlink(path + suffix)


def code_of(error: sqlite3.Error) -> int:
    """Return the primary error code of SQLite."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _ours(path: str, options: str, store_id: str) -> Connection | None:
    try:
        with ExitStack() as stack:
            connection = stack.enter_context(closing(_connect(path, options)))
            numbers = [connection.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")]
            sql = "SELECT value FROM meta WHERE name = 'store_id'"
            if numbers == [(_APPLICATION_ID,), (VERSION,)] and connection.execute(sql).fetchone() == (store_id,):
                stack.pop_all()
                return connection
    except sqlite3.DatabaseError as error:
        if code_of(error) in DISK_FULL:  # for the files beside it; the cache itself may be intact
            raise
    return None  # to be created again


def _connect(path: str, options: str) -> Connection:
    # Not urllib.parse.quote: it takes 3 ms to import, and SQLite needs only these three characters to be escaped.
    escaped = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    if os.name == "nt":
        escaped = escaped.replace("\\", "/")
    uri = f"file://{'' if escaped.startswith('/') else '/'}{escaped}?{options}"
    return _prepare(sqlite3.connect(uri, uri=True, timeout=30, isolation_level=None, check_same_thread=False))


def _prepare(connection: Connection) -> Connection:
    try:
        connection.execute("PRAGMA cache_size = -16000")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT_BYTES}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection


def is_shared(path: str, mounts: str) -> bool:
    """Whether a file is on a file system that several machines may use, whose processes share no memory."""
    real = os.path.realpath(path)
    points = [line.split(" ")[1:3] for line in mounts.splitlines()]
    above = [(len(point), kind) for point, kind in points if real.startswith(point.rstrip("/") + "/")]
    return max(above, default=(0, ""))[1].startswith(_NETWORK_FILE_SYSTEMS)
