"""When to try again, as data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from ..errors import ModelError, RateLimitedError
from ..models.failures import retry_after_ms

if TYPE_CHECKING:
    from collections.abc import Callable


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """How patient the engine is with a provider. Times are in milliseconds."""

    attempts: int = 5
    """How often a call is tried again before its error stands."""
    initial: int = 2_000
    factor: float = 2.0
    longest: int = 30_000
    """The longest wait that is a guess."""
    patience: int = 86_400_000
    """The longest wait that a provider may ask for; who wants to be left alone for weeks is not asked again."""
    jitter: float = 0.25
    """How much of a guessed wait is left to chance, so that a crowd does not come back as one."""

    def reason(self, error: BaseException, attempt: int) -> str | None:
        """Why to try again, in words for a person; ``None`` if there is no point, or no patience left.

        ``attempt`` counts the tries so far: 1 after the first one failed.
        """
        if not isinstance(error, ModelError) or not error.retryable or attempt > self.attempts:
            return None
        return error.message if (_asked(error) or 0) <= self.patience else None

    def delay(self, error: BaseException, attempt: int, chance: Callable[[], float] | None = None) -> int:
        """How long to wait before the next try: what the provider asked for, or longer each time."""
        from random import random

        asked = _asked(error)
        if asked is not None:
            return asked
        guess = min(self.initial * self.factor ** (attempt - 1), self.longest)
        return int(guess * (1 - self.jitter * (chance or random)()))


def _asked(error: BaseException) -> int | None:
    headers = error.headers if isinstance(error, ModelError) else {}
    return retry_after_ms(headers, limited=isinstance(error, RateLimitedError))
