"""Old tool outputs, taken out of view once there are many: the model sees that there was one, and can look again.

Only a mark is set; the output stays where it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import ids
from ..records import as_object
from .tokens import estimate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..records import Document
    from ..sessions import Sessions
    from ..storage.protocol import StoredMessage

PROTECT = 40_000
"""Tokens of the newest outputs that always stay in view."""
MINIMUM = 20_000
"""Pruning less than this is not worth a cache miss."""
_PROTECTED_TOOLS = ("skill",)


def prunable(messages: Sequence[StoredMessage]) -> list[Document]:
    """The tool parts to take out of view: none, or enough to be worth it."""
    total, freed = 0, 0
    found: list[Document] = []
    for part in _old_outputs(messages):
        if part["state"]["time"].get("compacted"):
            break
        size = estimate(part["state"]["output"])
        total += size
        if total > PROTECT:
            freed += size
            found.append(part)
    return found if freed > MINIMUM else []


def prune(sessions: Sessions, messages: Sequence[StoredMessage]) -> int:
    """Take old outputs out of view; how many."""
    found = prunable(messages)
    for part in found:
        sessions.update_part(_marked(part, ids.now_ms()))
    return len(found)


def unmarked(part: Document, *, since: int) -> Document:
    """The part as it was at a moment: in view, if it was pruned only then or later."""
    if not _is_output(part):
        return part
    pruned = _mark(part)
    return _marked(part, None) if pruned is not None and pruned >= since else part


def is_pruned(part: Document) -> bool:
    """Whether a part is a tool output that was taken out of view."""
    return _is_output(part) and bool(_mark(part))


def _old_outputs(messages: Sequence[StoredMessage]) -> Iterator[Document]:
    """Outputs before the last two prompts and after the last summary, newest first."""
    prompts = 0
    for message in reversed(messages):
        if message.info.get("role") == "user":
            prompts += 1
        if prompts < 2:
            continue
        if message.info.get("role") == "assistant" and message.info.get("summary"):
            return
        for part in reversed(message.parts):
            if _is_output(part) and part.get("tool") not in _PROTECTED_TOOLS:
                yield part


def _is_output(part: Document) -> bool:
    state = as_object(part.get("state")) or {}
    is_done = part.get("type") == "tool" and state.get("status") == "completed"
    return is_done and isinstance(state.get("output"), str) and as_object(state.get("time")) is not None


def _mark(part: Document) -> int | None:
    return part["state"]["time"].get("compacted")


def _marked(part: Document, moment: int | None) -> Document:
    time = {key: value for key, value in part["state"]["time"].items() if key != "compacted"}
    if moment is not None:
        time["compacted"] = moment
    return part | {"state": part["state"] | {"time": time}}
