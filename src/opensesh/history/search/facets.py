"""How the matches of a search are distributed: by project, role, tool, model and month."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

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


def count_facets(cache: DerivedCache, query: Query) -> dict[str, Counter[str]]:
    """Count the newest matches of a query. Texts are not read, so that a regular expression has no facets."""
    if query.mode == "regex" or not query.text.strip():
        return {name: Counter() for name in NAMES}
    parsed = parse_words(query.text) if query.mode == "words" else parse_text(query.text)

    def count(db: Connection) -> dict[str, Counter[str]]:
        condition = Condition(db, parsed, query.filters)
        shown = "ifnull(s.directory, ''), ifnull(m.role, ''), ifnull(p.tool, ''), ifnull(m.model, ''), p.time"
        rows = db.execute(*condition.sql(shown, f"ORDER BY p.id DESC LIMIT {COUNTED_PARTS}")).fetchall()
        months: Counter[str] = Counter()
        for moment, number in Counter(row[4] // 86_400_000 if row[4] else None for row in rows).items():
            if moment is not None:
                months[time.strftime("%Y-%m", time.localtime(moment * 86_400))] += number
        columns = [Counter(row[position] for row in rows if row[position]) for position in range(4)]
        return dict(zip(NAMES, [*columns, months], strict=True))

    return cache.query(TEXT, count)
