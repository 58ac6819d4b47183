"""Share items: the records of the share protocol. Each has a key; of several with the same key, the newest counts.

::

    {"type": "session", "data": {...}}          session
    {"type": "message", "data": {...}}          message/<id>
    {"type": "part", "data": {...}}             part/<messageID>/<id>
    {"type": "session_diff", "data": [...]}     session_diff
    {"type": "model", "data": [...]}            model
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .. import events
from ..errors import RecordError
from ..records import Document, as_list, as_object, object_at, order
from ..storage import keys
from ..storage.protocol import Damage, Key, StoredMessage, log_damage, read_or_none

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..config import Config
    from ..sessions import Sessions
    from ..storage.protocol import Report

_MAX_ID_LENGTH = 200


class ShareItem(NamedTuple):
    """One record of a shared session."""

    type: str
    data: Any

    @property
    def key(self) -> str:
        """The key under which the server stores it; a later item with the same key replaces it."""
        match self.type:
            case "message":
                return f"message/{self.data['id']}"
            case "part":
                return f"part/{self.data['messageID']}/{self.data['id']}"
            case _:
                return self.type

    @property
    def document(self) -> Document:
        """The item as it is sent."""
        return {"type": self.type, "data": self.data}


def read_item(value: Any) -> ShareItem | None:
    """Parse an item; ``None`` for an unknown type, or if an id that its key consists of is missing or invalid."""
    document = as_object(value) or {}
    kind, data = document.get("type"), document.get("data")
    match kind:
        case "session" | "message":
            return ShareItem(kind, data) if _has_ids(data, "id") else None
        case "part":
            return ShareItem(kind, data) if _has_ids(data, "id", "messageID") else None
        case "session_diff" | "model":
            return ShareItem(kind, data) if as_list(data) is not None else None
        case _:
            return None


def _has_ids(data: Any, *fields: str) -> bool:
    ids = [(as_object(data) or {}).get(field) for field in fields]
    # A lone surrogate is not printable.
    return all(isinstance(id_, str) and 0 < len(id_) <= _MAX_ID_LENGTH and id_.isprintable() for id_ in ids)


def changed_key(event: events.Event) -> tuple[str, Key | None] | None:
    """Return the session that an event changes and the key of the changed record, or no key if one was removed.

    ``None`` for events that do not concern a share, and for incomplete parts: half a word may be half a secret, which
    redaction would not recognise.
    """
    match event:
        case events.SessionUpdated(info=info):
            return info["id"], keys.session(info["projectID"], info["id"])
        case events.MessageUpdated(info=info):
            return info["sessionID"], keys.message(info["sessionID"], info["id"])
        case events.PartUpdated(part=part):
            return None if is_incomplete(part) else (part["sessionID"], keys.part(part["messageID"], part["id"]))
        case events.SessionDiff(session_id=name):
            return name, keys.diff(name)
        case events.MessageRemoved(session_id=name) | events.PartRemoved(session_id=name):
            return name, None
        case _:
            return None


def is_incomplete(part: Document) -> bool:
    """Return whether a part is still being written."""
    if part.get("type") == "tool":
        return object_at(part, "state").get("status") in ("pending", "running")
    time = object_at(part, "time")
    return part.get("type") in ("text", "reasoning") and "start" in time and "end" not in time


def read_key(sessions: Sessions, key: Key) -> ShareItem | None:
    """Read a record of the store as an item; ``None`` if it is missing or cannot be read."""
    value = read_or_none(sessions.store, key)
    return read_item({"type": key[0], "data": _without_secret(value) if value and key[0] == "session" else value})


def session_items(sessions: Sessions, session_id: str) -> Iterator[ShareItem]:
    """Yield all items of a session: its record, messages, parts and diff."""
    yield ShareItem("session", _without_secret(sessions.get(session_id).document))
    for message in sessions.messages(session_id):
        items = [ShareItem("message", message.info), *(ShareItem("part", part) for part in message.parts)]
        yield from (item for item in items if read_item(item.document) is not None)
    diff = sessions.diff(session_id)
    if diff:
        yield ShareItem("session_diff", diff)


def tombstone(item: ShareItem) -> ShareItem:
    """Return an empty replacement for a removed part or diff: the protocol can replace items but not remove them."""
    if item.type != "part":
        return ShareItem(item.type, [])
    ids = {field: item.data.get(field) for field in ("id", "sessionID", "messageID")}
    return ShareItem("part", {**ids, "type": "text", "text": "", "synthetic": True, "ignored": True})


def _without_secret(info: Document) -> Document:
    """Return a session record without the share secret that OpenCode stores in it."""
    share = as_object(info.get("share"))
    return info if share is None else info | {"share": {"url": share.get("url", "")}}


class AssembledSession(NamedTuple):
    """A session reconstructed from items."""

    info: Document
    messages: list[StoredMessage]
    diff: list[Any]


def assemble(items: Iterable[ShareItem], *, report: Report = log_damage) -> AssembledSession | None:
    """Reconstruct a session from its items, messages and parts in order; ``None`` without a session item."""
    newest = {item.key: item for item in items}
    session = newest.get("session")
    if session is None:
        return None
    parts: dict[str, list[Document]] = {}
    for item in newest.values():
        if item.type == "part":
            parts.setdefault(item.data["messageID"], []).append(item.data)
    messages: list[tuple[order.Position, StoredMessage]] = []
    for item in newest.values():
        if item.type == "message":
            try:
                position = order.position(item.data)
            except RecordError as error:
                report(Damage(str(item.data["id"]), error.detail))
                continue
            own = order.parts_in_order(parts.get(item.data["id"], ()), position[0])
            messages.append((position, StoredMessage(item.data, own)))
    messages.sort(key=lambda entry: entry[0])
    diff = newest.get("session_diff")
    return AssembledSession(session.data, [message for _, message in messages], diff.data if diff else [])


def model_document(config: Config, provider_id: str, model_id: str) -> Document:
    """Return what a share page needs to know about a model, in OpenCode's shape."""
    from ..models.catalogue import Catalogue  # only a share with a new model needs the catalogue
    from ..models.model import public_document

    model = Catalogue(config.document).known(provider_id, model_id)
    return public_document(model) if model else {"id": model_id, "providerID": provider_id, "name": model_id}
