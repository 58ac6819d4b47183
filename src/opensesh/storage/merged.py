"""Several stores as one: what a data folder holds after years of OpenCode, one generation beside the other.

A record that is in several stores is seen once, and the fullest copy counts, record by record: of a session the one
updated last, of a message the one that was finished, of a part the one that holds more. A message's parts are those of
all stores together. OpenCode 2.x keeps a message as one row, of which parts are made as it is read, and of a compaction
a second message; where another store has them under the names that 1.x gave them, those count alone. Writes go where
the record is; new records go to the first store.
"""

from __future__ import annotations

import os
from heapq import merge
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

from ..errors import NotFoundError, RecordError
from ..records import as_object, order
from .keys import SUMMARY, is_made_part
from .protocol import Damage, Key, Store, StoredMessage, log_damage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from ..records import Document

    Report = Callable[[Damage], None]

_ENDED = ("completed", "error")


def store_paths(store: Store) -> list[str]:
    """The real paths that a store is known by; the first is where new records go."""
    members = store.members if isinstance(store, MergedStore) else ()
    return [os.path.realpath(each.place) for each in (*members, store)]


class MergedStore:
    """The stores of one data folder, the writable one first."""

    def __init__(self, place: str, members: Sequence[Store]) -> None:
        self._place = place
        self.members = tuple(members)

    @property
    def place(self) -> str:
        """The data folder."""
        return self._place

    def locate(self, key: Key) -> str:
        """The place of the record in the store that answers for it."""
        copies, damaged = self._copies(key)
        store = most_complete(key, copies)[0] if copies else (damaged or self.members)[0]
        return store.locate(key)

    def store_for_write(self, key: Key) -> Store:
        """The store that a write of this key goes to; the first one for a new record."""
        copies, damaged = self._copies(key)
        if copies and key[0] == "session":
            return most_complete(key, copies)[0]
        return copies[0][0] if copies else (damaged or self.members)[0]

    def stores_with(self, key: Key) -> list[Store]:
        """Every store that has a readable copy of the record."""
        return [store for store, _ in self._copies(key)[0]]

    def read(self, key: Key) -> Any:
        """The record, or :class:`NotFoundError`."""
        copies, damaged = self._copies(key)
        return most_complete(key, copies)[1] if copies else (damaged or self.members)[0].read(key)

    def write(self, key: Key, value: Any) -> None:
        """Store ``value`` where the record is, or in the first store."""
        self.store_for_write(key).write(key, value)

    def update(self, key: Key, edit: Callable[[Any], None]) -> Any:
        """Read, edit and store, in the store that holds the record."""
        return self.store_for_write(key).update(key, edit)

    def remove(self, key: Key) -> None:
        """Forget the record in the store that holds it."""
        self.store_for_write(key).remove(key)

    def list(self, prefix: Key = ()) -> Sequence[Key]:
        """The keys below ``prefix``, of all stores."""
        found = (_from(store, ((key, None) for key in store.list(prefix))) for store in self.members)
        return [key for key, _ in _once(merge(*found, key=_key))]

    def scan(self, prefix: Key, *, report: Report = log_damage) -> Iterator[tuple[Key, Any]]:
        """Every readable record below ``prefix``; a session once, even if two stores file it under different
        projects."""
        for _, key, value in self.origins(prefix, report=report):
            yield key, value

    def origins(self, prefix: Key, *, report: Report = log_damage) -> Iterator[tuple[Store, Key, Any]]:
        """The same, with the store that each record comes from."""
        filed = self._filed_twice(prefix)
        streams = (_from(store, store.scan(prefix, report=report)) for store in self.members)
        for key, copies in _once(merge(*streams, key=_key)):
            if filed.get(key[-1], key) == key or key[0] != "session":
                store, value = most_complete(key, copies)
                yield store, key, value

    def messages(self, session_id: str, *, last: int = 0, report: Report = log_damage) -> Sequence[StoredMessage]:
        """A session's messages from all stores together, oldest first."""
        held = [store.messages(session_id, last=last, report=report) for store in self.members]
        if sum(map(bool, held)) <= 1:
            return next(filter(None, held), ())
        spare = duplicate_messages([{str(message.info.get("id")) for message in messages} for messages in held])
        found: dict[str, list[StoredMessage]] = {}
        for message in chain.from_iterable(held):
            found.setdefault(str(message.info.get("id")), []).append(message)
        united = (_merge_copies(name, copies) for name, copies in found.items() if name not in spare)
        return sorted(united, key=lambda message: order.position(message.info))[-last:]

    def _copies(self, key: Key) -> tuple[list[tuple[Store, Any]], list[Store]]:
        """The stores that can read the record, with what they read; and those that have it and cannot."""
        readable: list[tuple[Store, Any]] = []
        damaged: list[Store] = []
        for store in self.members:
            try:
                readable.append((store, store.read(key)))
            except NotFoundError:
                continue
            except RecordError:
                damaged.append(store)
        return readable, damaged

    def _filed_twice(self, prefix: Key) -> dict[str, Key]:
        """For each session that is filed under several projects, the key that counts."""
        if prefix[:1] not in ((), ("session",)):
            return {}
        keys: dict[str, set[Key]] = {}
        for store in self.members:
            for key in store.list(("session",)):  # of every project: which one it is filed under is the question
                keys.setdefault(key[-1], set()).add(key)
        return {name: self._newest(filed) for name, filed in keys.items() if len(filed) > 1}

    def _newest(self, keys: Iterable[Key]) -> Key:
        def rank(key: Key) -> tuple[int, int]:
            """When it was updated; of two such, the one in an earlier store counts, where a move is written."""
            copies = self._copies(key)[0]
            return max(
                ((completeness_key(key, value)[0], -self.members.index(store)) for store, value in copies),
                default=(-1, 0),
            )

        return max(sorted(keys), key=rank)


