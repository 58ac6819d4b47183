"""How a session's parts read in words, whatever the form."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..records import as_object, dumps_compact

if TYPE_CHECKING:
    from ..records import Document

_WIDTH = 200
_COLOURS = re.compile(r"\x1b\[[0-9;:]*[mK]")
_KEY_INPUTS = (
    "filePath", "file_path", "path", "command", "pattern", "url", "query", "description", "name", "prompt",
)  # fmt: skip


def iso(moment: Any) -> str | None:
    """Milliseconds as JavaScript prints a date: ``2026-11-15T19:29:37.123Z``; ``None`` for what is no moment."""
    if isinstance(moment, bool) or not isinstance(moment, (int, float)):
        return None
    try:
        seconds, rest = divmod(int(moment), 1000)
        return f"{datetime.fromtimestamp(seconds, UTC).isoformat()[:19]}.{rest:03d}Z"
    except (ValueError, OverflowError, OSError):
        return None


def when(moment: Any, *, utc: bool = False) -> str:
    """Milliseconds as people read them; empty for what is no moment."""
    if isinstance(moment, bool) or not isinstance(moment, (int, float)):
        return ""
    try:
        return datetime.fromtimestamp(moment / 1000, UTC if utc else None).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return ""


def text(held: Document, name: str) -> str:
    """A field that should hold text, and does unless the record is odd."""
    value = held.get(name)
    return value if isinstance(value, str) else ""


def uncoloured(words: str) -> str:
    """What a program printed, without the colours it had for a terminal."""
    return _COLOURS.sub("", words) if "\x1b" in words else words


def key_input(state: Document) -> str:
    """What a tool call was about: the one argument that tells, or all of them where none does."""
    given = as_object(state.get("input")) or {}
    for name in _KEY_INPUTS:
        if value := text(given, name):
            return value
    return ", ".join(f"{name}={dumps_compact(value).decode(errors='replace')}" for name, value in given.items())


def tool_line(part: Document) -> str:
    """A tool call in one line: which, about what, and how it ended."""
    state = as_object(part.get("state")) or {}
    return call_line(text(part, "tool"), key_input(state), text(state, "status"), text(state, "error"))


def call_line(tool: str, about: str, status: str, error: str) -> str:
    """The same of what is known of a call already."""
    about = " ".join(about.split())
    about = about if len(about) <= _WIDTH else about[: _WIDTH - 1] + "…"
    match status:
        case "completed":
            ending = ""
        case "error":
            ending = f": {' '.join(error.split())[:_WIDTH]}"
        case other:
            ending = f" ({other or 'unknown'})"
    return f"[{tool}] {about}{ending}".rstrip()
