"""File patterns in a command: where they lead that their text does not show."""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAGIC = re.compile(r"[*?\[]")
_MOST = 500
"""How many directories are looked at for each name on the way."""


class _Way(NamedTuple):
    path: str
    linked: bool
    """Whether a name that fits the pattern is a link on the way, or leads up."""


def through_links(path: str) -> Iterator[str]:
    """The real places to which the pattern ``path``, absolute, leads by way of links, or of ``..``, which some shells
    take ``.*`` for. None for what is no pattern; not all of them where there are very many."""
    parts = path.split(os.sep)
    first = next((at for at, part in enumerate(parts) if _MAGIC.search(part)), None)
    if first is None:
        return
    ways = [_Way(os.sep.join(parts[:first]) or os.sep, linked=False)]
    for at, part in enumerate(parts[first:], first):
        ways = [step for way in ways[:_MOST] for step in _steps(way, part, last=at == len(parts) - 1)]
    yield from dict.fromkeys(os.path.realpath(way.path) for way in ways if way.linked)


def _steps(way: _Way, part: str, *, last: bool) -> Iterator[_Way]:
    if not _MAGIC.search(part):
        path = os.path.join(way.path, part)
        yield _Way(path, way.linked or os.path.islink(path))
        return
    if _fits("..", part):
        yield _Way(os.path.join(way.path, ".."), linked=True)
    try:
        with os.scandir(way.path) as entries:
            fitting = [entry for entry in entries if _fits(entry.name, part)]
    except OSError:
        return
    for entry in fitting:
        linked = way.linked or entry.is_symlink()
        if linked or not last:
            yield _Way(entry.path, linked)


def _fits(name: str, pattern: str) -> bool:
    """A dot at the beginning is fitted by a dot alone."""
    return fnmatchcase(name, pattern) and (pattern[0] == "." or name[0] != ".")
