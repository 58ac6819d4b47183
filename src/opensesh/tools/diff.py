"""Line diffs: the unified form that OpenCode shows and stores, and the counts of added and deleted lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..line_changes import line_changes, split_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..line_changes import LineChange

CONTEXT_LINES = 4
_RULE = "=" * 67
_NO_NEWLINE = "\\ No newline at end of file\n"


class Diff(NamedTuple):
    """The change of one file."""

    text: str
    """Unified, with OpenCode's header; without hunks if nothing changed."""
    additions: int
    deletions: int


def compare(path: str, before: str, after: str) -> Diff:
    """Return the difference between two texts of the file at ``path``. Line endings are not compared."""
    old, new = (split_lines(text.replace("\r\n", "\n")) for text in (before, after))
    changes = line_changes(old, new)
    header = f"Index: {path}\n{_RULE}\n--- {path}\n+++ {path}\n"
    hunks: list[list[LineChange]] = []
    for change in changes:
        if hunks and change.start - hunks[-1][-1].end <= 2 * CONTEXT_LINES:
            hunks[-1].append(change)
        else:
            hunks.append([change])
    text = header + "".join(_hunk(old, new, hunk) for hunk in hunks)
    additions = sum(change.new_end - change.new_start for change in changes)
    deletions = sum(change.end - change.start for change in changes)
    return Diff(trim(text), additions, deletions)


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


def _hunk(old: list[str], new: list[str], hunk: list[LineChange]) -> str:
    lead = min(CONTEXT_LINES, hunk[0].start)
    tail = min(CONTEXT_LINES, len(old) - hunk[-1].end)
    start, new_start = hunk[0].start - lead, hunk[0].new_start - lead
    size = hunk[-1].end + tail - start
    new_size = hunk[-1].new_end + tail - new_start
    body: list[str] = []
    position = start
    for change in hunk:
        body += _marked(" ", old[position : change.start])
        body += _marked("-", old[change.start : change.end])
        body += _marked("+", new[change.new_start : change.new_end])
        position = change.end
    body += _marked(" ", old[position : position + tail])
    # By convention an empty side is given by the line before it.
    first, new_first = start + (size > 0), new_start + (new_size > 0)
    return f"@@ -{first},{size} +{new_first},{new_size} @@\n" + "".join(body)


def _marked(mark: str, lines: Sequence[str]) -> Iterator[str]:
    return (f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}\n{_NO_NEWLINE}" for line in lines)
