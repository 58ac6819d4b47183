"""A model's list of things to do, as it reads in a transcript and while it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..records import as_list, as_object

if TYPE_CHECKING:
    from ..records import Document

TOOL = "todowrite"
_MARKS = {"completed": "x", "in_progress": "~", "cancelled": "-"}


def progress(given: Document) -> str:
    """``2 of 5 done``: how far the list in a call of the tool has come."""
    found = _todos(given)
    return f"{sum(todo.get('status') == 'completed' for todo in found)} of {len(found)} done"


def marked(given: Document) -> list[str]:
    """A line for each: ``[x]`` done, ``[~]`` in progress, ``[-]`` given up, ``[ ]`` still to do."""
    return [
        f"[{_MARKS.get(str(todo.get('status')), ' ')}] {' '.join(str(todo.get('content', '')).split())}"
        for todo in _todos(given)
    ]


def _todos(given: Document) -> list[Document]:
    return [todo for todo in map(as_object, as_list(given.get("todos")) or ()) if todo is not None]
