"""The Store protocol: what every place that keeps records promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

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


UNSTABLE = 0
"""The fingerprint of a record that changed so recently that its next change could leave the same fingerprint."""


class SessionChanges(NamedTuple):
    """How a store differs from what a cache knows of it, session by session."""

    fingerprint: int
    """Fingerprint of the whole store. As long as it is the same, no session has to be compared."""
    changed: Mapping[str, int]
    """Sessions that are new or have another fingerprint than the known one, with their fingerprints."""
    removed: Sequence[str] = ()
    recent: Sequence[str] = ()
    """Unchanged sessions that another program may be writing to in ways that their fingerprints do not show."""


class MessageState(NamedTuple):
    """The state of a message, determined without reading it."""

    id: str
    fingerprint: int
    parts: Mapping[str, int] | None
    """Fingerprints of its parts; ``None`` if they were not compared because the message is unchanged."""


class StoredSession(NamedTuple):
    """A session's record and the project it is filed under."""

    project_id: str
    record: Document


class RawRecord(NamedTuple):
    """A stored record, not decoded if the store keeps bytes: most readers need few of its fields."""

    id: str
    message_id: str
    """The message of a part; empty for a message."""
    path: str
    """Where the record is, for messages to people."""
    content: bytes | Document

    def document(self) -> Document:
        """Return the decoded record; raise :class:`~opensesh.errors.RecordError` if it is damaged."""
        if not isinstance(self.content, bytes):
            return self.content
        from ..records.codec import loads_object

        return loads_object(self.content, self.path)


class ChangeFeed(Protocol):
    """A read-only view of one store for caches that are derived from it.

    **Fingerprints** are integers that are compared and never interpreted. Equal fingerprints promise equal content,
    except for :data:`UNSTABLE`, which equals nothing: whatever has it is read again the next time. A fingerprint may
    change although the content did not; that only costs a comparison.

    **Detection** has three levels of increasing cost: ``detect_changes`` compares sessions, ``message_states`` compares
    the messages of one session, and the parts of a message are compared where its state says so. A feed whose sessions'
    fingerprints cover every change returns no ``recent`` sessions and ``None`` from ``message_state``.

    **Damage.** A record that cannot be read is skipped and appended to ``damage``. A store that cannot be read at all
    raises :class:`~opensesh.errors.StoreError`.

    **Concurrency.** The store may be written while it is read. A feed determines a fingerprint before the content is
    read, so that a change in between is found by the next detection. A feed is used by one thread at a time.
    """

    place: str
    """The name of the store in a cache; see :func:`~opensesh.storage.change_feeds.printable`."""
    persistent: bool
    """Whether fingerprints mean the same in another process; otherwise a cache must not outlive this one."""
    damage: list[Damage]

    def detect_changes(self, before: int, known: Mapping[str, int]) -> SessionChanges:
        """Compare the store with the fingerprint ``before`` and the ``known`` fingerprints of its sessions."""
        ...

    def session(self, session_id: str) -> StoredSession | None:
        """Read a session's record; ``None`` if it is missing or damaged."""
        ...

    def message_states(self, session_id: str, known: Mapping[str, int], *, full: bool) -> Iterator[MessageState]:
        """Determine the states of a session's messages; with ``full``, the fingerprints of every part."""
        ...

    def message_state(self, session_id: str, message_id: str, *, full: bool) -> MessageState | None:
        """Determine the state of one message; ``None`` if it is missing or ``detect_changes`` finds every change."""
        ...

    def messages(self, session_id: str, ids: Sequence[str] | None = None) -> Iterator[RawRecord]:
        """Read a session's messages, or only those with these ``ids``."""
        ...

    def parts(self, session_id: str, ids: Sequence[tuple[str, str]]) -> Iterator[RawRecord]:
        """Read the parts with these pairs of message and part identifiers."""
        ...

    def message_parts(self, session_id: str, message_ids: Sequence[str]) -> Iterator[RawRecord]:
        """Read all parts of some messages."""
        ...

    def part(self, session_id: str, message_id: str, part_id: str) -> Document | None:
        """Read one part, or the message itself if ``part_id`` is empty; ``None`` if it is missing or damaged."""
        ...

    def close(self) -> None:
        """Release open files. The feed may be used again."""
        ...


@runtime_checkable
class ChangeFeedProvider(Protocol):
    """A store that can report its changes. For others, :func:`~opensesh.storage.change_feeds.feeds_of` scans them."""

    def change_feed(self) -> ChangeFeed:
        """Return a new feed of this store."""
        ...
