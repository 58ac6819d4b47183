"""Ranking of paths for the completion of OpenCode 1.18's terminal client, which forgives two wrong letters.

A path's score is that of the best alignment of the query with it: letters that match add to it, letters that are left
out in between subtract from it. The figures were measured on OpenCode 1.18.33.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection

MAX_WRONG_LETTERS = 2
_MATCH = 12
_AT_BEGINNING = 12
_AFTER_DELIMITER = 4
_SAME_CASE = 4
"""Added only for queries with an upper-case letter, as is :data:`_FIRST_CAPITAL`."""
_FIRST_CAPITAL = 8
_REPLACED = 6
_GAP = 5
_LONGER_GAP = 1
_DELIMITERS = frozenset("/._- ,:")


class _End(NamedTuple):
    """The best alignment that ends with a certain letter of the query at a certain position of the path."""

    score: int
    wrong: int
    """How many letters of the query are not matched so far."""
    position: int


def rank_paths(query: str, names: list[str], changed: Collection[str]) -> list[str]:
    """Return the files and their folders, which end in ``/``, that match a query, best first; all for one letter.

    ``changed`` are files that differ from the last commit, which are preferred. A query that ends in ``/`` finds
    folders only.
    """
    folders = {name[: at + 1] for name in names for at, letter in enumerate(name) if letter == "/"} | {"/"}
    candidates = [] if query.endswith("/") else [(name, False) for name in names]
    candidates += [(folder, True) for folder in folders]
    terms = query.split()
    ranked: list[tuple[int, int, bool, bool, str]] = []
    for path, is_folder in candidates:
        score = 0
        if len(query) > 1:
            scores = [_score(term, path) for term in terms]
            if path == "/" or not all(scores):
                continue
            score = sum(scores)
        if path in changed:
            score += score * 15 // 100
        ranked.append((-score, len(path), is_folder, path not in changed, path))
    return [path for *_, path in sorted(ranked, key=lambda entry: (entry[-1] != "/", entry))]


def _score(query: str, path: str) -> int:
    """Return the score of a path: 0 if more letters of the query are wrong than may be."""
    missing = max(len(query) - len(path), len(set(query.lower()) - set(path.lower())))
    if missing > MAX_WRONG_LETTERS:
        return 0
    best = _alignment(query, path)
    is_in_name = best.position > path.rstrip("/").rfind("/")
    return best.score + best.score // 6 if is_in_name else best.score


def _alignment(query: str, path: str) -> _End:
    """Return the best alignment; its score is 0 if more letters are wrong than may be."""
    lower, letters = path.lower(), query.lower()
    is_exact = query != letters
    best = _End(0, 0, 0)
    ends: list[list[_End]] = []
    for index, letter in enumerate(letters):
        row: list[_End] = []
        position = lower.find(letter)
        while position >= 0:
            before = path[position - 1] if position else ""
            value = _MATCH + (_AFTER_DELIMITER if before in _DELIMITERS else 0 if position else _AT_BEGINNING)
            if is_exact:
                value += _SAME_CASE if path[position] == query[index] else 0
                value += _FIRST_CAPITAL if path[position].isupper() and before.islower() else 0
            row.append(_extended(ends, index, position, value))
            position = lower.find(letter, position + 1)
        ends.append(row)
        left = len(letters) - index - 1
        for end in row if left <= MAX_WRONG_LETTERS else ():
            score, wrong = end.score - _gap(left), end.wrong + left
            if wrong <= MAX_WRONG_LETTERS and (score, -wrong) > (best.score, -best.wrong):
                best = _End(score, wrong, end.position)
    return best


def _extended(ends: list[list[_End]], index: int, position: int, value: int) -> _End:
    """Return the best alignment that ends with letter ``index`` at ``position``, where it adds ``value``."""
    best = _End(value, index, position)
    for skipped, row in enumerate(reversed(ends[-1 - MAX_WRONG_LETTERS :])):
        for end in row:
            between = position - end.position - 1
            if between < 0:
                break
            replaced = min(skipped, between)
            cost = min(
                _gap(skipped) + _gap(between),
                replaced * _REPLACED + _gap(skipped - replaced) + _gap(between - replaced),
            )
            candidate = _End(end.score + value - cost, end.wrong + skipped, position)
            if (candidate.score, -candidate.wrong) > (best.score, -best.wrong):
                best = candidate
    return best


def _gap(letters: int) -> int:
    return _GAP + _LONGER_GAP * (letters - 1) if letters else 0
