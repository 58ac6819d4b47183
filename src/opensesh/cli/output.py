"""Results on standard output: JSON, tables, colour, bars and calendars; long text goes through a pager."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from io import StringIO
from typing import TYPE_CHECKING, Any, TextIO

from ..ids import LATEST_MS
from ..storage.protocol import Store
from ..storage.registry import new_sessions_place
from ..text import pluralize
from .terminal import columns_of, escape_control, escape_except_colours, fold, is_coloured, unescaped

if TYPE_CHECKING:
    from ..records import Session

DIFF_COLOURS = {"+": 32, "-": 31, "@": 36}
_MIN_LAST_COLUMN = 12
_MIN_PATH_COLUMN = 24
"""Terminal columns that the last column of a table gets at least; other columns are left out for it."""
_NUMBER = re.compile(r"\$?[\d,.]+( ?[KMGT]?B|[KMG%])?")
_JOINERS = "\u200c\u200d"
"""Characters that are not printable, but make one character of several: of emoji, and in Persian and Hindi."""
_NO_WIDTH = ("Mn", "Me", "Cf")
"""Unicode categories of characters that take no terminal column: marks and joiners."""
_MAX_BAR = 30
_EIGHTHS = " ▏▎▍▌▋▊▉"
_SHADES = "·░▒▓█"
NO_SESSIONS_HINT = "'opensesh run' creates one. If your sessions are in another place, name it with --store."
CALENDAR_LEGEND = "Per day: · nothing  ░ ▒ ▓ █ the most"
_SHELL_FAILED = (126, 127)
"""Exit codes of a shell that could not start the pager."""


def print_json(value: Any) -> None:
    """Print one JSON document, formatted as OpenCode formats it."""
    from ..records import dumps  # loads msgspec, which `stats` and `search` often do not need

    sys.stdout.buffer.write(dumps(value) + b"\n")
    sys.stdout.buffer.flush()


# -- where new sessions go ---------------------------------------------------------------------------------------------


def new_sessions_line(store: Store) -> str:
    """Return a sentence that says where the new sessions of a store go, and why."""
    location, reason = new_sessions_place(store)
    return f"New sessions go to {location}: {reason}." if location else f"No new sessions: {reason}."


def new_sessions_document(store: Store) -> dict[str, str | None]:
    """Return where the new sessions of a store go, and why, as JSON."""
    location, reason = new_sessions_place(store)
    return {"place": location or None, "reason": reason}


# -- text --------------------------------------------------------------------------------------------------------------


def paint(text: str, *codes: int) -> str:
    """Return ``text`` in colour, if standard output takes it."""
    if not codes or not is_coloured(sys.stdout):
        return text
    return f"\x1b[{';'.join(map(str, codes))}m{escape_control(text)}\x1b[0m"


def paint_diff(text: str) -> Iterator[str]:
    """Yield the lines of a diff in colour, if standard output takes it."""
    in_hunk = False
    for line in text.split("\n"):
        in_hunk = line.startswith("@@") or (in_hunk and not line.startswith(("diff ", "Index: ")))
        code = DIFF_COLOURS.get(line[:1]) if in_hunk else 1
        yield paint(line, code) if code and line else line


def format_time(milliseconds: int, *, utc: bool = False) -> str:
    """Return a time as ``2026-08-01 12:00``."""
    milliseconds = max(min(milliseconds, LATEST_MS), 0)
    moment = time.gmtime(milliseconds / 1000) if utc else time.localtime(milliseconds / 1000)
    return time.strftime("%Y-%m-%d %H:%M", moment)


def format_counts(*counts: tuple[int, str, str]) -> str:
    """Return ``1 archived session (--archived), 2 subagent sessions``.

    Each count is a number, a noun, and the option that shows them (may be empty). Zeros are left out.
    """
    shown = ((pluralize(number, noun), option) for number, noun, option in counts if number)
    return ", ".join(f"{text} ({option})" if option else text for text, option in shown)


def short_path(path: str) -> str:
    """Return a path with ``~`` for the home folder."""
    home = os.path.expanduser("~")
    return f"~{path[len(home) :]}" if path.startswith(os.path.join(home, "")) else path


def width(text: str) -> int:
    """Return how many terminal columns ``text`` takes."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width  # most text is ASCII

    return sum(0 if category(c) in _NO_WIDTH else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def one_line(text: str) -> str:
    """Return ``text`` with a space for every character that would end the line or cannot be shown."""
    return text if text.isprintable() else "".join(c if c.isprintable() or c in _JOINERS else " " for c in text)


def clip(text: str, columns: int) -> str:
    """Return ``text`` on one line of at most ``columns`` columns, with an ellipsis where it was cut."""
    text = one_line(text)
    if width(text) <= columns:
        return text
    clipped = ""
    for character in text:
        if width(clipped + character) > columns - 1:
            break
        clipped += character
    return clipped + "…"


def clip_start(text: str, columns: int) -> str:
    """Return ``text`` like :func:`clip`, but cut at the start: the end of a path is the more useful part."""
    return clip(text[::-1], columns)[::-1]


def session_line(session: Session) -> str:
    """Return the session, title and folder that a command is about to change."""
    return f"{session.id}  {clip(session.title, 60)}  {clip_start(short_path(session.directory), 80)}"


def terminal_columns() -> int:
    """Return the width of the terminal of standard output; 80 if there is none."""
    return columns_of(sys.stdout)


def folded(text: str) -> str:
    """Return sentences with line ends between words, where standard output is a terminal."""
    return fold(text, terminal_columns()) if sys.stdout.isatty() else text


def report_damage(damage: Sequence[tuple[str, str]]) -> None:
    """Print on standard error which records could not be read, the first few by path."""
    if not damage:
        return
    databases = sum(path.endswith(".db") for path, _ in damage)
    skipped = format_counts((databases, "database", ""), (len(damage) - databases, "damaged record", ""))
    print(f"{skipped} skipped:", file=sys.stderr)
    for path, reason in damage[:5]:
        print(f"  {path}: {reason}", file=sys.stderr)
    if len(damage) > 5:
        print(f"  ... and {len(damage) - 5} more", file=sys.stderr)


# -- tables and charts -------------------------------------------------------------------------------------------------


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    paths: bool = False,
    notes: Sequence[Sequence[str]] = (),
) -> None:
    """Print rows in columns, those of numbers aligned at the right. ``notes`` are lines below each row.

    On a terminal the last column is clipped to fit (at its start if it holds ``paths``). If that leaves it too narrow,
    the columns before it are left out from the right; the first column is always whole.
    """
    widths, rest = _layout(heads, rows, _MIN_PATH_COLUMN if paths else _MIN_LAST_COLUMN)
    is_numeric = [bool(rows) and all(_NUMBER.fullmatch(row[i]) for row in rows) for i in range(len(widths))]
    for number, row in enumerate([heads, *rows]):
        cells = [
            " " * (size - width(cell)) + cell if numeric else cell + " " * (size - width(cell))
            for cell, size, numeric in zip(row, widths, is_numeric, strict=False)
        ]
        last = clip_start(row[-1], rest) if paths and number else clip(row[-1], rest)
        line = "  ".join([*cells, last]).rstrip()
        print(paint(line, 2) if number == 0 else line)
        for note in notes[number - 1] if notes and number else ():
            print(paint(f"  {clip(note, terminal_columns() - 2 if sys.stdout.isatty() else 200)}", 2))


