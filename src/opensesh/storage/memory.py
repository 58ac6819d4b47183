"""A store that lasts as long as the process: for tests, and for sessions that need not be kept."""

from __future__ import annotations

import logging
import os
import threading
from contextlib import contextmanager
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from ..errors import NotFoundError, StoreError
from ..records import codec
from .keys import check_key
from .leases import ProcessLeases
from .protocol import Key, RecordChange, StoredMessage, log_damage
from .queries import newest_first
from .record_ids import message_positions, with_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from ..records import Document
    from .change_feeds import ChangeFeed
    from .protocol import Batch, Leases, Report, Subscriber
    from .queries import SessionQuery


_log = logging.getLogger("opensesh.storage")


class Memory:
    """Keeps the encoded bytes of each record, so that no caller shares a value with another.

    Each operation is atomic, and so is a batch. The store implements every optional capability.
    """

    writable = True
    place = ":memory:"
    """Not a place that can be opened again."""

    def __init__(self) -> None:
        self.id = f"memory:{os.urandom(8).hex()}"
        self._records: dict[Key, bytes] = {}
        self._lock = threading.RLock()
        self._updating = False
        self._leases = ProcessLeases()
        self._subscribers: list[Subscriber] = []
        self._version = 0
        """Counts the changes."""

    def change_feed(self) -> ChangeFeed:
        """Return a feed that scans the records whenever one of them was written or removed."""
        from .change_feeds import ScanFeed

        return ScanFeed(self, lambda: self._version)

    def locate(self, key: Key) -> str:
        """Return a name for a record, for messages to users."""
        return ":memory:/" + "/".join(key)

    def read(self, key: Key) -> Any:
        """Return the record, or raise :class:`NotFoundError`."""
        with self._lock:
            data = self._records.get(check_key(key))
        if data is None:
            raise NotFoundError(f"nothing is stored at {self.locate(key)}", key=list(key))
        return codec.loads(data, self.locate(key))

    def write(self, key: Key, value: Any) -> None:
        """Store ``value`` in place of the current record, if there is one."""
        with self.batch() as batch:
            batch.write(key, value)

    def update(self, key: Key, edit: Callable[[Any], None]) -> Any:
        """Read, edit and store, while every other operation waits."""
        with self._lock:
            with self._exclusive():
                value = self.read(key)
                edit(value)
                self._records[key] = codec.dumps(value)
            self._notify([RecordChange(key, removed=False, own=True)])
        return value

    def remove(self, key: Key) -> None:
        """Remove the record. A missing record is not an error."""
        with self.batch() as batch:
            batch.remove(key)

    def list(self, prefix: Key = ()) -> Sequence[Key]:
        """Return the keys below ``prefix``, sorted."""
        if prefix:
            check_key(prefix)
        depth = len(prefix)
        with self._lock:
            return sorted(key for key in self._records if len(key) > depth and key[:depth] == prefix)

    def scan(self, prefix: Key, *, report: Report = log_damage) -> Iterator[tuple[Key, Any]]:
        """Iterate over the records below ``prefix``, in key order. None of them can be damaged."""
        for key in self.list(prefix):
            try:
                yield key, self.read(key)
            except NotFoundError:
                continue  # removed meanwhile

    def messages(self, session_id: str, *, last: int = 0, report: Report = log_damage) -> Sequence[StoredMessage]:
        """Return a session's messages with their parts, oldest first; with ``last``, only the newest."""
        with self._lock:
            newest = sorted(message_positions(self, session_id, report), key=itemgetter(0))[-last:]
            return [with_parts(self, info, report) for _, info in newest]

    @contextmanager
    def batch(self) -> Generator[Batch]:
        """Collect writes and removals, and apply all of them at once at the end of the block."""
        batch = _MemoryBatch()
        yield batch
        with self._lock:
            with self._exclusive():
                for key, data in batch.operations:
                    if data is None:
                        self._records.pop(key, None)
                    else:
                        self._records[key] = data
            # Still under the lock: subscribers receive the changes of a record in their order.
            self._notify([RecordChange(key, removed=data is None, own=True) for key, data in batch.operations])

    def close(self) -> None:
        """Do nothing: the records stay until the object is collected."""

    # -- capabilities --------------------------------------------------------------------------------------------------

    def leases(self) -> Leases:
        """Return leases between the threads of this process."""
        return self._leases

    def query_sessions(self, query: SessionQuery, *, report: Report = log_damage) -> list[tuple[Key, Document]]:
        """Return the selected sessions, newest first."""
        with self._lock:
            sessions = [(key, record) for key, record in self.scan(("session",)) if query.matches(record)]
        sessions.sort(key=newest_first)
        return sessions[: query.limit or None]

    def count_sessions(self, query: SessionQuery) -> int:
        """Return how many sessions are selected, ignoring the limit."""
        return len(self.query_sessions(query._replace(limit=0)))

    def subscribe(self, callback: Subscriber) -> Callable[[], None]:
        """Call ``callback`` after every change, in the thread that made it, until the returned function is called."""
        self._subscribers.append(callback)

        def unsubscribe() -> None:
            if callback in self._subscribers:
                self._subscribers.remove(callback)

        return unsubscribe

    def _notify(self, changes: Sequence[RecordChange]) -> None:
        for subscriber in tuple(self._subscribers) if changes else ():
            try:
                subscriber(changes)
            except Exception:
                _log.exception("a subscriber to the changes of %s failed", self.id)

    @contextmanager
    def _exclusive(self) -> Generator[None]:
        with self._lock:
            if self._updating:  # by this thread: any other waits for the lock
                raise StoreError("a store was called from inside its own update; that would wait forever")
            self._updating = True
            try:
                yield
            finally:
                self._updating = False
                self._version += 1


class _MemoryBatch:
    """The operations of a batch: the bytes of each record to write, ``None`` for one to remove."""

    def __init__(self) -> None:
        self.operations: list[tuple[Key, bytes | None]] = []

    def write(self, key: Key, value: Any) -> None:
        self.operations.append((check_key(key), codec.dumps(value)))

    def remove(self, key: Key) -> None:
        self.operations.append((check_key(key), None))
