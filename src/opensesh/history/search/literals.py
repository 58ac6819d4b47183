"""Terms that a text must contain for a pattern to match, so that few texts have to be read."""

from __future__ import annotations

import re
from typing import NamedTuple

from .tokenizer import MAX_WORD_LENGTH

_TOKEN = re.compile("[A-Za-z0-9]+")
_OPTIONAL = re.compile(r"[?*]|\{0?,|\{0\}")
_REPEATED = re.compile(r"[+*?]|\{\d*,?\d*\}")
_ESCAPED_CLASS = re.compile(r"\\[AbBdDsSwWZz]")
_OBSCURE = re.compile(r"\(\?[a-zA-Z]*x|\\[xuUN0-9]")
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_SHORTEST = 2


class RequiredTerms(NamedTuple):
    """Words that every match contains. One of the two may be empty; both, if nothing is known."""

    words: tuple[tuple[str, bool], ...]
    """Whole words; with ``True``, prefixes of words."""
    inside: str
    """Letters and digits inside some word."""


def required_terms(literal: str) -> RequiredTerms:
    """Return the terms that a text with ``literal`` contains."""
    words: list[tuple[str, bool]] = []
    inside = ""
    for token in _TOKEN.finditer(literal):
        begins = _is_edge(literal, token.start() - 1)
        ends = _is_edge(literal, token.end())
        text = token[0].lower()
        if len(text) > MAX_WORD_LENGTH:
            continue
        if begins and (ends or len(text) >= _SHORTEST):
            words.append((text, not ends))
        elif len(text) > len(inside):
            inside = text
    return RequiredTerms(tuple(dict.fromkeys(words)), "" if words else inside)


def terms_of_regex(pattern: str) -> list[RequiredTerms] | None:
    """Return terms of which a text that a regular expression matches contains at least one; ``None`` if unknown.

    Groups and optional elements are ignored: they do not have to match.
    """
    if _OBSCURE.search(pattern):  # verbose mode, characters given by number
        return None
    branches = _branches(pattern)
    terms = [
        max((required_terms(run) for run in branch), key=_strength, default=RequiredTerms((), ""))
        for branch in branches
    ]
    return terms if all(term.words or len(term.inside) >= _SHORTEST for term in terms) else None


def _strength(term: RequiredTerms) -> int:
    return 1_000 * len(term.words) + sum(len(word) for word, _ in term.words) + len(term.inside)


def _is_edge(text: str, at: int) -> bool:
    """Whether a word certainly ends here. At the ends of the text and beside other scripts it may go on."""
    return 0 <= at < len(text) and text[at].isascii() and not text[at].isalnum()


def _branches(pattern: str) -> list[list[str]]:
    """Return the runs of plain characters in each alternative of a regular expression, outside of groups."""
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
    """Add one top-level element to the last of ``runs``, and return where the next one begins."""
    if behind := _REPEATED.match(pattern, at):  # repetition of a class, a group or any character
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
