"""When a provider refuses a request because of one thing in its history: which thing that probably is.

The answer to the request that went through without it notes what was left out, so that no later run has to find out
again, and the history says so.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..errors import AuthFailedError, ContextExceededError, ModelError
from ..models.request import Assistant, ToolResults
from ..records import EXTENSION_KEY, as_list, as_object

if TYPE_CHECKING:
    from ..models.request import ModelMessage
    from ..records import Document
    from ..storage.protocol import StoredMessage
    from .session_history import History

_INDEX = r"(messages\.|messages\[|contents\[)(\d+)"
_MEDIA = r"(?i)image|picture|pdf|document|media|file|base64|mime"
_THOUGHT = r"(?i)thinking|reasoning|signature|encrypted"


def note(info: Document, parts: list[str]) -> None:
    """Write into an answer's record that it was asked for without these parts."""
    info[EXTENSION_KEY] = {"masked": [*noted(info), *parts]}


def noted(info: Document) -> list[str]:
    """The parts without which an answer was asked for."""
    ours = as_object(info.get(EXTENSION_KEY)) or {}
    return [str(part) for part in as_list(ours.get("masked")) or ()]


def suspects(error: BaseException, history: History) -> list[str]:
    """The ids of the parts to leave out before trying once more; none if the error does not point at the history."""
    if (
        not isinstance(error, ModelError)
        or error.status != 400
        or isinstance(error, (AuthFailedError, ContextExceededError))
    ):
        return []
    words = f"{error.message} {error.body or ''}"
    pointed_at = _pointed_at(words, history)
    if re.search(_THOUGHT, words):
        parts = _parts(pointed_at, "reasoning") or _parts(list(history), "reasoning")
    elif re.search(_MEDIA, words):
        parts = _media(pointed_at) or _media(list(history))
    elif history.last_user() in pointed_at:
        parts = []  # without the prompt there is nothing to ask
    else:
        parts = [str(part.get("id")) for message in pointed_at for part in message.parts]
    return [part for part in dict.fromkeys(parts) if part not in history.masked]


def _pointed_at(words: str, history: History) -> list[StoredMessage]:
    """The messages behind the place in the request that a provider names, as that provider counts."""
    found = re.search(_INDEX, words)
    if found is None:
        return []
    counted = {"messages.": _in_pairs, "messages[": _one_by_one, "contents[": _as_they_are}[found[1]]
    places = counted([turn for turn, _ in history.origins()])
    origins = history.origins()
    return [message for (_, message), place in zip(origins, places, strict=True) if place == int(found[2])]


def _in_pairs(turns: list[ModelMessage]) -> list[int]:
    """Anthropic: what the user says in a row is one message, and results are the user's."""
    places: list[int] = []
    for at, turn in enumerate(turns):
        begins = at == 0 or isinstance(turn, Assistant) != isinstance(turns[at - 1], Assistant)
        places.append((places[-1] if places else -1) + begins)
    return places


def _one_by_one(turns: list[ModelMessage]) -> list[int]:
    """OpenAI: the system prompt is the first, and every result one of its own; the last of them is named here."""
    places: list[int] = []
    for turn in turns:
        places.append((places[-1] if places else 0) + (len(turn.content) if isinstance(turn, ToolResults) else 1))
    return places


def _as_they_are(turns: list[ModelMessage]) -> list[int]:
    return list(range(len(turns)))


def _parts(messages: list[StoredMessage], kind: str) -> list[str]:
    return [str(part["id"]) for message in messages for part in message.parts if part.get("type") == kind]


def _media(messages: list[StoredMessage]) -> list[str]:
    attached = [
        str(part["id"])
        for message in messages
        for part in message.parts
        if part.get("type") == "tool" and part.get("state", {}).get("attachments")
    ]
    return _parts(messages, "file") + attached
