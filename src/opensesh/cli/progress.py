"""How far a command is, for work over a second, if somebody sees it."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

_MOMENT = 1.0
"""Seconds of work that nobody needs to hear of."""
_PAUSE = 0.2


class Progress:
    """A line on standard error, called with the counts that ``words`` speak of. Leaving it takes the line back."""

    def __init__(self, words: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._words = words
        self._clock = clock
        self._next = clock() + _MOMENT
        self._length = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        if self._length:
            print(f"\r{' ' * self._length}\r", end="", file=sys.stderr, flush=True)

    def __call__(self, *counts: int) -> None:
        """So far is it."""
        now = self._clock()
        if now >= self._next and sys.stderr.isatty():
            self._next = now + _PAUSE
            line = self._words.format(*counts).ljust(self._length)
            self._length = len(line)
            print(f"\r{line}", end="", file=sys.stderr, flush=True)
