"""Refreshing a layer of the derived cache, session by session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import StoreError
from ...storage.protocol import unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from sqlite3 import Connection

    from ...storage.protocol import ChangeFeed, StoredSession
    from .cache_layers import CacheLayer, RefreshPlan

    Progress = Callable[[int, int], None]

_COMMIT_ROWS = 4_000
_FORGET = "DELETE FROM copy WHERE session = ? AND source IN (SELECT id FROM source WHERE layer = ?)"
_COUNT_GENERATION = """
    INSERT INTO meta VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET value = value + 1
"""


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
        self._db.execute(_COUNT_GENERATION, [f"generation {layer}"])
        self._commit()
        if progress and plan.sessions:
            progress(len(plan.sessions), len(plan.sessions))

    def _commit(self) -> None:
        self._writer.flush()
        self._db.execute("COMMIT")

    def _oldest_first(self, plan: RefreshPlan) -> list[str]:
        if len(plan.sessions) < 2:
            return list(plan.sessions)
        from ...storage.merged import completeness_key

        heads = ((name, self._head(name, store_ids)) for name, store_ids in plan.sessions.items())
        times = {name: completeness_key(("session",), head.record) if head else (0,) for name, head in heads}
        return sorted(plan.sessions, key=lambda name: (times[name], name))

    def _head(self, name: str, store_ids: Iterable[str]) -> StoredSession | None:
        heads = [head for store_id in store_ids if (head := self._read_head(store_id, name)) is not None]
        if len(heads) < 2:
            return heads[0] if heads else None
        from ...storage.merged import completeness_key

        return max(heads, key=lambda head: completeness_key(("session",), head.record))

    def _read_head(self, store_id: str, name: str) -> StoredSession | None:
        if store_id in self._unreadable:  # a locked store would be waited for again
            return None
        try:
            return self._feeds[store_id].session(name)
        except StoreError as error:
            self._unreadable.add(store_id)
            self._feeds[store_id].damage.append(unreadable(store_id, error))
            return None

    def _session(self, name: str, plan: RefreshPlan, sources: dict[str, int], *, full: bool) -> None:
        store_ids = plan.sessions[name]
        head = self._head(name, store_ids)
        if not self._unreadable.isdisjoint(store_ids):
            return
        self._db.execute(_FORGET, [name, self._layer.name])
        if not store_ids:
            self._writer.remove_session(name)
            return
        self._writer.write_session(name, head, [self._feeds[store_id] for store_id in store_ids], full=full)
        for store_id, own in store_ids.items():
            # One row by its values: a statement that may write several makes FTS5 write out what it holds.
            self._db.execute("INSERT INTO copy VALUES (?, ?, ?)", [sources[store_id], name, own])
