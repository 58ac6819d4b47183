"""The derived cache of a store: one SQLite file in the cache folder, from which search and statistics are answered.

It is brought up to date before it is queried, by the process that queries it; nothing runs in the background. One
process at a time writes, under a lock of the operating system; readers never wait for it. A cache that was deleted,
damaged or written by another version is rebuilt. Where no cache can be kept or updated, a temporary one is used: in
memory if the disk is full.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import ExitStack, contextmanager, suppress
from threading import RLock
from typing import TYPE_CHECKING, TypeVar
from weakref import finalize
from zlib import adler32, crc32

from ...errors import OpenseshError, StoreError, UsageError
from ...storage import open_store, paths
from ...storage.change_feeds import ChangeFeed, feeds_at, feeds_of, printable
from ...storage.locations import StoreLocations, default_place, find_stores, old_projects
from ...storage.locks import attempt_lock
from ...storage.protocol import Damage, Store, ignore_damage
from . import cache_file
from .cache_layers import CacheLayer, Refresh, plan_refresh

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence
    from sqlite3 import Connection

    Progress = Callable[[int, int], None]

T = TypeVar("T")
_LOCK_TIMEOUT_SECONDS = 10.0
_TOMBSTONE_SHARE = 0.2
_TOMBSTONES_MIN = 1_000
_REFUSED = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_SCHEMA)


class DerivedCache:
    """The cache of one store, or of the stores at one place. Threads may share it; they take turns."""

    def __init__(
        self,
        locations: StoreLocations | None = None,
        *,
        store: Store | None = None,
        folder: str | None = None,
        feeds: Sequence[ChangeFeed] | None = None,
        temporary: bool = False,
        lock_timeout: float = _LOCK_TIMEOUT_SECONDS,
    ) -> None:
        """Use the stores at ``locations``, which are not opened before they must be read, or an open ``store``.

        With ``temporary``, nothing is read from or written to the cache folder. The same holds for stores whose changes
        can only be followed within this process.
        """
        if locations is not None:
            store_id = os.path.realpath(locations.path)
            self.feeds = list(feeds_at(locations) if feeds is None else feeds)
        elif store is not None:
            store_id = store.id
            self.feeds = feeds_of(store)
            temporary = temporary or not all(feed.persistent for feed in self.feeds)
        else:
            raise TypeError("either locations or a store is needed")
        self.store_id = printable(store_id)
        # Two ids may share a name; the file says which of them it belongs to.
        data = store_id.encode(errors="surrogateescape")
        name = f"{crc32(data):08x}{adler32(data):08x}"
        self.path = os.path.join(folder or paths.cache(), f"index-{name}.db")
        self.note = ""
        """Why results may be incomplete; empty if they are not."""
        self.temporary_reason = ""
        """Why a temporary cache is used although it should be kept; empty if it is not."""
        self._lock_timeout = lock_timeout
        self._lock_file = os.path.join(paths.state(), "locks", f"index-{name}")
        self._turns = RLock()
        self._layers: dict[str, CacheLayer] = {}
        """The layers that were refreshed, to be rebuilt if the file turns out to be damaged."""
        self._db: Connection | None = None
        self._finalizer: finalize[..., DerivedCache] | None = None
        self._inode = 0
        self._temporary_path: str | None = None
        """SQLite's name of the temporary database; ``None`` if the cache is kept."""
        self._kept = not temporary

    @property
    def damage(self) -> list[Damage]:
        """Records that could not be read during the last refresh."""
        return list(dict.fromkeys(damage for feed in self.feeds for damage in feed.damage))

    @property
    def is_temporary(self) -> bool:
        """Whether only this object can read the cache: other objects for the same store cannot."""
        return not self._kept or self._temporary_path is not None

    def refresh(self, layer: CacheLayer, *, full: bool = False, progress: Progress | None = None) -> None:
        """Bring a layer up to date. With ``full``, every record is compared, however unlikely a change is.

        A cache that cannot be used is rebuilt, which takes a while; ``progress`` is called with the number of
        sessions that are done and the number of all.
        """
        with self._turns:
            self._layers[layer.name] = layer
            self.note = ""
            for feed in self.feeds:
                feed.damage.clear()
            self._rebuild_if_corrupt(lambda: self._refresh(layer, full=full, progress=progress))

    def recheck(self, layer: CacheLayer, sessions: Iterable[str]) -> None:
        """Compare some sessions record by record, because a record differs from what the cache says."""
        names = list(sessions)

        def act() -> None:
            with self._writer(self._lock_timeout) as writer:
                if writer is not None:
                    plan = plan_refresh(writer, layer, self.feeds, also=names)
                    Refresh(writer, layer, self.feeds).run(plan, full=True)

        with self._turns:
            self._rebuild_if_corrupt(act)

    def query(self, layer: CacheLayer, question: Callable[[Connection], T]) -> T:
        """Return the answer to a question to one state of the cache. A damaged cache is rebuilt first."""

        def act() -> T:
            db = self._reader()
            if db is None:
                self._layers[layer.name] = layer
                self._refresh(layer)
                db = self._reader()
            if db is None:
                raise StoreError(f"{self.path}: the cache cannot be opened", path=self.path)
            db.execute("BEGIN")
            try:
                return question(db)
            finally:
                db.rollback()

        with self._turns:
            return self._rebuild_if_corrupt(act)

    def write(self, change: Callable[[Connection], object]) -> None:
        """Let ``change`` write to the cache in one transaction, once no other process writes."""

        def act() -> None:
            with self._writer(timeout=None) as db:
                if db is not None:
                    db.execute("BEGIN IMMEDIATE")
                    change(db)
                    db.execute("COMMIT")

        with self._turns:
            self._rebuild_if_corrupt(act)

    def close(self) -> None:
        """Close all files. The cache may be used again."""
        with self._turns:
            self._close()
            for feed in self.feeds:
                feed.close()

    def _refresh(self, layer: CacheLayer, *, full: bool = False, progress: Progress | None = None) -> None:
        db = self._reader()
        ready = db is not None and _is_complete(db, layer)
        if db is not None and ready and not full:
            plan = plan_refresh(db, layer, self.feeds)
            if plan.is_empty and (self._temporary_path is not None or not layer.recheck_due(db)):
                return
        with self._writer(timeout=self._lock_timeout if ready else None) as writer:
            if writer is None:
                self.note = "another opensesh is writing the cache; the newest records may be missing"
                return
            self._write(writer, layer, full=full, progress=progress)
            (tombstones,) = writer.execute("SELECT count(*) FROM tombstone").fetchone()
            rows = tombstones
            if tombstones >= _TOMBSTONES_MIN:
                rows += writer.execute("SELECT count(*) FROM part").fetchone()[0]
        # So many rows were replaced that the cache is rebuilt without them.
        if tombstones >= _TOMBSTONES_MIN and tombstones > _TOMBSTONE_SHARE * rows:
            self._rebuild(progress)

    def _rebuild(self, progress: Progress | None = None) -> None:
        if self._temporary_path is not None:
            self._use_temporary(self._temporary_path, self.temporary_reason, source=None)
        else:
            self._close()
        with self._writer(timeout=None, rebuild=True) as writer:
            if writer is not None:
                for layer in self._layers.values():
                    self._write(writer, layer, full=False, progress=progress)

    def _write(self, db: Connection, layer: CacheLayer, *, full: bool, progress: Progress | None) -> None:
        if not _is_complete(db, layer):
            _prepare_layer(db, layer)
        plan = plan_refresh(db, layer, self.feeds, full=full)
        refresh = Refresh(db, layer, self.feeds)
        if not plan.is_empty or not _is_complete(db, layer):
            refresh.run(plan, full=full, progress=progress)
        if layer.recheck_due(db):
            db.execute("BEGIN IMMEDIATE")
            different = layer.recheck_batch(db, self.feeds)
            db.execute("COMMIT")
            if different:
                refresh.run(plan_refresh(db, layer, self.feeds, also=different), full=True)

    @contextmanager
    def _writer(self, timeout: float | None, *, rebuild: bool = False) -> Generator[Connection | None]:
        """Open the cache for writing, alone; ``None`` if another process writes for longer than ``timeout``."""
        self._ensure_temporary()
        with ExitStack() as stack:
            if self._temporary_path is None:
                try:
                    is_free = stack.enter_context(attempt_lock(self._lock_file, timeout_seconds=timeout))
                except OpenseshError as error:  # where there can be no lock, no cache is kept
                    self._use_temporary(cache_file.TEMPORARY, str(error), source=None if rebuild else self._readable())
                else:
                    if not is_free:
                        yield None
                        return
            db = self._open_writer(rebuild=rebuild)
            try:
                yield db
            finally:
                db.rollback()  # what was interrupted
                if self._temporary_path is None:
                    db.close()

    def _open_writer(self, *, rebuild: bool) -> Connection:
        if self._temporary_path is not None and self._db is not None:
            return self._db
        try:
            if rebuild:
                cache_file.remove(self.path)
            return cache_file.open_writer(self.path, self.store_id)
        except (OSError, sqlite3.Error) as error:
            if isinstance(error, sqlite3.Error) and cache_file.code_of(error) not in _REFUSED:
                raise
            source = None if rebuild else self._readable()
            return self._use_temporary(cache_file.TEMPORARY, f"{self.path}: {error}", source=source)

    def _use_temporary(self, path: str, reason: str, *, source: Connection | None) -> Connection:
        db = cache_file.open_temporary(path, self.store_id, source)
        self._close()
        self._temporary_path = path
        self.temporary_reason = reason
        self._keep(db)
        return db

    def _ensure_temporary(self) -> None:
        if not self._kept and self._db is None:
            self._use_temporary(cache_file.TEMPORARY, "", source=None)

    def _reader(self) -> Connection | None:
        self._ensure_temporary()
        if self._temporary_path is not None:
            return self._db
        inode = _inode(self.path)
        if self._db is not None and inode != self._inode:  # another process has rebuilt it
            self._close()
        if self._db is None:
            self._inode = inode
            db = cache_file.open_reader(self.path, self.store_id)
            if db is not None:
                self._keep(db)
        return self._db

    def _readable(self) -> Connection | None:
        try:
            return self._reader()
        except sqlite3.Error:
            return None

    def _keep(self, db: Connection) -> None:
        self._db = db
        self._finalizer = finalize(self, db.close)  # for callers that do not close the cache

    def _rebuild_if_corrupt(self, act: Callable[[], T]) -> T:
        try:
            return self._fall_back_to_memory(act)
        except sqlite3.DatabaseError as error:
            if str(error).startswith("fts5:") and cache_file.code_of(error) == sqlite3.SQLITE_ERROR:
                raise UsageError(f"the query cannot be answered: {error}") from error
            if cache_file.code_of(error) not in _DAMAGED:
                raise StoreError(f"the cache {self._reason(error)}", path=self.path) from error
        try:
            self._fall_back_to_memory(self._rebuild)
            return self._fall_back_to_memory(act)
        except sqlite3.DatabaseError as error:
            raise StoreError(f"the cache {self._reason(error)}", path=self.path) from error

    def _fall_back_to_memory(self, act: Callable[[], T]) -> T:
        """Call ``act``; if the disk is full, again with a copy of the cache in memory."""
        try:
            return act()
        except sqlite3.Error as error:
            if cache_file.code_of(error) not in cache_file.DISK_FULL or self._temporary_path == cache_file.MEMORY:
                raise
            source = self._readable()
            incomplete = source is not None and not any(_is_complete(source, layer) for layer in self._layers.values())
            self._use_temporary(cache_file.MEMORY, self._reason(error), source=source)
            if incomplete:  # it would fill the disk
                with suppress(OSError, OpenseshError), attempt_lock(self._lock_file) as is_free:
                    if is_free:
                        cache_file.remove(self.path)
        return act()

    def _reason(self, error: sqlite3.Error) -> str:
        match cache_file.code_of(error):
            case sqlite3.SQLITE_FULL:
                reason = "the disk is full"
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                reason = "locked by another program. Try again when it is done."
            case sqlite3.SQLITE_IOERR:
                reason = str(error)
            case _:
                reason = f"{error}. It holds only derived data: delete it."
        return f"{self.path}: {reason}"

    def _close(self) -> None:
        if self._finalizer is not None:
            self._finalizer()
        self._db = self._finalizer = self._temporary_path = None
        self.temporary_reason = ""


