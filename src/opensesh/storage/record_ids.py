"""The ids of stored records: those of the key. A file name is the id, also if the file contains another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..errors import RecordError
from ..records import Project, Session, as_object, order, view
from .keys import is_plain
from .protocol import Damage, StoredMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ..records import Document
    from .protocol import Key, Report, Store

T = TypeVar("T")

OWNER_FIELDS = {"session": "projectID", "message": "sessionID", "part": "messageID"}
"""The field that repeats the second component of a key."""


def with_ids_of_key(key: Key, value: Any) -> Any:
    """Return a session, message, part or project with the ids of its key.

    A record without ``id``, or with another one, has the id of its key in every command. The ids that lead from it to
    its project, session or message are replaced if they could not be part of a key.
    """
    if not isinstance(value, dict):
        return value
    record = cast("dict[str, Any]", value)
    if record.get("id") != key[-1]:
        record = {"id": key[-1]} | record | {"id": key[-1]}
    owner = OWNER_FIELDS.get(key[0], "")
    if owner in record and not (isinstance(record[owner], str) and is_plain(record[owner])):
        record = record | {owner: key[1]}
    return record


def session_at(key: Key, value: Any, path: str = "") -> Session:
    """Return a typed view of the session that is stored at ``key``, or raise :class:`~opensesh.errors.RecordError`."""
    return view(with_ids_of_key(key, value), Session, path)


def project_at(key: Key, value: Any, path: str = "") -> Project:
    """Return a typed view of the project that is stored at ``key``, or raise :class:`~opensesh.errors.RecordError`."""
    return view(with_ids_of_key(key, value), Project, path)


def views_of(
    store: Store, records: Iterable[tuple[Key, Any]], view_at: Callable[[Key, Any], T], report: Report
) -> Iterator[tuple[Key, T]]:
    """Yield typed views of records of a store, made by :func:`session_at` or :func:`project_at`. A record of another
    shape is reported."""
    for key, record in records:
        try:
            yield key, view_at(key, record)
        except RecordError as error:
            report(Damage(store.locate(key), error.detail))


def message_positions(store: Store, session_id: str, report: Report) -> Iterator[tuple[order.Position, Document]]:
    """Yield the messages of a session without their parts, one at a time, with what sorts them. A message that cannot
    be read or sorted is reported."""
    for key, info in _objects(store, ("message", session_id), report):
        try:
            yield order.position(info), info
        except RecordError as error:
            report(Damage(store.locate(key), error.detail))


def with_parts(store: Store, info: Document, report: Report) -> StoredMessage:
    """Return a message with its parts, or raise :class:`~opensesh.errors.RecordError` if it has no time."""
    created = order.created(info)
    parts = (part for _, part in _objects(store, ("part", info["id"]), report))
    return StoredMessage(info, order.parts_in_order(parts, created))


def _objects(store: Store, prefix: Key, report: Report) -> Iterator[tuple[Key, Document]]:
    for key, value in store.scan(prefix, report=report):
        document = as_object(with_ids_of_key(key, value))
        if document is None:
            report(Damage(store.locate(key), "$: expected an object"))
        else:
            yield key, document
