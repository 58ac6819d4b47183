"""Search: the parts that match a query, the best first, each with a snippet.

The cache keeps no texts, so what is shown or checked is read from the stores.
"""

from __future__ import annotations

import time
from contextlib import suppress
from heapq import nlargest
from itertools import groupby, islice
from math import exp2
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ...errors import RecordError, StoreError
from ..cache.cache_layers import feeds_with, most_complete
from . import extract
from .query import ParsedQuery, parse_regex, parse_text, parse_words
from .search_filters import Condition, Filters
from .snippets import Snippet, snippet
from .text_layer import TEXT, build_vocabulary, has_vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from sqlite3 import Connection

    from ...records import Document
    from ...storage.change_feeds import ChangeFeed
    from ..cache.derived_cache import DerivedCache
    from .extract import ExtractedText

    Ranked = list[tuple[int, float]]

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
_PART_ROW = """
    p.id, s.name, ifnull(m.name, ''), p.name, ifnull(m.role, ''), ifnull(s.title, ''), ifnull(s.directory, ''),
    ifnull(p.time, 0), p.kind, ifnull(p.tool, ''), p.digest
"""
_JOINED = "FROM part p LEFT JOIN message m ON m.id = p.message JOIN session s ON s.id = p.session"
_PART_BY_ID = " ".join(("SELECT", _PART_ROW, _JOINED, "WHERE p.id = ?"))
_BATCH_PARTS = 200


class PartRow(NamedTuple):
    """A row of the text layer: where a text is, and what is known about it."""

    id: int
    session: str
    message: str
    """Empty for a session's title."""
    part: str
    """Empty for a title and for the error of a message."""
    role: str
    title: str
    directory: str
    time: int
    kind: str
    tool: str
    digest: int


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
    """The type of the part; ``title`` and ``error`` are not parts."""
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
    """The number of sessions with matches; ``None`` where counting would take longer than searching."""
    widened: bool = False
    """Whether no whole word matches, and these contain the words inside others."""
    note: str = ""
    """Why there may be more; empty if the results are complete."""


def search(
    cache: DerivedCache, query: Query, *, now: int | None = None, ranked: int = RANKED_PARTS, widen: bool = True
) -> Results:
    """Query a cache as it is; refresh its text layer first. Only the newest ``ranked`` matches are ranked.

    If no whole word matches, words that contain those of the query are searched, unless ``widen`` is false: while
    another object writes the first index, that would wait for its end.
    """
    moment = time.time_ns() // 1_000_000 if now is None else now
    parse = {"words": parse_words, "text": parse_text, "regex": parse_regex}[query.mode]
    results = _run(cache, query, parse(query.text), moment, ranked)
    words = query.text.split() if widen and query.mode == "words" and not results.total else ()
    if words and all(word.isascii() and word.isalnum() for word in words):
        inside_others = parse_words(" ".join(f"*{word}*" for word in words))
        again = _run(cache, query, inside_others, moment, ranked)
        results = again._replace(widened=True) if again.total else results
    return results._replace(note=cache.note)


