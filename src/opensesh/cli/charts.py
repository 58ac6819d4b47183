"""Pictures made of characters: bars, and a calendar of shades.

Days are counted from 1970 here; Python's own kind takes longer to load than all of this takes to draw.
"""

from __future__ import annotations

import time

from . import output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_EIGHTHS = " ▏▎▍▌▋▊▉"
_SHADES = "·░▒▓█"
LEGEND = "A day each: · nothing  ░ ▒ ▓ █ the most"
"""What the shades of a calendar mean."""
_WIDEST = 30
"""Columns that a bar needs at the most."""
_WEEKDAYS = ("Mon", "", "Wed", "", "Fri", "", "Sun")


def bar(value: float, most: float, columns: int) -> str:
    """``value`` as a bar of at most ``columns`` columns, which ``most`` fills. What is above nothing can be seen."""
    if value <= 0 or most <= 0 or columns <= 0:
        return ""
    eighths = max(round(min(value / most, 1.0) * columns * 8), 1)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def with_bars(
    heads: Sequence[str], rows: Sequence[tuple[str, ...]], values: Sequence[float], most: float
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The heads and rows of a table with a bar behind each row, as wide as there is room: one that is cut lies."""
    heads = (*heads, "")
    columns = min(output.room(heads, rows), _WIDEST)
    return heads, [(*row, bar(value, most, columns)) for row, value in zip(rows, values, strict=True)]


def calendar(days: Mapping[str, float], columns: int) -> list[str]:
    """A column a week and a row a weekday, the latest weeks that fit, shaded by how much there was each day.

    ``days`` are values by ISO date. The shades are quarters of the busiest day's value.
    """
    known = {day_number(day): value for day, value in days.items() if value > 0}
    if not known:
        return []
    last = max(known)
    weeks = max(min((columns - 4) // 2, (_monday(last) - _monday(min(known))) // 7 + 1), 1)
    mondays = [_monday(last) - 7 * number for number in reversed(range(weeks))]
    most = max((value for day, value in known.items() if day >= mondays[0]), default=0.0)
    lines = [f"{'':<4}{_months(mondays)}".rstrip()]
    for weekday, name in enumerate(_WEEKDAYS):
        cells = [_shade(monday + weekday, last, known, most) for monday in mondays]
        lines.append(f"{name:<4}{' '.join(cells)}".rstrip())
    return lines


def _shade(day: int, last: int, known: Mapping[int, float], most: float) -> str:
    if day > last:
        return " "
    value = known.get(day, 0.0)
    return _SHADES[0] if value <= 0 else _SHADES[min(int(4 * value / most), 3) + 1]


def _months(mondays: list[int]) -> str:
    """The names of the months, each above the first week that begins in it, where there is room."""
    line = ""
    before = ""
    for number, monday in enumerate(mondays):
        month = time.strftime("%b", time.gmtime(monday * 86_400))
        if month != before and len(line) <= number * 2:
            line = line.ljust(number * 2) + month + " "
            before = month
    return line


def day_number(date: str) -> int:
    """How many days after 1970-01-01 an ISO date is."""
    year, month, day = map(int, date.split("-"))
    if month < 3:  # years that begin in March have their odd day at the end
        year, month = year - 1, month + 12
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * month - 457) // 5 + day - 719_469


def _monday(day: int) -> int:
    return day - (day + 3) % 7
