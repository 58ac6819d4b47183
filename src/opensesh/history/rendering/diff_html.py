"""Unified diffs as HTML: line numbers, a class for each line, and marks on the words that differ."""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from markupsafe import Markup

from ...line_changes import line_changes
from .visible_text import code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    GapLinks: TypeAlias = Callable[[int, int | None], Markup]
    """Renders what is shown where lines of the old text are left out: from a line, counted from 0, to before another,
    or to the end."""

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@.*")
_HEADERS = ("+++", "---", "Index:", "===", "diff ", "index ", "new file", "deleted file", "similarity ", "rename ")
_NAMES = ("+++", "---", "Index:", "===", "diff ", "index ")
_BEGINNINGS = ("Index: ", "diff --git ")
_WORD = re.compile(r"\w+|\s+|[^\w\s]")
_MAX_MARKED_LENGTH = 400
_MAX_CHANGED_SHARE = 0.6
"""Lines that differ by more than this have too little in common for marks to help."""


class _DiffLine(NamedTuple):
    kind: str
    text: str
    numbers: str = ""


def count_changes(diff: str) -> tuple[int, int]:
    """Return how many lines a unified diff adds and removes."""
    kinds = [line.kind for line in _lines(diff.split("\n"))]
    return kinds.count("add"), kinds.count("del")


def diff_html(diff: str, links: GapLinks | None = None) -> Markup:
    """Render a unified diff as lines with classes, to be put into a ``pre`` element."""
    return Markup("\n").join(_row(line, content) for line, content in _with_links(_marked(_shown_lines(diff)), links))


def split_diff_html(diff: str, links: GapLinks | None = None) -> Markup:
    """Render a unified diff as a table with the old lines at the left and the new ones at the right."""
    rows: list[Markup] = []
    removed: list[Markup] = []
    added: list[Markup] = []

    def flush() -> None:
        empty = Markup('<td class="n"></td><td></td>')
        rows.extend(Markup("<tr>{}{}</tr>").format(*pair) for pair in zip_longest(removed, added, fillvalue=empty))
        removed.clear()
        added.clear()

    for line, content in _with_links(_marked(_shown_lines(diff)), links):
        old, new = line.numbers[:5].strip(), line.numbers[6:].strip()
        if line.kind == "del":
            removed.append(_cells("del", old, content[1:]))
        elif line.kind == "add":
            added.append(_cells("add", new, content[1:]))
        elif line.kind == "same":
            flush()
            text = content[1:] if line.text.startswith(" ") else content
            rows.append(Markup("<tr>{}{}</tr>").format(_cells("same", old, text), _cells("same", new, text)))
        else:
            flush()
            rows.append(Markup('<tr><td class="{}" colspan="4">{}</td></tr>').format(line.kind, content))
    flush()
    columns = Markup('<colgroup><col class="n"><col><col class="n"><col></colgroup>')
    return Markup('<table class="split">{}{}</table>').format(columns, Markup("").join(rows))


def _cells(kind: str, number: str, content: Markup) -> Markup:
    return Markup('<td class="n">{}</td><td class="{}">{}</td>').format(number, kind, content)


def _shown_lines(diff: str) -> list[_DiffLine]:
    """Return the lines of a diff; those that only name its file are left out unless it is of several.

    The edits of one file, one after the other, are one diff that names the file again before each edit.
    """
    lines = list(_lines(diff.rstrip("\n").split("\n")))
    named = {line.text.partition("\t")[0] for line in lines if line.kind == "head" and line.text.startswith("+++")}
    return [line for line in lines if not (len(named) == 1 and line.kind == "head" and line.text.startswith(_NAMES))]


