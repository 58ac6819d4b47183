"""Typed views of documents, and documents from typed values."""

from __future__ import annotations

import math
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import msgspec
from msgspec import Meta, Struct

from ..errors import RecordError
from ..ids import LATEST_MS
from .codec import MAX_COUNT, MAX_DOLLARS, as_object

if TYPE_CHECKING:
    from .codec import Document

R = TypeVar("R", bound="Record")
V = TypeVar("V", bound="View")
Milliseconds = Annotated[int, Meta(ge=0, le=LATEST_MS)]
"""A time, in milliseconds since 1970."""
Count = Annotated[int, Meta(ge=-MAX_COUNT, le=MAX_COUNT)]
Dollars = Annotated[float, Meta(ge=-MAX_DOLLARS, le=MAX_DOLLARS)]
_SCALAR_TYPES = frozenset((str, int, float, bool, dict))
"""Types whose values are the same in a view and in its document; most fields have one of them."""


def js_name(name: str) -> str:
    """Return a field's name as OpenCode writes it: ``sessionID`` for ``session_id``."""
    first, *rest = name.split("_")
    return first + "".join("ID" if word == "id" else word.capitalize() for word in rest)


class View(Struct, frozen=True, kw_only=True, rename=js_name):
    """A typed, read-only view of an object inside a record. It omits unknown fields."""


class Record(View, frozen=True, kw_only=True, dict=True):
    """A typed, read-only view of a whole record.

    ``document`` is the record itself, with all fields in stored order. Change a record through the store
    (:meth:`Store.update`), not through its view.
    """

    @property
    def document(self) -> Document:
        """The record as stored. For a record built in Python, its fields in the order in which OpenCode writes them."""
        attributes = vars(self)
        if "_document" not in attributes:
            attributes["_document"] = document_of(self)
        return attributes["_document"]


def view(document: object, kind: type[R], path: str = "") -> R:
    """Return ``document`` as a ``kind``, or raise :class:`RecordError` with the file and the invalid field.

    An unexpected ``null``, which is how JavaScript writes NaN, is treated as a missing field; a fraction is truncated
    where an integer is expected; a number that is out of bounds (:data:`Milliseconds`, :data:`Count`,
    :data:`Dollars`) is treated as 0. No caller needs to expect a number that cannot be formatted or added up.
    """
    try:
        record = _converted(document, kind, path)
    except UnicodeEncodeError:
        raise RecordError("a lone surrogate where a name or an object is expected", path=path, place="$") from None
    vars(record)["_document"] = document
    return record


def _converted(document: object, kind: type[V], path: str, zeroed: list[RecordError] | None = None) -> V:
    """Convert a document. Numbers that are out of bounds become 0, and are appended to ``zeroed``."""
    while True:
        try:
            return msgspec.convert(document, kind)
        except msgspec.ValidationError as error:
            reason, _, position = str(error).replace("`", "").partition(" - at ")
            invalid = RecordError(reason, path=path, place=position or "$")
            is_fraction = reason.startswith("Expected int") and reason.endswith("got float")
            is_out_of_bounds = reason == "Number out of range" or "=" in reason
            coerced = document
            if reason.endswith("got null") or is_fraction or is_out_of_bounds:
                coerced = _coerced(document, position.split(".")[1:])
            if coerced is document:
                raise invalid from None
            if is_out_of_bounds and zeroed is not None:
                zeroed.append(invalid)
            document = coerced


def _coerced(document: object, names: list[str]) -> object:
    """Return the document without the ``null``, or with an integer, at the path ``names``; the same if that fails."""
    members = as_object(document)
    if members is None or not names or names[0] not in members:
        return document
    name, *inner = names
    value = members[name]
    if inner:
        coerced = _coerced(value, inner)
        return document if coerced is value else members | {name: coerced}
    if value is None:
        return {key: item for key, item in members.items() if key != name}
    if isinstance(value, float) and math.isfinite(value):
        # As an integer first, so that a float where an integer is expected is not taken for one out of bounds.
        return members | {name: int(value)}
    return members | {name: 0} if isinstance(value, int) else document


def out_of_bounds(document: object, kind: type[View]) -> RecordError | None:
    """Return an error about the first number in a document that :func:`view` reads as 0, if there is one."""
    zeroed: list[RecordError] = []
    with suppress(RecordError, UnicodeEncodeError):  # invalid for another reason, which is not the question here
        _converted(document, kind, "", zeroed)
    return zeroed[0] if zeroed else None


def document_of(value: View) -> Document:
    """Return a new document with a view's fields, without those that are ``None``."""
    tag, fields = _shape(type(value))
    document: Document = tag.copy()
    for name, key in fields:
        item = getattr(value, name)
        if item is not None:
            document[key] = item if type(item) in _SCALAR_TYPES else _plain(item)
    return document


@cache
def _shape(kind: type[View]) -> tuple[Document, tuple[tuple[str, str], ...]]:
    """Return the tag that documents of this kind begin with, and pairs of field name and document key."""
    config = kind.__struct_config__
    tag: Document = {config.tag_field: config.tag} if config.tag_field else {}
    return tag, tuple(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))


def _plain(item: Any) -> Any:
    if isinstance(item, View):
        return document_of(item)
    if isinstance(item, (list, tuple)):
        return [_plain(inner) for inner in cast("list[Any]", item)]
    return item
