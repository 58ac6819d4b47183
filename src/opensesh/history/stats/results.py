"""Sums as they are told: rows, their total, and what was left out. Plain, so that they can be kept and read back."""

from __future__ import annotations

import time

from .figures import QUARTER, UsageTotals
from .repricing import Prices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...records import Document
    from .accounts import UsageBucket
    from .ledger import SessionInfo


UNKNOWN = "(unknown)"
"""The key of what cannot be told: the project of a session whose record is gone, the agent of an old message, the day
of a moment that is none."""


class StatsRow:
    """One group and its sums."""

    __slots__ = ("_newest", "first", "inclusive", "key", "last", "parent", "project", "sessions", "title", "totals")

    def __init__(self, key: str) -> None:
        self.key = key
        self.totals = UsageTotals()
        self.sessions = 0
        """How many had a part in it."""
        self.first: int | None = None
        """The earliest quarter of an hour in it, counted from 1970."""
        self.last: int | None = None
        self.inclusive: UsageTotals | None = None
        """For a session: its own and those of all below it."""
        self.title: str | None = None
        """For a session: what its record says, as the next two; ``None`` if it has none."""
        self.project = ""
        self.parent = ""
        self._newest = ""

    def add(self, session: str, cell: UsageBucket) -> None:
        """Count a cell of a session; all cells of a session in a row."""
        self.totals.add(cell.sums)
        slot = cell.slot
        if self.first is None or slot < self.first:
            self.first = slot
        if self.last is None or slot > self.last:
            self.last = slot
        if session != self._newest:
            self._newest = session
            self.sessions += 1

    def describe(self, facts: SessionInfo | None) -> None:
        """Say what a session's record says."""
        if facts is not None:
            self.title, self.project, self.parent = facts.title, facts.project, facts.parent

    def document(self) -> Document:
        """For machines."""
        row: Document = {"key": self.key, **self.totals.document(), "sessions": self.sessions}
        if self.title is not None:
            row |= {"title": self.title, "projectID": self.project, "parentID": self.parent or None}
        if self.inclusive is not None:
            row["inclusive"] = self.inclusive.document()
        return row

    @property
    def plain(self) -> tuple[Any, ...]:
        """All of it, for :func:`restored_row`."""
        inclusive = None if self.inclusive is None else self.inclusive.sums
        about = (self.title, self.project, self.parent)
        return self.key, self.totals.sums, self.sessions, self.first, self.last, inclusive, about


class CopiedUsage:
    """What forks hold of other sessions, which is not counted."""

    __slots__ = ("sessions", "totals")

    def __init__(self, sessions: int = 0) -> None:
        self.sessions = sessions
        """How many forks hold it."""
        self.totals = UsageTotals()


class Statistics:
    """The answer."""

    __slots__ = ("by", "copied", "prices", "rows", "total")

    def __init__(self, by: str, rows: list[StatsRow], total: StatsRow, prices: Prices, copied: CopiedUsage) -> None:
        self.by = by
        self.rows = rows
        self.total = total
        self.prices = prices
        self.copied = copied

    def document(self) -> Document:
        """For machines."""
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
        """All of it, for :func:`restored`."""
        copied = (self.copied.sessions, self.copied.totals.sums)
        return self.by, [row.plain for row in self.rows], self.total.plain, self.prices.plain, copied


def restored(plain: tuple[Any, ...]) -> Statistics:
    """What :attr:`Statistics.plain` was made of."""
    by, rows, total, prices, (sessions, sums) = plain
    copied = CopiedUsage(sessions)
    copied.totals.add(sums)
    return Statistics(by, [restored_row(row) for row in rows], restored_row(total), Prices(*prices), copied)


def restored_row(plain: tuple[Any, ...]) -> StatsRow:
    """What :attr:`Row.plain` was made of."""
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
    """The day that a quarter of an hour is on; unknown for one that no calendar has."""
    moment = slot * QUARTER // 1000
    try:
        day = time.gmtime(moment) if utc else time.localtime(moment)
    except (OverflowError, ValueError, OSError):
        return UNKNOWN
    return f"{day.tm_year:04}-{day.tm_mon:02}-{day.tm_mday:02}" if 0 < day.tm_year < 10_000 else UNKNOWN


def month_of(day: str) -> str:
    """The month that a day is in, as :func:`day_of` tells it."""
    return day if day == UNKNOWN else day[:7]
