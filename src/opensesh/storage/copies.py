"""Copies of one record in several stores: which one is the most complete, and which are derived from another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..records import as_object, as_whole, object_at
from .keys import SUMMARY, is_made_part

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from collections.abc import Set as AbstractSet

    from .protocol import Key


def completeness_key(key: Key, value: Any) -> tuple[int, ...]:
    """Return a sort key for the copies of one record: the most complete copy is the largest."""
    record = as_object(value) or {}
    time = object_at(record, "time")
    match key[0]:
        case "session":
            return (as_whole(time.get("updated")) or as_whole(time.get("created")),)
        case "message":
            return int("completed" in time or "error" in record), len(record)
        case "part":
            state = object_at(record, "state")
            ended = state.get("status") in ("completed", "error") or "end" in time
            texts = (source.get(name) for source in (record, state) for name in ("text", "output", "error"))
            length = sum(len(text) for text in texts if isinstance(text, str))
            return int(ended), int(state.get("status") == "running"), length
        case _:
            return (0,)


def duplicate_messages(ids_by_store: Sequence[AbstractSet[str]]) -> set[str]:
    """Return the ids of messages derived from a compaction of 2.x that another store has as 1.x stored it.

    Its summary is there under an id of its own.
    """
    derived = {name for names in ids_by_store for name in names if name.endswith(SUMMARY)}
    return {
        name
        for name in derived
        if any(name.removesuffix(SUMMARY) in names and name not in names for names in ids_by_store)
    }


def duplicate_parts(message_id: str, part_ids: Collection[str]) -> set[str]:
    """Return the ids of a message's derived parts, if another store has the parts under ids of their own."""
    derived = {name for name in part_ids if is_made_part(name, message_id)}
    return derived if len(derived) < len(part_ids) else set()
