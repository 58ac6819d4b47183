"""Typed views of documents, and documents from typed values."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
from msgspec import Struct

from ..errors import RecordError
from .codec import as_object

if TYPE_CHECKING:
    from .codec import Document

R = TypeVar("R", bound="Record")
_AS_IT_IS = frozenset((str, int, float, bool, dict))
"""Types of what stands in a document as it stands in a view; most fields are one of them."""


def js_name(name: str) -> str:
    """``session_id`` as OpenCode spells it: ``sessionID``."""
    first, *rest = name.split("_")
    return first + "".join("ID" if word == "id" else word.capitalize() for word in rest)


class View(Struct, frozen=True, kw_only=True, rename=js_name):
    """A typed, read-only look at an object inside a record. What it does not know of, it does not show."""


class Record(View, frozen=True, kw_only=True, dict=True):
    """A typed, read-only look at a whole record.

    ``document`` is the record itself, with the fields this version does not know of, in the order they were written. It
    belongs to whoever made the view: change a record through the store (:meth:`Store.update`), not through its view.
    """

    @property
    def document(self) -> Document:
        """The record as stored. For one built here rather than read, its fields in the order OpenCode writes them."""
        held = vars(self)
        if "_document" not in held:
            held["_document"] = document_of(self)
        return held["_document"]


def view(document: object, kind: type[R], path: str = "") -> R:
    """Look at ``document`` as a ``kind``; a :class:`RecordError` names the file and the field that does not fit.

    ``null`` where something else belongs, which is how JavaScript writes a number that is none, reads as if it was not
    there; a fraction where a whole number belongs is cut.
    """
    try:
        record = _converted(document, kind, path)
    except UnicodeEncodeError:
        raise RecordError("half a character where a name or an object is expected", path=path, place="$") from None
    vars(record)["_document"] = document
    return record


def _converted(document: object, kind: type[R], path: str) -> R:
    while True:
        try:
            return msgspec.convert(document, kind)
        except msgspec.ValidationError as error:
            reason, _, found = str(error).replace("`", "").partition(" - at ")
            place = found or "$"
            mended = _mended(document, place.split(".")[1:]) if _can_be_mended(reason) else document
            if mended is document:
                raise RecordError(reason, path=path, place=place) from None
            document = mended


def _can_be_mended(reason: str) -> bool:
    return reason.endswith("got null") or (reason.startswith("Expected int") and reason.endswith("got float"))


def _mended(document: object, names: list[str]) -> object:
    """A document without the ``null``, or with the whole of the number, at this place; the same if that is no help."""
    held = as_object(document)
    if held is None or not names or names[0] not in held:
        return document
    name, *inner = names
    value = held[name]
    if inner:
        mended = _mended(value, inner)
        return document if mended is value else held | {name: mended}
    if value is None:
        return {key: each for key, each in held.items() if key != name}
    return held | {name: int(value)} if isinstance(value, float) and math.isfinite(value) else document


def document_of(value: View) -> Document:
    """A new document from a view's fields; those that are ``None`` are left out, as JavaScript leaves out undefined."""
    tag, fields = _shape(type(value))
    document: Document = tag.copy()
    for name, key in fields:
        item = getattr(value, name)
        if item is not None:
            document[key] = item if type(item) in _AS_IT_IS else _plain(item)
    return document


@cache
def _shape(kind: type[View]) -> tuple[Document, tuple[tuple[str, str], ...]]:
    """What every document of a kind of view begins with, and its fields, with what they are called in documents."""
    config = kind.__struct_config__
    tag: Document = {config.tag_field: config.tag} if config.tag_field else {}
    return tag, tuple(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))


def _plain(item: Any) -> Any:
    if isinstance(item, View):
        return document_of(item)
    if isinstance(item, (list, tuple)):
        return [_plain(each) for each in cast("list[Any]", item)]
    return item
