"""Geometry of charts: stacked bars over time, and the calendar of a year. The templates draw them as SVG."""

from __future__ import annotations

from bisect import bisect_left
from datetime import date, timedelta
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

BAR_WIDTH, BAR_HEIGHT = 960, 220
_LEFT, _BOTTOM = 64, 22
_MAX_BAR_WIDTH = 48.0
CELL, GAP = 13, 3
LEVELS = 4


class Mark(NamedTuple):
    """A rectangle with what it stands for."""

    x: float
    y: float
    width: float
    height: float
    style: int
    """The number of the series, or the level of a day."""
    title: str
    address: str


class AxisLabel(NamedTuple):
    """A text at a position of an axis."""

    position: float
    text: str


class StackedBars(NamedTuple):
    """Bars over time, each stacked from the same series."""

    marks: list[Mark]
    ticks: list[AxisLabel]
    periods: list[AxisLabel]
    series: list[str]


class Calendar(NamedTuple):
    """A column for each week, a row for each day of the week."""

    width: int
    height: int
    marks: list[Mark]
    months: list[AxisLabel]


def stacked_bars(
    amounts: Mapping[str, Mapping[str, float]],
    series: Sequence[str],
    label: Callable[[float], str],
    address: Callable[[str], str],
) -> StackedBars:
    """Lay out the ``amounts`` of each period by series; the last series stands for all that are not named."""
    highest = max((sum(groups.values()) for groups in amounts.values()), default=0.0)
    step = _tick_step(highest)
    top = max(step * -(-highest // step), step)
    plot = BAR_HEIGHT - _BOTTOM - 8
    slot = (BAR_WIDTH - _LEFT) / max(len(amounts), 1)
    width = round(min(slot * 0.8, _MAX_BAR_WIDTH), 2)
    marks: list[Mark] = []
    for number, (period, groups) in enumerate(amounts.items()):
        y = 8.0 + plot
        by_series = [0.0] * len(series)
        for key, amount in groups.items():
            by_series[series.index(key) if key in series else len(series) - 1] += amount
        for style, amount in enumerate(by_series):
            height = plot * amount / top
            if height > 0:
                y -= height
                x = round(_LEFT + number * slot + (slot - width) / 2, 2)
                title = f"{period} · {series[style]} · {label(amount)}"
                marks.append(Mark(x, round(y, 2), width, round(height, 2), style, title, address(period)))
    count = round(top / step)
    ticks = [AxisLabel(round(8 + plot - plot * index / count, 1), label(step * index)) for index in range(count + 1)]
    every = max(1, -(-len(amounts) * 80 // (BAR_WIDTH - _LEFT)))
    shown = [
        AxisLabel(round(_LEFT + number * slot + slot / 2, 1), period)
        for number, period in enumerate(amounts)
        if (len(amounts) - 1 - number) % every == 0
    ]
    return StackedBars(marks, ticks, shown, list(series))


def _tick_step(largest: float) -> float:
    """Return a round distance of ticks so that there are two to five of them."""
    step = 1e-6
    while largest > step * 5:
        for factor in (2, 2.5, 2):
            step *= factor
            if largest <= step * 5:
                break
    return step


def calendar(amounts: Mapping[str, float], label: Callable[[float], str], address: Callable[[str], str]) -> Calendar:
    """Lay out the 53 weeks up to the last day. The levels are quarters of the days with amounts."""
    last = date.fromisoformat(max(amounts, default="2000-01-01"))
    first = last - timedelta(days=last.weekday() + 52 * 7)
    ranked = sorted(amount for amount in amounts.values() if amount > 0)
    marks: list[Mark] = []
    months: list[AxisLabel] = []
    left, above = 34, 18
    for offset in range((last - first).days + 1):
        day = first + timedelta(days=offset)
        week, weekday = divmod(offset, 7)
        amount = amounts.get(day.isoformat(), 0.0)
        level = 0
        if amount > 0:
            level = 1 + LEVELS * bisect_left(ranked, amount) // len(ranked)
        x, y = left + week * (CELL + GAP), above + weekday * (CELL + GAP)
        if day.day == 1 or offset == 0:
            if months and x - months[-1].position < 30:
                months.pop()
            months.append(AxisLabel(x, day.strftime("%b")))
        title = f"{day.isoformat()} · {label(amount) if amount else 'nothing'}"
        marks.append(Mark(x, y, CELL, CELL, level, title, address(day.isoformat()) if amount else ""))
    return Calendar(left + 53 * (CELL + GAP), above + 7 * (CELL + GAP), marks, months)
