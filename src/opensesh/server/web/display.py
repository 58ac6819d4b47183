"""Formatting of times, amounts and names on pages."""

from __future__ import annotations

import os
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from markupsafe import Markup, escape
from msgspec import Struct, structs

from ...history.formatting import relative_path
from ...history.rendering.visible_text import visible
from ...storage import paths

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...history.search.snippets import Snippet

UNKNOWN = "\N{EN DASH}"


def local_time(milliseconds: int | None) -> str:
    """Return a time as ``2026-11-15 19:29``; empty if there is none."""
    return _format(milliseconds, "%Y-%m-%d %H:%M")


def clock_time(milliseconds: int | None) -> str:
    """Return the time of the day."""
    return _format(milliseconds, "%H:%M")


def day(milliseconds: int | None) -> str:
    """Return the day, ``2026-11-15``."""
    return _format(milliseconds, "%Y-%m-%d")


def machine_time(milliseconds: int | None) -> str:
    """Return a time for the attribute ``datetime``."""
    return _format(milliseconds, "%Y-%m-%dT%H:%M:%S%z")


def amount(value: Decimal | float | str | None) -> str:
    """Return an amount of US dollars; a dash if it is unknown."""
    if value is None:
        return UNKNOWN
    dollars = Decimal(value)
    if not dollars:
        return "$0"
    return f"${dollars:,.2f}" if abs(dollars) >= Decimal("0.1") else f"${dollars:.4f}"


def number(value: int | None) -> str:
    """Return a number with separators; a dash if it is unknown."""
    return UNKNOWN if value is None else f"{value:,}"


def marked(snippet: Snippet) -> Markup:
    """Return the text around a match with the words that match marked."""
    pieces: list[Markup] = []
    position = 0
    for start, end in snippet.marks:
        pieces.append(escape(visible(snippet.text[position:start])))
        pieces.append(Markup("<mark>{}</mark>").format(visible(snippet.text[start:end])))
        position = end
    return Markup("").join([*pieces, escape(visible(snippet.text[position:]))])


def session_address(session_id: str) -> str:
    """Return the address of a session's page."""
    return f"/ui/session/{quote(session_id, errors='replace')}"


def page_address(path: str, query: Struct, **changes: Any) -> str:
    """Return the address of a page with the parameters of a query, changed, that differ from their defaults."""
    defaults = {field.name: field.default for field in structs.fields(query)}
    values = structs.asdict(query) | changes
    shown = {name: value for name, value in values.items() if value not in ("", None) and value != defaults[name]}
    return path + (
        f"?{urlencode({name: 1 if value is True else value for name, value in shown.items()})}" if shown else ""
    )


def short_path(path: str) -> str:
    """Return a path with the user's home folder as ``~``."""
    home = paths.home().rstrip(os.sep)
    return "~" + path[len(home) :] if path == home or path.startswith(home + os.sep) else path


def _format(milliseconds: int | None, pattern: str) -> str:
    if milliseconds is None:
        return ""
    try:
        return datetime.fromtimestamp(milliseconds / 1000).astimezone().strftime(pattern)
    except (ValueError, OverflowError, OSError):
        return ""


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "amount": amount,
    "clock_time": clock_time,
    "day": day,
    "local_time": local_time,
    "machine_time": machine_time,
    "marked": marked,
    "number": number,
    "relative_path": relative_path,
    "short_path": short_path,
    "visible": visible,
}
"""What all templates can call."""
