"""Storage of a share server: one SQLite file that only its owner can read.

Share ids never become paths. Only a digest of a secret is stored, and removed data is overwritten.
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
    """Limits of a share server, so that a client cannot fill its disk."""

    body: int = 64 << 20
    """Bytes of one request."""
    share: int = 256 << 20
    """Bytes of one share."""
    total: int = 8 << 30
    """Bytes of all shares together."""
    items: int = 200_000
    """Items of one share."""


class HTTPError(Exception):
    """A refused request: its HTTP status, the reason, and after how many seconds to try again (0: not stated)."""

    def __init__(self, status: int, reason: str, *, wait: int = 0) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.wait = wait


class ShareStore:
    """The shares of one server. Every method is synchronous and safe to call from several threads."""

    def __init__(self, folder: str, limits: ShareLimits | None = None) -> None:
        """Raises :class:`OSError` or :class:`StoreError` if ``folder`` cannot be used."""
        self.limits = limits or ShareLimits()
        os.makedirs(folder, mode=0o700, exist_ok=True)
        path = os.path.join(folder, "shares.db")
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite gives its other files the same mode
        self._lock = threading.Lock()
        self._database = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        try:
            for pragma in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON", "foreign_keys = ON"):
                self._database.execute(f"PRAGMA {pragma}")
            self._database.executescript(_SCHEMA)
        except sqlite3.Error as error:
            self._database.close()
            raise StoreError(f"shares cannot be stored in {path}: {error}", path=path) from error

    def create(self, session_id: str) -> tuple[str, str]:
        """Create a share; return its random id and the secret that is needed to change it."""
        share_id, secret = secrets.token_urlsafe(16), secrets.token_urlsafe(32)
        now = now_ms()
        with self._transaction() as database:
            self._check_space()
            row = (share_id, session_id, _digest(secret), now, now)
            database.execute("INSERT INTO share VALUES (?, ?, ?, ?, ?)", row)
        return share_id, secret

    def put(self, share_id: str, secret: str, items: Sequence[ShareItem]) -> None:
        """Store items, replacing those with the same keys: all of them or, if they exceed a limit, none."""
        try:
            rows = [(share_id, item.key, item.type, dumps_compact(item.data)) for item in items]
        except RecordError as error:
            raise HTTPError(400, error.reason) from None
        with self._transaction() as database:
            self._check_secret(share_id, secret)
            self._check_space()
            database.executemany(_PUT, rows)
            count, size = database.execute(
                "SELECT count(*), coalesce(sum(length(data)), 0) FROM item WHERE share = ?", (share_id,)
            ).fetchone()
            if size > self.limits.share or count > self.limits.items:
                raise HTTPError(413, "the share would become too large")
            database.execute("UPDATE share SET updated = ? WHERE id = ?", (now_ms(), share_id))

    def remove(self, share_id: str, secret: str) -> None:
        """Delete a share, also its bytes on the disk."""
        with self._transaction() as database:
            self._check_secret(share_id, secret)
            database.execute("DELETE FROM share WHERE id = ?", (share_id,))
        with self._lock:
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def data(self, share_id: str) -> bytes:
        """Return all items of a share as a JSON array, in the order in which they first arrived."""
        rows = self._rows(share_id)
        return b"[" + b",".join(b'{"type":"%s","data":%s}' % (kind.encode(), data) for kind, data in rows) + b"]"

    def items(self, share_id: str) -> list[ShareItem]:
        """Return all items of a share, decoded."""
        return [ShareItem(kind, loads(data)) for kind, data in self._rows(share_id)]

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._database.close()

    def _rows(self, share_id: str) -> list[tuple[str, bytes]]:
        with self._lock:
            if not self._database.execute("SELECT 1 FROM share WHERE id = ?", (share_id,)).fetchone():
                raise HTTPError(404, "there is no such share")
            query = "SELECT type, data FROM item WHERE share = ? ORDER BY number"
            return self._database.execute(query, (share_id,)).fetchall()

    def _check_secret(self, share_id: str, secret: str) -> None:
        row = self._database.execute("SELECT digest FROM share WHERE id = ?", (share_id,)).fetchone()
        if row is None:
            raise HTTPError(404, "there is no such share")
        if not hmac.compare_digest(row[0], _digest(secret)):
            raise HTTPError(403, "wrong secret for this share")

    def _check_space(self) -> None:
        pages, size, free = (
            self._database.execute(f"PRAGMA {pragma}").fetchone()[0]
            for pragma in ("page_count", "page_size", "freelist_count")
        )
        if (pages - free) * size > self.limits.total:
            raise HTTPError(507, "this server is full")

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        with self._lock:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
                self._database.execute("COMMIT")
            except BaseException as error:
                if self._database.in_transaction:  # SQLite rolls back by itself when the disk is full
                    self._database.execute("ROLLBACK")
                if isinstance(error, sqlite3.OperationalError):
                    log.warning("a share could not be stored: %s", error)
                    full = error.sqlite_errorcode == sqlite3.SQLITE_FULL
                    raise HTTPError(507 if full else 503, f"this server cannot store it: {error}") from error
                raise


def _digest(secret: str) -> bytes:
    # A secret of 256 random bits cannot be guessed, so a fast digest is enough.
    return sha256(secret.encode("utf-8", "surrogatepass")).digest()
