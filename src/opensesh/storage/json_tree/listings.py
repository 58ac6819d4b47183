"""Cached listings of large folders."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_LARGE = 1_000
_MAX_FOLDERS = 8
_SETTLED_NS = 2_000_000_000  # the coarsest clock of a file system that is still in use ticks every two seconds

Mark = tuple[int, int, int]


class Listings:
    """Lists folders. Listing ten thousand messages takes longer than reading fifty of them.

    A folder's times change with every name in it, so equal times mean equal names, except for changes within one tick
    of the file system's clock. Therefore only a folder that has not changed recently is cached.
    """

    def __init__(self, *, clock: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self._known: dict[str, tuple[Mark, list[str]]] = {}

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, in no order. The list is shared and must not be changed."""
        status = os.stat(folder)
        mark = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
        known = self._known.get(folder)
        if known is not None and known[0] == mark:
            return known[1]
        names = os.listdir(folder)
        if len(names) >= _LARGE and self._clock() - max(mark[1:]) > _SETTLED_NS:
            while len(self._known) >= _MAX_FOLDERS:
                self._known.pop(next(iter(self._known)), None)
            self._known[folder] = (mark, names)
        return names
