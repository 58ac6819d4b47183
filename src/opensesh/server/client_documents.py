"""Records as OpenCode's clients know them: without the fields that opensesh adds for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ..events import MessageUpdated, PartUpdated, SessionCreated, SessionDeleted, SessionUpdated
from ..records import EXTENSION_KEY, as_object, object_at

if TYPE_CHECKING:
    from ..events import Event
    from ..records import Document
    from ..storage.protocol import StoredMessage


def client_info(info: Document) -> Document:
    """Return the record of a session or a message."""
    return {name: value for name, value in info.items() if name != EXTENSION_KEY} if EXTENSION_KEY in info else info


def client_part(part: Document) -> Document:
    """Return a part."""
    if EXTENSION_KEY in object_at(part, "metadata"):
        part = _without_extension(part)
    if EXTENSION_KEY in object_at(part, "state", "metadata"):
        part = part | {"state": _without_extension(part["state"])}
    return part


def client_message(message: StoredMessage) -> Document:
    """Return a message with its parts."""
    return {"info": client_info(message.info), "parts": [client_part(part) for part in message.parts]}


def client_event(event: Event) -> Document:
    """Return an event."""
    properties = event.properties
    match event:
        case SessionCreated() | SessionUpdated() | SessionDeleted() | MessageUpdated():
            properties["info"] = client_info(event.info)
        case PartUpdated(part=part):
            properties["part"] = client_part(part)
        case _:
            pass
    return {"type": event.type, "properties": properties}


def with_stored_extension(part: Document, stored: Document) -> Document:
    """Return a part that a client has edited with what it was not shown of the stored one."""
    for names in (("metadata",), ("state", "metadata")):
        extension = as_object(object_at(stored, *names).get(EXTENSION_KEY))
        if extension is None or (len(names) > 1 and not object_at(part, "state")):
            continue
        metadata = object_at(part, *names) | {EXTENSION_KEY: extension}
        part = part | ({"metadata": metadata} if len(names) == 1 else {"state": part["state"] | {"metadata": metadata}})
    return part


def known_fields(value: Any, view: object) -> Any:
    """Return a value that a client sent without the fields that its typed view does not have; OpenCode drops them."""
    document = as_object(value)
    if not isinstance(view, msgspec.Struct) or document is None:
        return value
    kept = {field.encode_name: getattr(view, field.name) for field in msgspec.structs.fields(view)}
    if view.__struct_config__.tag_field is not None:
        kept[view.__struct_config__.tag_field] = None
    return {name: known_fields(inner, kept[name]) for name, inner in document.items() if name in kept}


def _without_extension(owner: Document) -> Document:
    """Return the owner of metadata without ours. A completed call always has metadata; elsewhere it is omitted if it is
    empty."""
    metadata = {name: value for name, value in owner["metadata"].items() if name != EXTENSION_KEY}
    if metadata or owner.get("status") == "completed":
        return owner | {"metadata": metadata}
    return {name: value for name, value in owner.items() if name != "metadata"}
