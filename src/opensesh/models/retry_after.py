"""How long a server asks to wait before the next try, from the headers of its response.

Apart from :mod:`opensesh.models.failures`, whose patterns and URL parsing take longer to load than a run without errors
should pay for.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING

from ..ids import now_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

_RESET_HEADERS = (
    "anthropic-ratelimit-unified-reset",
    "x-ratelimit-reset-requests",
    "x-ratelimit-reset-tokens",
    "x-ratelimit-reset",
)


def retry_after_ms(headers: Mapping[str, str], now: int | None = None, *, limited: bool = True) -> int | None:
    """Return how many milliseconds the server asks to wait before the next try, or ``None``.

    Rate limit reset headers come with every response of some providers, so they count only when ``limited``: the
    response was about that limit. Times are compared with the server's own ``date`` header where there is one, since
    the local clock may be wrong by days.
    """
    server_now = _http_date(headers.get("date") or "")
    now = server_now if server_now is not None else now_ms() if now is None else now
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return int(milliseconds)
    text = headers.get("retry-after")
    seconds = _number(text)
    if seconds is not None:
        return int(-(-seconds * 1000 // 1))
    times = [_http_date(text)] if text else [_reset_time(headers.get(name), now) for name in _RESET_HEADERS if limited]
    return next((moment - now for moment in times if moment is not None and moment > now), None)


def _number(text: str | None, limit: float = 1e9) -> float | None:
    try:
        number = float(text) if text else None
    except ValueError:
        return None
    return number if number is not None and 0 <= number < limit else None


def _http_date(text: str) -> int | None:
    from email.utils import parsedate_to_datetime  # loads the email package, needed only after an error

    try:
        return int(parsedate_to_datetime(text).timestamp() * 1000)
    except (ValueError, TypeError, OverflowError):
        return None


def _reset_time(text: str | None, now: int) -> int | None:
    """Parse a reset time: seconds or milliseconds since 1970, seconds from now, ``1m30s``, or an ISO date."""
    if not text:
        return None
    number = _number(text, limit=1e15)
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