def _layout(
    heads: Sequence[str], rows: Sequence[Sequence[str]], min_last: int = _MIN_LAST_COLUMN
) -> tuple[list[int], int]:
    """Return the widths of the shown columns before the last one, and what is left for that one."""
    widths = [max(width(row[i]) for row in [heads, *rows]) for i in range(len(heads) - 1)]
    if not sys.stdout.isatty():
        return widths, 1000
    columns = terminal_columns()
    while len(widths) > 1 and columns - sum(widths) - 2 * len(widths) < min_last:
        del widths[-1]
    return widths, max(columns - sum(widths) - 2 * len(widths), 1)


def bar(value: float, largest: float, columns: int) -> str:
    """Return ``value`` as a bar; ``largest`` fills all ``columns``, and any value above 0 can be seen."""
    if value <= 0 or largest <= 0 or columns <= 0:
        return ""
    eighths = max(round(min(value / largest, 1.0) * columns * 8), 1)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def table_with_bars(
    heads: Sequence[str], rows: Sequence[tuple[str, ...]], values: Sequence[float], largest: float
) -> None:
    """Print rows in columns, with a bar for each row's value where the terminal has space left."""
    heads = (*heads, "")
    # A clipped bar would show a wrong value, so bars are drawn for the space there is.
    columns = min(_layout(heads, rows)[1], _MAX_BAR)
    table(heads, [(*row, bar(value, largest, columns)) for row, value in zip(rows, values, strict=True)])


