"""The index of a store: one SQLite file in the cache folder, derived and disposable.

It is brought up to date before it is asked, by whoever asks; nothing runs in between. One process at a time writes,
under a lock of the operating system; those who read never wait for it. Deleted, cut short, or of another version, it is
made anew. Where it cannot be kept, or not be brought up to date, it is made for one use: in memory, if a disk is full.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import contextmanager, suppress
from threading import RLock
from typing import TYPE_CHECKING, TypeVar
from weakref import finalize
from zlib import adler32, crc32

from ...errors import OpenseshError, StoreError, UsageError
from ...storage import paths
from ...storage.locks import open_lock_file, try_lock_file
from ..search.feeds import open_feeds, spelled
from ..search.survey import survey, take_turn, turn_is_due
from . import cache_file as schema

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence
    from sqlite3 import Connection

    from ...storage.locations import StoreLocations
    from ...storage.protocol import Damage
    from ..search.feeds import Feed

    Progress = Callable[[int, int], None]

T = TypeVar("T")
_PATIENCE = 10.0
_PAUSE = 0.05
_DEAD_SHARE = 0.2
_DEAD_FEW = 1_000
_REFUSED = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_SCHEMA)


class DerivedCache:
    """The index of the stores that were found at a place. Any number of threads may use one; they take turns."""

    def __init__(
        self,
        found: StoreLocations,
        *,
        folder: str | None = None,
        feeds: Sequence[Feed] | None = None,
        patience: float = _PATIENCE,
    ) -> None:
        self._patience = patience
        place = os.path.realpath(found.place)
        self.place = spelled(place)
        name = _digest(place)
        self.path = os.path.join(folder or paths.cache(), f"index-{name}.db")
        self.feeds = list(open_feeds(found) if feeds is None else feeds)
        self.note = ""
        """Why what is found may be less than there is; empty if it is not."""
        self.unkept = ""
        """Why the index is one for this use alone, though all is found; empty if it is kept."""
        self._lock_file = os.path.join(paths.state(), "locks", f"index-{name}")
        self._turns = RLock()
        self._db: Connection | None = None
        self._let_go: finalize[..., DerivedCache] | None = None
        self._inode = 0
        self._room: str | None = None
        """Where an index for one use is; ``None`` for the one that is kept."""

    @property
    def damage(self) -> list[Damage]:
        """What could not be read while bringing the index up to date."""
        return list(dict.fromkeys(damage for feed in self.feeds for damage in feed.damage))

    @property
    def is_empty(self) -> bool:
        """Whether it knows of no session."""
        return self.ask(lambda db: db.execute("SELECT 1 FROM session LIMIT 1").fetchone()) is None

    def refresh(self, *, closely: bool = False, progress: Progress | None = None) -> None:
        """Bring the index up to date. ``closely``, every record is compared, however unlikely it is to have changed.

        An index that cannot be used is made anew; that takes a while, and ``progress`` hears of it: how many sessions
        are done, of how many.
        """
        with self._turns:
            self.note = ""
            for feed in self.feeds:
                feed.damage.clear()
            self._mending(lambda: self._refresh(closely, progress))

    def recheck(self, sessions: Iterable[str]) -> None:
        """Compare some sessions record by record, because one of their records is not what the index says."""
        with self._turns:
            self._mending(lambda: self._recheck(list(sessions)))

    def ask(self, question: Callable[[Connection], T]) -> T:
        """The answer of an index as of one moment. One that turns out to be damaged is made anew, and asked again."""
        with self._turns:
            return self._mending(lambda: self._ask(question))

    def gather_words(self) -> None:
        """Make it possible to ask for what stands inside of words; done once."""
        with self._turns:
            self._mending(self._gather_words)

    def close(self) -> None:
        """Let go of all files. It may be used again."""
        with self._turns:
            self._close()
            for feed in self.feeds:
                feed.close()

    def _ask(self, question: Callable[[Connection], T]) -> T:
        db = self._reader()
        if db is None:
            self._refresh(closely=False, progress=None)
            db = self._reader()
        if db is None:
            raise StoreError(f"{self.path}: the index cannot be opened", path=self.path)
        db.execute("BEGIN")
        try:
            return question(db)
        finally:
            db.rollback()

    def _refresh(self, closely: bool, progress: Progress | None) -> None:
        db = self._reader()
        ready = db is not None and _is_complete(db)
        if db is not None and ready and not closely:
            plan = survey(db, self.feeds)
            if plan.is_empty and (self._room is not None or not turn_is_due(db)):
                return
        with self._writer(patience=self._patience if ready else None) as writer:
            if writer is None:
                self.note = "another opensesh is writing the index; what is newest may be missing"
                return
            self._write(writer, closely=closely, progress=progress)
            worn = _is_worn(writer)
        if worn:
            self._rebuild(progress)

    def _rebuild(self, progress: Progress | None) -> None:
        if self._room is not None:
            self._make_fleeting(self._room, self.unkept, like=None)
        else:
            self._close()
        with self._writer(patience=None, anew=True) as writer:
            if writer is not None:
                self._write(writer, closely=False, progress=progress)

    def _gather_words(self) -> None:
        from ..search.rows import has_vocabulary, make_vocabulary

        db = self._reader()
        if db is not None and not has_vocabulary(db):
            with self._writer(patience=None) as writer:
                if writer is not None and not has_vocabulary(writer):
                    make_vocabulary(writer)

    def _recheck(self, sessions: Sequence[str]) -> None:
        from ..search.refresh import Refresh

        with self._writer(self._patience) as writer:
            if writer is not None:
                Refresh(writer, self.feeds).run(survey(writer, self.feeds, also=sessions), closely=True)

    def _write(self, db: Connection, *, closely: bool, progress: Progress | None) -> None:
        from ..search.refresh import Refresh  # most of the time there is nothing to write

        plan = survey(db, self.feeds, closely=closely)
        refresh = Refresh(db, self.feeds)
        if not plan.is_empty or not _is_complete(db):
            refresh.run(plan, closely=closely, progress=progress)
        if turn_is_due(db):
            db.execute("BEGIN IMMEDIATE")
            different = take_turn(db, self.feeds)
            db.execute("COMMIT")
            if different:
                refresh.run(survey(db, self.feeds, also=different), closely=True)

    @contextmanager
    def _writer(self, patience: float | None, *, anew: bool = False) -> Generator[Connection | None]:
        """The index, to be written, alone; ``None`` if someone else writes it for longer than one would wait."""
        descriptor = None if self._room is not None else self._lock(anew=anew)
        try:
            if descriptor is not None and not _wait(descriptor, patience):
                yield None
                return
            db = self._open_writer(anew=anew)
            try:
                yield db
            finally:
                db.rollback()  # of what was cut short
                if self._room is None:
                    db.close()
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _lock(self, *, anew: bool) -> int | None:
        """The lock, not taken yet; ``None`` where there can be none, and so no index to be kept."""
        try:
            return open_lock_file(self._lock_file)
        except OpenseshError as error:
            self._make_fleeting(schema.TEMPORARY, str(error), like=None if anew else self._readable())
            return None

    def _open_writer(self, *, anew: bool) -> Connection:
        if self._room is not None and self._db is not None:
            return self._db
        try:
            if anew:
                schema.remove(self.path)
            return schema.open_writer(self.path, self.place)
        except (OSError, sqlite3.Error) as error:
            if isinstance(error, sqlite3.Error) and schema.code_of(error) not in _REFUSED:
                raise
            like = None if anew else self._readable()
            return self._make_fleeting(schema.TEMPORARY, f"{self.path}: {error}", like=like)

    def _make_fleeting(self, room: str, why: str, *, like: Connection | None) -> Connection:
        db = schema.open_fleeting(room, self.place, like)
        self._close()
        self._room = room
        self.unkept = why
        self._keep(db)
        return db

    def _reader(self) -> Connection | None:
        if self._room is not None:
            return self._db
        inode = _inode(self.path)
        if self._db is not None and inode != self._inode:  # somebody made it anew
            self._close()
        if self._db is None:
            self._inode = inode
            db = schema.open_reader(self.path, self.place)
            if db is not None:
                self._keep(db)
        return self._db

    def _readable(self) -> Connection | None:
        """The index as it is, if there is one that can be read."""
        try:
            return self._reader()
        except sqlite3.Error:
            return None

    def _keep(self, db: Connection) -> None:
        self._db = db
        self._let_go = finalize(self, db.close)  # also for whoever lets go of an index without closing it

    def _mending(self, act: Callable[[], T]) -> T:
        try:
            return self._finding_room(act)
        except sqlite3.DatabaseError as error:
            if str(error).startswith("fts5:") and schema.code_of(error) == sqlite3.SQLITE_ERROR:
                raise UsageError(f"that cannot be looked for: {error}") from error
            if schema.code_of(error) not in _DAMAGED:
                raise self._explain(error) from error
        try:
            self._finding_room(lambda: self._rebuild(None))
            return self._finding_room(act)
        except sqlite3.DatabaseError as error:
            raise self._explain(error) from error

    def _finding_room(self, act: Callable[[], T]) -> T:
        """What ``act`` returns; where the disk takes no more, with a copy of the index in memory."""
        try:
            return act()
        except sqlite3.Error as error:
            if schema.code_of(error) not in schema.NO_ROOM or self._room == schema.MEMORY:
                raise
            like = self._readable()
            begun = like is not None and not _is_complete(like)
            self._make_fleeting(schema.MEMORY, self._reason(error), like=like)
            if begun:
                self._give_back()
        return act()

    def _give_back(self) -> None:
        """Take what was begun of an index away, so that it is not what fills the disk."""
        with suppress(OSError, OpenseshError):
            descriptor = open_lock_file(self._lock_file)
            try:
                if try_lock_file(descriptor):
                    schema.remove(self.path)
            finally:
                os.close(descriptor)

    def _explain(self, error: sqlite3.Error) -> StoreError:
        return StoreError(f"the index {self._reason(error)}", path=self.path)

    def _reason(self, error: sqlite3.Error) -> str:
        code = schema.code_of(error)
        if code == sqlite3.SQLITE_FULL:
            reason = "the disk is full"
        elif code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            reason = "locked by another program. Try again when it is done."
        elif code in schema.NO_ROOM:
            reason = str(error)
        else:
            reason = f"{error}. It holds nothing that cannot be made again: delete it."
        return f"{self.path}: {reason}"

    def _close(self) -> None:
        if self._let_go is not None:
            self._let_go()
        self._db = self._let_go = self._room = None
        self.unkept = ""


def _wait(descriptor: int, patience: float | None) -> bool:
    deadline = None if patience is None else time.monotonic() + patience
    while not try_lock_file(descriptor):
        if deadline is not None and time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE)
    return True


def _is_complete(db: Connection) -> bool:
    return db.execute("SELECT 1 FROM meta WHERE name = 'complete'").fetchone() is not None


def _is_worn(db: Connection) -> bool:
    """Whether so much was replaced that it is better made anew."""
    (dead,) = db.execute("SELECT count(*) FROM dead").fetchone()
    if dead < _DEAD_FEW:
        return False
    (alive,) = db.execute("SELECT count(*) FROM part").fetchone()
    return dead > _DEAD_SHARE * (alive + dead)


def _digest(place: str) -> str:
    """A short name for a place. Two places may share one; the index knows which of them it is of."""
    data = place.encode(errors="surrogateescape")
    return f"{crc32(data):08x}{adler32(data):08x}"


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0
