"""A store that lasts as long as the process: for tests, and for sessions nobody wants to keep."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..errors import NotFoundError, RecordError, StoreError
from ..records import codec, order
from .keys import check_key
from .protocol import Damage, Key, StoredMessage, log_damage

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from ..records import Document
    from .protocol import ChangeFeed

    Report = Callable[[Damage], None]


class Memory:
    """Keeps the encoded bytes of each record, so that no caller shares a value with another."""

    def __init__(self) -> None:
        self._records: dict[Key, bytes] = {}
        self._lock = threading.Lock()
        self._editing = threading.local()
        self._version = 0
        """Counts the changes."""

    @property
    def place(self) -> str:
        """Nowhere one could point ``--store`` at."""
        return ":memory:"

    def change_feed(self) -> ChangeFeed:
        """Return a feed that scans the records whenever one of them was written or removed."""
        from .change_feeds import ScanFeed

        return ScanFeed(self, lambda: self._version)

    def locate(self, key: Key) -> str:
        """A name for a record, for messages to people."""
        return ":memory:/" + "/".join(key)

    def read(self, key: Key) -> Any:
        """The record, or :class:`NotFoundError`."""
        data = self._records.get(check_key(key))
        if data is None:
            raise NotFoundError(f"nothing is stored at {self.locate(key)}", key=list(key))
        return codec.loads(data, self.locate(key))

    def write(self, key: Key, value: Any) -> None:
        """Store ``value``, whatever was there before."""
        check_key(key)
        data = codec.dumps(value)
        with self._alone():
            self._records[key] = data

    def update(self, key: Key, edit: Callable[[Any], None]) -> Any:
        """Read, edit and store, alone with the store."""
        with self._alone():
            value = self.read(key)
            edit(value)
            self._records[key] = codec.dumps(value)
        return value

    def remove(self, key: Key) -> None:
        """Forget the record."""
        with self._alone():
            self._records.pop(check_key(key), None)

    def list(self, prefix: Key = ()) -> Sequence[Key]:
        """The keys below ``prefix``, sorted."""
        if prefix:
            check_key(prefix)
        depth = len(prefix)
        return sorted(key for key in self._records.copy() if len(key) > depth and key[:depth] == prefix)

    def scan(self, prefix: Key, *, report: Report = log_damage) -> Iterator[tuple[Key, Any]]:
        """Every record below ``prefix``, in key order; what this store wrote it can read, so nothing is reported."""
        for key in self.list(prefix):
            try:
                yield key, self.read(key)
            except NotFoundError:
                continue

    def messages(self, session_id: str, *, last: int = 0, report: Report = log_damage) -> Sequence[StoredMessage]:
        """A session's messages with their parts, oldest first; with ``last``, only that many of the newest."""
        found: list[tuple[order.Position, str, Document]] = []
        for name, info in self._objects(("message", session_id), report):
            try:
                found.append((order.position(info, self.locate(("message", session_id, name))), name, info))
            except RecordError as error:
                report(Damage(error.path, f"{error.place}: {error.reason}"))
        found.sort(key=lambda each: each[0])
        return [StoredMessage(info, self._parts(name, info, report)) for _, name, info in found[-last:]]

    def _parts(self, message: str, info: Document, report: Report) -> list[Document]:
        parts = dict(self._objects(("part", message), report))
        return [parts[name] for name in order.names_in_order(parts, order.created(info))]

    def _objects(self, prefix: Key, report: Report) -> Iterator[tuple[str, Document]]:
        for key, value in self.scan(prefix, report=report):
            document = codec.as_object(value)
            if document is None:
                report(Damage(self.locate(key), "$: expected an object"))
            else:
                yield key[-1], document

    @contextmanager
    def _alone(self) -> Generator[None]:
        if getattr(self._editing, "now", False):
            raise StoreError("a store was called from inside its own update; that would wait forever")
        with self._lock:
            self._editing.now = True
            try:
                yield
            finally:
                self._editing.now = False
                self._version += 1
