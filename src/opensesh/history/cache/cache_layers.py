"""Layers of the derived cache: which sessions each of them has to read again, and the refresh that does it.

A layer is what one kind of question needs: the texts for search, the usage for statistics. All layers share one file,
one kind of change detection and one refresh; each is brought up to date only when it is asked for.
"""

from __future__ import annotations

import os
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ...errors import StoreError
from ...storage.change_feeds import UNSTABLE, ChangeFeed, MessageState, SessionChanges, StoredSession, fingerprint
from ...storage.protocol import unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from sqlite3 import Connection

    from ...records import Document

    Progress = Callable[[int, int], None]

_COMMIT_ROWS = 4_000


class LayerWriter(Protocol):
    """Writes the rows of a layer during one refresh, inside the transaction of the caller."""

    written: int
    """Rows written since the last :meth:`flush`."""

    def write_session(
        self, session: str, head: StoredSession | None, feeds: Sequence[ChangeFeed], *, full: bool
    ) -> None:
        """Bring the rows of a session in line with the stores that have it."""
        ...

    def remove_session(self, session: str) -> None:
        """Remove the rows of a session."""
        ...

    def flush(self) -> None:
        """Write what was held back; the transaction is committed next."""
        ...


class CacheLayer:
    """A part of the cache that is refreshed on its own."""

    name: str
    """The name in the cache file."""
    oldest_first = False
    """Whether sessions are written in the order of their last update."""

    def version(self) -> str:
        """Return what the rows depend on besides the stores. Rows of another version are rebuilt."""
        raise NotImplementedError

    def clear(self, db: Connection) -> None:
        """Remove all rows."""
        raise NotImplementedError

    def writer(self, db: Connection) -> LayerWriter:
        """Return a writer for one refresh."""
        raise NotImplementedError

    def unnoticed_changes(
        self, db: Connection, feed: ChangeFeed, recent: Sequence[str], sessions: AbstractSet[str]
    ) -> Iterable[str]:
        """Return those of the ``sessions`` that changed although their fingerprints are the same."""
        raise NotImplementedError

    def recheck_due(self, db: Connection) -> bool:
        """Whether it is time to compare some sessions record by record."""
        return False

    def recheck_batch(self, db: Connection, feeds: Sequence[ChangeFeed]) -> list[str]:
        """Compare some sessions record by record and return those that differ. Runs inside a transaction."""
        return []


