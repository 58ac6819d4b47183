"""Line diffs: the unified form that OpenCode shows and stores, and the counts beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CONTEXT = 4
_RULE = "=" * 67
_NO_NEWLINE = "\\ No newline at end of file\n"
_TOO_MANY = 200_000_000
"""Pairs of lines; beyond this (25 MB of bits) a stretch without a common line is called replaced as a whole."""


class LineChange(NamedTuple):
    """Lines ``start:end`` of the old text became lines ``new_start:new_end`` of the new one."""

    start: int
    end: int
    new_start: int
    new_end: int


class Diff(NamedTuple):
    """What became of a file."""

    text: str
    """Unified, with OpenCode's header; empty of hunks if nothing changed."""
    additions: int
    deletions: int


def compare(path: str, before: str, after: str) -> Diff:
    """The difference between two texts of the file at ``path``. How lines end is not looked at."""
    old, new = _lines(before), _lines(after)
    found = changes(old, new)
    header = f"Index: {path}\n{_RULE}\n--- {path}\n+++ {path}\n"
    text = header + "".join(_hunk(old, new, group) for group in _groups(found))
    additions = sum(change.new_end - change.new_start for change in found)
    deletions = sum(change.end - change.start for change in found)
    return Diff(trim(text), additions, deletions)


def file_diff(path: str, before: str, after: str, diff: Diff) -> dict[str, Any]:
    """The ``filediff`` of a tool's metadata."""
    return {
        "file": path,
        "before": before,
        "after": after,
        "additions": diff.additions,
        "deletions": diff.deletions,
    }


def changes(old: Sequence[str], new: Sequence[str]) -> list[LineChange]:
    """The smallest set of changes between two lists of lines, in order, no two of them touching."""
    start, (end, new_end) = _common_ends(old, new)
    middle, new_middle = old[start:end], new[start:new_end]
    if not middle and not new_middle:
        return []
    if len(middle) * len(new_middle) > _TOO_MANY:
        return [LineChange(start, end, start, new_end)]
    merged: list[LineChange] = []
    for found in _edits(middle, new_middle):
        change = LineChange(*(place + start for place in found))
        if merged and merged[-1].end == change.start and merged[-1].new_end == change.new_start:
            change = LineChange(merged[-1].start, change.end, merged.pop().new_start, change.new_end)
        merged.append(change)
    return merged


def similarity(one: str, other: str) -> float:
    """How alike two texts are, from 0 to 1: one minus their edit distance by the length of the longer."""
    from rapidfuzz.distance import Levenshtein

    return Levenshtein.normalized_similarity(one, other)


def trim(diff: str) -> str:
    """``diff`` without the indentation that all its lines share."""
    lines = diff.split("\n")
    inner = [line for line in lines if _is_content(line)]
    depth = min((_indent(line[1:]) for line in inner if line[1:].strip()), default=0)
    if not depth:
        return diff
    return "\n".join(line[0] + line[1 + depth :] if _is_content(line) else line for line in lines)


def _is_content(line: str) -> bool:
    return line[:1] in ("+", "-", " ") and not line.startswith(("+++", "---"))


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def _lines(text: str) -> list[str]:
    lines = [f"{line}\n" for line in text.replace("\r\n", "\n").split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _common_ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, tuple[int, int]]:
    shorter = min(len(old), len(new))
    start = 0
    while start < shorter and old[start] == new[start]:
        start += 1
    end, new_end = len(old), len(new)
    while end > start and new_end > start and old[end - 1] == new[new_end - 1]:
        end, new_end = end - 1, new_end - 1
    return start, (end, new_end)


def _edits(old: Sequence[str], new: Sequence[str]) -> Iterator[LineChange]:
    from rapidfuzz.distance import Indel

    numbers: dict[str, int] = {}
    first = [numbers.setdefault(line, len(numbers)) for line in old]
    second = [numbers.setdefault(line, len(numbers)) for line in new]
    for code in Indel.opcodes(first, second):
        if code.tag != "equal":
            yield LineChange(code.src_start, code.src_end, code.dest_start, code.dest_end)


def _groups(found: list[LineChange]) -> Iterator[list[LineChange]]:
    """Changes near enough to share a hunk."""
    group: list[LineChange] = []
    for change in found:
        if group and change.start - group[-1].end > 2 * CONTEXT:
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def _hunk(old: list[str], new: list[str], group: list[LineChange]) -> str:
    lead = min(CONTEXT, group[0].start)
    tail = min(CONTEXT, len(old) - group[-1].end)
    start, new_start = group[0].start - lead, group[0].new_start - lead
    size = group[-1].end + tail - start
    new_size = group[-1].new_end + tail - new_start
    body: list[str] = []
    place = start
    for change in group:
        body += [_marked(" ", line) for line in old[place : change.start]]
        body += [_marked("-", line) for line in old[change.start : change.end]]
        body += [_marked("+", line) for line in new[change.new_start : change.new_end]]
        place = change.end
    body += [_marked(" ", line) for line in old[place : place + tail]]
    # A side without lines is named by the line before it, as every reader of the format expects.
    at, new_at = start + (size > 0), new_start + (new_size > 0)
    return f"@@ -{at},{size} +{new_at},{new_size} @@\n" + "".join(body)


def _marked(mark: str, line: str) -> str:
    return f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}\n{_NO_NEWLINE}"
