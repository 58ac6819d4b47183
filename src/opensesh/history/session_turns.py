"""The messages of a session by position, read a few at a time.

Messages are ordered by time and are only added at the end, so a position stays valid while a session grows. Damaged
messages have positions as well: a page shows where something is missing.
"""

from __future__ import annotations

from bisect import bisect
from collections import OrderedDict
from hashlib import blake2b
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ..errors import NotFoundError, RecordError
from ..records import Document, as_object
from ..storage.protocol import Damage, Store, StoredMessage
from ..storage.record_ids import message_positions, with_ids_of_key, with_parts

if TYPE_CHECKING:
    from collections.abc import Sequence


_TAIL = 200
"""Up to this many messages at the end are read by the store, which does not have to read the others for it."""
_REMEMBERED_SESSIONS = 32


class DamagedMessage(NamedTuple):
    """A message that cannot be read."""

    id: str
    path: str
    reason: str


SessionTurn: TypeAlias = StoredMessage | DamagedMessage


class TurnOrders:
    """The order of the messages of the sessions that were read last.

    To know it, every message of a session has to be read. It stays valid until a message is added or removed.
    """

    def __init__(self) -> None:
        self._orders: OrderedDict[tuple[str, str], tuple[tuple[str, ...], list[str | DamagedMessage]]] = OrderedDict()
        self._lock = Lock()

    def of_session(self, store: Store, session_id: str, names: tuple[str, ...]) -> list[str | DamagedMessage]:
        """Return the ids of a session's messages in order; ``names`` are all of them, in any order."""
        key = store.id, session_id
        with self._lock:
            known = self._orders.get(key)
        if known is None or known[0] != names:
            known = names, _read_order(store, session_id, names)
        with self._lock:
            self._orders[key] = known
            self._orders.move_to_end(key)
            while len(self._orders) > _REMEMBERED_SESSIONS:
                self._orders.popitem(last=False)
        return known[1]


class SessionTurns:
    """The turns of one session, as they were when the object was made."""

    def __init__(self, store: Store, session_id: str, orders: TurnOrders) -> None:
        self._store = store
        self.session_id = session_id
        self._orders = orders
        self._names = tuple(key[-1] for key in store.list(("message", session_id)))
        self.total = len(self._names)
        self.damage: list[Damage] = []
        """Parts that could not be read so far."""

    def revision(self, end: int) -> str:
        """Return text that identifies the messages before a position: it changes if they do, by a revert or an import,
        and not if messages are added at the end."""
        return blake2b("\n".join(self._names[:end]).encode(errors="replace"), digest_size=6).hexdigest()

    def read(self, start: int, limit: int) -> list[SessionTurn]:
        """Return the turns from a position on."""
        start, end = max(start, 0), min(start + limit, self.total)
        if start >= end:
            return []
        if self.total - start <= _TAIL:
            damage: list[Damage] = []
            messages = self._store.messages(self.session_id, last=self.total - start, report=damage.append)
            # Messages that were added or removed since the names were read would shift the positions.
            if not damage and len(messages) == self.total - start and turn_id(messages[-1]) in self._names:
                return list(messages[: end - start])
        order_of_names = self._orders.of_session(self._store, self.session_id, self._names)
        return [self._message(entry) if isinstance(entry, str) else entry for entry in order_of_names[start:end]]

    def position(self, message_id: str) -> int:
        """Return the position of a message, or raise :class:`NotFoundError`."""
        if message_id not in self._names:
            raise NotFoundError(f"there is no message {message_id} in this session", id=message_id)
        if self.total <= _TAIL:
            shown = self.read(0, self.total)
            names = [turn_id(turn) for turn in shown]
        else:
            shown_order = self._orders.of_session(self._store, self.session_id, self._names)
            names = [entry if isinstance(entry, str) else entry.id for entry in shown_order]
        return names.index(message_id)

    def find_part(self, part_id: str) -> tuple[str, Document]:
        """Return a part with the id of its message, or raise :class:`NotFoundError`.

        Parts are stored by message. Ids begin with their time, so the messages that were made around the time of the
        part are tried first.
        """
        by_time = sorted(self._names, key=_time_of)
        start = bisect(by_time, _time_of(part_id), key=_time_of)
        for distance in range(len(by_time) + 1):
            for at in (start - 1 - distance, start + distance):
                if 0 <= at < len(by_time):
                    key = ("part", by_time[at], part_id)
                    try:
                        part = as_object(with_ids_of_key(key, self._store.read(key)))
                    except NotFoundError:
                        continue
                    if part is None:
                        raise RecordError("the part is not an object", path=self._store.locate(key))
                    return by_time[at], part
        raise NotFoundError(f"there is no part {part_id} in this session", id=part_id)

    def _message(self, message_id: str) -> SessionTurn:
        key = ("message", self.session_id, message_id)
        try:
            info = as_object(with_ids_of_key(key, self._store.read(key))) or {}
            return with_parts(self._store, info, self.damage.append)
        except (NotFoundError, RecordError) as error:  # it may have been damaged since its position was read
            return DamagedMessage(message_id, self._store.locate(key), error.message)


def turn_id(turn: SessionTurn) -> str:
    """Return the id of a turn's message."""
    return turn.id if isinstance(turn, DamagedMessage) else str(turn.info.get("id", ""))


def _time_of(record_id: str) -> str:
    return record_id.partition("_")[2]


def _read_order(store: Store, session_id: str, names: Sequence[str]) -> list[str | DamagedMessage]:
    damage: dict[str, str] = {}

    def report(entry: Damage) -> None:
        damage[entry.path] = entry.reason

    positions = sorted((position, str(info["id"])) for position, info in message_positions(store, session_id, report))
    ordered: list[str | DamagedMessage] = [name for _, name in positions]
    readable = set(ordered)
    by_name = sorted(name for _, name in positions)
    for name in names:
        if name not in readable:
            path = store.locate(("message", session_id, name))
            before = bisect(by_name, name)  # near the message whose id is the next smaller one
            at = ordered.index(by_name[before - 1]) + 1 if before else 0
            ordered.insert(at, DamagedMessage(name, path, damage.get(path, "the record cannot be read")))
    return ordered
