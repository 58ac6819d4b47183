"""Change feeds: how caches that are derived from a store find out what changed in it.

:class:`ChangeFeed` is the contract. :class:`ScanFeed` implements it for any store; the other feeds are beside their
stores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast, runtime_checkable
from zlib import adler32, crc32

from ..errors import NotFoundError, RecordError
from .protocol import Damage, member_stores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ..records import Document
    from .locations import StoreLocations
    from .protocol import Key, Store

SETTLE_NS = 3_000_000_000
"""A file that changed less than this ago may change again without getting another time."""


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
    except for :data:`UNSTABLE`, which equals nothing: a record with it is read again the next time. A fingerprint may
    change although the content did not; that only costs a comparison.

    **Detection** has three levels of increasing cost: ``detect_changes`` compares sessions, ``message_states`` compares
    the messages of one session, and the parts of a message are compared where its state says so. A feed whose sessions'
    fingerprints cover every change returns no ``recent`` sessions and ``None`` from ``message_state``.

    **Damage.** A record that cannot be read is skipped and appended to ``damage``. A store that cannot be read at all
    raises :class:`~opensesh.errors.StoreError`.

    **Concurrency.** The store may be written while it is read. A feed determines a fingerprint before the content is
    read, so that a change in between is found by the next detection. A feed is used by one thread at a time.
    """

    store_id: str
    """The name of the store in a cache; see :func:`printable`."""
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
    """A store that can report its changes. For others, :func:`feeds_of` scans them."""

    def change_feed(self) -> ChangeFeed:
        """Return a new feed of this store."""
        ...


def fingerprint(*numbers: int) -> int:
    """Combine numbers into one fingerprint, the same in every process and never ``UNSTABLE``."""
    return hash(numbers) or 1


def printable(path: str) -> str:
    """Return a path as text that can be stored, even if its bytes are not valid text."""
    return path.encode(errors="backslashreplace").decode()


def feeds_at(locations: StoreLocations) -> list[ChangeFeed]:
    """Return a feed for each store at these locations. No store is opened before its feed has to read it."""
    feeds: list[ChangeFeed] = []
    if locations.tree is not None:
        from .json_tree.change_feed import JsonTreeFeed

        feeds.append(JsonTreeFeed(locations.tree))
    if locations.databases:
        from .opencode_db.change_feed import OpencodeDBFeed

        feeds += [OpencodeDBFeed(path) for path in locations.databases]
    return feeds


def feeds_of(store: Store) -> list[ChangeFeed]:
    """Return the feeds of a store, or of its members; stores that offer none are scanned."""
    return [
        member.change_feed() if isinstance(member, ChangeFeedProvider) else ScanFeed(member)
        for member in member_stores(store)
    ]


class ScanFeed:
    """A feed for any store. It reads the whole store to find out what has changed.

    With ``version``, a counter that changes with every write, an unchanged store is not read, and the cache must not
    outlive the counter. Without it, fingerprints are checksums of the records and are valid in every process.
    """

    def __init__(self, store: Store, version: Callable[[], int] | None = None) -> None:
        self.store_id = printable(store.id)
        self.persistent = version is None
        self.damage: list[Damage] = []
        self._store = store
        self._version = version
        self._sessions: dict[str, Key] = {}
        self._messages: dict[str, dict[str, int]] = {}
        """Fingerprints of the messages, by session."""
        self._parts: dict[str, dict[str, int]] = {}
        """Fingerprints of the parts, by message."""

    def detect_changes(self, before: int, known: Mapping[str, int]) -> SessionChanges:
        """Scan the store, unless its version is known."""
        version = 0 if self._version is None else fingerprint(self._version())
        if version and version == before:
            return SessionChanges(version, {})
        self._sessions, self._messages, self._parts = {}, {}, {}
        heads: dict[str, int] = {}
        for key, value in self._store.scan(("session",), report=self._report):
            self._sessions[key[-1]] = key
            heads[key[-1]] = _checksum(value)
        for key, value in self._store.scan(("message",), report=self._report):
            self._messages.setdefault(key[1], {})[key[-1]] = _checksum(value)
        for key, value in self._store.scan(("part",), report=self._report):
            self._parts.setdefault(key[1], {})[key[-1]] = _checksum(value)
        current = {name: self._fingerprint(name, heads.get(name, 0)) for name in {*heads, *self._messages}}
        changed = {name: value for name, value in current.items() if known.get(name) != value}
        return SessionChanges(version, changed, [name for name in known if name not in current])

    def session(self, session_id: str) -> StoredSession | None:
        """Read a session's record."""
        key = self._sessions.get(session_id)
        record = None if key is None else self._read(key)
        return None if key is None or record is None else StoredSession(key[1], record)

    def message_states(self, session_id: str, known: Mapping[str, int], *, full: bool) -> Iterator[MessageState]:
        """Return the states that the last scan found."""
        for name, value in self._messages.get(session_id, {}).items():
            parts = self._parts.get(name, {})
            yield MessageState(name, fingerprint(value, len(parts)), parts)

    def message_state(self, session_id: str, message_id: str, *, full: bool) -> MessageState | None:
        """Return ``None``: a scan finds every change."""
        return None

    def messages(self, session_id: str, ids: Sequence[str] | None = None) -> Iterator[RawRecord]:
        """Read messages."""
        for name in self._messages.get(session_id, {}) if ids is None else ids:
            yield from self._raw(("message", session_id, name), "")

    def parts(self, session_id: str, ids: Sequence[tuple[str, str]]) -> Iterator[RawRecord]:
        """Read parts by name."""
        for message, name in ids:
            yield from self._raw(("part", message, name), message)

    def message_parts(self, session_id: str, message_ids: Sequence[str]) -> Iterator[RawRecord]:
        """Read all parts of some messages."""
        for message in message_ids:
            for key in self._store.list(("part", message)):
                yield from self._raw(key, message)

    def part(self, session_id: str, message_id: str, part_id: str) -> Document | None:
        """Read one part, or a message."""
        return self._read(("part", message_id, part_id) if part_id else ("message", session_id, message_id))

    def close(self) -> None:
        """Do nothing: the store belongs to the caller."""

    def _fingerprint(self, session: str, head: int) -> int:
        numbers = [head]
        for name, value in sorted(self._messages.get(session, {}).items()):
            numbers += (crc32(name.encode()), value)
            for part, own in sorted(self._parts.get(name, {}).items()):
                numbers += (crc32(part.encode()), own)
        return fingerprint(*numbers)

    def _raw(self, key: Key, message: str) -> Iterator[RawRecord]:
        record = self._read(key)
        if record is not None:
            yield RawRecord(key[-1], message, self._store.locate(key), record)

    def _read(self, key: Key) -> Document | None:
        try:
            value = self._store.read(key)
        except NotFoundError:
            return None
        except RecordError as error:
            self._report(Damage(self._store.locate(key), error.detail))
            return None
        return cast("Document", value) if isinstance(value, dict) else None

    def _report(self, damage: Damage) -> None:
        if damage not in self.damage:
            self.damage.append(damage)


def _checksum(value: Any) -> int:
    from ..records.codec import dumps

    data = dumps(value)
    return fingerprint(crc32(data), adler32(data), len(data))
