"""What a text must hold for a pattern to be found in it, so that few texts need be read to look for the pattern."""

from __future__ import annotations

import re
from typing import NamedTuple

from .tokenizer import LONGEST

_TOKEN = re.compile("[A-Za-z0-9]+")
_OPTIONAL = re.compile(r"[?*]|\{0?,|\{0\}")
_REPEATED = re.compile(r"[+*?]|\{\d*,?\d*\}")
_ESCAPED_CLASS = re.compile(r"\\[AbBdDsSwWZz]")
_OBSCURE = re.compile(r"\(\?[a-zA-Z]*x|\\[xuUN0-9]")
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_SHORTEST = 2


class Need(NamedTuple):
    """Words that every match comes with. One of the two may be empty; both, if nothing is known."""

    words: tuple[tuple[str, bool], ...]
    """Whole words; with ``True``, the beginnings of words."""
    inside: str
    """Letters and digits that stand somewhere inside a word."""


def need_of(literal: str) -> Need:
    """What a text must hold for ``literal`` to be in it, wherever it begins and ends."""
    words: list[tuple[str, bool]] = []
    inside = ""
    for token in _TOKEN.finditer(literal):
        begins = _is_edge(literal, token.start() - 1)
        ends = _is_edge(literal, token.end())
        text = token[0].lower()
        if len(text) > LONGEST:
            continue
        if begins and (ends or len(text) >= _SHORTEST):
            words.append((text, not ends))
        elif len(text) > len(inside):
            inside = text
    return Need(tuple(dict.fromkeys(words)), "" if words else inside)


def needs_of_regex(pattern: str) -> list[Need] | None:
    """What a text must hold for a regular expression to match: one of these; ``None`` if nothing is known.

    On the safe side: what stands in groups, or may be left out, is not relied on.
    """
    if _OBSCURE.search(pattern):  # spaces that mean nothing, characters spelled by number: not what they seem
        return None
    branches = _branches(pattern)
    needs = [max((need_of(run) for run in branch), key=_strength, default=Need((), "")) for branch in branches]
    return needs if all(need.words or len(need.inside) >= _SHORTEST for need in needs) else None


def _strength(need: Need) -> int:
    return 1_000 * len(need.words) + sum(len(word) for word, _ in need.words) + len(need.inside)


def _is_edge(text: str, at: int) -> bool:
    """Whether a word ends at this place. At the ends of the text, and beside letters of other scripts, nobody knows."""
    return 0 <= at < len(text) and text[at].isascii() and not text[at].isalnum()


def _branches(pattern: str) -> list[list[str]]:
    """The runs of plain characters in each alternative of a regular expression, outside of groups."""
    branches: list[list[str]] = [[""]]
    at = depth = 0
    while at < len(pattern):
        character = pattern[at]
        if character == "[":
            at = _end_of_class(pattern, at)
            branches[-1].append("")
            continue
        if character == "|" and depth == 0:
            branches.append([""])
        elif character in "()":
            depth += 1 if character == "(" else -1
            branches[-1].append("")
        elif depth == 0:
            at = _take(pattern, at, branches[-1])
            continue
        at += 2 if character == "\\" else 1
    return branches


def _take(pattern: str, at: int, runs: list[str]) -> int:
    """Take one element at the top level into the last of ``runs``; where the next one begins."""
    if behind := _REPEATED.match(pattern, at):  # how often a class, a group or a character of any kind may come
        runs.append("")
        return behind.end()
    character, end = pattern[at], at + 1
    if character == "\\":
        escaped = pattern[at + 1 : at + 2]
        end = at + 2
        plain = "" if _ESCAPED_CLASS.match(pattern, at) else _CONTROL.get(escaped, escaped)
    else:
        plain = "" if character in ".^${" else character
    if not plain:
        runs.append("")
        return end
    if _OPTIONAL.match(pattern, end):
        runs.append("")
    else:
        runs[-1] += plain
    repeated = _REPEATED.match(pattern, end)
    if repeated:
        runs.append("")
        end = repeated.end()
    return end


def _end_of_class(pattern: str, at: int) -> int:
    at += 1
    if pattern[at : at + 1] == "^":
        at += 1
    if pattern[at : at + 1] == "]":
        at += 1
    while at < len(pattern) and pattern[at] != "]":
        at += 2 if pattern[at] == "\\" else 1
    return at + 1