def hits_of(cache: DerivedCache, query: Query, parts: Sequence[int]) -> list[Hit]:
    """Return the hits for parts that match a query, by their numbers in the cache."""
    parsed = parse_words(query.text) if query.mode == "words" else parse_text(query.text)

    def ask(db: Connection) -> list[Hit]:
        run = _Search(db, cache.feeds, query, parsed, now=0, ranked=0)
        return list(run.hits((number, 0.0) for number in parts))

    return cache.query(TEXT, ask)


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
        self._texts = _PartTexts(db, feeds)
        self.stale: set[str] = set()
        """Sessions in which a record is not what the cache says."""

    def results(self) -> Results:
        if self._parsed.checks:
            total, page, sessions = self._checked()
        else:
            total = self._count("count(*)")
            page = self._page(total)
            sessions = self._count("count(DISTINCT p.session)") if total <= _MAX_COUNTED else None
        return Results(total, list(self.hits(page)), sessions)

    def _count(self, shown: str) -> int:
        sql, values = self._condition.sql(shown)
        if shown == "count(*)" and self._condition.match and not self._condition.is_narrowed:
            has_tombstones = self._db.execute("SELECT 1 FROM tombstone LIMIT 1").fetchone() is not None
            if not has_tombstones:  # then the full-text table alone can tell, which is faster
                sql, values = "SELECT count(*) FROM words WHERE words MATCH ?", [self._condition.match]
        return self._db.execute(sql, values).fetchone()[0]

    def _page(self, total: int) -> Ranked:
        """Return the best or newest matches. New parts count up to twice as much as old ones."""
        offset, limit = self._query.offset, self._query.limit or total
        if self._query.newest or not self._condition.match:
            tail = "ORDER BY p.time DESC, p.id DESC LIMIT ? OFFSET ?"
            sql = self._condition.sql("p.id", tail, values=[limit, offset])
            return [(number, 0.0) for (number,) in self._db.execute(*sql)]
        tail = f"ORDER BY words.rowid DESC LIMIT {self._ranked}"
        rows = self._db.execute(*self._condition.sql(f"p.id, {_RANK}, p.time, p.kind", tail))
        weight, now = _KIND_WEIGHTS.get, self._now
        window = [
            (-rank * weight(kind, 1.0) * (1 + exp2(min(0, (moment or 0) - now) / _HALF_LIFE_MS)), number)
            for number, rank, moment, kind in rows
        ]
        page = [(number, score) for score, number in nlargest(offset + limit, window)[offset:]]
        if len(page) < limit and len(window) == self._ranked:
            last, rest = min(number for _, number in window), max(0, offset - self._ranked)
            tail = f"ORDER BY words.rowid DESC LIMIT {limit - len(page)} OFFSET {rest}"
            sql = self._condition.sql("p.id", tail, more="words.rowid < ?", values=[last])
            page += [(number, 0.0) for (number,) in self._db.execute(*sql)]
        return page

    def _checked(self) -> tuple[int, Ranked, int]:
        """Read every part that may match, and check it; newest first."""
        keep = self._query.offset + self._query.limit if self._query.limit else None
        matches: list[tuple[int, int]] = []
        sessions: set[str] = set()
        total = 0
        sql = self._condition.sql(_PART_ROW, "ORDER BY p.session DESC, p.id DESC")
        for row, content in self._texts.many(PartRow(*values) for values in self._db.execute(*sql)):
            fields = _fields_of(content)
            text = "\n".join(fields[name] for name in self._condition.columns or fields) if fields else ""
            if fields and all(check(text) for check in self._parsed.checks):
                total += 1
                sessions.add(row.session)
                matches.append((row.time, row.id))
                if keep is not None and len(matches) > 2 * keep + 1_000:
                    matches = nlargest(keep, matches)
        matches.sort(reverse=True)
        page = matches[self._query.offset : keep]
        return total, [(number, 0.0) for _, number in page], len(sessions)

    def hits(self, page: Iterable[tuple[int, float]]) -> Iterator[Hit]:
        scores = dict(page)
        rows = [PartRow(*self._db.execute(_PART_BY_ID, [number]).fetchone()) for number in scores]
        shown = self._condition.columns or (("paths",) if self._parsed == ParsedQuery() else ())
        for row, content in self._texts.few(rows):
            if extract.digest_of(content) != row.digest:
                self.stale.add(row.session)
            fields = _fields_of(content)
            visible = {name: fields[name] for name in shown if name in fields} if shown else fields
            excerpt = snippet(visible, self._parsed.patterns)
            if not excerpt.marks and self._parsed.loose_patterns:
                excerpt = snippet(visible, self._parsed.loose_patterns)
            yield Hit(
                session=row.session,
                message=row.message or None,
                part=row.part or None,
                type=extract.TYPES_OF_KINDS.get(row.kind, row.kind),
                time=row.time,
                score=scores[row.id],
                snippet=excerpt,
                title=row.title,
                directory=row.directory,
                role=row.role,
                tool=row.tool,
            )


class _PartTexts:
    """Reads the current texts of parts."""

    def __init__(self, db: Connection, feeds: Sequence[ChangeFeed]) -> None:
        self._db = db
        self._feeds = feeds

    def few(self, rows: Iterable[PartRow]) -> Iterator[tuple[PartRow, ExtractedText | None]]:
        """Read parts one by one, in order; ``None`` for one that no longer exists."""
        for row in rows:
            if not row.message:
                yield row, extract.of_title(row.title)
                continue
            copies: list[Document | None] = []
            for feed in feeds_with(self._db, TEXT, self._feeds, row.session):
                with suppress(StoreError):  # nothing to show
                    copies.append(feed.part(row.session, row.message, row.part))
            kind = "part" if row.part else "message"
            record = most_complete(kind, [copy for copy in copies if copy is not None])
            if record is None:
                yield row, None
            else:
                yield row, extract.of_part(record, row.role) if row.part else extract.of_message(record)

    def many(self, rows: Iterable[PartRow]) -> Iterator[tuple[PartRow, ExtractedText | None]]:
        """Read any number of parts in batches; the order within a session may change."""
        for session, group in groupby(rows, key=lambda row: row.session):
            for batch in iter(lambda group=group: list(islice(group, _BATCH_PARTS)), []):
                parts = {(row.message, row.part): row for row in batch if row.part}
                feeds = feeds_with(self._db, TEXT, self._feeds, session)
                if len(feeds) != 1:
                    yield from self.few(batch)
                    continue
                yield from self.few(row for row in batch if not row.part)
                with suppress(StoreError):
                    for record in feeds[0].parts(session, list(parts)):
                        with suppress(RecordError):
                            document = record.document()
                            row = parts.pop((record.message_id, record.id))
                            yield row, extract.of_part(document, row.role)
                for row in parts.values():
                    yield row, None


def _fields_of(text: ExtractedText | None) -> dict[str, str]:
    return dict(zip(extract.COLUMNS, text.fields, strict=True)) if text else {}
