"""Publishing what other programs write into a store that they share with us."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import events
from ..storage.protocol import LiveEvents, SharedSessions, member_stores, read_or_none

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..storage.protocol import RecordChange, Store


def publish_foreign_changes(store: Store, publish: events.Publish) -> Callable[[], None]:
    """Publish the changes that other programs make, with the events of our own changes, until the result is called."""

    def receive(changes: Sequence[RecordChange]) -> None:
        for change in changes:
            event = None if change.own else _event(store, change)
            if event is not None:
                publish(event)

    stops = [
        member.subscribe(receive)
        for member in member_stores(store)
        if isinstance(member, LiveEvents) and isinstance(member, SharedSessions)
    ]

    def stop() -> None:
        for unsubscribe in stops:
            unsubscribe()

    return stop


def _event(store: Store, change: RecordChange) -> events.Event | None:
    kind, owner, name = change.key
    if change.removed:
        return events.SessionDeleted(info={"id": name, "projectID": owner}) if kind == "session" else None
    record = read_or_none(store, change.key)
    if record is None:
        return None  # changed again meanwhile, which is reported as well
    match kind:
        case "session":
            return events.SessionUpdated(info=record)
        case "message":
            return events.MessageUpdated(info=record)
        case _:
            return events.PartUpdated(part=record)
