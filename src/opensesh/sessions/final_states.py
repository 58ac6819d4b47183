"""Final states of what a process left unfinished when it ended: tool calls that run no more, answers without an end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..records import as_whole, object_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..records import Document

INTERRUPTED = "Tool execution was interrupted: the program ended while it ran"


def is_open_call(part: Document) -> bool:
    """Return whether a part is a tool call that has not ended."""
    return part.get("type") == "tool" and object_at(part, "state").get("status") in ("pending", "running")


def is_open_answer(info: Document) -> bool:
    """Return whether a message is an answer that has not ended."""
    time = object_at(info, "time")
    return info.get("role") == "assistant" and "created" in time and "completed" not in time


def close_call(part: Document, moment: int) -> None:
    """Make a tool call that was open at a moment, and will never end, a failed one."""
    state = object_at(part, "state")
    start = as_whole(object_at(state, "time").get("start")) or moment
    failed: Document = {"status": "error", "input": object_at(state, "input"), "error": INTERRUPTED}
    if metadata := object_at(state, "metadata"):
        failed["metadata"] = metadata | {"interrupted": True}
    part["state"] = failed | {"time": {"start": start, "end": max(start, moment)}}


def close_answer(info: Document, parts: Sequence[Document], moment: int) -> None:
    """Complete an answer that was open at a moment and will never be finished, from its parts."""
    time = info["time"]
    info["time"] = time | {"completed": max(moment, as_whole(time.get("created")))}
    if "finish" in info or "error" in info:
        return
    step = last_step(parts)
    if step is not None:
        # The last step has the fields that the message would have, had there been time to write it.
        fields = {"cost": step.get("cost"), "tokens": step.get("tokens"), "finish": step.get("reason", "unknown")}
        info |= {name: value for name, value in fields.items() if value is not None}
    elif not info.get("summary"):
        # A summary with any finish reason hides everything before it, in OpenCode too.
        info["finish"] = "unknown"


def last_step(parts: Sequence[Document]) -> Document | None:
    """Return the end of the last step of an answer, if one has ended."""
    return next((part for part in reversed(parts) if part.get("type") == "step-finish"), None)
