"""Times, tool calls and todo lists as text, for every format."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from ..records import Document, dumps_compact, object_at, objects_in

_MAX_LENGTH = 200
_TERMINAL_SEQUENCES = re.compile(
    r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]"  # colours, movements of the cursor
    r"|\][^\x07\x1b]*+(?:\x07|\x1b\\)"  # window titles, links
    r"|[PX^_][^\x1b]*+\x1b\\"  # strings for the device
    r"|[ -/]*+[0-Z\\^-~])"
)
_MAIN_ARGUMENTS = (
    "filePath", "file_path", "command", "pattern", "url", "query", "description", "path", "name", "prompt",
)  # fmt: skip
"""The arguments that say most about a tool call, best first."""

TODO_TOOL = "todowrite"
_TODO_STATES = {"completed": "x", "in_progress": "~", "cancelled": "-"}


def iso(milliseconds: Any) -> str | None:
    """Format milliseconds as JavaScript does, ``2026-11-15T19:29:37.123Z``; ``None`` if it is not a time."""
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, (int, float)):
        return None
    try:
        seconds, rest = divmod(int(milliseconds), 1000)
        return f"{datetime.fromtimestamp(seconds, UTC).isoformat()[:19]}.{rest:03d}Z"
    except (ValueError, OverflowError, OSError):
        return None


def when(milliseconds: Any, *, utc: bool = False) -> str:
    """Format milliseconds for people, ``2026-11-15 19:29``; empty if it is not a time."""
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, (int, float)):
        return ""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC if utc else None).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return ""


def format_duration(milliseconds: float) -> str:
    """Return a duration for people: ``40 ms``, ``3.1 s``, ``2 min 5 s``, ``1 h 20 min``."""
    if milliseconds < 1000:
        return f"{max(milliseconds, 0):.0f} ms"
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def text(record: Document, name: str) -> str:
    """Return a text field of a record; empty if it is missing or not a string."""
    value = record.get(name)
    return value if isinstance(value, str) else ""


def time_of(record: Document, name: str) -> int | None:
    """Return one of the times of a record in milliseconds; ``None`` if it is missing or not a number."""
    value = object_at(record, "time").get(name)
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def strip_colors(output: str) -> str:
    """Return the output of a program without colours, links and other sequences for a terminal."""
    return _TERMINAL_SEQUENCES.sub("", output) if "\x1b" in output else output


def main_argument(arguments: Document) -> str:
    """Return the name of the argument that says most about a tool call; empty if there is none."""
    return next((name for name in _MAIN_ARGUMENTS if text(arguments, name)), "")


def key_input(state: Document) -> str:
    """Return the main argument of a tool call, or all arguments if there is none."""
    arguments = object_at(state, "input")
    if name := main_argument(arguments):
        return text(arguments, name)
    asked = (text(question, "question") for question in objects_in(arguments.get("questions")))
    if questions := " ".join(filter(None, asked)):
        return questions
    return ", ".join(f"{name}={dumps_compact(value).decode(errors='replace')}" for name, value in arguments.items())


def relative_path(path: str, directory: str) -> str:
    """Return a path relative to a folder if it is below it, otherwise unchanged."""
    folder = directory.rstrip("/\\")
    return path[len(folder) + 1 :] if directory and path.startswith((folder + "/", folder + "\\")) else path


def tool_line(part: Document) -> str:
    """Format a tool part as one line: tool, main argument, and how it ended."""
    state = object_at(part, "state")
    return call_line(text(part, "tool"), key_input(state), text(state, "status"), text(state, "error"))


def call_line(tool: str, subject: str, status: str, error: str) -> str:
    """Format a tool call as one line; see :func:`tool_line`."""
    subject = " ".join(subject.split())
    subject = subject if len(subject) <= _MAX_LENGTH else subject[: _MAX_LENGTH - 1] + "…"
    match status:
        case "completed":
            ending = ""
        case "error":
            ending = f": {' '.join(error.split())[:_MAX_LENGTH]}"
        case other:
            ending = f" ({other or 'unknown'})"
    return f"[{tool}] {subject}{ending}".rstrip()


def todo_progress(tool_input: Document) -> str:
    """Return how much of the todo list of a call is done, e.g. ``2 of 5 done``."""
    entries = _todos(tool_input)
    return f"{sum(todo.get('status') == 'completed' for todo in entries)} of {len(entries)} done"


def todo_lines(tool_input: Document) -> list[str]:
    """Return a line for each entry: ``[x]`` done, ``[~]`` in progress, ``[-]`` cancelled, ``[ ]`` pending."""
    return [
        f"[{_TODO_STATES.get(str(todo.get('status')), ' ')}] {' '.join(str(todo.get('content', '')).split())}"
        for todo in _todos(tool_input)
    ]


def _todos(tool_input: Document) -> list[Document]:
    return objects_in(tool_input.get("todos"))
