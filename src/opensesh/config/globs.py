"""Finding files by pattern, always in the same order.

``*`` and ``?`` stay within a name, ``**`` goes through any number of folders, ``[abc]`` is one of several
characters and ``{a,b}`` one of several texts. Names that begin with a dot are like any other. Links are followed,
each folder once.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from itertools import takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAGIC = re.compile(r"[*?\[{]")
_PIECE = re.compile(r"\*\*/|\*\*|\*|\?|\[[!^]?\]?[^\]/]*\]|\{|\}|,|.", re.DOTALL)
_MEANING = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def find(folder: str, pattern: str) -> list[str]:
    """The files below ``folder`` whose path from there fits ``pattern``, sorted; empty if there is no such folder."""
    steps = pattern.split("/")
    fixed = list(takewhile(lambda step: not _MAGIC.search(step), steps[:-1]))
    deep = "**" in pattern or re.search(r"\{[^}]*/", pattern) is not None
    expression = _compile(pattern)
    start = os.path.join(folder, *fixed)
    found = (
        path
        for path in _files(start, 1 << 30 if deep else len(steps) - len(fixed), set())
        if expression.fullmatch(os.path.relpath(path, folder).replace(os.sep, "/"))
    )
    return sorted(found)


def _files(folder: str, depth: int, seen: set[str]) -> Iterator[str]:
    real = os.path.realpath(folder)
    if depth == 0 or real in seen:
        return
    seen.add(real)
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        path = os.path.join(folder, name)
        if os.path.isdir(path):
            yield from _files(path, depth - 1, seen)
        elif os.path.isfile(path):
            yield path


@lru_cache(maxsize=128)
def _compile(pattern: str) -> re.Pattern[str]:
    depth = 0
    expression = ""
    for piece in _PIECE.findall(pattern.removeprefix("./")):
        if piece in _MEANING:
            expression += _MEANING[piece]
        elif piece[0] == "[" and len(piece) > 2:
            inner = piece[1:-1].replace("\\", r"\\")
            expression += f"[^{inner[1:]}]" if inner[0] in "!^" else f"[{inner}]"
        elif piece == "{":
            depth += 1
            expression += "(?:"
        elif piece in "},":
            expression += (")" if piece == "}" else "|") if depth else re.escape(piece)
            depth -= piece == "}" and depth > 0
        else:
            expression += re.escape(piece)
    return re.compile(expression + ")" * depth, re.DOTALL)