def open_cache(location: str | None = None, *, temporary: bool = False) -> DerivedCache:
    """Return the cache of the stores at a path or URL. Only a store with a URL, or an old layout, is opened by that."""
    location = location or default_place()
    if "://" in location or old_projects((locations := find_stores(location)).path):
        return DerivedCache(store=open_store(location, report=ignore_damage), temporary=temporary)
    return DerivedCache(locations, temporary=temporary)


def _is_complete(db: Connection, layer: CacheLayer) -> bool:
    """Whether a layer was refreshed to the end, in its present version."""
    names = [f"complete {layer.name}", f"version {layer.name}"]
    values = dict(db.execute("SELECT name, value FROM meta WHERE name IN (?, ?)", names).fetchall())
    return names[0] in values and values.get(names[1]) == layer.version()


def _prepare_layer(db: Connection, layer: CacheLayer) -> None:
    """Remove the rows of another version. A refresh of this version that was interrupted is continued."""
    name, version = f"version {layer.name}", layer.version()
    if db.execute("SELECT value FROM meta WHERE name = ?", [name]).fetchone() == (version,):
        return
    db.execute("BEGIN IMMEDIATE")
    layer.clear(db)
    db.execute("DELETE FROM copy WHERE source IN (SELECT id FROM source WHERE layer = ?)", [layer.name])
    db.execute("DELETE FROM source WHERE layer = ?", [layer.name])
    db.execute("DELETE FROM meta WHERE name = ?", [f"complete {layer.name}"])
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", [name, version])
    db.execute("COMMIT")


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0
