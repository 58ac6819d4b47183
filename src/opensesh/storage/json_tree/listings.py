"""What large folders hold, listed once for as long as nothing changes there."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_LARGE = 1_000
_KEPT = 8
_SETTLED_NS = 2_000_000_000  # the coarsest clock of a file system that is still in use ticks every two seconds

Mark = tuple[int, int, int]


class Listings:
    """Lists folders. The kernel takes longer to list ten thousand messages than fifty of them take to be read.

    A folder's own times change with every name in it, so the same times mean the same names: unless it changed within
    one tick of the file system's clock, which is why only a folder at rest is remembered.
    """

    def __init__(self, *, clock: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self._known: dict[str, tuple[Mark, list[str]]] = {}

    def names(self, folder: str) -> list[str]:
        """The names in a folder, in no order. The list is shared: it must not be changed."""
        status = os.stat(folder)
        mark = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
        known = self._known.get(folder)
        if known is not None and known[0] == mark:
            return known[1]
        names = os.listdir(folder)
        if len(names) >= _LARGE and self._clock() - max(mark[1:]) > _SETTLED_NS:
            self._remember(folder, mark, names)
        return names

    def _remember(self, folder: str, mark: Mark, names: list[str]) -> None:
        while len(self._known) >= _KEPT:
            self._known.pop(next(iter(self._known)), None)
        self._known[folder] = (mark, names)
