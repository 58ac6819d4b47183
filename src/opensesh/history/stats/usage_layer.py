"""The usage layer of the derived cache: the usage of each session, from which statistics are computed.

A session is read again when its record or its folder of messages has changed, or an unfinished or damaged message of
it. That a *finished* answer changes in place is not noticed; a temporary cache reads everything.
"""

from __future__ import annotations

import json
from array import array
from functools import cached_property
from typing import TYPE_CHECKING

from ... import __version__
from ...loading import load_msgspec
from ...storage.change_feeds import UNSTABLE, ChangeFeed
from ...storage.protocol import Damage
from ..cache.cache_layers import CacheLayer, feeds_with
from .forks import copied_messages
from .money import PriceTable, Repricer, table_fingerprint
from .session_usage import SessionInfo, UsageBucket, UsageEntry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet
    from sqlite3 import Connection

    from ..cache.derived_cache import DerivedCache
    from .usage_writer import UsageWriter

_VERSION = 1


class UsageLayer(CacheLayer):
    """The usage of each session."""

    name = "usage"

    def __init__(self) -> None:
        self.repricer = Repricer()

    def version(self) -> str:
        """Return what the rows depend on: this program and the price tables."""
        return json.dumps([_VERSION, __version__, table_fingerprint()])

    def clear(self, db: Connection) -> None:
        """Remove all rows."""
        db.execute("DELETE FROM usage")
        db.execute("DELETE FROM tool_usage")

    def writer(self, db: Connection) -> UsageWriter:
        """Return a writer for one refresh."""
        load_msgspec()
        from .usage_writer import UsageWriter  # loads msgspec; most of the time there is nothing to write

        return UsageWriter(db, self.repricer)

    def unnoticed_changes(
        self, db: Connection, feed: ChangeFeed, recent: Sequence[str], sessions: AbstractSet[str]
    ) -> Iterator[str]:
        """Compare the messages that were unfinished or damaged."""
        for session, watched in db.execute("SELECT session, watched FROM usage WHERE watched IS NOT NULL").fetchall():
            for message, known in json.loads(watched) if session in sessions else ():
                state = feed.message_state(session, message, full=False)
                if state is not None and (known == UNSTABLE or state.fingerprint != known):
                    yield session
                    break


class UsageTable:
    """The usage of all sessions as of one state of the cache."""

    def __init__(self, cache: DerivedCache, layer: UsageLayer | None = None) -> None:
        """Refresh the usage layer of a cache and load it."""
        self.cache = cache
        self.layer = layer or UsageLayer()
        cache.refresh(self.layer)
        self.infos: dict[str, SessionInfo] = {}
        """The records of the sessions by id. A session whose record is missing or damaged has usage but no info."""
        self.buckets: dict[str, list[UsageBucket]] = {}
        """The usage by quarter of an hour of each session that has messages, oldest first."""
        sql = "SELECT session, info, buckets FROM usage"
        for session, info, buckets in cache.query(self.layer, lambda db: db.execute(sql).fetchall()):
            if info is not None:
                self.infos[session] = SessionInfo(*json.loads(info))
            if buckets != "[]":
                self.buckets[session] = [UsageBucket(*bucket) for bucket in json.loads(buckets)]

    @cached_property
    def prices(self) -> PriceTable:
        """The price table in use."""
        sql = "SELECT value FROM meta WHERE name = 'prices'"
        row = self.cache.query(self.layer, lambda db: db.execute(sql).fetchone())
        return PriceTable(*json.loads(row[0])) if row else self.layer.repricer.prices

    @cached_property
    def copied(self) -> dict[str, set[str]]:
        """The messages that each session copied; see :func:`~opensesh.history.stats.forks.copied_messages`."""
        return copied_messages(self)

    @property
    def damage(self) -> list[Damage]:
        """Records that could not be read, now or when the cache was written."""
        return damage_of(self.cache, self.layer)

    def fingerprints(self) -> Iterator[tuple[str, array[int]]]:
        """Return the fingerprints of the messages of every session, in the order of its entries."""
        sql = "SELECT session, fingerprints FROM usage WHERE buckets != '[]'"
        for session, data in self.cache.query(self.layer, lambda db: db.execute(sql).fetchall()):
            fingerprints = array("q")
            fingerprints.frombytes(data)
            yield session, fingerprints

    def entries(self, session: str) -> list[UsageEntry]:
        """Return the usage of each message of a session; it is read again unless the session may be a fork."""

        def load(db: Connection) -> tuple[str | None, list[ChangeFeed]]:
            row = db.execute("SELECT entries FROM usage WHERE session = ?", [session]).fetchone()
            return row and row[0], feeds_with(db, self.layer, self.cache.feeds, session)

        stored, feeds = self.cache.query(self.layer, load)
        if stored is not None:
            return [UsageEntry(*entry) for entry in json.loads(stored)]
        from .usage_writer import read_usage

        return read_usage(session, feeds, self.layer.repricer).entries


def damage_of(cache: DerivedCache, layer: UsageLayer) -> list[Damage]:
    """Return the damage that the rows of the layer report, and that of the last refresh."""
    sql = "SELECT damage FROM usage WHERE damage IS NOT NULL"
    rows: list[tuple[str]] = cache.query(layer, lambda db: db.execute(sql).fetchall())
    stored = [Damage(*damage) for (text,) in rows for damage in json.loads(text)]
    return list(dict.fromkeys([*cache.damage, *stored]))