def completeness_key(key: Key, value: Any) -> tuple[int, ...]:
    """How much a copy of a record holds, to compare with another copy of the same one."""
    record = as_object(value) or {}
    time = as_object(record.get("time")) or {}
    match key[0]:
        case "session":
            return (_number(time.get("updated")) or _number(time.get("created")),)
        case "message":
            return int("completed" in time or "error" in record), len(record)
        case "part":
            state = as_object(record.get("state")) or {}
            ended = state.get("status") in _ENDED or "end" in time
            return int(ended), int(state.get("status") == "running"), _length(record) + _length(state)
        case _:
            return (0,)


def duplicate_messages(held: Sequence[AbstractSet[str]]) -> set[str]:
    """Of a session's messages as several stores name them, those made of a compaction that another store has as 1.x
    kept it: its summary is there under a name of its own."""
    made = {name for names in held for name in names if name.endswith(SUMMARY)}
    return {name for name in made if any(name.removesuffix(SUMMARY) in each and name not in each for each in held)}


def duplicate_parts(message: str, names: Collection[str]) -> set[str]:
    """Of a message's parts as all stores name them, those made of what others have under names of their own."""
    made = {name for name in names if is_made_part(name, message)}
    return made if len(made) < len(names) else set()


def most_complete(key: Key, copies: Sequence[tuple[Store, Any]]) -> tuple[Store, Any]:
    return max(copies, key=lambda copy: completeness_key(key, copy[1])) if len(copies) > 1 else copies[0]


def _merge_copies(message_id: str, copies: Sequence[StoredMessage]) -> StoredMessage:
    if len(copies) == 1:
        return copies[0]
    info = max((message.info for message in copies), key=lambda info: completeness_key(("message",), info))
    parts: dict[str, Document] = {}
    for message in copies:
        for part in message.parts:
            name = str(part.get("id"))
            parts[name] = max(parts.get(name, part), part, key=lambda part: completeness_key(("part",), part))
    for name in duplicate_parts(message_id, parts):
        del parts[name]
    return StoredMessage(info, order.parts_in_order(parts.values(), order.created(info)))


def _from(store: Store, records: Iterator[tuple[Key, Any]]) -> Iterator[tuple[Key, Store, Any]]:
    for key, value in records:
        yield key, store, value


def _once(found: Iterable[tuple[Key, Store, Any]]) -> Iterator[tuple[Key, list[tuple[Store, Any]]]]:
    """Each key with its copies, of records in key order; without those that are told under another name."""
    for _, group in groupby(found, key=_together):
        records = list(group)
        spare = _spare(records)
        for key, copies in groupby(records, key=_key):
            if key[-1] not in spare:
                yield key, [(store, value) for _, store, value in copies]


def _together(found: tuple[Key, Store, Any]) -> Key:
    """What a record is looked at with: a message's parts, and the two messages of a compaction, which sort so."""
    key = found[0]
    return key[:2] if key[0] == "part" else (*key[:-1], key[-1].removesuffix(SUMMARY))


def _spare(records: Sequence[tuple[Key, Store, Any]]) -> set[str]:
    first = records[0][0]
    if first[0] == "part":
        return duplicate_parts(first[1], {key[-1] for key, _, _ in records})
    if first[0] != "message" or len(records) == 1:
        return set()
    held: dict[int, set[str]] = {}
    for key, store, _ in records:
        held.setdefault(id(store), set()).add(key[-1])
    return duplicate_messages(list(held.values()))


def _key(found: tuple[Key, Store, Any]) -> Key:
    return found[0]


def _length(record: Document) -> int:
    """How much text it holds; a part's in ``text``, a tool's in its state."""
    return sum(len(text) for name in ("text", "output", "error") if isinstance(text := record.get(name), str))


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0
