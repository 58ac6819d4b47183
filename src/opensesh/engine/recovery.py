"""What a runner that died left behind is brought to an end, so that the session can go on.

A tool call that never ended is marked as interrupted, and an answer that never ended as one that wants to go on, unless
the model had said its last word: nothing is removed, and a prompt that was not answered is still to be. A summary that
never ended is none, and hides nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import ids
from ..records import as_object
from ..storage.protocol import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..records import Document
    from ..sessions import Sessions

INTERRUPTED = "Tool execution was interrupted: the program ended while it ran"


def recover(sessions: Sessions, messages: Iterable[StoredMessage]) -> list[StoredMessage]:
    """The messages with every call in a final state, and stored so. Whoever calls this holds the session's lease."""
    return [_recovered(sessions, message) if _is_unfinished(message) else message for message in messages]


def _is_unfinished(message: StoredMessage) -> bool:
    if message.info.get("role") != "assistant":
        return False
    open_calls = any(_is_open(part) for part in message.parts)
    return open_calls or "completed" not in (as_object(message.info.get("time")) or {})


def _recovered(sessions: Sessions, message: StoredMessage) -> StoredMessage:
    parts = [_closed(sessions, part) if _is_open(part) else part for part in message.parts]
    info = message.info
    if "completed" not in info["time"]:
        info = info | {"time": info["time"] | {"completed": ids.now_ms()}}
        if "finish" not in info and "error" not in info:
            info |= _ending(info, parts)
        sessions.update_message(info)
    return StoredMessage(info, parts)


def _ending(info: Document, parts: list[Document]) -> Document:
    """What the record of an answer would say if there had been time to write it: the model's last word is a part."""
    steps = [part for part in parts if part.get("type") == "step-finish"]
    if not steps:
        # A summary with a finish, whatever it is, takes the place of all that came before it, in OpenCode too.
        return {} if info.get("summary") else {"finish": "unknown"}
    last = steps[-1]
    found = {"cost": last.get("cost"), "tokens": last.get("tokens"), "finish": last.get("reason", "unknown")}
    return {name: value for name, value in found.items() if value is not None}


def _is_open(part: Document) -> bool:
    state = as_object(part.get("state")) or {}
    return part.get("type") == "tool" and state.get("status") in ("pending", "running")


def _closed(sessions: Sessions, part: Document) -> Document:
    now = ids.now_ms()
    state = part["state"]
    start = (as_object(state.get("time")) or {}).get("start", now)
    failed: Document = {"status": "error", "input": as_object(state.get("input")) or {}, "error": INTERRUPTED}
    if as_object(state.get("metadata")):
        failed["metadata"] = state["metadata"] | {"interrupted": True}
    failed["time"] = {"start": start, "end": now}
    closed = part | {"state": failed}
    sessions.update_part(closed)
    return closed
