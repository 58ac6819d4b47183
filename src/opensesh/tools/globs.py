"""File patterns: ``*``, ``?``, ``[a-z]``, ``{a,b}`` and ``**``, as ripgrep and editors read them."""

from __future__ import annotations

import re
from functools import lru_cache


@lru_cache(maxsize=256)
def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern for paths relative to the directory of the search, with ``/``.

    One without a slash matches a name at any depth; one with a slash is rooted, as in a ``.gitignore``.
    """
    pattern = pattern.removeprefix("./")
    rooted = "/" in pattern.rstrip("/")
    body = _translate(pattern.strip("/") if rooted else pattern.rstrip("/"))
    lead = "" if rooted else "(?:.*/)?"
    return re.compile(f"{lead}{body}", re.DOTALL)


def matches(pattern: str, path: str) -> bool:
    """Whether the whole of ``path`` fits ``pattern``."""
    return compiled(pattern).fullmatch(path) is not None


def split_root(pattern: str) -> tuple[str, str]:
    """The directories at the front of ``pattern`` that hold no wildcard, and the pattern within them."""
    parts = pattern.split("/")
    fixed = 0
    while fixed < len(parts) - 1 and not any(char in parts[fixed] for char in "*?[{"):
        fixed += 1
    root = "/".join(parts[:fixed])
    return (root or "/" if fixed else "", "/".join(parts[fixed:]))


def _translate(pattern: str) -> str:
    out: list[str] = []
    at = depth = 0
    while at < len(pattern):
        char = pattern[at]
        taken, regex = _braces(char) if _is_brace(char, depth) else _piece(pattern, at)
        depth += (regex == "(?:") - (regex == ")")
        out.append(regex)
        at += taken
    return "".join(out) + ")" * depth


def _is_brace(char: str, depth: int) -> bool:
    return char == "{" or (depth > 0 and char in ",}")


def _braces(char: str) -> tuple[int, str]:
    return 1, {"{": "(?:", ",": "|", "}": ")"}[char]


def _piece(pattern: str, at: int) -> tuple[int, str]:
    """How many characters the next piece has, and its regular expression."""
    match pattern[at]:
        case "*":
            return _stars(pattern, at)
        case "?":
            return 1, "[^/]"
        case "[":
            return _class(pattern, at)
        case "\\" if at + 1 < len(pattern):
            return 2, re.escape(pattern[at + 1])
        case char:
            return 1, re.escape(char)


def _stars(pattern: str, at: int) -> tuple[int, str]:
    end = at
    while end < len(pattern) and pattern[end] == "*":
        end += 1
    whole = (at == 0 or pattern[at - 1] in "/{,") and (end == len(pattern) or pattern[end] in "/},")
    if end - at < 2 or not whole:
        return end - at, "[^/]*"
    if end < len(pattern) and pattern[end] == "/":
        return end - at + 1, "(?:.*/)?"
    return end - at, ".*"


def _class(pattern: str, at: int) -> tuple[int, str]:
    end = pattern.find("]", at + 2)
    if end < 0:
        return 1, re.escape("[")
    inner = pattern[at + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
    if inner[0] in "!^":
        inner = f"^/{inner[1:]}"
    return end - at + 1, f"[{inner}]"
