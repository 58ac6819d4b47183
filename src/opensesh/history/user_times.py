"""Times as users write them."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta

from ..errors import UsageError

TIMES = "2026-08-01, 2026-08, 2026-08-01T12:00, today, yesterday, 90m, 12h, 3d, 2w"
_UNIT_SECONDS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def parse_time(text: str | None, *, utc: bool = False) -> int:
    """Return the milliseconds since 1970 of a time as :data:`TIMES` shows it; 0 for ``None``.

    Times without a zone are local, or UTC if ``utc``. A month or a day stands for its beginning.
    """
    if text is None:
        return 0
    if text[:-1].isdecimal() and text[-1:] in _UNIT_SECONDS:
        return int((time.time() - int(text[:-1]) * _UNIT_SECONDS[text[-1]]) * 1000)
    zone = UTC if utc else None
    days_ago = {"today": 0, "yesterday": 1}.get(text)
    try:
        date = text if days_ago is None else str((datetime.now(zone) - timedelta(days=days_ago)).date())
        moment = datetime.fromisoformat(f"{date}-01" if re.fullmatch(r"\d{4}-\d\d", date) else date)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise UsageError(f"{text!r} is not a time; write one like these: {TIMES}") from None
