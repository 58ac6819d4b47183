"""Recovery of a session whose runner died.

Text that had been received but not stored is in a journal, and is stored now.
A tool call that never ended is marked as interrupted. An answer that never ended is marked as unfinished, unless the
model was done: nothing is removed, and a prompt that was not answered can still be, until another follows. A summary
that never ended hides nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import ids
from ..records import MessageAbortedError, object_at, write_failure
from ..sessions.final_states import close_answer, close_call, is_open_call, last_step
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


def recover(sessions: Sessions, session_id: str, messages: Iterable[StoredMessage]) -> list[StoredMessage]:
    """Return the messages with every call in a final state, and store them so. The caller holds the session's lease."""
    journals = journals_of(sessions.store, keys.message(session_id, session_id))
    texts = journals.texts(session_id) if journals is not None else {}
    if texts:
        # All messages, not only those that a revert has left: it can be undone.
        for part in (part for message in sessions.messages(session_id) for part in message.parts):
            if part.get("id") in texts and "end" not in object_at(part, "time"):
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
    is_completed = "completed" in object_at(message.info, "time")
    if message.info.get("role") != "assistant" or (is_completed and not any(map(is_open_call, message.parts))):
        return message
    now = ids.now_ms()
    parts: list[Document] = []
    for stored in message.parts:
        part = stored
        if is_open_call(part):
            part = part.copy()
            close_call(part, now)
            sessions.update_part(part)
        parts.append(part)
    info = message.info
    if not is_completed:
        info = info.copy()
        if "finish" not in info and "error" not in info and last_step(parts) is None:
            _add_calls(info, journaled_calls(journal, parts))
        close_answer(info, parts, now)
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
