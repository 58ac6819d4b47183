"""Pictures made of characters: bars, and a calendar of shades."""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_EIGHTHS = " ▏▎▍▌▋▊▉"
_SHADES = "·░▒▓█"
_WEEKDAYS = ("Mon", "", "Wed", "", "Fri", "", "Sun")


def bar(value: float, most: float, columns: int) -> str:
    """``value`` as a bar of at most ``columns`` columns, which ``most`` fills. What is above nothing can be seen."""
    if value <= 0 or most <= 0 or columns <= 0:
        return ""
    eighths = max(round(min(value / most, 1.0) * columns * 8), 1)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def calendar(days: Mapping[str, float], columns: int) -> list[str]:
    """A column a week and a row a weekday, the latest weeks that fit, shaded by how much there was each day.

    ``days`` are values by ISO date. The shades are quarters of the busiest day's value.
    """
    known = {date.fromisoformat(day): value for day, value in days.items() if value > 0}
    if not known:
        return []
    last = max(known)
    weeks = max(min((columns - 4) // 2, (_monday(last) - _monday(min(known))).days // 7 + 1), 1)
    mondays = [_monday(last) - timedelta(weeks=number) for number in reversed(range(weeks))]
    most = max((value for day, value in known.items() if day >= mondays[0]), default=0.0)
    lines = [f"{'':<4}{_months(mondays)}".rstrip()]
    for weekday, name in enumerate(_WEEKDAYS):
        cells = [_shade(monday + timedelta(days=weekday), last, known, most) for monday in mondays]
        lines.append(f"{name:<4}{' '.join(cells)}".rstrip())
    return lines


def _shade(day: date, last: date, known: Mapping[date, float], most: float) -> str:
    if day > last:
        return " "
    value = known.get(day, 0.0)
    return _SHADES[0] if value <= 0 else _SHADES[min(int(4 * value / most), 3) + 1]


def _months(mondays: list[date]) -> str:
    """The names of the months, each above the first week that begins in it, where there is room."""
    line = ""
    before = 0
    for number, monday in enumerate(mondays):
        if monday.month != before and len(line) <= number * 2:
            line = line.ljust(number * 2) + monday.strftime("%b") + " "
            before = monday.month
    return line


def _monday(day: date) -> date:
    return day - timedelta(days=day.weekday())
