"""What goes over the wire: items of five kinds, each with a key under which the newest one counts.

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
from ..errors import NotFoundError, RecordError
from ..records import as_list, as_object, order
from ..storage import keys
from ..storage.protocol import Damage, StoredMessage, log_damage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ..records import Document
    from ..sessions import Sessions
    from ..storage.protocol import Key

    Report = Callable[[Damage], None]

_LONGEST_NAME = 200


class ShareItem(NamedTuple):
    """One thing to be known on the other side."""

    type: str
    data: Any

    @property
    def key(self) -> str:
        """What it replaces."""
        match self.type:
            case "message":
                return f"message/{self.data['id']}"
            case "part":
                return f"part/{self.data['messageID']}/{self.data['id']}"
            case _:
                return self.type

    @property
    def document(self) -> Document:
        """As it is sent."""
        return {"type": self.type, "data": self.data}


def read_item(value: Any) -> ShareItem | None:
    """An item as it came; ``None`` for what is none of the five kinds, or lacks the names that make its key."""
    document = as_object(value) or {}
    kind, data = document.get("type"), document.get("data")
    match kind:
        case "session":
            return ShareItem(kind, data) if _named(data, "id") else None
        case "message":
            return ShareItem(kind, data) if _named(data, "id") else None
        case "part":
            return ShareItem(kind, data) if _named(data, "id", "messageID") else None
        case "session_diff" | "model":
            return ShareItem(kind, data) if as_list(data) is not None else None
        case _:
            return None


def _named(data: Any, *names: str) -> bool:
    held = as_object(data) or {}
    return all(isinstance(name := held.get(each), str) and _is_name(name) for each in names)


def _is_name(text: str) -> bool:
    return 0 < len(text) <= _LONGEST_NAME and text.isprintable()  # half a character is not


def concerned(event: events.Event) -> tuple[str, Key | None] | None:
    """The session an event is about, and the key of what is new; without a key if something is gone.

    ``None`` for what a share does not show, and for parts that are not complete: half a word may be half a secret.
    """
    match event:
        case events.SessionUpdated(info=info):
            return info["id"], keys.session(info["projectID"], info["id"])
        case events.MessageUpdated(info=info):
            return info["sessionID"], keys.message(info["sessionID"], info["id"])
        case events.PartUpdated(part=part):
            return None if is_growing(part) else (part["sessionID"], keys.part(part["messageID"], part["id"]))
        case events.SessionDiff(session_id=name):
            return name, keys.diff(name)
        case events.MessageRemoved(session_id=name) | events.PartRemoved(session_id=name):
            return name, None
        case _:
            return None


def is_growing(part: Document) -> bool:
    """Whether more of a part is to come."""
    if part.get("type") == "tool":
        return (as_object(part.get("state")) or {}).get("status") in ("pending", "running")
    time = as_object(part.get("time")) or {}
    return part.get("type") in ("text", "reasoning") and "start" in time and "end" not in time


def read_key(sessions: Sessions, key: Key) -> ShareItem | None:
    """The record under a key, as an item; ``None`` if it is gone, or cannot be read."""
    try:
        value = sessions.store.read(key)
    except (NotFoundError, RecordError):
        return None
    kind = key[0]
    return read_item({"type": kind, "data": _shown(value) if kind == "session" else value})


def everything(sessions: Sessions, session_id: str, *, report: Report = log_damage) -> Iterator[ShareItem]:
    """A session whole: itself, its messages each with its parts, and the files it changed."""
    yield ShareItem("session", _shown(sessions.get(session_id).document))
    for message in sessions.messages(session_id, report=report):
        found = [ShareItem("message", message.info), *(ShareItem("part", part) for part in message.parts)]
        yield from (each for each in found if read_item(each.document) is not None)
    diff = sessions.diff(session_id)
    if diff:
        yield ShareItem("session_diff", diff)


def emptied(item: ShareItem) -> ShareItem:
    """What takes the place of a part, or of changes, that are gone: the protocol can replace, and not remove."""
    if item.type != "part":
        return ShareItem(item.type, [])
    names = {name: item.data.get(name) for name in ("id", "sessionID", "messageID")}
    return ShareItem("part", {**names, "type": "text", "text": "", "synthetic": True, "ignored": True})


def _shown(info: Document) -> Document:
    """A session record without the secret that OpenCode leaves in it when it shares by itself."""
    share = as_object(info.get("share"))
    return info if share is None else info | {"share": {"url": share.get("url", "")}}


class AssembledSession(NamedTuple):
    """A session put together again."""

    info: Document
    messages: list[StoredMessage]
    diff: list[Any]


def assemble(items: Iterable[ShareItem], *, report: Report = log_damage) -> AssembledSession | None:
    """The session that items tell of, in true order; ``None`` without a session among them."""
    newest = {item.key: item for item in items}
    session = newest.get("session")
    if session is None:
        return None
    parts: dict[str, list[Document]] = {}
    for item in newest.values():
        if item.type == "part":
            parts.setdefault(item.data["messageID"], []).append(item.data)
    found: list[tuple[order.Position, StoredMessage]] = []
    for item in newest.values():
        if item.type == "message":
            try:
                position = order.position(item.data)
            except RecordError as error:
                report(Damage(str(item.data["id"]), f"{error.place}: {error.reason}"))
                continue
            own = order.parts_in_order(parts.get(item.data["id"], ()), position[0])
            found.append((position, StoredMessage(item.data, own)))
    found.sort(key=lambda each: each[0])
    diff = newest.get("session_diff")
    return AssembledSession(session.data, [message for _, message in found], diff.data if diff else [])
