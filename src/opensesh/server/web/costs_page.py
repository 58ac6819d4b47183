"""The costs page: by day, month, model, project, agent, session and tool, as stored or by today's prices."""

from __future__ import annotations

import os
from collections import Counter
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import urlencode

from msgspec import Struct

from ...history.discovery import project_title
from ...history.stats.money import dollars
from ...history.stats.session_usage import UsageTotals
from ...history.stats.tool_stats import by_tool
from ...history.stats.usage_layer import UsageTable
from ...history.stats.usage_stats import (
    UNKNOWN,
    UsageFilter,
    add_up,
    add_up_over_time,
    of_project,
    without_included,
)
from ...history.user_times import parse_time
from ..operations import Call, Routes
from ..routes.statistics_routes import csv_response, csv_table
from . import charts, display
from .pages import render

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...history.library import Library
    from ...history.stats.usage_stats import StatsRow

pages = Routes()
Group = Literal["day", "month", "project", "model", "agent", "session", "tool"]
_MAX_DAYS = 92
"""More days than these are drawn as months."""
_MAX_SERIES = 7
_SERIES = ("model", "project", "agent")
_ROWS = 12
_RANGES = {"": "all time", "7d": "7 days", "30d": "30 days", "90d": "90 days", "365d": "a year"}


class CostsQuery(Struct, frozen=True):
    """Filters and grouping of the costs."""

    since: str = ""
    until: str = ""
    project: str = ""
    by: Literal["model", "project", "agent"] = "model"
    """What the bars are made of."""
    basis: Literal["stored", "repriced"] = "stored"


class TableQuery(CostsQuery, frozen=True):
    """One of the tables of costs."""

    of: Group = "day"


class Figure(NamedTuple):
    """A sum under a heading."""

    name: str
    totals: UsageTotals


class CostRow(NamedTuple):
    """One row of a table."""

    name: str
    address: str
    totals: UsageTotals
    own: UsageTotals | None
    """The totals without subagents, where they differ."""
    sessions: int
    share: float
    """The share of the largest row, for the bar."""


@pages.get("/ui/costs", "ui.costs", response=None)
async def costs_page(call: Call, query: CostsQuery) -> object:
    """Show what sessions cost."""
    values = await call.state.read_history(lambda library: CostTable(library, query).values())
    return render(call, "costs.html", query=query, ranges=_RANGES, **values)


@pages.get("/ui/costs/table.csv", "ui.costs.table", response=None)
async def costs_table(call: Call, query: TableQuery) -> object:
    """Download one of the tables."""

    def read(library: Library) -> str:
        report = CostTable(library, query)
        return csv_table(report.usage, query.of, report.filter)

    return csv_response(await call.state.read_history(read), f"costs-by-{query.of}.csv")


