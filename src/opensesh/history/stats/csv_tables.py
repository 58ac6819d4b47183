"""Statistics as comma-separated values."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING
from unicodedata import normalize

from .money import dollars

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TextIO

    from ...records import Document
    from .usage_stats import Statistics

_TOKENS = ("input", "output", "reasoning", "cache_read", "cache_write")
_TOOL_COLUMNS = ("calls", "errors", "open", "seconds", "characters", "messages", "sessions")
_FORMULA_STARTS = ("=", "+", "-", "@", "|", "%")


def write_csv(statistics: Statistics, file: TextIO) -> None:
    """Write all rows of statistics."""
    writer = csv.writer(file, lineterminator="\n")
    more = ("title", "parent", "inclusive_cost", "inclusive_repriced") if statistics.by == "session" else ()
    writer.writerow((statistics.by, "messages", "answers", *_TOKENS, "cost", "repriced", "unpriced", "sessions", *more))
    for row in statistics.rows:
        sums = row.totals
        repriced = "" if sums.unpriced else dollars(sums.repriced)
        counts = [getattr(sums, name) for name in _TOKENS]
        figures = [sums.messages, sums.answers, *counts, dollars(sums.cost), repriced, sums.unpriced]
        rest: list[object] = []
        if row.inclusive is not None:
            inclusive = "" if row.inclusive.unpriced else dollars(row.inclusive.repriced)
            rest = [_as_text(row.title or ""), _as_text(row.parent), dollars(row.inclusive.cost), inclusive]
        writer.writerow((_as_text(row.key), *figures, row.sessions, *rest))


def write_tool_csv(rows: Iterable[Document], file: TextIO) -> None:
    """Write the documents of :class:`~opensesh.history.stats.tool_stats.ToolRow`."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("tool", *_TOOL_COLUMNS))
    for row in rows:
        writer.writerow([_as_text(str(row["key"])), *(row[name] for name in _TOOL_COLUMNS)])


def _as_text(cell: str) -> str:
    """Return a cell that spreadsheets do not take for a formula: a title may begin with ``=`` or ``@``."""
    # Spreadsheets read full-width signs as signs too.
    return f"'{cell}" if normalize("NFKC", cell).lstrip().startswith(_FORMULA_STARTS) else cell
