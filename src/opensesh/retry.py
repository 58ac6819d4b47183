"""Retry policy: how often to try again, and how long to wait before each attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """Exponential backoff with jitter.

    Whether an error is worth a retry is for the caller to decide; the policy only knows counts and times.
    """

    max_retries: int = 5
    """How often a call is repeated before its error is final."""
    initial_delay_ms: int = 2_000
    factor: float = 2.0
    max_delay_ms: int = 30_000
    """Upper bound of a delay that the policy chooses."""
    max_requested_delay_ms: int = 86_400_000
    """The longest delay that a server may request (``Retry-After``); a longer one ends the retries."""
    jitter: float = 0.25
    """Fraction of a chosen delay that is random, so that many clients do not come back at the same moment."""

    def allows(self, attempt: int, requested_ms: int | None = None) -> bool:
        """Return whether to try again after ``attempt`` failed attempts."""
        return attempt <= self.max_retries and (requested_ms or 0) <= self.max_requested_delay_ms

    def delay_ms(self, attempt: int, requested_ms: int | None = None, chance: Callable[[], float] | None = None) -> int:
        """Return how long to wait after ``attempt`` failed attempts: as requested, or longer each time.

        ``chance`` returns a number from 0 to 1 and defaults to :func:`random.random`.
        """
        if requested_ms is not None:
            return requested_ms
        from random import random  # loads hashlib; only a retry needs it

        # The exponent is bounded because a float to a large power overflows.
        chosen = min(self.initial_delay_ms * self.factor ** min(attempt - 1, 64), self.max_delay_ms)
        return int(chosen * (1 - self.jitter * (chance or random)()))
