"""Search: the parts that match a query, the best first, each with a snippet."""

from __future__ import annotations

import time
from heapq import nlargest
from math import exp2
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from .extract import TYPES_OF_KINDS, digest_of
from .part_texts import PartLocation, PartTexts, fields_of
from .query import ParsedQuery, parse_regex, parse_text, parse_words
from .search_filters import FIELDS, Condition, Filters
from .snippets import Snippet, snippet
from .text_layer import TEXT, build_vocabulary, has_vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from sqlite3 import Connection

    from ...storage.protocol import ChangeFeed
    from ..cache.derived_cache import DerivedCache

    Ranked = list[tuple[int, float]]

__all__ = ["FIELDS", "Filters", "Hit", "Query", "Results", "search"]

RANKED_PARTS = 5_000
"""How many of the newest matches are ranked; older ones follow by age."""
_MAX_COUNTED = 20_000
_DAY_MS = 86_400_000
_HALF_LIFE_MS = 60 * _DAY_MS
_RANK = "bm25(words, 2.0, 0.5, 1.0, 0.5, 1.2, 1.5)"
_KIND_WEIGHTS = {
    "title": 3.0,
    "prompt": 1.5,
    "answer": 1.2,
    "error": 1.2,
    "reasoning": 0.8,
    "context": 0.7,
    "patch": 0.6,
}
_LOCATION = "p.id, s.name, ifnull(m.name, ''), p.name, ifnull(m.role, ''), ifnull(s.title, '')"


class Query(NamedTuple):
    """A search query, and which of its results to return."""

    text: str = ""
    mode: Literal["words", "text", "regex"] = "words"
    filters: Filters = Filters()
    limit: int = 20
    """0 for all."""
    offset: int = 0
    newest: bool = False
    """Newest first, instead of best first."""


class Hit(NamedTuple):
    """A part that matches."""

    session: str
    message: str | None
    part: str | None
    type: str
    """Of the part; ``title`` and ``error`` are not parts."""
    time: int
    score: float
    snippet: Snippet
    title: str
    """The session's."""
    directory: str
    role: str
    tool: str

    def document(self) -> dict[str, Any]:
        """Return the hit as JSON data."""
        return {
            "sessionID": self.session,
            "messageID": self.message,
            "partID": self.part,
            "type": self.type,
            "time": self.time,
            "snippet": self.snippet.text,
            "score": float(f"{self.score:.4g}"),
            "matches": [list(mark) for mark in self.snippet.marks],
            "field": self.snippet.field,
            "role": self.role or None,
            "tool": self.tool or None,
            "title": self.title,
            "directory": self.directory,
        }


class Results(NamedTuple):
    """The results of a search."""

    total: int
    """How many parts match, whether they are returned or not."""
    hits: list[Hit]
    sessions: int | None
    """In how many sessions; ``None`` where counting would take longer than searching."""
    widened: bool = False
    """Whether no whole word matches, and these contain the words inside others."""
    note: str = ""
    """Why there may be more; empty if the results are complete."""


def search(cache: DerivedCache, query: Query, *, now: int | None = None, ranked: int = RANKED_PARTS) -> Results:
    """Query a cache as it is; refresh its text layer first. Only the newest ``ranked`` matches are ranked."""
    moment = time.time_ns() // 1_000_000 if now is None else now
    results = _run(cache, query, _parse(query), moment, ranked)
    wider = _widen(query) if not results.total else None
    if wider is not None:
        again = _run(cache, query, wider, moment, ranked)
        results = again._replace(widened=True) if again.total else results
    return results._replace(note=cache.note)


def is_empty(cache: DerivedCache) -> bool:
    """Whether a cache has no sessions."""
    return cache.query(TEXT, lambda db: db.execute("SELECT 1 FROM session LIMIT 1").fetchone()) is None


def _run(cache: DerivedCache, query: Query, parsed: ParsedQuery, now: int, ranked: int) -> Results:
    """Run a search; a second time if a record turns out to be gone, or other than the cache says."""
    contains = parsed.inside or any(terms.inside for terms in parsed.either)
    if contains and not cache.query(TEXT, has_vocabulary):
        cache.write(build_vocabulary)

    def ask(db: Connection) -> tuple[Results, set[str]]:
        run = _Search(db, cache.feeds, query, parsed, now, ranked)
        return run.results(), run.stale

    results, stale = cache.query(TEXT, ask)
    if stale:
        cache.recheck(TEXT, stale)
        results, _ = cache.query(TEXT, ask)
    return results


def _parse(query: Query) -> ParsedQuery:
    match query.mode:
        case "regex":
            return parse_regex(query.text)
        case "text":
            return parse_text(query.text)
        case _:
            return parse_words(query.text)


def _widen(query: Query) -> ParsedQuery | None:
    """Return a query for the same words inside of others."""
    plain = query.text.split()
    if query.mode != "words" or not plain or not all(word.isascii() and word.isalnum() for word in plain):
        return None
    return parse_words(" ".join(f"*{word}*" for word in plain))