class CostTable:
    """The figures, tables and charts for one query."""

    def __init__(self, library: Library, query: CostsQuery) -> None:
        self.query = query
        self.usage = UsageTable(library.cache)
        self.filter = UsageFilter(
            parse_time(query.since) if query.since else None,
            parse_time(query.until) if query.until else None,
            of_project(library.resolve_project(query.project)) if query.project else None,
        )
        self.titles = {project.id: project_title(project) for project in library.projects}

    def values(self) -> dict[str, Any]:
        """Return what the template shows; without model calls, only an empty ``total``."""
        every_day = add_up(self.usage, "day", self.filter._replace(since=None, until=None))
        by_month = add_up(self.usage, "month", self.filter)
        if not by_month.rows:
            return {"total": None}
        chart, period = self.chart()
        query = {name: getattr(self.query, name) for name in CostsQuery.__struct_fields__}
        amounts = {row.key: self.value(row.totals) for row in every_day.rows if row.key != UNKNOWN}
        sessions = without_included(add_up(self.usage, "session", self.filter).rows)
        return {
            "total": by_month.total.totals,
            "sessions": by_month.total.sessions,
            "prices": by_month.prices,
            "copied": by_month.copied,
            "figures": _figures(every_day.rows),
            "chart": chart,
            "period": period,
            "calendar": charts.calendar(amounts, display.amount, lambda day: self.address("day", day)),
            "tables": {
                "month": self.table("month", by_month.rows[::-1]),
                **{by: self.table(by, add_up(self.usage, by, self.filter).rows) for by in _SERIES},
                "session": self.table("session", sessions),
            },
            "tools": [row.document() for row in by_tool(self.usage, self.filter)],
            "value": self.value,
            "projects": sorted({*self.titles.values()}, key=str.casefold),
            "parameters": urlencode({name: text for name, text in query.items() if text}),
            "shown": _ROWS,
        }

    def value(self, totals: UsageTotals) -> float:
        """Return the cost by the chosen prices."""
        return dollars(totals.repriced if self.query.basis == "repriced" else totals.cost)

    def name(self, by: str, key: str) -> str:
        """Return the name of a group to show."""
        return (self.titles.get(key) or os.path.basename(key) or key) if by == "project" else key

    def address(self, by: str, key: str) -> str:
        """Return the address of the sessions behind a figure."""
        chosen = {"project": self.query.project, "since": self.query.since, "until": self.query.until}
        if by == "session":
            return display.session_address(key)
        if by in ("day", "month") and key != UNKNOWN:
            begin = date.fromisoformat(f"{key}-01" if by == "month" else key)
            end = (begin + timedelta(days=31)).replace(day=1) if by == "month" else begin + timedelta(days=1)
            chosen |= {"since": begin.isoformat(), "until": end.isoformat()}
        elif key != UNKNOWN:
            chosen[by] = key
        return f"/ui/?{urlencode({name: text for name, text in chosen.items() if text})}"

    def table(self, by: str, rows: Sequence[StatsRow]) -> list[CostRow]:
        """Return the rows of a table."""
        largest = max((self.value(row.inclusive or row.totals) for row in rows), default=0) or 1
        table: list[CostRow] = []
        for row in rows:
            totals = row.inclusive or row.totals
            own = row.totals if totals != row.totals else None
            name = row.title or self.name(by, row.key)
            share = self.value(totals) / largest
            table.append(CostRow(name, self.address(by, row.key), totals, own, row.sessions, share))
        return table

    def chart(self) -> tuple[charts.StackedBars | None, Literal["day", "month"]]:
        """Return the costs of each day, or of each month if there are many days."""
        by = self.query.by
        table = add_up_over_time(self.usage, by, self.filter)
        table.pop(UNKNOWN, None)
        if not table:
            return None, "day"
        first, last = date.fromisoformat(min(table)), date.fromisoformat(max(table))
        days = [(first + timedelta(days=number)).isoformat() for number in range((last - first).days + 1)]
        period: Literal["day", "month"] = "day" if len(days) <= _MAX_DAYS else "month"
        length = len("2026-11-18" if period == "day" else "2026-11")
        amounts: dict[str, dict[str, float]] = {day[:length]: {} for day in days}
        for day, groups in table.items():
            amount = amounts[day[:length]]
            for key, totals in groups.items():
                name = self.name(by, key)
                amount[name] = amount.get(name, 0.0) + self.value(totals)
        sums: Counter[str] = Counter()
        for groups in amounts.values():
            sums.update(groups)
        ranked = [name for name, _ in sums.most_common()]
        series = ranked if len(ranked) <= _MAX_SERIES + 1 else [*ranked[:_MAX_SERIES], "others"]
        bars = charts.stacked_bars(amounts, series, display.amount, lambda key: self.address(period, key))
        return bars, period


def _figures(every_day: Sequence[StatsRow]) -> list[Figure]:
    """Return the sums of today, this month and the last one."""
    today = date.today()
    last_month = today.replace(day=1) - timedelta(days=1)
    figures: list[Figure] = []
    for name, prefix in (
        ("Today", today.isoformat()),
        ("This month", today.isoformat()[:7]),
        ("Last month", last_month.isoformat()[:7]),
    ):
        total = UsageTotals()
        for row in every_day:
            total = total.plus(row.totals) if row.key.startswith(prefix) else total
        figures.append(Figure(name, total))
    return figures
