"""The order of records: by creation time, then by identifier unwrapped near that time. Never by raw identifier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import ids
from ..errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .codec import Document

Position = tuple[int, tuple[int, str]]


def created(document: Document, path: str = "") -> int:
    """Return a record's ``time.created`` in milliseconds, or raise :class:`RecordError`.

    A number that cannot be a time, such as one in the year 300000, becomes 0.
    """
    value: Any = None
    try:
        value = document["time"]["created"]
        milliseconds = int(value)
    except (LookupError, TypeError, ValueError, OverflowError):
        actual = "nothing" if value is None else repr(value)
        raise RecordError(f"expected milliseconds, found {actual:.60}", path=path, place="$.time.created") from None
    return milliseconds if 0 <= milliseconds <= ids.LATEST_MS else 0


def position(document: Document, path: str = "") -> Position:
    """Return the key that sorts messages or sessions, oldest first; :class:`RecordError` without a time or an id."""
    time = created(document, path)
    identifier = document.get("id")
    if not isinstance(identifier, str):
        actual = "nothing" if identifier is None else repr(identifier)
        raise RecordError(f"expected an identifier, found {actual:.60}", path=path, place="$.id")
    return time, ids.order(identifier, time)


def in_order(records: Iterable[Document]) -> list[Document]:
    """Sort messages or sessions, oldest first."""
    return sorted(records, key=position)


def names_in_order(names: Iterable[str], near: int) -> list[str]:
    """Sort identifiers of one kind, oldest first."""
    by_name = sorted(names)  # which is the order of time, except across a wraparound
    if ids.spans_wraparound(by_name):
        by_name.sort(key=lambda name: ids.order(name, near))
    return by_name


def parts_in_order(parts: Iterable[Document], near: int) -> list[Document]:
    """Sort the parts of a message made around ``near`` by creation; parts without an id come first."""
    by_name = sorted(parts, key=_name)
    if ids.spans_wraparound([_name(part) for part in by_name]):
        by_name.sort(key=lambda part: ids.order(_name(part), near))
    return by_name


def _name(part: Document) -> str:
    return str(part.get("id", ""))
