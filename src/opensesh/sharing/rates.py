"""How often one address may ask: enough for anybody at work, too little to wear a server out."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_ADDRESSES = 10_000


class RateLimit(NamedTuple):
    """So many at once, and so many a second from then on."""

    burst: float
    each_second: float


RATE_LIMITS = {"create": RateLimit(30, 0.5), "sync": RateLimit(200, 20), "read": RateLimit(200, 20)}


class RateLimits:
    """Counts requests by kind and address."""

    def __init__(
        self, rates: dict[str, RateLimit] | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rates = rates or RATE_LIMITS
        self._clock = clock
        self._left: dict[tuple[str, str], tuple[float, float]] = {}

    def wait(self, kind: str, address: str) -> int:
        """How many seconds this one has to wait; 0 if it may go on."""
        rate, now, key = self._rates[kind], self._clock(), (kind, address)
        left, since = self._left.pop(key, (rate.burst, now))
        left = min(rate.burst, left + (now - since) * rate.each_second)
        self._left[key] = (left - 1 if left >= 1 else left, now)
        if len(self._left) > _MOST_ADDRESSES:
            del self._left[next(iter(self._left))]  # who has not asked for the longest time
        return 0 if left >= 1 else math.ceil((1 - left) / rate.each_second)