def _lines(lines: Iterable[str]) -> Iterator[_DiffLine]:
    """Classify the lines. Within a hunk, which states its length, a line such as ``--- x`` is a removed ``-- x``."""
    old = new = old_left = new_left = 0
    for text in lines:
        if (hunk := _HUNK.fullmatch(text)) and not (old_left or new_left):
            old, old_left, new, new_left = (int(number or 1) for number in hunk.groups())
            yield _DiffLine("hunk", text)
            continue
        if text.startswith(_BEGINNINGS):  # of the next diff, after a hunk that is shorter than it states
            old_left = new_left = 0
        in_hunk = bool(old_left or new_left)
        if not in_hunk and text.startswith(_HEADERS):
            yield _DiffLine("head", text)
        elif text.startswith("-"):
            yield _DiffLine("del", text, f"{old:>5}      " if in_hunk else "")
            old, old_left = old + 1, max(old_left - 1, 0)
        elif text.startswith("+"):
            yield _DiffLine("add", text, f"{new:>11}" if in_hunk else "")
            new, new_left = new + 1, max(new_left - 1, 0)
        elif text.startswith("\\"):
            yield _DiffLine("head", text)
        else:
            yield _DiffLine("same", text, f"{old:>5} {new:>5}" if in_hunk else "")
            old, old_left, new, new_left = old + 1, max(old_left - 1, 0), new + 1, max(new_left - 1, 0)


def _marked(lines: Sequence[_DiffLine]) -> Iterator[tuple[_DiffLine, Markup]]:
    """Yield each line with its text as HTML, and marks on the words that differ between removed and added lines."""
    position = 0
    while position < len(lines):
        removed = _run(lines, position, "del")
        added = _run(lines, position + len(removed), "add")
        if removed and added:
            pairs = [_marked_words(a.text, b.text) for a, b in zip(removed, added, strict=False)]
            for index, line in enumerate(removed):
                yield line, pairs[index][0] if index < len(pairs) else code(line.text)
            for index, line in enumerate(added):
                yield line, pairs[index][1] if index < len(pairs) else code(line.text)
            position += len(removed) + len(added)
        else:
            yield lines[position], code(lines[position].text)
            position += 1


def _with_links(
    lines: Iterable[tuple[_DiffLine, Markup]], links: GapLinks | None
) -> Iterator[tuple[_DiffLine, Markup]]:
    """Add links to the lines that begin the hunks of one file, and after the last of them."""
    end = 0
    for line, content in lines:
        if links is not None and line.kind == "hunk" and (hunk := _HUNK.fullmatch(line.text)):
            size = int(hunk[2] or 1)
            start = int(hunk[1]) - (size > 0)
            yield line, content + links(end, start)
            end = start + size
        else:
            yield line, content
    if links is not None and (last := links(end, None)):
        yield _DiffLine("hunk", ""), last


def _run(lines: Sequence[_DiffLine], start: int, kind: str) -> Sequence[_DiffLine]:
    end = start
    while end < len(lines) and lines[end].kind == kind:
        end += 1
    return lines[start:end]


def _row(line: _DiffLine, content: Markup) -> Markup:
    if line.numbers:
        return Markup('<span class="{}" data-n="{}">{}</span>').format(line.kind, line.numbers, content)
    return Markup('<span class="{}">{}</span>').format(line.kind, content)


def _marked_words(old: str, new: str) -> tuple[Markup, Markup]:
    """Return a removed and an added line with marks on the words that are only in one of them."""
    if max(len(old), len(new)) > _MAX_MARKED_LENGTH:
        return code(old), code(new)
    words, new_words = ["-", *_WORD.findall(old[1:])], ["+", *_WORD.findall(new[1:])]
    changes = line_changes(words[1:], new_words[1:])
    spans = [(change.start + 1, change.end + 1) for change in changes]
    new_spans = [(change.new_start + 1, change.new_end + 1) for change in changes]
    changed = sum(len("".join(words[start:end])) for start, end in spans)
    changed += sum(len("".join(new_words[start:end])) for start, end in new_spans)
    if changed > _MAX_CHANGED_SHARE * (len(old) + len(new)):
        return code(old), code(new)
    return _with_marks(words, spans), _with_marks(new_words, new_spans)


def _with_marks(words: Sequence[str], spans: Iterable[tuple[int, int]]) -> Markup:
    pieces: list[Markup] = []
    position = 0
    for start, end in spans:
        pieces.append(code("".join(words[position:start])))
        if start < end:
            pieces.append(Markup('<span class="word">{}</span>').format(code("".join(words[start:end]))))
        position = end
    return Markup("").join([*pieces, code("".join(words[position:]))])
