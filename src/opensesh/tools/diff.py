"""Line diffs: the unified form that OpenCode shows and stores, and the counts of added and deleted lines."""

from __future__ import annotations

from typing import NamedTuple

from ..line_changes import count_lines, line_changes, split_lines, unified_hunks

CONTEXT_LINES = 4
_RULE = "=" * 67


class Diff(NamedTuple):
    """The change of one file."""

    text: str
    """Unified, with OpenCode's header; without hunks if nothing changed."""
    additions: int
    deletions: int


def compare(path: str, before: str, after: str) -> Diff:
    """Return the difference between two texts of the file at ``path``. Line endings are not compared."""
    old, new = split_lines(before.replace("\r\n", "\n")), split_lines(after.replace("\r\n", "\n"))
    changes = line_changes(old, new)
    header = f"Index: {path}\n{_RULE}\n--- {path}\n+++ {path}\n"
    text = header + unified_hunks(old, new, changes, CONTEXT_LINES)
    return Diff(trim(text), *count_lines(changes))


def trim(diff: str) -> str:
    """Return ``diff`` without the indentation that all its lines share."""
    lines = diff.split("\n")
    inner = [line[1:] for line in lines if _is_content(line) and line[1:].strip()]
    depth = min((len(text) - len(text.lstrip()) for text in inner), default=0)
    if not depth:
        return diff
    return "\n".join(line[0] + line[1 + depth :] if _is_content(line) else line for line in lines)


def _is_content(line: str) -> bool:
    return line[:1] in ("+", "-", " ") and not line.startswith(("+++", "---"))
