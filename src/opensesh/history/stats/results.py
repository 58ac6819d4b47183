"""The results of statistics: rows, their total, and what forks copied. They can be stored as JSON and read back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from .repricing import PriceTable
from .session_usage import QUARTER_MS, UsageTotals

if TYPE_CHECKING:
    from ...records import Document
    from .session_info import SessionInfo
    from .session_usage import UsageBucket


UNKNOWN = "(unknown)"
"""The key of an unknown group: the project of a session without a record, the agent of an old message, the day of an
invalid time."""


class StatsRow:
    """One group and its totals."""

    __slots__ = ("_newest", "first", "inclusive", "key", "last", "parent", "project", "sessions", "title", "totals")

    def __init__(self, key: str) -> None:
        self.key = key
        self.totals = UsageTotals()
        self.sessions = 0
        """How many sessions contribute."""
        self.first: int | None = None
        """The first quarter of an hour in it, counted from 1970."""
        self.last: int | None = None
        self.inclusive: UsageTotals | None = None
        """For a session: its totals and those of all its subagents."""
        self.title: str | None = None
        """For a session: its title, and below its project and parent; ``None`` if it has no record."""
        self.project = ""
        self.parent = ""
        self._newest = ""

    def add(self, session: str, bucket: UsageBucket) -> None:
        """Add a bucket of a session. All buckets of a session are added one after the other."""
        self.totals.add(bucket.sums)
        slot = bucket.slot
        if self.first is None or slot < self.first:
            self.first = slot
        if self.last is None or slot > self.last:
            self.last = slot
        if session != self._newest:
            self._newest = session
            self.sessions += 1

    def describe(self, info: SessionInfo | None) -> None:
        """Add the title, project and parent of a session."""
        if info is not None:
            self.title, self.project, self.parent = info.title, info.project, info.parent

    def document(self) -> Document:
        """Return JSON data."""
        row: Document = {"key": self.key, **self.totals.document(), "sessions": self.sessions}
        if self.title is not None:
            row |= {"title": self.title, "projectID": self.project, "parentID": self.parent or None}
        if self.inclusive is not None:
            row["inclusive"] = self.inclusive.document()
        return row

    @property
    def plain(self) -> tuple[Any, ...]:
        """All values, for :func:`restored_row`."""
        inclusive = None if self.inclusive is None else self.inclusive.sums
        about = (self.title, self.project, self.parent)
        return self.key, self.totals.sums, self.sessions, self.first, self.last, inclusive, about


class CopiedUsage:
    """What forks copied from other sessions, which is not counted."""

    __slots__ = ("sessions", "totals")

    def __init__(self, sessions: int = 0) -> None:
        self.sessions = sessions
        """How many forks have copies."""
        self.totals = UsageTotals()


class Statistics:
    """The result."""

    __slots__ = ("by", "copied", "prices", "rows", "total")

    def __init__(self, by: str, rows: list[StatsRow], total: StatsRow, prices: PriceTable, copied: CopiedUsage) -> None:
        self.by = by
        self.rows = rows
        self.total = total
        self.prices = prices
        self.copied = copied

    def document(self) -> Document:
        """Return JSON data."""
        copied = self.copied.totals.document() | {"sessions": self.copied.sessions}
        return {
            "by": self.by,
            "prices": {"table": self.prices.label, "date": self.prices.date},
            "rows": [row.document() for row in self.rows],
            "total": self.total.document(),
            "copied": copied,
        }

    @property
    def plain(self) -> tuple[Any, ...]:
        """All values, for :func:`restored`."""
        copied = (self.copied.sessions, self.copied.totals.sums)
        return self.by, [row.plain for row in self.rows], self.total.plain, self.prices.plain, copied


def restored(plain: tuple[Any, ...]) -> Statistics:
    """Restore what :attr:`Statistics.plain` returned."""
    by, rows, total, prices, (sessions, sums) = plain
    copied = CopiedUsage(sessions)
    copied.totals.add(sums)
    return Statistics(by, [restored_row(row) for row in rows], restored_row(total), PriceTable(*prices), copied)


def restored_row(plain: tuple[Any, ...]) -> StatsRow:
    """Restore what :attr:`StatsRow.plain` returned."""
    key, sums, sessions, first, last, inclusive, (title, project, parent) = plain
    row = StatsRow(key)
    row.totals.add(sums)
    row.sessions, row.first, row.last = sessions, first, last
    row.title, row.project, row.parent = title, project, parent
    if inclusive is not None:
        row.inclusive = UsageTotals()
        row.inclusive.add(inclusive)
    return row


def day_of(slot: int, *, utc: bool) -> str:
    """Return the day of a quarter of an hour; unknown if it is out of range."""
    moment = slot * QUARTER_MS // 1000
    try:
        day = time.gmtime(moment) if utc else time.localtime(moment)
    except (OverflowError, ValueError, OSError):
        return UNKNOWN
    return f"{day.tm_year:04}-{day.tm_mon:02}-{day.tm_mday:02}" if 0 < day.tm_year < 10_000 else UNKNOWN


def month_of(day: str) -> str:
    """Return the month of a day that :func:`day_of` returned."""
    return day if day == UNKNOWN else day[:7]
