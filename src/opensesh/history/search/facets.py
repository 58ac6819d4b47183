"""The newest matches of a search, and how they are distributed: by project, role, tool, model and month.

All of it is one query, without ranking and without reading a text, so that it can be asked with every key stroke.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from .query import parse_text, parse_words
from .search_filters import Condition
from .text_layer import TEXT

if TYPE_CHECKING:
    from sqlite3 import Connection

    from ..cache.derived_cache import DerivedCache
    from .text_search import Query

COUNTED_PARTS = 5_000
"""How many of the newest matches are counted."""
NAMES = ("folder", "role", "tool", "model", "month")
_MONTH = "strftime('%Y-%m', nullif(p.time, 0) / 1000, 'unixepoch', 'localtime')"
_COUNT = """(
    SELECT json_group_object({0}, n) FROM (SELECT {0}, count(*) n FROM newest WHERE {0} != '' GROUP BY {0})
)"""
_SUMMARY = ", ".join(
    (
        "(SELECT json(count(DISTINCT session)) FROM newest), (SELECT json_group_array(id) FROM newest)",
        *map(_COUNT.format, NAMES),
    )
)


class NewestMatches(NamedTuple):
    """The newest parts that match, at most :data:`COUNTED_PARTS`, and their facets."""

    parts: list[int]
    """Their numbers in the cache."""
    sessions: int
    facets: dict[str, Counter[str]]

    @property
    def is_complete(self) -> bool:
        """Whether these are all that match."""
        return len(self.parts) < COUNTED_PARTS


def newest_matches(cache: DerivedCache, query: Query) -> NewestMatches:
    """Return the newest matches of a query. What a regular expression matches is not known without reading texts."""
    if query.mode == "regex" or not query.text.strip():
        return NewestMatches([], 0, {name: Counter() for name in NAMES})
    parsed = parse_words(query.text) if query.mode == "words" else parse_text(query.text)

    def read(db: Connection) -> NewestMatches:
        condition = Condition(db, parsed, query.filters)
        shown = f"p.id, p.session, s.directory folder, m.role, p.tool, m.model, {_MONTH} month"
        # The number of a part tells roughly how new it is.
        order = "words.rowid" if condition.match else "p.id"
        newest, values = condition.sql(shown, f"ORDER BY {order} DESC LIMIT {COUNTED_PARTS}")
        # One row: SQLite releases the interpreter lock for each row, and other threads take it.
        row = db.execute(f"WITH newest AS MATERIALIZED ({newest}) SELECT {_SUMMARY}", values).fetchone()
        sessions, parts, *facets = map(json.loads, row)
        counts: dict[str, Counter[str]] = dict(zip(NAMES, map(Counter[str], facets), strict=True))
        return NewestMatches(sorted(parts, reverse=True), sessions, counts)

    return cache.query(TEXT, read)
