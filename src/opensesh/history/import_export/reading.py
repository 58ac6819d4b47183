"""A session's messages one after the other, without holding more than a few at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import RecordError
from ...records import as_object, order
from ...storage.protocol import Damage, StoredMessage, log_damage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...records import Document
    from ...storage.protocol import Store

    Report = Callable[[Damage], None]

_MANY = 300
"""Up to so many messages are read at once, which is faster; beyond that, one by one."""


def conversation(store: Store, session_id: str, *, report: Report = log_damage) -> Iterator[StoredMessage]:
    """The messages with their parts, oldest first. What cannot be read is left out and told."""
    damage: list[Damage] = []
    newest = store.messages(session_id, last=_MANY + 1, report=damage.append)
    if len(newest) <= _MANY:  # so these are all
        for each in damage:
            report(each)
        yield from newest
        return
    del newest
    for name, info in _infos(store, session_id, report):
        parts = (as_object(part) for _, part in store.scan(("part", name), report=report))
        yield StoredMessage(info, order.parts_in_order(filter(None, parts), order.created(info)))


def _infos(store: Store, session_id: str, report: Report) -> list[tuple[str, Document]]:
    found: list[tuple[order.Position, str, Document]] = []
    for key, value in store.scan(("message", session_id), report=report):
        info = as_object(value) or {}
        try:
            found.append((order.position(info), key[-1], info))
        except RecordError as error:
            report(Damage(store.locate(key), f"{error.place}: {error.reason}"))
    found.sort(key=lambda each: each[0])
    return [(name, info) for _, name, info in found]
