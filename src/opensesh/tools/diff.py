"""Line diffs: the unified form that OpenCode shows and stores, and the counts of added and deleted lines.

Not with ``difflib``: for 3,000 lines with 40 edits it takes 9.7 ms where rapidfuzz takes 1.2 ms, and its counts of
lines differ from those of git, which rapidfuzz gives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CONTEXT_LINES = 4
_RULE = "=" * 67
_NO_NEWLINE = "\\ No newline at end of file\n"
_MAX_LINE_PAIRS = 200_000_000
"""Beyond this (25 MB of bit vectors) a stretch without a common line counts as replaced as a whole."""


class LineChange(NamedTuple):
    """Lines ``start:end`` of the old text became lines ``new_start:new_end`` of the new one."""

    start: int
    end: int
    new_start: int
    new_end: int


class Diff(NamedTuple):
    """The change of one file."""

    text: str
    """Unified, with OpenCode's header; without hunks if nothing changed."""
    additions: int
    deletions: int


def compare(path: str, before: str, after: str) -> Diff:
    """Return the difference between two texts of the file at ``path``. Line endings are not compared."""
    old, new = _lines(before), _lines(after)
    line_changes = changes(old, new)
    header = f"Index: {path}\n{_RULE}\n--- {path}\n+++ {path}\n"
    hunks: list[list[LineChange]] = []
    for change in line_changes:
        if hunks and change.start - hunks[-1][-1].end <= 2 * CONTEXT_LINES:
            hunks[-1].append(change)
        else:
            hunks.append([change])
    text = header + "".join(_hunk(old, new, hunk) for hunk in hunks)
    additions = sum(change.new_end - change.new_start for change in line_changes)
    deletions = sum(change.end - change.start for change in line_changes)
    return Diff(trim(text), additions, deletions)


def file_diff(path: str, before: str, after: str, diff: Diff) -> dict[str, Any]:
    """Return the ``filediff`` of a tool's metadata."""
    return {
        "file": path,
        "before": before,
        "after": after,
        "additions": diff.additions,
        "deletions": diff.deletions,
    }


def changes(old: Sequence[str], new: Sequence[str]) -> list[LineChange]:
    """Return the smallest set of changes between two lists of lines, in order, none adjacent to another."""
    start, end, new_end = 0, len(old), len(new)
    while start < min(end, new_end) and old[start] == new[start]:
        start += 1
    while end > start and new_end > start and old[end - 1] == new[new_end - 1]:
        end, new_end = end - 1, new_end - 1
    if start == end and start == new_end:
        return []
    if (end - start) * (new_end - start) > _MAX_LINE_PAIRS:
        return [LineChange(start, end, start, new_end)]
    from rapidfuzz.distance import Indel

    numbers: dict[str, int] = {}
    first = [numbers.setdefault(line, len(numbers)) for line in old[start:end]]
    second = [numbers.setdefault(line, len(numbers)) for line in new[start:new_end]]
    merged: list[LineChange] = []
    for code in Indel.opcodes(first, second):
        if code.tag == "equal":
            continue
        edges = (code.src_start, code.src_end, code.dest_start, code.dest_end)
        change = LineChange(*(edge + start for edge in edges))
        if merged and merged[-1].end == change.start and merged[-1].new_end == change.new_start:
            change = LineChange(merged[-1].start, change.end, merged.pop().new_start, change.new_end)
        merged.append(change)
    return merged


def similarity(one: str, other: str) -> float:
    """Return the likeness of two texts, from 0 to 1: one minus their edit distance by the length of the longer."""
    from rapidfuzz.distance import Levenshtein

    return Levenshtein.normalized_similarity(one, other)


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


def _lines(text: str) -> list[str]:
    lines = [f"{line}\n" for line in text.replace("\r\n", "\n").split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


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
