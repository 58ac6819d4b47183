"""When to try again, as data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from .. import ids
from ..errors import ModelError, RateLimited

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_RESETS = (
    "anthropic-ratelimit-unified-reset",
    "x-ratelimit-reset-requests",
    "x-ratelimit-reset-tokens",
    "x-ratelimit-reset",
)


class Policy(Struct, frozen=True, kw_only=True):
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
    return asked_for(headers, limited=isinstance(error, RateLimited))


def asked_for(headers: Mapping[str, str], now: int | None = None, *, limited: bool = True) -> int | None:
    """How many milliseconds the provider wants to be left alone, in any of the ways they say it.

    Some tell with every answer when a limit is next lifted; that counts only if it is the limit that was met.
    """
    now = ids.now_ms() if now is None else now
    exact = _number(headers.get("retry-after-ms"))
    if exact is not None:
        return int(exact)
    text = headers.get("retry-after")
    seconds = _number(text)
    if seconds is not None:
        return int(-(-seconds * 1000 // 1))
    if text or not limited:
        return _until(_date(text or ""), now)
    return next((wait for name in _RESETS if (wait := _until(_moment(headers.get(name), now), now))), None)


def _until(moment: int | None, now: int) -> int | None:
    return moment - now if moment is not None and moment > now else None


def _number(text: str | None, most: float = 1e9) -> float | None:
    try:
        number = float(text) if text else None
    except ValueError:
        return None
    return number if number is not None and 0 <= number < most else None


def _date(text: str) -> int | None:
    from email.utils import parsedate_to_datetime

    try:
        return int(parsedate_to_datetime(text).timestamp() * 1000)
    except (ValueError, TypeError):
        return None


def _moment(text: str | None, now: int) -> int | None:
    """A reset time: seconds or milliseconds since 1970, seconds from now, ``1m30s``, or an ISO date."""
    import re
    from datetime import datetime

    if not text:
        return None
    number = _number(text, most=1e15)
    if number is not None:
        since_1970 = number if number > 1e11 else number * 1000
        return int(since_1970) if number > 1e8 else now + int(number * 1000)
    spans = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?", text)
    if spans and any(spans.groups()):
        hours, minutes, seconds = (float(span or 0) for span in spans.groups())
        return now + int((hours * 3600 + minutes * 60 + seconds) * 1000)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return None