class _Search:
    def __init__(
        self, db: Connection, feeds: Sequence[ChangeFeed], query: Query, parsed: ParsedQuery, now: int, ranked: int
    ) -> None:
        self._db = db
        self._query = query
        self._parsed = parsed
        self._now = now
        self._ranked = ranked
        self._condition = Condition(db, parsed, query.filters)
        self._texts = PartTexts(db, feeds)
        self.stale: set[str] = set()
        """Sessions in which a record is not what the cache says."""

    def results(self) -> Results:
        if self._parsed.checks:
            total, page, sessions = self._checked()
        else:
            total = self._count()
            page = self._page(total)
            sessions = self._sessions(total)
        return Results(total, list(self._hits(page)), sessions)

    def _one(self, shown: str) -> int:
        return self._db.execute(*self._condition.sql(shown)).fetchone()[0]

    def _count(self) -> int:
        if self._condition.match and not self._condition.is_narrowed:
            match = [self._condition.match]
            (count,) = self._db.execute("SELECT count(*) FROM words WHERE words MATCH ?", match).fetchone()
            if self._db.execute("SELECT 1 FROM tombstone LIMIT 1").fetchone() is None:
                return count
        return self._one("count(*)")

    def _sessions(self, total: int) -> int | None:
        return self._one("count(DISTINCT p.session)") if total <= _MAX_COUNTED else None

    def _page(self, total: int) -> Ranked:
        offset, limit = self._query.offset, self._query.limit or total
        if self._query.newest or not self._condition.match:
            sql = self._condition.sql(
                "p.id", "ORDER BY p.time DESC, p.id DESC LIMIT ? OFFSET ?", values=[limit, offset]
            )
            return [(number, 0.0) for (number,) in self._db.execute(*sql)]
        window = self._window()
        page = [(number, score) for score, number in nlargest(offset + limit, window)[offset:]]
        if len(page) < limit and len(window) == self._ranked:
            page += self._beyond(min(number for _, number in window), limit - len(page), max(0, offset - self._ranked))
        return page

    def _window(self) -> list[tuple[float, int]]:
        """Return the scores and numbers of the newest matches. New parts count up to twice as much as old ones."""
        shown = f"p.id, {_RANK}, p.time, p.kind"
        rows = self._db.execute(*self._condition.sql(shown, f"ORDER BY words.rowid DESC LIMIT {self._ranked}"))
        weight, now = _KIND_WEIGHTS.get, self._now
        return [
            (-rank * weight(kind, 1.0) * (1 + exp2(min(0, (moment or 0) - now) / _HALF_LIFE_MS)), number)
            for number, rank, moment, kind in rows
        ]

    def _beyond(self, last: int, limit: int, offset: int) -> Ranked:
        tail = f"ORDER BY words.rowid DESC LIMIT {limit} OFFSET {offset}"
        sql = self._condition.sql("p.id", tail, more="words.rowid < ?", values=[last])
        return [(number, 0.0) for (number,) in self._db.execute(*sql)]

    def _checked(self) -> tuple[int, Ranked, int]:
        """Read every part that may match, and check it; newest first."""
        keep = self._query.offset + self._query.limit if self._query.limit else None
        matches: list[tuple[int, int]] = []
        sessions: set[str] = set()
        total = 0
        times: dict[int, int] = {}
        for location, record in self._texts.many(self._locations(times)):
            fields = fields_of(record)
            text = "\n".join(fields[name] for name in self._condition.columns or fields) if fields else ""
            moment = times.pop(location.id, 0)
            if fields and all(check(text) for check in self._parsed.checks):
                total += 1
                sessions.add(location.session)
                matches.append((moment, location.id))
                if keep is not None and len(matches) > 2 * keep + 1_000:
                    matches = nlargest(keep, matches)
        matches.sort(reverse=True)
        page = matches[self._query.offset : keep]
        return total, [(number, 0.0) for _, number in page], len(sessions)

    def _locations(self, times: dict[int, int]) -> Iterator[PartLocation]:
        sql = self._condition.sql(f"p.time, {_LOCATION}", "ORDER BY p.session DESC, p.id DESC")
        for moment, *rest in self._db.execute(*sql):
            location = PartLocation(*rest)
            times[location.id] = moment
            yield location

    def _hits(self, page: Iterable[tuple[int, float]]) -> Iterator[Hit]:
        scores = dict(page)
        rows = {number: self._row(number) for number in scores}
        shown = self._condition.columns or (("paths",) if self._parsed == ParsedQuery() else ())
        for location, record in self._texts.few(PartLocation(*row[:6]) for row in rows.values()):
            directory, moment, kind, tool, digest = rows[location.id][6:]
            kind = str(kind)
            if digest_of(record) != digest:
                self.stale.add(location.session)
            fields = fields_of(record)
            visible = {name: fields[name] for name in shown if name in fields} if shown else fields
            yield Hit(
                session=location.session,
                message=location.message or None,
                part=location.part or None,
                type=TYPES_OF_KINDS.get(kind, kind),
                time=moment or 0,
                score=scores[location.id],
                snippet=self._snippet(visible),
                title=location.title,
                directory=directory or "",
                role=location.role,
                tool=tool or "",
            )

    def _row(self, number: int) -> tuple[Any, ...]:
        joined = "part p LEFT JOIN message m ON m.id = p.message JOIN session s ON s.id = p.session"
        sql = " ".join(
            ("SELECT", _LOCATION, ", s.directory, p.time, p.kind, p.tool, p.digest FROM", joined, "WHERE p.id = ?")
        )
        return self._db.execute(sql, [number]).fetchone()

    def _snippet(self, fields: dict[str, str]) -> Snippet:
        shown = snippet(fields, self._parsed.patterns)
        if not shown.marks and self._parsed.loose_patterns:
            return snippet(fields, self._parsed.loose_patterns)
        return shown