class RefreshPlan(NamedTuple):
    """The work of one refresh."""

    stores: Mapping[str, int]
    """Fingerprints of the stores, by store id."""
    sessions: Mapping[str, Mapping[str, int]]
    """The changed sessions, each with the stores that have it and its fingerprints there."""
    removed: Sequence[str]
    """Stores that no longer exist."""
    outdated: bool
    """Whether a store has another fingerprint, although perhaps no session in it has changed."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.sessions or self.removed or self.outdated)


def plan_refresh(
    db: Connection, layer: CacheLayer, feeds: Sequence[ChangeFeed], *, also: Iterable[str] = (), full: bool = False
) -> RefreshPlan:
    """Return a plan for the sessions that differ from a layer, and for those in ``also``; with ``full``, for all."""
    rows = db.execute("SELECT id, store_id, fingerprint FROM source WHERE layer = ?", [layer.name])
    sources = {store_id: (number, own) for number, store_id, own in rows}
    before = {store_id: own for store_id, (_, own) in sources.items()}
    stores: dict[str, int] = {}
    sessions: list[tuple[str, Mapping[str, int]]] = []
    differing = set(also)
    recent: list[tuple[ChangeFeed, Sequence[str]]] = []
    for feed in feeds:
        number, own = sources.pop(feed.store_id, (0, UNSTABLE))
        known: dict[str, int] = dict(db.execute("SELECT session, fingerprint FROM copy WHERE source = ?", [number]))
        # UNSTABLE equals no fingerprint, so that the feed compares the sessions even if the store seems unchanged.
        changes = _detect(feed, UNSTABLE if full else own, known, feeds)
        current: Mapping[str, int] = known
        if changes.removed or changes.changed:
            removed = set(changes.removed)
            current = {name: value for name, value in (known | dict(changes.changed)).items() if name not in removed}
        stores[feed.store_id] = changes.fingerprint
        sessions.append((feed.store_id, current))
        recent.append((feed, changes.recent))
        differing.update(changes.changed, changes.removed, current if full else ())
    for number, _ in sources.values():
        differing.update(name for (name,) in db.execute("SELECT session FROM copy WHERE source = ?", [number]))
    for feed, names in recent:
        # Of a session that was imported into another store, the copy left behind does not change any more.
        own_sessions = next(current.keys() for store_id, current in sessions if store_id == feed.store_id)
        others = [current for store_id, current in sessions if store_id != feed.store_id]
        alone = set(own_sessions).difference(*others, differing)
        differing.update(layer.unnoticed_changes(db, feed, [name for name in names if name in alone], alone))
    where = {name: {store_id: current[name] for store_id, current in sessions if name in current} for name in differing}
    outdated = any(before.get(store_id) != own for store_id, own in stores.items())
    return RefreshPlan(stores, where, list(sources), outdated)


def _detect(feed: ChangeFeed, before: int, known: Mapping[str, int], feeds: Sequence[ChangeFeed]) -> SessionChanges:
    """Detect changes. The rows of a store that cannot be read are kept, unless it is the only store."""
    try:
        return feed.detect_changes(before, known)
    except StoreError as error:
        # A data folder always has a feed of its tree, which need not exist.
        if not any(os.path.exists(other.store_id) for other in feeds if other is not feed):
            raise
        feed.damage.append(unreadable(feed.store_id, error))
        return SessionChanges(before, {})


class Refresh:
    """Carries out refresh plans. The caller holds the lock of the cache."""

    def __init__(self, db: Connection, layer: CacheLayer, feeds: Sequence[ChangeFeed]) -> None:
        self._db = db
        self._layer = layer
        self._feeds = {feed.store_id: feed for feed in feeds}
        self._writer = layer.writer(db)
        self._unreadable: set[str] = set()
        """Ids of stores that could not be read."""

    def run(self, plan: RefreshPlan, *, full: bool = False, progress: Progress | None = None) -> None:
        """Carry out a plan.

        Work that was interrupted is continued by the next refresh. The sessions of a store that cannot be read stay as
        they are.
        """
        layer = self._layer.name
        self._db.execute("BEGIN IMMEDIATE")
        for store_id in plan.removed:
            sql = "DELETE FROM copy WHERE source = (SELECT id FROM source WHERE layer = ? AND store_id = ?)"
            self._db.execute(sql, [layer, store_id])
            self._db.execute("DELETE FROM source WHERE layer = ? AND store_id = ?", [layer, store_id])
        for store_id in plan.stores:
            self._db.execute("INSERT OR IGNORE INTO source (layer, store_id) VALUES (?, ?)", [layer, store_id])
        rows = self._db.execute("SELECT store_id, id FROM source WHERE layer = ?", [layer])
        sources: dict[str, int] = dict(rows.fetchall())
        for done, name in enumerate(self._oldest_first(plan) if self._layer.oldest_first else list(plan.sessions)):
            if progress:
                progress(done, len(plan.sessions))
            self._session(name, plan, sources, full=full)
            if self._writer.written > _COMMIT_ROWS:
                self._commit()
                self._db.execute("BEGIN IMMEDIATE")
        for store_id, own in plan.stores.items():
            if store_id not in self._unreadable:
                self._db.execute("UPDATE source SET fingerprint = ? WHERE id = ?", [own, sources[store_id]])
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, 1)", [f"complete {layer}"])
        sql = "INSERT INTO meta VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET value = value + 1"
        self._db.execute(sql, [f"generation {layer}"])
        self._commit()
        if progress and plan.sessions:
            progress(len(plan.sessions), len(plan.sessions))

    def _commit(self) -> None:
        self._writer.flush()
        self._db.execute("COMMIT")

    def _oldest_first(self, plan: RefreshPlan) -> list[str]:
        if len(plan.sessions) < 2:
            return list(plan.sessions)
        from ...storage.copies import completeness_key

        heads = ((name, self._head(name, store_ids)) for name, store_ids in plan.sessions.items())
        times = {name: completeness_key(("session",), head.record) if head else (0,) for name, head in heads}
        return sorted(plan.sessions, key=lambda name: (times[name], name))

    def _head(self, name: str, store_ids: Iterable[str]) -> StoredSession | None:
        """Read the record of a session, the most complete one if several stores have it."""
        heads: list[StoredSession] = []
        for store_id in store_ids:
            if store_id in self._unreadable:  # a locked store would be waited for again
                continue
            try:
                head = self._feeds[store_id].session(name)
            except StoreError as error:
                self._unreadable.add(store_id)
                self._feeds[store_id].damage.append(unreadable(store_id, error))
                continue
            if head is not None:
                heads.append(head)
        record = most_complete("session", [head.record for head in heads])
        return next((head for head in heads if head.record is record), None)

    def _session(self, name: str, plan: RefreshPlan, sources: dict[str, int], *, full: bool) -> None:
        store_ids = plan.sessions[name]
        head = self._head(name, store_ids)
        if not self._unreadable.isdisjoint(store_ids):
            return
        sql = "DELETE FROM copy WHERE session = ? AND source IN (SELECT id FROM source WHERE layer = ?)"
        self._db.execute(sql, [name, self._layer.name])
        if not store_ids:
            self._writer.remove_session(name)
            return
        self._writer.write_session(name, head, [self._feeds[store_id] for store_id in store_ids], full=full)
        for store_id, own in store_ids.items():
            # One statement for each row: one that may write several rows makes FTS5 write out its buffers.
            self._db.execute("INSERT INTO copy VALUES (?, ?, ?)", [sources[store_id], name, own])


def feeds_with(db: Connection, layer: CacheLayer, feeds: Sequence[ChangeFeed], session: str) -> list[ChangeFeed]:
    """Return the feeds of the stores that have a session, as far as a layer knows."""
    # A cross join keeps its order in SQLite: there are few stores, and the sessions of each are indexed.
    sql = "SELECT s.store_id FROM source s CROSS JOIN copy c ON c.source = s.id WHERE s.layer = ? AND c.session = ?"
    store_ids = {store_id for (store_id,) in db.execute(sql, [layer.name, session])}
    return [feed for feed in feeds if feed.store_id in store_ids]


def most_complete(kind: str, copies: Iterable[Document]) -> Document | None:
    """Return the most complete of several copies of a record."""
    records = list(copies)
    if len(records) < 2:
        return records[0] if records else None
    from ...storage.copies import completeness_key

    return max(records, key=lambda record: completeness_key((kind,), record))


def merge_states(states: Sequence[Iterator[MessageState]]) -> Iterator[MessageState]:
    """Merge the messages of a session that several stores have."""
    if len(states) == 1:
        yield from states[0]
        return
    from ...storage.copies import duplicate_messages, duplicate_parts

    by_store = [{state.id: state for state in stream} for stream in states]
    duplicates = duplicate_messages([known.keys() for known in by_store])
    for name in dict.fromkeys(name for name in chain.from_iterable(by_store) if name not in duplicates):
        copies = [known[name] for known in by_store if name in known]
        parts: dict[str, list[int]] = {}
        for state in copies:
            for part, own in (state.parts or {}).items():
                parts.setdefault(part, []).append(own)
        for part in duplicate_parts(name, parts):
            del parts[part]
        merged = {part: _combine(own) for part, own in parts.items()}
        yield MessageState(name, _combine([state.fingerprint for state in copies]), merged)


def _combine(fingerprints: Sequence[int]) -> int:
    return UNSTABLE if UNSTABLE in fingerprints else fingerprint(*fingerprints)
