"""Where in a history a revert begins. Places are positions in the list, never comparisons of identifiers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..errors import NotFoundError
from ..storage.protocol import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..records import Document, Revert

_SAYS_SOMETHING = ("text", "tool")


class Point(NamedTuple):
    """What is taken back: this message and all after it, or from one of its parts on."""

    message: int
    part: int = 0

    def record(self, history: Sequence[StoredMessage]) -> Document:
        """The point as a session's ``revert`` names it."""
        message = history[self.message]
        record: Document = {"messageID": message.info["id"]}
        if self.part:
            record["partID"] = message.parts[self.part]["id"]
        return record

    def before(self, history: Sequence[StoredMessage]) -> list[StoredMessage]:
        """What is not taken back."""
        if not self.part:
            return list(history[: self.message])
        *whole, cut = history[: self.message + 1]
        return [*whole, StoredMessage(cut.info, cut.parts[: self.part])]


def find(history: Sequence[StoredMessage], message_id: str, part_id: str | None = None) -> Point:
    """The point that a user means by a message, or a part of one.

    A message means the prompt it belongs to: half an answer is only kept where a part says so. A part before which the
    message says nothing means the whole message.
    """
    if part_id is None:
        return _prompt_of(history, index(history, message_id))
    for place, message in enumerate(history):
        for number, part in enumerate(message.parts):
            if part.get("id") == part_id:
                kept = any(each.get("type") in _SAYS_SOMETHING for each in message.parts[:number])
                return Point(place, number) if kept else _prompt_of(history, place)
    raise NotFoundError(f"the session has no part {part_id}", id=part_id)


def recorded(history: Sequence[StoredMessage], revert: Revert) -> Point | None:
    """The point that a session's record names, taken by its word; ``None`` if it is gone from the history."""
    for place, message in enumerate(history):
        if message.info.get("id") == revert.message_id:
            numbers = [number for number, part in enumerate(message.parts) if part.get("id") == revert.part_id]
            if revert.part_id is not None and not numbers:
                # The part is gone already: all that is left to take back comes after this message.
                return Point(place, len(message.parts))
            return Point(place, numbers[0] if numbers else 0)
    return None


def _prompt_of(history: Sequence[StoredMessage], place: int) -> Point:
    for above in range(place, -1, -1):
        if history[above].info.get("role") == "user":
            return Point(above)
    return Point(place)


def index(history: Sequence[StoredMessage], message_id: str) -> int:
    """Where a message stands."""
    for place, message in enumerate(history):
        if message.info.get("id") == message_id:
            return place
    raise NotFoundError(f"the session has no message {message_id}", id=message_id)
