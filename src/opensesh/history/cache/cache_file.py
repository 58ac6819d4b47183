"""The index file: its tables, and how to tell that a file is one of ours, whole, and of this version."""

from __future__ import annotations

import os
import sqlite3
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from ...storage.opencode_db.sqlite_reader import file_uri

if TYPE_CHECKING:
    from sqlite3 import Connection

VERSION = 2
"""Counts up with every change of what is in an index; one of another version is made anew."""

TEMPORARY = ""
"""Room for an index for one use: memory, and a file of SQLite's own once it outgrows a part of that."""

MEMORY = ":memory:"
"""Room for one where a disk is full."""

NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
"""How a disk says that it takes no more: the second if it is a quota or a limit that is reached."""

_OURS = 0x0E5E5E50
_WAL_LIMIT = 64 << 20
_CHECKPOINT_PAGES = 8_000
_SHARED = ("nfs", "cifs", "smb", "9p", "virtiofs", "fuse.", "afs", "ceph", "glusterfs", "lustre", "vboxsf", "prl_fs")
_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE member (id INTEGER PRIMARY KEY, place TEXT NOT NULL UNIQUE, mark INTEGER NOT NULL DEFAULT 0);
CREATE TABLE held (
    member INTEGER NOT NULL, session TEXT NOT NULL, mark INTEGER NOT NULL, PRIMARY KEY (member, session)
) WITHOUT ROWID;
CREATE TABLE session (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, project TEXT, directory TEXT, parent TEXT, title TEXT,
    created INTEGER, updated INTEGER, archived INTEGER, checked INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX session_checked ON session (checked);
CREATE TABLE message (
    id INTEGER PRIMARY KEY, session INTEGER NOT NULL, name TEXT NOT NULL, mark INTEGER NOT NULL, role TEXT, agent TEXT,
    model TEXT, time INTEGER, unfinished INTEGER
);
CREATE UNIQUE INDEX message_name ON message (session, name);
CREATE INDEX message_unfinished ON message (id) WHERE unfinished;
CREATE TABLE part (
    id INTEGER PRIMARY KEY, session INTEGER NOT NULL, message INTEGER, name TEXT NOT NULL, mark INTEGER NOT NULL,
    digest INTEGER NOT NULL, kind TEXT NOT NULL, tool TEXT, time INTEGER, unfinished INTEGER
);
CREATE INDEX part_message ON part (message);
CREATE INDEX part_session ON part (session);
CREATE INDEX part_unfinished ON part (message) WHERE unfinished;
CREATE TABLE dead (id INTEGER PRIMARY KEY);
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


def open_writer(path: str, place: str) -> Connection:
    """The index at ``path``, to be written: made if it is not there, made anew if it is not one of ours.

    Only whoever holds the index's lock may have one of these. That one lock keeps all who write and fold in the
    write-ahead log apart, which is what the older versions of SQLite need to do so safely.
    """
    connection = _ours(path, "mode=rw", place) if os.path.isfile(path) else None
    if connection is not None:
        return connection
    remove(path)
    _make_private(path)
    connection = _connect(path, "mode=rwc")
    create(connection, path, place)
    return connection


def open_reader(path: str, place: str) -> Connection | None:
    """The index at ``path``, to be asked; ``None`` if there is none that can be. It never waits for a writer."""
    return _ours(path, "mode=ro", place) if os.path.isfile(path) else None


def open_fleeting(room: str, place: str, like: Connection | None = None) -> Connection:
    """An index for one use, where none can be kept. It begins as a copy of ``like``, if there is one to be read."""
    connection = _prepare(sqlite3.connect(room, isolation_level=None, check_same_thread=False))
    try:
        if like is not None:
            like.backup(connection)
    except sqlite3.Error:
        like = None  # what was copied of it is undone
    if like is None:
        create(connection, "", place)
    return connection


def create(connection: Connection, path: str, place: str) -> None:
    """Lay out an empty index."""
    _choose_journal(connection, path)
    connection.executescript(f"BEGIN;{_TABLES}COMMIT;")
    connection.execute("INSERT INTO meta VALUES ('place', ?)", [place])
    connection.execute(f"PRAGMA application_id = {_OURS}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def remove(path: str) -> None:
    """Take an index away, with what SQLite keeps beside it."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        try:
            os.unlink(path + suffix)
        except FileNotFoundError:
            continue


def code_of(error: sqlite3.Error) -> int:
    """Which of SQLite's errors it is, in general terms."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _ours(path: str, options: str, place: str) -> Connection | None:
    try:
        with ExitStack() as stack:
            connection = stack.enter_context(closing(_connect(path, options)))
            if _is_ours(connection, place):
                stack.pop_all()
                return connection
    except sqlite3.DatabaseError as error:
        if code_of(error) in NO_ROOM:  # for what SQLite keeps beside it; the index itself may be in order
            raise
    return None  # to be made anew


def _connect(path: str, options: str) -> Connection:
    uri = f"{file_uri(path)}?{options}"
    return _prepare(sqlite3.connect(uri, uri=True, timeout=30, isolation_level=None, check_same_thread=False))


def _prepare(connection: Connection) -> Connection:
    try:
        connection.execute("PRAGMA cache_size = -16000")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection


def _is_ours(connection: Connection, place: str) -> bool:
    ours = connection.execute("PRAGMA application_id").fetchone() == (_OURS,)
    current = connection.execute("PRAGMA user_version").fetchone() == (VERSION,)
    if not (ours and current):
        return False
    return connection.execute("SELECT value FROM meta WHERE name = 'place'").fetchone() == (place,)


def _choose_journal(connection: Connection, path: str) -> None:
    """A write-ahead log, where the file system lets processes share memory; else the rollback journal."""
    if not path or is_shared(path, _mounts()):
        return
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("COMMIT")
    except sqlite3.OperationalError:
        connection.execute("PRAGMA journal_mode = DELETE")


def is_shared(path: str, mounts: str) -> bool:
    """Whether a file may be used from several machines, whose processes share no memory; told by what is mounted."""
    real = os.path.realpath(path)
    points = [line.split(" ")[1:3] for line in mounts.splitlines()]
    above = [(len(point), kind) for point, kind in points if real.startswith(point.rstrip("/") + "/")]
    return max(above, default=(0, ""))[1].startswith(_SHARED)


def _mounts() -> str:
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def _make_private(path: str) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
