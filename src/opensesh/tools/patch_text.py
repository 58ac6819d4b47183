"""The patch format of ``apply_patch``: parser, and search for the quoted lines in a file.

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
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from ..errors import ToolFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_HEADERS = ("*** Add File:", "*** Delete File:", "*** Update File:")
_HEREDOC = re.compile(r"\s*(?:cat\s+)?<<-?\s*['\"]?(\w+)['\"]?\s*\n(.*?)\n\1\s*", re.DOTALL)
_DASHES = dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"), "-")
_QUOTES = dict.fromkeys(map(ord, "\u2018\u2019\u201a\u201b"), "'") | dict.fromkeys(
    map(ord, "\u201c\u201d\u201e\u201f"), '"'
)
_SPACES = dict.fromkeys(map(ord, "\u00a0\u2002\u2003\u2007\u2009\u202f\u3000"), " ")
_PUNCTUATION = {**_DASHES, **_QUOTES, **_SPACES, ord("\u2026"): "..."}
_COMPARISONS: tuple[Callable[[str], str], ...] = (
    str,
    str.rstrip,
    str.strip,
    lambda line: unicodedata.normalize("NFC", line).translate(_PUNCTUATION).strip(),
)
"""Forms of a line in which it is compared, from the exact to the lenient."""


class Chunk(Struct, kw_only=True):
    """Lines to find, and lines to replace them with."""

    context: str | None = None
    """A line somewhere before them."""
    old: list[str] = []
    new: list[str] = []
    at_end: bool = False
    """Whether they are the last lines of the file."""


class AddHunk(Struct, frozen=True):
    """A new file."""

    path: str
    content: str


class DeleteHunk(Struct, frozen=True):
    """A file to delete."""

    path: str


class UpdateHunk(Struct, frozen=True):
    """A file to change, and perhaps to move."""

    path: str
    move_to: str | None
    chunks: list[Chunk]


Hunk: TypeAlias = AddHunk | DeleteHunk | UpdateHunk


def parse(text: str) -> list[Hunk]:
    """Return the hunks of a patch. Lines that belong to no hunk are skipped."""
    wrapped = _HEREDOC.fullmatch(text)
    lines = (wrapped[2] if wrapped else text).replace("\r\n", "\n").strip().split("\n")
    try:
        start = next(index for index, line in enumerate(lines) if line.strip() == "*** Begin Patch")
        end = next(index for index in range(len(lines) - 1, start, -1) if lines[index].strip() == "*** End Patch")
    except StopIteration:
        raise ToolFailedError(
            "Invalid patch: it must begin with the line '*** Begin Patch' and end with '*** End Patch'"
        ) from None
    lines = lines[start + 1 : end]
    headers = [index for index, line in enumerate(lines) if line.startswith(_HEADERS)]
    hunks: list[Hunk] = []
    for index, following in pairwise([*headers, len(lines)]):
        line, body = lines[index], lines[index + 1 : following]
        if line.startswith("*** Add File:"):
            hunks.append(AddHunk(_file_name(line), "\n".join(row[1:] for row in body if row.startswith("+"))))
        elif line.startswith("*** Delete File:"):
            hunks.append(DeleteHunk(_file_name(line)))
        else:
            hunks.append(_parse_update(_file_name(line), body))
    return hunks


def _file_name(line: str) -> str:
    name = line.partition(":")[2].strip()
    if not name:
        raise ToolFailedError(f"The patch names no file in {line!r}")
    return name


def _parse_update(path: str, body: list[str]) -> UpdateHunk:
    move_to = None
    if body and body[0].startswith("*** Move to:"):
        move_to = _file_name(body[0])
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
            if not line.startswith("+"):
                chunks[-1].old.append(line[1:])
            if not line.startswith("-"):
                chunks[-1].new.append(line[1:])
    return UpdateHunk(path, move_to, chunks)


def apply(path: str, lines: Sequence[str], chunks: Sequence[Chunk]) -> list[str]:
    """Return ``lines`` with every chunk applied, in order.

    Raises :class:`ToolFailedError`, quoting the lines that the file does not contain.
    """
    result = list(lines)
    replacements: list[tuple[int, int, list[str]]] = []
    position = 0
    for chunk in chunks:
        if chunk.context is not None:
            context = _find(result, [chunk.context], position)
            if context is None:
                raise ToolFailedError(f"{path} has no line like {chunk.context!r} after line {position}", path=path)
            position = context + 1
        old, new = chunk.old, chunk.new
        if not old:
            start = len(result) if chunk.context is None or chunk.at_end else position
        else:
            start = _find(result, old, position, at_end=chunk.at_end)
            while start is None and len(old) > 1 and not old[-1]:
                # An empty line at the end of a chunk may only separate it from the next.
                old, new = old[:-1], (new[:-1] if new and not new[-1] else new)
                start = _find(result, old, position, at_end=chunk.at_end)
        if start is None:
            raise ToolFailedError(
                f"{path} does not contain these lines of the patch; read the file again and write a new patch:\n"
                + "\n".join(chunk.old),
                path=path,
            )
        replacements.append((start, len(old), new))
        position = start + len(old)
    for start, count, new in sorted(replacements, key=lambda replacement: replacement[:2], reverse=True):
        result[start : start + count] = new
    return result


def _find(lines: Sequence[str], quoted: Sequence[str], start: int, *, at_end: bool = False) -> int | None:
    """Return where ``quoted`` begins at or after ``start``: first exactly, then with looser comparisons."""
    last = len(lines) - len(quoted)
    positions = range(last, last + 1) if at_end else range(start, last + 1)
    for normalise in _COMPARISONS:
        folded = [normalise(line) for line in quoted]
        for index in positions:
            if index >= start and all(normalise(lines[index + offset]) == line for offset, line in enumerate(folded)):
                return index
    return None
