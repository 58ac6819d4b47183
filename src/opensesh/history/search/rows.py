"""The rows of the index: one for each part there is, one of words for each that can be searched.

The words of a part cannot be taken out again, because its text is not kept. What is replaced or gone is noted as
dead instead, and its number never used again.
"""

from __future__ import annotations

from posixpath import join, normpath
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from .feeds import UNSURE
from .tokenizer import Words, clean

if TYPE_CHECKING:
    from collections.abc import Iterable
    from sqlite3 import Connection

    from .extract import Extract

_LAST = "SELECT max(ifnull((SELECT max(id) FROM part), 0), ifnull((SELECT max(id) FROM dead), 0))"
_LAST_MESSAGE = "SELECT ifnull(max(id), 0) FROM message"
_TOGETHER = 500
_TOGETHER_SIZE = 4_000_000
_MOST_PATHS = 10_000
_NEW_WORDS = "INSERT INTO words (rowid, said, tool, input, output, error, paths) VALUES (?, ?, ?, ?, ?, ?, ?)"


class Known(NamedTuple):
    """A part that the index has."""

    id: int
    mark: int
    digest: int


class Owner(NamedTuple):
    """What a part belongs to."""

    session: int
    message: int | None
    """``None`` for a session's title."""
    time: int
    """When the part was made, unless it knows better."""
    directory: str = ""
    """What paths are relative to."""


class Rows:
    """Writes messages, parts and their words. What is new is written together, now and then and with :meth:`commit`:
    until then it cannot be asked for."""

    def __init__(self, db: Connection) -> None:
        self.db = db
        self.written = 0
        """How many since the last commit."""
        self._words = Words(gathering=has_vocabulary(db))
        self._messages: list[list[Any]] = []
        self._parts: list[list[Any]] = []
        self._touched: list[tuple[int, int]] = []
        self._waiting: list[list[Any]] = []
        self._waiting_size = 0
        self._paths: dict[str, int] = {}
        self._last: int = db.execute(_LAST).fetchone()[0]
        self._last_message: int = db.execute(_LAST_MESSAGE).fetchone()[0]

    def begin(self) -> None:
        """Open a transaction."""
        self.db.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Keep what was written."""
        self._flush()
        fresh = sorted(self._words.fresh())
        self.db.executemany("INSERT OR IGNORE INTO term VALUES (?)", ((word,) for word in fresh))
        self.db.execute("COMMIT")
        self.written = 0

    def known(self, condition: str, *values: object) -> dict[str, Known]:
        """Parts that the index has, by name."""
        sql = " ".join(("SELECT name, id, mark, digest FROM part WHERE", condition))
        return {name: Known(*rest) for name, *rest in self.db.execute(sql, values)}

    def add_message(self, session: int, name: str, values: Iterable[Any]) -> int:
        """A message that the index does not have; its number."""
        self._last_message += 1
        self._messages.append([self._last_message, session, name, *values])
        return self._last_message

    def write(
        self, owner: Owner, name: str, found: Extract | None, mark: int = UNSURE, old: Known | None = None
    ) -> None:
        """A part in the place of ``old``; without ``found``, one in which there is nothing to search.

        A part without a name is a title or an error: there is one, or there is none.
        """
        digest = digest_of(found)
        if old is not None:
            if old.digest == digest:
                if found is not None and (old.mark != mark or not name):
                    moment = found.time or owner.time
                    self.db.execute("UPDATE part SET mark = ?, time = ? WHERE id = ?", [mark, moment, old.id])
                elif old.mark != mark:
                    self.db.execute("UPDATE part SET mark = ? WHERE id = ?", [mark, old.id])
                return
            self.bury([old.id])
        if found is None and not name:
            return
        self._last += 1
        self.written += 1
        row: list[Any] = [self._last, owner.session, owner.message, name, mark, digest]
        row += [found.kind, clean(found.tool), found.time or owner.time, found.unfinished] if found else ["", "", 0, 0]
        self._parts.append(row)
        if found is not None:
            self._write_words(found, owner.directory)
        # Together and on their own: FTS5 writes out what it holds whenever some other kinds of statement begin.
        if len(self._parts) >= _TOGETHER or self._waiting_size > _TOGETHER_SIZE:
            self._flush()

    def bury(self, parts: Iterable[int]) -> None:
        """Parts that are gone."""
        for part in parts:
            self.db.execute("INSERT INTO dead VALUES (?)", [part])
            self.db.execute("DELETE FROM part WHERE id = ?", [part])

    def bury_message(self, message: int) -> None:
        """A message that is gone, with its parts."""
        self.db.execute("INSERT INTO dead SELECT id FROM part WHERE message = ?", [message])
        self.db.execute("DELETE FROM part WHERE message = ?", [message])
        self.db.execute("DELETE FROM message WHERE id = ?", [message])

    def bury_session(self, session: int) -> None:
        """A session that is gone, with all that was in it."""
        self.db.execute("INSERT INTO dead SELECT id FROM part WHERE session = ?", [session])
        self.db.execute("DELETE FROM part WHERE session = ?", [session])
        self.db.execute("DELETE FROM message WHERE session = ?", [session])
        self.db.execute("DELETE FROM session WHERE id = ?", [session])

    def _write_words(self, found: Extract, directory: str) -> None:
        take = self._words.take
        fields = [take(text) if text else "" for text in found.fields]
        self._waiting.append([self._last, *fields])
        self._waiting_size += sum(map(len, fields))
        for given in found.paths:
            self._touched.append((self._path(_absolute(clean(given), directory)), self._last))

    def _flush(self) -> None:
        for sql, rows in (
            ("INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", self._messages),
            ("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", self._parts),
            ("INSERT OR IGNORE INTO touched VALUES (?, ?)", self._touched),
            (_NEW_WORDS, self._waiting),
        ):
            self.db.executemany(sql, rows)
            rows.clear()
        self._waiting_size = 0

    def _path(self, path: str) -> int:
        number = self._paths.get(path)
        if number is None:
            base = path.replace("\\", "/").rstrip("/").rpartition("/")[2].casefold()
            self.db.execute("INSERT OR IGNORE INTO path (name, base) VALUES (?, ?)", [path, base])
            (number,) = self.db.execute("SELECT id FROM path WHERE name = ?", [path]).fetchone()
            if len(self._paths) > _MOST_PATHS:
                self._paths.clear()
            self._paths[path] = number
        return number


def has_vocabulary(db: Connection) -> bool:
    """Whether the words there are have been gathered, so that new ones must be too."""
    return db.execute("SELECT 1 FROM meta WHERE name = 'vocabulary'").fetchone() is not None


def make_vocabulary(db: Connection) -> None:
    """Gather the words there are."""
    db.execute("CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab(main, words, row)")
    db.execute("BEGIN IMMEDIATE")
    db.execute("INSERT OR IGNORE INTO term SELECT term FROM temp.vocabulary")
    db.execute("INSERT OR REPLACE INTO meta VALUES ('vocabulary', 1)")
    db.execute("COMMIT")
    db.execute("DROP TABLE temp.vocabulary")


def _absolute(path: str, directory: str) -> str:
    if not directory or path.startswith(("/", "\\", "~")) or path[1:2] == ":":
        return path
    return normpath(join(directory, path))


def digest_of(found: Extract | None) -> int:
    """Equal for two readings in which nothing that is searched differs."""
    if found is None:
        return 0
    text = "\0".join((found.kind, found.tool, str(found.time), str(found.unfinished), *found.fields))
    return crc32(text.encode(errors="replace")) | (len(text) & 0x3FFFFFFF) << 32
