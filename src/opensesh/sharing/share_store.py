"""Where a share server keeps what it was given: one SQLite file that only its owner can read.

Names never become paths here. Of a secret only a digest is kept, and what is removed is overwritten.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
import sqlite3
import threading
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from ..errors import RecordError, StoreError
from ..ids import now_ms
from ..records import dumps_compact, loads
from .items import ShareItem

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

log = logging.getLogger("opensesh.sharing")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS share (
  id TEXT PRIMARY KEY, session TEXT NOT NULL, digest BLOB NOT NULL, created INTEGER NOT NULL, updated INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS item (
  number INTEGER PRIMARY KEY, share TEXT NOT NULL REFERENCES share(id) ON DELETE CASCADE,
  key TEXT NOT NULL, type TEXT NOT NULL, data BLOB NOT NULL, UNIQUE (share, key)
) STRICT;
"""
_PUT = """
INSERT INTO item (share, key, type, data) VALUES (?, ?, ?, ?)
ON CONFLICT (share, key) DO UPDATE SET type = excluded.type, data = excluded.data
"""


class ShareLimits(NamedTuple):
    """How much a server takes, so that nobody can fill its disk."""

    body: int = 64 << 20
    """Bytes of one request."""
    share: int = 256 << 20
    """Bytes of one share."""
    total: int = 8 << 30
    """Bytes of all shares together."""
    items: int = 200_000
    """Items of one share."""


class HTTPError(Exception):
    """The store does not do it; ``status`` is how HTTP says so, and ``wait`` in how many seconds to ask again."""

    def __init__(self, status: int, reason: str, *, wait: int = 0) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.wait = wait


class ShareStore:
    """The shares of one server. Every method is synchronous and safe to call from several threads."""

    def __init__(self, folder: str, limits: ShareLimits | None = None) -> None:
        """Raises :class:`OSError` or :class:`StoreError` where nothing can be kept in ``folder``."""
        self.limits = limits or ShareLimits()
        os.makedirs(folder, mode=0o700, exist_ok=True)
        path = os.path.join(folder, "shares.db")
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite gives its other files the same mode
        self._turn = threading.Lock()
        self._held = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        try:
            for pragma in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON", "foreign_keys = ON"):
                self._held.execute(f"PRAGMA {pragma}")
            self._held.executescript(_SCHEMA)
        except sqlite3.Error as error:
            self._held.close()
            raise StoreError(f"no shares can be kept in {path}: {error}", path=path) from error

    def create(self, session_id: str) -> tuple[str, str]:
        """A new share: its name, which nobody can guess, and the secret that changes it."""
        name, secret = secrets.token_urlsafe(16), secrets.token_urlsafe(32)
        now = now_ms()
        with self._change() as held:
            self._check_room(held)
            held.execute("INSERT INTO share VALUES (?, ?, ?, ?, ?)", (name, session_id, _digest(secret), now, now))
        return name, secret

    def put(self, name: str, secret: str, items: Sequence[ShareItem]) -> None:
        """Add items, in place of those with the same keys: all of them or, where they do not fit, none."""
        try:
            rows = [(name, item.key, item.type, dumps_compact(item.data)) for item in items]
        except RecordError as error:
            raise HTTPError(400, error.reason) from None
        with self._change() as held:
            self._check(held, name, secret)
            self._check_room(held)
            held.executemany(_PUT, rows)
            count, size = held.execute(
                "SELECT count(*), coalesce(sum(length(data)), 0) FROM item WHERE share = ?", (name,)
            ).fetchone()
            if size > self.limits.share or count > self.limits.items:
                raise HTTPError(413, "the share would become too large")
            held.execute("UPDATE share SET updated = ? WHERE id = ?", (now_ms(), name))

    def remove(self, name: str, secret: str) -> None:
        """Take a share down, and see that its bytes are gone from the disk."""
        with self._change() as held:
            self._check(held, name, secret)
            held.execute("DELETE FROM share WHERE id = ?", (name,))
        with self._turn:
            self._held.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def data(self, name: str) -> bytes:
        """All items of a share, as a JSON array, in the order they first came."""
        rows = self._rows(name)
        pieces = (b'{"type":"%s","data":%s}' % (kind.encode(), data) for kind, data in rows)
        return b"[" + b",".join(pieces) + b"]"

    def items(self, name: str) -> list[ShareItem]:
        """The same, decoded."""
        return [ShareItem(kind, loads(data)) for kind, data in self._rows(name)]

    def close(self) -> None:
        """Let go of the file."""
        with self._turn:
            self._held.close()

    def _rows(self, name: str) -> list[tuple[str, bytes]]:
        with self._turn:
            if not self._held.execute("SELECT 1 FROM share WHERE id = ?", (name,)).fetchone():
                raise HTTPError(404, "there is no such share")
            return self._held.execute("SELECT type, data FROM item WHERE share = ? ORDER BY number", (name,)).fetchall()

    def _check(self, held: sqlite3.Connection, name: str, secret: str) -> None:
        row = held.execute("SELECT digest FROM share WHERE id = ?", (name,)).fetchone()
        if row is None:
            raise HTTPError(404, "there is no such share")
        if not hmac.compare_digest(row[0], _digest(secret)):
            raise HTTPError(403, "that is not the secret of this share")

    def _check_room(self, held: sqlite3.Connection) -> None:
        pages, size, free = (
            held.execute(f"PRAGMA {pragma}").fetchone()[0] for pragma in ("page_count", "page_size", "freelist_count")
        )
        if (pages - free) * size > self.limits.total:
            raise HTTPError(507, "this server is full")

    @contextmanager
    def _change(self) -> Generator[sqlite3.Connection]:
        with self._turn:
            self._held.execute("BEGIN IMMEDIATE")
            try:
                yield self._held
                self._held.execute("COMMIT")
            except sqlite3.OperationalError as error:
                self._roll_back()
                log.warning("a share could not be stored: %s", error)
                full = error.sqlite_errorcode == sqlite3.SQLITE_FULL
                raise HTTPError(507 if full else 503, f"this server cannot store it: {error}") from error
            except BaseException:
                self._roll_back()
                raise

    def _roll_back(self) -> None:
        if self._held.in_transaction:  # SQLite rolls back by itself when the disk is full
            self._held.execute("ROLLBACK")


def _digest(secret: str) -> bytes:
    # A secret of 256 random bits needs no slow digest: there is nothing to guess.
    return sha256(secret.encode("utf-8", "surrogatepass")).digest()
