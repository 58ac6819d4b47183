"""File patterns as in ripgrep and editors, and the files that match one.

Our own, because ``fnmatch`` and ``glob`` of Python 3.11 know neither ``{a,b}`` nor patterns relative to a folder.

``*`` and ``?`` stay within a name, ``**`` goes through any number of folders, ``[a-z]`` is one of several characters,
``{a,b}`` one of several texts, and a backslash takes the next character as it is. Names that begin with a dot are like
any other.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAGIC = re.compile(r"[*?\[{]")
_BRACES = {"{": "(?:", ",": "|", "}": ")"}
_MEMBER = r"(?s)(.)-(.)|(.)"
"""A range of characters, or a single one."""


def find(folder: str, pattern: str) -> list[str]:
    """Return the files below ``folder`` whose relative path matches ``pattern``, sorted; empty if it does not exist.

    Links are followed, each folder once.
    """
    root, rest = split_root(pattern)
    deep = "**" in rest or re.search(r"\{[^}]*/", rest) is not None
    expression = _compiled(pattern)
    paths = (
        path
        for path in _files(os.path.join(folder, root), 1 << 30 if deep else rest.count("/") + 1, set())
        if expression.fullmatch(os.path.relpath(path, folder).replace(os.sep, "/"))
    )
    return sorted(paths)


def matches(pattern: str, path: str) -> bool:
    """Return whether ``path``, relative and with ``/``, matches ``pattern``.

    A pattern without a slash matches a name at any depth; one with a slash matches from the start, as in a
    ``.gitignore``.
    """
    pattern = pattern.removeprefix("./").rstrip("/")
    anywhere = "" if "/" in pattern else "**/"
    return _compiled(anywhere + pattern.lstrip("/")).fullmatch(path) is not None


def split_root(pattern: str) -> tuple[str, str]:
    """Split ``pattern`` into its leading directories without wildcards, and the rest."""
    parts = pattern.split("/")
    fixed = 0
    while fixed < len(parts) - 1 and not _MAGIC.search(parts[fixed]):
        fixed += 1
    root = "/".join(parts[:fixed])
    return (root or "/" if fixed else "", "/".join(parts[fixed:]))


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


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    pattern = pattern.removeprefix("./")
    out: list[str] = []
    at = depth = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "{" or (depth and char in ",}"):
            depth += (char == "{") - (char == "}")
            taken, expression = 1, _BRACES[char]
        else:
            taken, expression = _piece(pattern, at)
        out.append(expression)
        at += taken
    return re.compile("".join(out) + ")" * depth, re.DOTALL)


def _piece(pattern: str, at: int) -> tuple[int, str]:
    """Return the length of the next piece of the pattern, and its regular expression."""
    match pattern[at]:
        case "*":
            end = at
            while end < len(pattern) and pattern[end] == "*":
                end += 1
            is_whole_name = (at == 0 or pattern[at - 1] in "/{,") and (end == len(pattern) or pattern[end] in "/},")
            if end - at < 2 or not is_whole_name:
                return end - at, "[^/]*"
            return (end - at + 1, "(?:.*/)?") if pattern.startswith("/", end) else (end - at, ".*")
        case "?":
            return 1, "[^/]"
        case "[":
            return _set(pattern, at)
        case "\\" if at + 1 < len(pattern):
            return 2, re.escape(pattern[at + 1])
        case char:
            return 1, re.escape(char)


def _set(pattern: str, at: int) -> tuple[int, str]:
    """Translate ``[...]``. An unclosed bracket, or one with a reversed range, stands for itself."""
    end = pattern.find("]", at + 2)
    inner = pattern[at + 1 : end]
    negated = inner[:1] in ("!", "^")
    members = [match.groups() for match in re.finditer(_MEMBER, inner[negated:])]
    if end < 0 or not members or any(low and low > high for low, high, _ in members):
        return 1, re.escape("[")
    spelled = "".join(re.escape(one) if one else f"{re.escape(low)}-{re.escape(high)}" for low, high, one in members)
    return end - at + 1, f"[{'^/' if negated else ''}{spelled}]"
