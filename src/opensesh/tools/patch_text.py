"""The patch format of ``apply_patch``: reading it, and finding in a file the lines it is about.

::

    *** Begin Patch
    *** Add File: new.txt
    +every line of it
    *** Update File: old.txt
    *** Move to: elsewhere.txt
    @@ def around():
     a line that stays
    -a line that goes
    +a line that comes
    *** End of File
    *** Delete File: gone.txt
    *** End Patch
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from ..errors import ToolFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_HEREDOC = re.compile(r"\s*(?:cat\s+)?<<-?\s*['\"]?(\w+)['\"]?\s*\n(.*?)\n\1\s*", re.DOTALL)
_DASHES = dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"), "-")
_QUOTES = dict.fromkeys(map(ord, "\u2018\u2019\u201a\u201b"), "'") | dict.fromkeys(
    map(ord, "\u201c\u201d\u201e\u201f"), '"'
)
_SPACES = dict.fromkeys(map(ord, "\u00a0\u2002\u2003\u2007\u2009\u202f\u3000"), " ")
_PUNCTUATION = {**_DASHES, **_QUOTES, **_SPACES, ord("\u2026"): "..."}


class Chunk(Struct, kw_only=True):
    """Lines to find, and lines to put in their place."""

    context: str | None = None
    """A line that comes before them, somewhere."""
    old: list[str] = []
    new: list[str] = []
    at_end: bool = False
    """They are the last lines of the file."""


class Add(Struct, frozen=True):
    """A new file."""

    path: str
    content: str


class Delete(Struct, frozen=True):
    """A file that goes."""

    path: str


class Update(Struct, frozen=True):
    """A file that changes, and may get another name."""

    path: str
    move_to: str | None
    chunks: list[Chunk]


Hunk: TypeAlias = Add | Delete | Update


def parse(text: str) -> list[Hunk]:
    """The hunks of a patch. Lines between them that belong to none are passed over."""
    wrapped = _HEREDOC.fullmatch(text)
    lines = (wrapped[2] if wrapped else text).replace("\r\n", "\n").strip().split("\n")
    try:
        start = next(place for place, line in enumerate(lines) if line.strip() == "*** Begin Patch")
        end = next(place for place in range(len(lines) - 1, start, -1) if lines[place].strip() == "*** End Patch")
    except StopIteration:
        raise ToolFailedError(
            "This is no patch: it must begin with the line '*** Begin Patch' and end with '*** End Patch'"
        ) from None
    return _hunks(lines[start + 1 : end])


def _hunks(lines: list[str]) -> list[Hunk]:
    hunks: list[Hunk] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        end = next((place for place in range(at, len(lines)) if _is_header(lines[place])), len(lines))
        body = lines[at:end]
        if line.startswith("*** Add File:"):
            hunks.append(Add(_name(line), "\n".join(row[1:] for row in body if row.startswith("+"))))
        elif line.startswith("*** Delete File:"):
            hunks.append(Delete(_name(line)))
        elif line.startswith("*** Update File:"):
            hunks.append(_update(_name(line), body))
        else:
            continue
        at = end
    return hunks


def _is_header(line: str) -> bool:
    return line.startswith(("*** Add File:", "*** Delete File:", "*** Update File:"))


def _name(line: str) -> str:
    name = line.partition(":")[2].strip()
    if not name:
        raise ToolFailedError(f"The patch names no file in {line!r}")
    return name


def _update(path: str, body: list[str]) -> Update:
    move_to = None
    if body and body[0].startswith("*** Move to:"):
        move_to = _name(body[0])
        body = body[1:]
    chunks: list[Chunk] = []
    for line in body:
        if line.startswith("@@"):
            chunks.append(Chunk(context=line[2:].strip() or None, old=[], new=[]))
        elif line.strip() == "*** End of File":
            if chunks:
                chunks[-1].at_end = True
        elif line[:1] in (" ", "-", "+", "") and not line.startswith("*** "):
            if not chunks:
                chunks.append(Chunk(old=[], new=[]))
            _add_line(chunks[-1], line)
    return Update(path, move_to, chunks)


def _add_line(chunk: Chunk, line: str) -> None:
    mark, text = line[:1], line[1:]
    if mark != "+":
        chunk.old.append(text)
    if mark != "-":
        chunk.new.append(text)


def apply(path: str, lines: Sequence[str], chunks: Sequence[Chunk]) -> list[str]:
    """``lines`` with every chunk applied, in order; or :class:`ToolFailedError`, naming the lines that are not
    there."""
    result = list(lines)
    replacements: list[tuple[int, int, list[str]]] = []
    at = 0
    for chunk in chunks:
        if chunk.context is not None:
            found = _seek(result, [chunk.context], at)
            if found is None:
                raise ToolFailedError(f"{path} has no line like {chunk.context!r} after line {at}", path=path)
            at = found + 1
        start, count, new = _place(path, result, chunk, at)
        replacements.append((start, count, new))
        at = start + count
    for start, count, new in sorted(replacements, key=lambda each: each[:2], reverse=True):
        result[start : start + count] = new
    return result


def _place(path: str, lines: list[str], chunk: Chunk, at: int) -> tuple[int, int, list[str]]:
    """Where the old lines of a chunk begin, how many they are, and what takes their place."""
    if not chunk.old:
        return (len(lines) if chunk.context is None or chunk.at_end else at), 0, chunk.new
    old, new = chunk.old, chunk.new
    found = _seek(lines, old, at, at_end=chunk.at_end)
    while found is None and len(old) > 1 and not old[-1]:
        # An empty line at the end of a chunk may be there for the eye alone.
        old, new = old[:-1], (new[:-1] if new and not new[-1] else new)
        found = _seek(lines, old, at, at_end=chunk.at_end)
    if found is None:
        raise ToolFailedError(
            f"These lines of the patch are not in {path}; read the file again and write the patch anew:\n"
            + "\n".join(chunk.old),
            path=path,
        )
    return found, len(old), new


def _seek(lines: Sequence[str], wanted: Sequence[str], start: int, *, at_end: bool = False) -> int | None:
    """Where ``wanted`` begins at or after ``start``: exactly, then with less and less regard for spelling."""
    last = len(lines) - len(wanted)
    places = range(last, last + 1) if at_end else range(start, last + 1)
    for normal in _NORMAL_FORMS:
        folded = [normal(line) for line in wanted]
        for place in places:
            if place >= start and all(normal(lines[place + offset]) == line for offset, line in enumerate(folded)):
                return place
    return None


def _plain_punctuation(line: str) -> str:
    return unicodedata.normalize("NFC", line).translate(_PUNCTUATION).strip()


_NORMAL_FORMS: tuple[Callable[[str], str], ...] = (str, str.rstrip, str.strip, _plain_punctuation)
