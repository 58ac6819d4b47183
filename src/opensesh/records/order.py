"""The order of things: by time of creation, then by identifier unwrapped near that time. Never by raw identifier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import ids
from ..errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .codec import Document

Position = tuple[int, tuple[int, str]]


def created(document: Document, path: str = "") -> int:
    """When the record says it was made, in milliseconds."""
    moment: Any = None
    try:
        moment = document["time"]["created"]
        return int(moment)
    except (LookupError, TypeError, ValueError, OverflowError):
        found = "nothing" if moment is None else repr(moment)
        raise RecordError(f"expected milliseconds, found {found:.60}", path=path, place="$.time.created") from None


def position(document: Document, path: str = "") -> Position:
    """A sort key for messages and sessions, oldest first. One without a time, or without a name, has none."""
    moment = created(document, path)
    name = document.get("id")
    if not isinstance(name, str):
        found = "nothing" if name is None else repr(name)
        raise RecordError(f"expected an identifier, found {found:.60}", path=path, place="$.id")
    return moment, ids.order(name, moment)


def in_order(records: Iterable[Document]) -> list[Document]:
    """Messages (or sessions) oldest first."""
    return sorted(records, key=position)


def names_in_order(names: Iterable[str], near: int) -> list[str]:
    """Identifiers of one kind, oldest first; the cheap way when their names already sort by time."""
    by_name = sorted(names)
    if ids.spans_wraparound(by_name):
        by_name.sort(key=lambda name: ids.order(name, near))
    return by_name


def parts_in_order(parts: Iterable[Document], near: int) -> list[Document]:
    """The parts of one message, made around ``near``, in the order they were made; those without a name come first."""
    by_name = sorted(parts, key=_name)
    if ids.spans_wraparound([_name(part) for part in by_name]):
        by_name.sort(key=lambda part: ids.order(_name(part), near))
    return by_name


def _name(part: Document) -> str:
    return str(part.get("id", ""))
