"""The Store protocol: what every place that keeps records promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..errors import StoreError
    from ..records import Document

Key = tuple[str, ...]
"""``("message", sessionID, messageID)`` and the like. See :mod:`opensesh.storage.keys`."""


class Damage(NamedTuple):
    """A record that could not be read. It was left where it is."""

    path: str
    reason: str


def unreadable(place: str, error: StoreError) -> Damage:
    """That a store cannot be read at all, as damage at its place."""
    return Damage(place, error.message.removeprefix(f"{place}: "))


class StoredMessage(NamedTuple):
    """A message and its parts, in order."""

    info: Document
    parts: list[Document]


def log_damage(damage: Damage) -> None:
    """The default way to hear of damage: a warning in the log."""
    import logging

    logging.getLogger("opensesh.storage").warning("%s: %s", damage.path, damage.reason)


class Store(Protocol):
    """A place that keeps records by key. All of it is synchronous; the engine calls it from a thread.

    **Values** are JSON: usually an object, an array for ``session_diff`` and ``todo``. What a caller passes in or gets
    back is the caller's own: a store keeps no reference to it. Keys and order inside objects are kept, and so are
    fields that nobody here knows.

    **Order.** ``list`` and ``scan`` answer in key order (code points). That is *not* the order of time; ``messages``
    is.

    **Atomicity.** ``write`` and ``update`` replace a record whole. Whoever reads at the same time, in any thread or
    process, sees the old record or the new one, never a mixture. ``update`` excludes every other ``update`` and
    ``write`` of that key, so nothing is lost between its read and its write. Nothing is promised across two keys.

    **Durability.** When a write returns, the record survives the death of the process; and, unless the store was opened
    with relaxed durability, of the machine. A write that raises has changed nothing.

    **Cancellation.** No operation waits for another party except for a lock, which is held for one operation at a time.
    An exception out of ``edit`` leaves the record as it was. Threads cannot be cancelled: an engine that gives up
    waiting must expect the write to happen.

    **Damage.** ``read`` and ``update`` raise :class:`~opensesh.errors.RecordError` for a record that cannot be read.
    ``scan`` and ``messages`` go on without it and say so to ``report``. No store ever deletes or rewrites such a
    record by itself.
    """

    @property
    def place(self) -> str:
        """Where this is, as one would pass it to ``--store``."""
        ...

    def locate(self, key: Key) -> str:
        """Where that record is (or would be), for messages to people."""
        ...

    def read(self, key: Key) -> Any:
        """The record, or :class:`~opensesh.errors.NotFoundError`."""
        ...

    def write(self, key: Key, value: Any) -> None:
        """Store ``value``, whatever was there before."""
        ...

    def update(self, key: Key, edit: Callable[[Any], None]) -> Any:
        """Read, let ``edit`` change the value in place, store it, return it.

        ``edit`` runs under the lock of that key and must not call the store. A missing record is
        :class:`~opensesh.errors.NotFoundError`: nothing is created.
        """
        ...

    def remove(self, key: Key) -> None:
        """Forget the record. Removing what is not there is no error."""
        ...

    def list(self, prefix: Key = ()) -> Sequence[Key]:
        """The keys below ``prefix``, sorted; empty if there are none."""
        ...

    def scan(self, prefix: Key, *, report: Callable[[Damage], None] = log_damage) -> Iterator[tuple[Key, Any]]:
        """Every readable record below ``prefix``, in key order, read as it is asked for."""
        ...

    def messages(
        self, session_id: str, *, last: int = 0, report: Callable[[Damage], None] = log_damage
    ) -> Sequence[StoredMessage]:
        """A session's messages with their parts, oldest first; with ``last``, only that many of the newest.

        Reading the last few does not read the rest. A session that does not exist has no messages.
        """
        ...
