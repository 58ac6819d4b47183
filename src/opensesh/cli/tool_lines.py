"""A tool call in one line: its name, what it is about, and how it went."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ..history import todos
from ..records import as_list, as_object, dumps_compact

if TYPE_CHECKING:
    from ..records import Document

_TELLING = ("filePath", "command", "pattern", "url", "query", "description", "path", "name")
"""What says most about a call, best first."""


def label(part: Document, directory: str) -> str:
    """``read src/a.py``: the tool, and what it was called on, with paths as seen from ``directory``."""
    given = as_object((as_object(part.get("state")) or {}).get("input")) or {}
    if part.get("tool") == "invalid":
        return str(given.get("tool"))
    return f"{part.get('tool')} {subject(str(part.get('tool')), given, directory)}".rstrip()


def subject(tool: str, given: Document, directory: str) -> str:
    """What a call is about, in one line."""
    match tool:
        case todos.TOOL:
            return todos.progress(given)
        case "task":
            return f"{given.get('description', '')} (@{given.get('subagent_type', '')})"
        case "question":
            asked = [as_object(question) or {} for question in as_list(given.get("questions")) or []]
            return " ".join(str(question.get("question", "")) for question in asked)
        case "grep" if isinstance(given.get("path"), str):
            return f"{given.get('pattern')} in {nearer(given['path'], directory)}"
        case _:
            return _most_telling(given, directory)


def below(part: Document) -> list[str]:
    """What is worth more than a line of a call that went well: the things to do that it wrote down."""
    state = as_object(part.get("state")) or {}
    wanted = part.get("tool") == todos.TOOL and state.get("status") == "completed"
    return todos.marked(as_object(state.get("input")) or {}) if wanted else []


def outcome(part: Document) -> tuple[str, bool]:
    """How a call that ended went (its exit code, the lines it changed, how long it took), and whether it went well."""
    state = as_object(part.get("state")) or {}
    span = as_object(state.get("time")) or {}
    metadata = as_object(state.get("metadata")) or {}
    lasted = duration(span.get("end", 0) - span.get("start", 0))
    if part.get("tool") == "invalid":
        return str((as_object(state.get("input")) or {}).get("error")), False
    if state.get("status") == "error":
        return f"{lasted}  {str(state.get('error', '')).removeprefix('Error: ')}", False
    code = metadata.get("exit")
    changes = as_object(metadata.get("filediff"))
    said = [f"exit {code}"] if isinstance(code, int) and code else []
    said += [f"+{changes.get('additions', 0)} -{changes.get('deletions', 0)}"] if changes else []
    return "  ".join([*said, lasted]), not code


def duration(milliseconds: float) -> str:
    """How long, as people say it."""
    seconds = milliseconds / 1000
    if seconds < 1:
        return f"{max(milliseconds, 0):.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"


def nearer(path: str, directory: str) -> str:
    """A path as seen from ``directory``, if it is in there."""
    within = path.startswith(os.path.join(directory, ""))
    return os.path.relpath(path, directory) if within else path


def _most_telling(given: Document, directory: str) -> str:
    for name in _TELLING:
        value = given.get(name)
        if isinstance(value, str) and value:
            return nearer(value, directory) if name in ("filePath", "path") else value
    return ", ".join(f"{name}={_brief(value)}" for name, value in given.items())


def _brief(value: Any) -> str:
    return value if isinstance(value, str) else dumps_compact(value).decode(errors="replace")
