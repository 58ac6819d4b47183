"""What goes to the terminal: tables, times, colour when it is wanted, damage at the end."""

from __future__ import annotations

import os
import sys
import time

from ..text import pluralize

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

__all__ = [
    "clip",
    "clip_start",
    "coloured",
    "in_pages",
    "kinds",
    "paint",
    "painted_diff",
    "pluralize",
    "print_json",
    "room",
    "short_path",
    "table",
    "tell_damage",
    "terminal_columns",
    "when",
    "width",
]

_CHANGES = {"+": 32, "-": 31, "@": 36}
_LEAST = 12
"""Columns that the last column of a table needs to tell anything."""


def print_json(value: Any) -> None:
    """One document, as OpenCode would print it."""
    from ..records import dumps

    sys.stdout.buffer.write(dumps(value) + b"\n")
    sys.stdout.buffer.flush()


def in_pages(prints: Callable[[], None]) -> None:
    """Call ``prints``; on a terminal, what it prints goes through the pager if it is longer than the screen."""
    if not sys.stdout.isatty():
        prints()
        return
    from .paging import page_what

    page_what(prints)


def coloured() -> bool:
    """Whether standard output is a terminal that wants colour."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(os.environ.get("FORCE_COLOR")) or sys.stdout.isatty()


def paint(text: str, *codes: int) -> str:
    """``text`` in colour, where colour is wanted."""
    return f"\x1b[{';'.join(map(str, codes))}m{text}\x1b[0m" if codes and coloured() else text


def painted_diff(text: str) -> Iterator[str]:
    """The lines of a diff as git prints it or the tools note it, in colour where that is wanted."""
    in_hunk = False
    for line in text.split("\n"):
        in_hunk = line.startswith("@@") or (in_hunk and not line.startswith(("diff ", "Index: ")))
        code = _CHANGES.get(line[:1]) if in_hunk else 1
        yield paint(line, code) if code and line else line


def when(milliseconds: int, *, utc: bool = False) -> str:
    """A moment as people read it."""
    moment = time.gmtime(milliseconds / 1000) if utc else time.localtime(milliseconds / 1000)
    return time.strftime("%Y-%m-%d %H:%M", moment)


def short_path(path: str) -> str:
    """A path as people write it, from their home folder on."""
    home = os.path.expanduser("~")
    return f"~{path[len(home) :]}" if path.startswith(os.path.join(home, "")) else path


def kinds(*found: tuple[int, str, str]) -> str:
    """``1 archived session (--archived), 2 subagent sessions``: how many of which kind, with the option that brings
    them if there is one; those that there are."""
    told = ((pluralize(number, noun), option) for number, noun, option in found if number)
    return ", ".join(f"{what} ({option})" if option else what for what, option in told)


def width(text: str) -> int:
    """How many columns ``text`` takes."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def clip(text: str, columns: int) -> str:
    """``text`` on one line of at most ``columns`` columns, an ellipsis where it was cut."""
    text = "".join(c if c.isprintable() else " " for c in text)
    if width(text) <= columns:
        return text
    kept = ""
    for character in text:
        if width(kept + character) > columns - 1:
            break
        kept += character
    return kept + "…"


def clip_start(text: str, columns: int) -> str:
    """The same, cut at its beginning: of a path, the end tells more."""
    return clip(text[::-1], columns)[::-1]


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, paths: bool = False) -> None:
    """Rows in columns. On a terminal the last column is cut to fit, and where even that leaves it no room, columns
    before it are left out, the last of them first; the first one is always whole. If the last column is of ``paths``,
    it is the beginning that is cut off."""
    widths, left = _layout(heads, rows)
    for number, row in enumerate([heads, *rows]):
        cells = [cell + " " * (size - width(cell)) for cell, size in zip(row, widths, strict=False)]
        last = clip_start(row[-1], left) if paths and number else clip(row[-1], left)
        line = "  ".join([*cells, last]).rstrip()
        print(paint(line, 2) if number == 0 else line)


def room(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """How many columns a table of such rows, which need not have their last cell yet, leaves to that one."""
    return _layout(heads, rows)[1]


def _layout(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[list[int], int]:
    """How wide the columns are that are shown before the last one, and that one."""
    widths = [max(width(row[i]) for row in [heads, *rows]) for i in range(len(heads) - 1)]
    if not sys.stdout.isatty():
        return widths, 1000
    columns = terminal_columns()
    while len(widths) > 1 and columns - sum(widths) - 2 * len(widths) < _LEAST:
        del widths[-1]
    return widths, max(columns - sum(widths) - 2 * len(widths), 1)


def terminal_columns() -> int:
    """How wide the terminal is; 80 where there is none."""
    try:
        return int(os.environ.get("COLUMNS") or os.get_terminal_size(sys.stdout.fileno()).columns) or 80
    except (OSError, ValueError):
        return 80


def tell_damage(damage: Sequence[tuple[str, str]]) -> None:
    """On standard error: what could not be read, a few by name."""
    if not damage:
        return
    databases = sum(path.endswith(".db") for path, _ in damage)
    what = kinds((databases, "database", ""), (len(damage) - databases, "damaged record", ""))
    print(f"{what} left out:", file=sys.stderr)
    for path, reason in damage[:5]:
        print(f"  {path}: {reason}", file=sys.stderr)
    if len(damage) > 5:
        print(f"  ... and {len(damage) - 5} more", file=sys.stderr)
