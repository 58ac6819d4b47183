"""Snippets of texts around what was found."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_WIDTH = 160
_BEFORE = 40
_MAX_MATCHES = 200
_SPACE = re.compile(r"\s+")


class Snippet(NamedTuple):
    """A piece of a text, on one line."""

    text: str
    marks: tuple[tuple[int, int], ...] = ()
    """The spans of the matches."""
    field: str = ""
    """The field it is from."""


def snippet(fields: Mapping[str, str], patterns: Sequence[re.Pattern[str]]) -> Snippet:
    """Return the piece with most of the patterns; the beginning of the first field if none matches."""
    best: tuple[int, int, str, int] | None = None
    for number, (name, text) in enumerate(fields.items()):
        matches = sorted((match.start(), at) for at, pattern in enumerate(patterns) for match in _few(pattern, text))
        for at, (start, _) in enumerate(matches):
            # How many of the patterns match within one snippet from there on.
            near = {kind for position, kind in matches[at : at + 50] if position < start + _WIDTH - _BEFORE}
            rank = (len(near), -number, name, start)
            if best is None or rank[:2] > best[:2]:
                best = rank
    if best is None:
        name = next((name for name in sorted(fields, key="tool".__eq__) if fields[name].strip()), "")
        return Snippet(_line(fields.get(name, "")[: _WIDTH * 2])[:_WIDTH], (), name)
    _, _, name, at = best
    text = fields[name]
    start = max(0, at - _BEFORE)
    while start > 0 and start > at - 2 * _BEFORE and not text[start - 1].isspace():
        start -= 1
    end = min(len(text), start + _WIDTH)
    line = _line(text[start:end])
    before, after = "…" if start else "", "…" if end < len(text) else ""
    spans = sorted({match.span() for pattern in patterns for match in _few(pattern, line) if match[0]})
    marks = tuple((left + len(before), right + len(before)) for left, right in spans)
    return Snippet(f"{before}{line}{after}", marks, name)


def _few(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    for number, match in enumerate(pattern.finditer(text)):
        if number >= _MAX_MATCHES:
            return
        yield match


def _line(text: str) -> str:
    return _SPACE.sub(" ", text).strip()
