"""Several stores as one: what a data folder holds after years of OpenCode, one generation beside the other.

A record that is in several stores is seen once. Of a session's records the most recently updated one counts; of a
message, the copy that holds more. Writes go where the record is; new records go to the first store.
"""

from __future__ import annotations

from heapq import merge
from typing import TYPE_CHECKING, Any

from ..errors import NotFound, RecordError
from ..records import as_object, order
from .store import Damage, Key, Store, StoredMessage, log_damage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Report = Callable[[Damage], None]


class Union:
    """The stores of one data folder, the writable one first."""

    def __init__(self, place: str, members: Sequence[Store]) -> None:
        self._place = place
        self.members = tuple(members)

    @property
    def place(self) -> str:
        """The data folder."""
        return self._place

    def locate(self, key: Key) -> str:
        """The place of the record in the store that holds it."""
        return self.home(key).locate(key)

    def home(self, key: Key) -> Store:
        """The store that answers for a key; the first one for a new record."""
        readable: list[tuple[Store, Any]] = []
        damaged: list[Store] = []
        for store in self.members:
            try:
                readable.append((store, store.read(key)))
            except NotFound:
                continue
            except RecordError:
                damaged.append(store)
        if readable and key[0] == "session":
            return max(readable, key=lambda found: _updated(found[1]))[0]
        return readable[0][0] if readable else (damaged or self.members)[0]

    def read(self, key: Key) -> Any:
        """The record, or :class:`NotFound`."""
        return self.home(key).read(key)

    def write(self, key: Key, value: Any) -> None:
        """Store ``value`` where the record is, or in the first store."""
        self.home(key).write(key, value)

    def update(self, key: Key, edit: Callable[[Any], None]) -> Any:
        """Read, edit and store, in the store that holds the record."""
        return self.home(key).update(key, edit)

    def remove(self, key: Key) -> None:
        """Forget the record in the store that holds it."""
        self.home(key).remove(key)

    def list(self, prefix: Key = ()) -> Sequence[Key]:
        """The keys below ``prefix``, of all stores."""
        return sorted({key for store in self.members for key in store.list(prefix)})

    def scan(self, prefix: Key, *, report: Report = log_damage) -> Iterator[tuple[Key, Any]]:
        """Every readable record below ``prefix``; a session once, even if two stores file it under different
        projects."""
        for _, key, value in self.origins(prefix, report=report):
            yield key, value

    def origins(self, prefix: Key, *, report: Report = log_damage) -> Iterator[tuple[Store, Key, Any]]:
        """The same, with the store that each record comes from."""
        best: dict[tuple[str, str], tuple[int, int]] = {}
        if len(self.members) > 1:
            for number, store in enumerate(self.members):
                for key, value in store.scan(prefix, report=_quietly):
                    name, mark = (key[0], key[-1]), (_updated(value), -number)
                    best[name] = max(best.get(name, mark), mark)
        streams = (_numbered(number, store.scan(prefix, report=report)) for number, store in enumerate(self.members))
        for key, number, value in merge(*streams, key=lambda found: found[:2]):
            if best.get((key[0], key[-1]), (0, -number))[1] == -number:
                yield self.members[number], key, value

    def messages(self, session_id: str, *, last: int = 0, report: Report = log_damage) -> Sequence[StoredMessage]:
        """A session's messages from all stores together, oldest first."""
        found: dict[str, StoredMessage] = {}
        for store in self.members:
            for message in store.messages(session_id, last=last, report=report):
                name = str(message.info.get("id"))
                if name not in found or _fullness(message) > _fullness(found[name]):
                    found[name] = message
        return sorted(found.values(), key=lambda message: order.position(message.info))[-last:]


def _numbered(number: int, records: Iterator[tuple[Key, Any]]) -> Iterator[tuple[Key, int, Any]]:
    for key, value in records:
        yield key, number, value


def _updated(value: Any) -> int:
    time = as_object((as_object(value) or {}).get("time")) or {}
    updated = time.get("updated") or time.get("created")
    return updated if isinstance(updated, int) else 0


def _fullness(message: StoredMessage) -> tuple[int, bool]:
    return len(message.parts), "completed" in (as_object(message.info.get("time")) or {})


def _quietly(_: Damage) -> None:
    """Damage is reported on the second reading."""