def calendar(days: Mapping[str, float], columns: int) -> list[str]:
    """Return a calendar of shades: one column per week, one row per weekday, the latest weeks that fit.

    ``days`` are values by ISO date. The shades are quarters of the largest value shown.
    """
    values = {date.fromisoformat(day).toordinal(): value for day, value in days.items() if value > 0}
    if not values:
        return []
    last = max(values)
    # Ordinal 1 was a Monday.
    first_monday, last_monday = (day - (day - 1) % 7 for day in (min(values), last))
    weeks = max(min((columns - 4) // 2, (last_monday - first_monday) // 7 + 1), 1)
    mondays = range(last_monday - 7 * (weeks - 1), last_monday + 1, 7)
    largest = max((value for day, value in values.items() if day >= mondays[0]), default=0.0)

    def shade(day: int) -> str:
        value = values.get(day, 0.0)
        return " " if day > last else _SHADES[0] if value <= 0 else _SHADES[min(int(4 * value / largest), 3) + 1]

    months = previous = ""
    for number, monday in enumerate(mondays):
        month = date.fromordinal(monday).strftime("%b")
        if month != previous and len(months) <= number * 2:  # else the name before it is in the way
            months = months.ljust(number * 2) + month + " "
            previous = month
    lines = [f"{'':<4}{months}".rstrip()]
    for weekday, name in enumerate(("Mon", "", "Wed", "", "Fri", "", "Sun")):
        lines.append(f"{name:<4}{' '.join(shade(monday + weekday) for monday in mondays)}".rstrip())
    return lines


# -- the pager ---------------------------------------------------------------------------------------------------------


def page(text: str, *, any_style: bool = False) -> None:
    """Write ``text``: through the pager if standard output is a terminal with fewer lines. ``any_style``: its escape
    sequences are its own."""
    shown = escape_except_colours(text, any_style=any_style) if sys.stdout.isatty() else text
    data = shown.encode(errors="replace") + b"\n"
    sys.stdout.flush()
    try:
        lines = int(os.environ.get("LINES") or os.get_terminal_size(sys.stdout.fileno()).lines) or 24
    except (OSError, ValueError):
        lines = 24
    on_terminal = sys.stdout.isatty() and sys.stdin.isatty() and os.environ.get("TERM") != "dumb"
    if not (on_terminal and text.count("\n") >= lines and _show_in_pager(data)):
        out = unescaped(sys.stdout)  # it is escaped already
        out.buffer.write(data)
        out.buffer.flush()


@contextmanager
def paged() -> Generator[None]:
    """Page what is printed in here, if standard output is a terminal."""
    if not sys.stdout.isatty():
        yield
        return
    terminal, buffer = sys.stdout, _TerminalBuffer(sys.stdout)
    sys.stdout = buffer
    try:
        yield
    finally:
        sys.stdout = terminal
    if text := buffer.getvalue():
        page(text.removesuffix("\n"))


class _TerminalBuffer(StringIO):
    """Collects what is printed, and looks like the terminal it is printed for."""

    def __init__(self, terminal: TextIO) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal.isatty()

    def fileno(self) -> int:
        return self._terminal.fileno()


def _show_in_pager(data: bytes) -> bool:
    """Return whether ``$PAGER`` (or ``less``) has shown the data. An empty ``PAGER`` means none."""
    import shutil  # these two take longer to load than most results take to print
    import subprocess

    command = os.environ.get("PAGER", "less" if shutil.which("less") else "")
    if not command.strip():
        return False
    try:
        environ = {"LESS": "FRX", **os.environ}
        pager = subprocess.Popen(["/bin/sh", "-c", command], stdin=subprocess.PIPE, env=environ)
    except OSError:
        return False  # a system without a shell
    if pager.stdin:
        with suppress(OSError, KeyboardInterrupt), pager.stdin as pipe:  # the user may quit before the end
            pipe.write(data)
    while pager.poll() is None:
        with suppress(KeyboardInterrupt):  # Ctrl-C is for the pager as long as it has the terminal
            pager.wait()
    return pager.returncode not in _SHELL_FAILED
