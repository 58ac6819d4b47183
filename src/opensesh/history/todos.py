"""Todo lists of the ``todowrite`` tool, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..records import as_list, as_object

if TYPE_CHECKING:
    from ..records import Document

TOOL = "todowrite"
_STATES = {"completed": "x", "in_progress": "~", "cancelled": "-"}


def progress(tool_input: Document) -> str:
    """Return how much of the todo list of a call is done, e.g. ``2 of 5 done``."""
    entries = _todos(tool_input)
    return f"{sum(todo.get('status') == 'completed' for todo in entries)} of {len(entries)} done"


def lines(tool_input: Document) -> list[str]:
    """Return a line for each entry: ``[x]`` done, ``[~]`` in progress, ``[-]`` cancelled, ``[ ]`` pending."""
    return [
        f"[{_STATES.get(str(todo.get('status')), ' ')}] {' '.join(str(todo.get('content', '')).split())}"
        for todo in _todos(tool_input)
    ]


def _todos(tool_input: Document) -> list[Document]:
    return [todo for todo in map(as_object, as_list(tool_input.get("todos")) or ()) if todo is not None]
