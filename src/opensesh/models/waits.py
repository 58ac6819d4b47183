"""How long a server wants to be left alone, in any of the ways servers say it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import ids

if TYPE_CHECKING:
    from collections.abc import Mapping

_RESETS = (
    "anthropic-ratelimit-unified-reset",
    "x-ratelimit-reset-requests",
    "x-ratelimit-reset-tokens",
    "x-ratelimit-reset",
)


def asked_for(headers: Mapping[str, str], now: int | None = None, *, limited: bool = True) -> int | None:
    """How many milliseconds to wait, by the headers of an answer.

    Some tell with every answer when a limit is next lifted; that counts only if it is the limit that was met. A moment
    is one of the server's own clock, if the answer has its date: the clock here may be wrong by days.
    """
    there = _date(headers.get("date") or "")
    now = there if there is not None else ids.now_ms() if now is None else now
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
    except (ValueError, TypeError, OverflowError):
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
