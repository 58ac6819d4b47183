"""File patterns as in ripgrep and editors, and the files that match one.

Our own, because ``fnmatch`` and ``glob`` of Python 3.11 know neither ``{a,b}`` nor patterns relative to a folder.

``*`` and ``?`` stay within a name, ``**`` goes through any number of folders, ``[a-z]`` is one of several characters,
``{a,b}`` one of several texts, and a backslash takes the next character as it is. Names that begin with a dot are like
any other.

Patterns come from models and from repositories. They are not translated to regular expressions, which backtrack: a
pattern with 25 stars would keep Python busy forever. A pattern becomes an automaton whose transitions are computed
when they are first needed, so that matching takes time in proportion to the length of the path.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MAGIC = re.compile(r"[*?\[{]")
_MEMBER = r"(?s)(.)-(.)|(.)"
"""A range of characters, or a single one."""
_MAX_DEPTH = 64
"""Folders that ``**`` goes down; each is a level of the Python stack."""
MAX_PATTERN = 4_096
"""Characters of a pattern for files; no path is longer."""
_MAX_STATES = 1_000
"""States that one pattern remembers; beyond, it begins anew. A pattern of n characters may have 2**n."""


class Search:
    """One or several searches for files, bounded altogether: a repository may contain a link to ``/``, or configure a
    pattern for it."""

    def __init__(self) -> None:
        self._entries = 100_000
        self._bytes = 1 << 22
        self.problems: dict[str, str] = {}
        """What was not searched, and why."""

    def find(self, folder: str, pattern: str, *, within: str = "") -> list[str]:
        """Return the files below ``folder`` whose relative path matches ``pattern``, sorted; empty if it does not
        exist.

        Links are followed, each folder once, but not out of the real folder ``within``, if given.
        """
        if len(pattern) > MAX_PATTERN:
            self.problems[f"{pattern[:40]}..."] = f"not searched for: it is longer than {MAX_PATTERN:,} characters"
            return []
        root, rest = split_root(pattern)
        depth = _MAX_DEPTH if "**" in rest else rest.count("/") + 1
        automaton = _compiled(pattern)
        paths = (
            path
            for path in self._files(os.path.join(folder, root), depth, set(), within)
            if automaton.accepts(os.path.relpath(path, folder).replace(os.sep, "/"))
        )
        return sorted(paths)

    def may_read(self, path: str) -> bool:
        """Return whether another file of a project may be read: parsing many of them takes long."""
        with suppress(OSError):
            self._bytes -= os.path.getsize(path)
        if self._bytes < 0:
            self.problems[os.path.dirname(path)] = f"read only in part: {path} and what follows is too much altogether"
        return self._bytes >= 0

    def _files(self, folder: str, depth: int, seen: set[str], within: str) -> Iterator[str]:
        real = os.path.realpath(folder)
        if depth == 0 or real in seen or not self._may_search(folder, real, within):
            return
        seen.add(real)
        try:
            with os.scandir(folder) as entries:
                names = sorted((entry.name, entry.is_symlink()) for entry in islice(entries, self._entries + 1))
        except OSError:
            return
        self._entries -= len(names)
        for name, is_link in names:
            path = os.path.join(folder, name)
            if os.path.isdir(path):
                yield from self._files(path, depth - 1, seen, within)
            elif os.path.isfile(path) and (not is_link or self._may_search(path, os.path.realpath(path), within)):
                yield path

    def _may_search(self, path: str, real: str, within: str) -> bool:
        if within and os.path.exists(real) and os.path.commonpath((real, within)) != within:
            self.problems[path] = f"not searched: it leads to {real}, which is not part of the project"
            return False
        if self._entries < 0:
            self.problems[""] = f"searched only in part: there are too many files below {path}"
            return False
        return True


def matches(pattern: str, path: str) -> bool:
    """Return whether ``path``, relative and with ``/``, matches ``pattern``.

    A pattern without a slash matches a name at any depth; one with a slash matches from the start, as in a
    ``.gitignore``. One that is longer than :data:`MAX_PATTERN` matches nothing.
    """
    if len(pattern) > MAX_PATTERN:
        return False
    pattern = pattern.removeprefix("./").rstrip("/")
    anywhere = "" if "/" in pattern else "**/"
    return _compiled(anywhere + pattern.lstrip("/")).accepts(path)


def split_root(pattern: str) -> tuple[str, str]:
    """Split ``pattern`` into its leading directories without wildcards, and the rest."""
    parts = pattern.split("/")
    fixed = 0
    while fixed < len(parts) - 1 and not _MAGIC.search(parts[fixed]):
        fixed += 1
    root = "/".join(parts[:fixed])
    return (root or "/" if fixed else "", "/".join(parts[fixed:]))


class _State(dict[str, "_State"]):
    """A set of positions in a pattern, and the state that follows each character seen so far."""

    def __init__(self, positions: frozenset[int]) -> None:
        super().__init__()
        self.positions = positions


class _Automaton:
    """A compiled pattern. Each position either consumes a character or only leads to other positions."""

    def __init__(self, pattern: str) -> None:
        self._tests: list[re.Pattern[str] | None] = []
        """What the character at a position must be; ``None`` where none is consumed."""
        self._jumps: list[list[int]] = []
        """Positions that can be reached from each without a character."""
        self._states: dict[frozenset[int], _State] = {}
        groups: list[tuple[int, list[int]]] = []
        """For each open brace: its position, and the last position of each alternative so far."""
        at = 0
        while at < len(pattern):
            char = pattern[at]
            if char == "{":
                groups.append((self._add(jumps=(len(self._tests) + 1,)), []))
                at += 1
            elif groups and char in ",}":
                start, ends = groups[-1]
                ends.append(self._add())
                if char == ",":
                    self._jumps[start].append(len(self._tests))
                else:
                    self._close(groups.pop()[1])
                at += 1
            else:
                at = self._parse_piece(pattern, at)
        while groups:
            groups[-1][1].append(self._add())
            self._close(groups.pop()[1])
        self._end = self._add()
        self._start = self._closure([0])

    def accepts(self, path: str) -> bool:
        """Return whether the whole ``path`` matches."""
        state = self._state(self._start)
        for char in path:
            following = state.get(char)
            if following is None:
                tests = ((position, self._tests[position]) for position in state.positions)
                reached = (position + 1 for position, test in tests if test is not None and test.fullmatch(char))
                following = state[char] = self._state(self._closure(reached))
            state = following
            if not state.positions:
                return False
        return self._end in state.positions

    def _state(self, positions: frozenset[int]) -> _State:
        if len(self._states) >= _MAX_STATES and positions not in self._states:
            for state in list(self._states.values()):
                state.clear()  # states refer to each other; none must keep the others alive
            self._states.clear()
        return self._states.setdefault(positions, _State(positions))

    def _closure(self, positions: Iterable[int]) -> frozenset[int]:
        reached = set(positions)
        pending = list(reached)
        while pending:
            for position in self._jumps[pending.pop()]:
                if position not in reached:
                    reached.add(position)
                    pending.append(position)
        return frozenset(reached)

    def _add(self, test: str | None = None, *, jumps: Iterable[int] = ()) -> int:
        """Add a position and return it. One that consumes a character leads to the next position."""
        self._tests.append(None if test is None else re.compile(test, re.DOTALL))
        self._jumps.append(list(jumps))
        return len(self._tests) - 1

    def _add_repeated(self, test: str) -> None:
        start = len(self._tests)
        self._add(jumps=(start + 1, start + 3))
        self._add(test)
        self._add(jumps=(start,))

    def _close(self, ends: list[int]) -> None:
        after = self._add(jumps=(len(self._tests) + 1,))
        for end in ends:
            self._jumps[end].append(after)

    def _parse_piece(self, pattern: str, at: int) -> int:
        """Add the next piece of the pattern, and return where it ends."""
        match pattern[at]:
            case "*":
                return self._parse_stars(pattern, at)
            case "?":
                self._add("[^/]")
                return at + 1
            case "[":
                length, test = _set(pattern, at)
                self._add(test)
                return at + length
            case "\\" if at + 1 < len(pattern):
                self._add(re.escape(pattern[at + 1]))
                return at + 2
            case char:
                self._add(re.escape(char))
                return at + 1

    def _parse_stars(self, pattern: str, at: int) -> int:
        end = at
        while end < len(pattern) and pattern[end] == "*":
            end += 1
        is_whole_name = (at == 0 or pattern[at - 1] in "/{,") and (end == len(pattern) or pattern[end] in "/},")
        if end - at < 2 or not is_whole_name:
            self._add_repeated("[^/]")
        elif pattern.startswith("/", end):  # any number of folders, or none
            start = self._add()
            self._add_repeated(".")
            slash = self._add("/")
            self._jumps[start] += [start + 1, slash + 1]
            end += 1
        else:
            self._add_repeated(".")
        return end


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> _Automaton:
    return _Automaton(pattern.removeprefix("./"))


def _set(pattern: str, at: int) -> tuple[int, str]:
    """Translate ``[...]``. An unclosed bracket, or one with a reversed range, stands for itself."""
    end = pattern.find("]", at + 2)
    if end < 0:
        return 1, re.escape("[")
    inner = pattern[at + 1 : end]
    negated = inner[:1] in ("!", "^")
    members = [match.groups() for match in re.finditer(_MEMBER, inner[negated:])]
    if not members or any(low and low > high for low, high, _ in members):
        return 1, re.escape("[")
    spelled = "".join(re.escape(one) if one else f"{re.escape(low)}-{re.escape(high)}" for low, high, one in members)
    return end - at + 1, f"[{'^/' if negated else ''}{spelled}]"
