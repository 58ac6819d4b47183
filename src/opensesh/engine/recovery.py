"""Recovery of a session whose runner died.

Text that had been received but not stored is in a journal, and is stored now.
A tool call that never ended is marked as interrupted. An answer that never ended is marked as unfinished, unless the
model was done: nothing is removed, and a prompt that was not answered can still be, until another follows. A summary
that never ended hides nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import ids
from ..records import MessageAbortedError, as_object, write_failure
from ..storage import keys
from ..storage.protocol import StoredMessage
from ..storage.stream_journal import journals_of
from .call_costs import add_side_call, journaled_calls

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..records import Document
    from ..sessions import Sessions
    from .session_history import History

NOT_FINISHED = "The program ended before this was finished"
INTERRUPTED = "Tool execution was interrupted: the program ended while it ran"


def recover(sessions: Sessions, session_id: str, messages: Iterable[StoredMessage]) -> list[StoredMessage]:
    """Return the messages with every call in a final state, and store them so. The caller holds the session's lease."""
    journals = journals_of(sessions.store, keys.message(session_id, session_id))
    texts = journals.texts(session_id) if journals is not None else {}
    if texts:
        # All messages, not only those that a revert has left: it can be undone.
        for part in (part for message in sessions.messages(session_id) for part in message.parts):
            if part.get("id") in texts and "end" not in (as_object(part.get("time")) or {}):
                sessions.update_part(part)  # it was read with the text of its journal
    recovered = [_recovered(sessions, message, texts.get(message.info["id"], "")) for message in messages]
    if journals is not None and texts:
        journals.remove(session_id)
    return recovered


def close_interrupted(sessions: Sessions, history: History) -> None:
    """Give the newest prompt its outcome before another follows, if its runner died while it was being answered: from
    now on nothing will continue it. A prompt without any answer was only appended, or is answered with the next."""
    if history.unanswered_prompt() is None or not history.answers:
        return
    message = history.answers[-1]
    reasons = [part.get("reason") for part in message.parts if part.get("type") == "step-finish"]
    if message.info.get("finish") != "unknown" or "unknown" not in reasons:  # which is what a provider has reported
        message.info["error"] = write_failure(MessageAbortedError(message=NOT_FINISHED))
        sessions.update_message(message.info)


def _recovered(sessions: Sessions, message: StoredMessage, journal: str) -> StoredMessage:
    """Return an answer in a final state, and store it so. ``journal`` has its model calls."""
    is_completed = "completed" in (as_object(message.info.get("time")) or {})
    if message.info.get("role") != "assistant" or (is_completed and not any(map(_is_open, message.parts))):
        return message
    now = ids.now_ms()
    parts: list[Document] = []
    for stored in message.parts:
        part = stored
        if _is_open(part):
            state = part["state"]
            failed: Document = {"status": "error", "input": as_object(state.get("input")) or {}, "error": INTERRUPTED}
            if as_object(state.get("metadata")):
                failed["metadata"] = state["metadata"] | {"interrupted": True}
            start = (as_object(state.get("time")) or {}).get("start", now)
            part = part | {"state": failed | {"time": {"start": start, "end": now}}}
            sessions.update_part(part)
        parts.append(part)
    info = message.info
    if not is_completed:
        info = info | {"time": info["time"] | {"completed": now}}
        if "finish" not in info and "error" not in info:
            # The last step has the fields that the message would have, had there been time to write it.
            step = next((part for part in reversed(parts) if part.get("type") == "step-finish"), None)
            if step is not None:
                finish = step.get("reason", "unknown")
                fields = {"cost": step.get("cost"), "tokens": step.get("tokens"), "finish": finish}
                info |= {name: value for name, value in fields.items() if value is not None}
            else:
                _add_calls(info, journaled_calls(journal, parts))
                if not info.get("summary"):
                    # A summary with any finish reason hides everything before it, in OpenCode too.
                    info["finish"] = "unknown"
        sessions.update_message(info)
    return StoredMessage(info, parts)


def _add_calls(info: Document, calls: Iterable[Document]) -> None:
    """Add the model calls of an unfinished answer: the one that its provider reported to its own fields, others, such
    as the requests for a summary, and what is only estimated to the calls in its extension."""
    for call in calls:
        if call.get("estimated") or info.get("summary"):
            add_side_call(info, call)
        else:
            info |= {"cost": call["cost"], "tokens": call["tokens"]}


def _is_open(part: Document) -> bool:
    state = as_object(part.get("state")) or {}
    return part.get("type") == "tool" and state.get("status") in ("pending", "running")
