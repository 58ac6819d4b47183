"""Change feeds of stores, for caches that are derived from them, and a generic feed that scans a store.

See :class:`~opensesh.storage.protocol.ChangeFeed` for the contract.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from zlib import adler32, crc32

from ..errors import NotFoundError, RecordError
from .protocol import ChangeFeedProvider, Damage, MessageState, RawRecord, SessionChanges, StoredSession, member_stores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ..records import Document
    from .locations import StoreLocations
    from .protocol import ChangeFeed, Key, Store

SETTLE_NS = 3_000_000_000
"""A file that changed less than this ago may change again without getting another time."""


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
            self._report(Damage(self._store.locate(key), f"{error.place}: {error.reason}"))
            return None
        return cast("Document", value) if isinstance(value, dict) else None

    def _report(self, damage: Damage) -> None:
        if damage not in self.damage:
            self.damage.append(damage)


def _checksum(value: Any) -> int:
    from ..records.codec import dumps

    data = dumps(value)
    return fingerprint(crc32(data), adler32(data), len(data))
