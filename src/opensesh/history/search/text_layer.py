"""The text layer of the derived cache: a row for each part, and its words in a full-text table.

The words of a part cannot be removed from the full-text table, because it does not keep the texts. A part that was
replaced or removed leaves a tombstone instead, and its number is never used again.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from ...errors import StoreError
from ...storage.change_feeds import UNSTABLE, ChangeFeed, MessageState
from ..cache.cache_layers import CacheLayer, feeds_with

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet
    from sqlite3 import Connection

    from .text_writer import TextWriter

_WATCH_MS = 30 * 86_400_000
_RECHECK_NS = 60 * 1_000_000_000
_RECHECK_BUDGET_NS = 40_000_000
_UNFINISHED = """
    SELECT s.name, m.name FROM message m JOIN session s ON s.id = m.session WHERE m.time > ? AND m.id IN
    (SELECT id FROM message WHERE unfinished UNION SELECT message FROM part WHERE unfinished)
"""


class TextLayer(CacheLayer):
    """The words of each part."""

    name = "text"
    oldest_first = True
    """The number of a part then tells roughly how new it is."""

    def version(self) -> str:
        """Return the version of the rows."""
        return "1"

    def clear(self, db: Connection) -> None:
        """Remove all rows. The words stay without a part to belong to."""
        db.execute("INSERT INTO tombstone SELECT id FROM part")
        db.execute("DELETE FROM part")
        db.execute("DELETE FROM message")
        db.execute("DELETE FROM session")

    def writer(self, db: Connection) -> TextWriter:
        """Return a writer for one refresh."""
        from .text_writer import TextWriter  # most of the time there is nothing to write

        return TextWriter(db)

    def unnoticed_changes(
        self, db: Connection, feed: ChangeFeed, recent: Sequence[str], sessions: AbstractSet[str]
    ) -> Iterator[str]:
        """Compare the newest messages of recent sessions, and all messages that were unfinished."""
        for name in recent:
            if not _is_same(db, name, feed.message_states(name, _message_fingerprints(db, name), full=False)):
                yield name
        since = time.time_ns() // 1_000_000 - _WATCH_MS
        for session, message in db.execute(_UNFINISHED, [since]).fetchall():
            watched = session in sessions and session not in recent
            state = feed.message_state(session, message, full=True) if watched else None
            if state is not None and not _is_same_message(db, session, state):
                yield session

    def recheck_due(self, db: Connection) -> bool:
        """Whether the last batch was a minute ago."""
        row = db.execute("SELECT value FROM meta WHERE name = 'rechecked'").fetchone()
        return row is not None and not 0 <= time.time_ns() - row[0] < _RECHECK_NS

    def recheck_batch(self, db: Connection, feeds: Sequence[ChangeFeed]) -> list[str]:
        """Compare the sessions that have waited longest, for as long as a search may be delayed by it."""
        deadline = time.monotonic_ns() + _RECHECK_BUDGET_NS
        different: list[str] = []
        now = time.time_ns()
        db.execute("INSERT OR REPLACE INTO meta VALUES ('rechecked', ?)", [now])
        for (name,) in db.execute("SELECT name FROM session ORDER BY checked").fetchall():
            holding = feeds_with(db, self, feeds, name)
            with suppress(StoreError):  # reported by the next detection of changes
                if len(holding) == 1 and not _is_same(db, name, holding[0].message_states(name, {}, full=True)):
                    different.append(name)
            db.execute("UPDATE session SET checked = ? WHERE name = ?", [now, name])
            if time.monotonic_ns() > deadline:
                break
        return different


TEXT = TextLayer()


def build_vocabulary(db: Connection) -> None:
    """Collect all words, so that words that contain something can be found. New ones are added from then on."""
    db.execute("CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab(main, words, row)")
    db.execute("INSERT OR IGNORE INTO term SELECT term FROM temp.vocabulary")
    db.execute("INSERT OR REPLACE INTO meta VALUES ('vocabulary', 1)")
    db.execute("DROP TABLE temp.vocabulary")


def has_vocabulary(db: Connection) -> bool:
    """Whether the words have been collected."""
    return db.execute("SELECT 1 FROM meta WHERE name = 'vocabulary'").fetchone() is not None


def _is_same(db: Connection, session: str, states: Iterable[MessageState]) -> bool:
    """Whether the messages of a session are as the cache knows them."""
    known = _message_fingerprints(db, session)
    for state in states:
        if known.pop(state.id, UNSTABLE) != state.fingerprint or not _is_same_message(db, session, state):
            return False
    return not known


def _message_fingerprints(db: Connection, session: str) -> dict[str, int]:
    sql = "SELECT m.name, m.fingerprint FROM message m JOIN session s ON s.id = m.session WHERE s.name = ?"
    return dict(db.execute(sql, [session]))


def _is_same_message(db: Connection, session: str, state: MessageState) -> bool:
    sql = "SELECT m.id, m.fingerprint FROM message m JOIN session s ON s.id = m.session WHERE s.name = ? AND m.name = ?"
    row = db.execute(sql, [session, state.id]).fetchone()
    if row is None or row[1] != state.fingerprint or state.fingerprint == UNSTABLE:
        return False
    if state.parts is None:
        return True
    parts = dict(db.execute("SELECT name, fingerprint FROM part WHERE message = ? AND name != ''", [row[0]]))
    return UNSTABLE not in parts.values() and parts == state.parts
