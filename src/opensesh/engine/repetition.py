"""Notices a model that runs in circles: the same call again and again, two calls in turns, the same error over and
over.

It never stops anything by itself. What it notices is put before the user as the permission ``doom_loop``, which rules
can answer too.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..records import dumps_compact

if TYPE_CHECKING:
    from collections.abc import Mapping


class LoopLimits(Struct, frozen=True, kw_only=True):
    """How often is too often."""

    same: int = 3
    """Identical calls in a row."""
    pairs: int = 3
    """Rounds of two alternating calls."""
    errors: int = 3
    """Identical errors of one tool in a row."""


class LoopDetector:
    """The calls of one turn, across its steps."""

    def __init__(self, limits: LoopLimits | None = None) -> None:
        self.limits = limits or LoopLimits()
        longest = max(self.limits.same, 2 * self.limits.pairs)
        self._calls: deque[tuple[str, bytes]] = deque(maxlen=longest)
        self._errors: dict[str, list[str]] = {}

    def call(self, tool: str, given: Mapping[str, Any]) -> str | None:
        """Note a call that is about to run; words for the user if it looks like a circle."""
        self._calls.append((tool, dumps_compact(dict(given))))
        calls, limits = list(self._calls), self.limits
        if len(calls) >= limits.same and len(set(calls[-limits.same :])) == 1:
            return f"the same call of {tool} {limits.same} times in a row"
        rounds = calls[-2 * limits.pairs :]
        alternating = len(rounds) == 2 * limits.pairs and len(set(rounds)) == 2
        if alternating and len(set(rounds[::2])) == len(set(rounds[1::2])) == 1:
            return f"{rounds[-2][0]} and {tool} in turns, {limits.pairs} times over"
        if len(self._errors.get(tool, ())) >= self.limits.errors:
            return f"{tool} failed {self.limits.errors} times with the same error"
        return None

    def outcome(self, tool: str, error: str | None) -> None:
        """Note how a call ended."""
        errors = self._errors.setdefault(tool, [])
        if error is None or (errors and errors[-1] != error):
            errors.clear()
        if error is not None:
            errors.append(error)

    def allowed(self) -> None:
        """The user wants it to go on: start counting anew."""
        self._calls.clear()
        self._errors.clear()
