"""Search: which parts answer a question, the best first, each with the place where it does."""

from __future__ import annotations

import time
from heapq import nlargest
from math import exp2
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from .condition import FIELDS, Condition, Filters
from .extract import TYPES_OF_KINDS
from .query import Question, regex_question, text_question, words_question
from .rows import digest_of
from .snippets import Snippet, snippet
from .texts import Place, Texts, fields_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from sqlite3 import Connection

    from ..cache.derived_cache import DerivedCache
    from .feeds import Feed

    Ranked = list[tuple[int, float]]

__all__ = ["FIELDS", "Filters", "Hit", "Query", "Results", "search"]

_WINDOW = 5_000
_COUNTED = 20_000
_DAY_MS = 86_400_000
_HALF_LIFE = 60 * _DAY_MS
_WEIGHTS = "bm25(words, 2.0, 0.5, 1.0, 0.5, 1.2, 1.5)"
_KINDS = {"title": 3.0, "prompt": 1.5, "answer": 1.2, "error": 1.2, "reasoning": 0.8, "context": 0.7, "patch": 0.6}
_PLACE = "p.id, s.name, ifnull(m.name, ''), p.name, ifnull(m.role, ''), ifnull(s.title, '')"


class Query(NamedTuple):
    """What to look for, and which of the answers to give."""

    text: str = ""
    mode: Literal["words", "text", "regex"] = "words"
    filters: Filters = Filters()
    limit: int = 20
    """0 for all."""
    offset: int = 0
    newest: bool = False
    """Newest first, instead of best first."""


class Hit(NamedTuple):
    """A part that answers."""

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
        """For machines."""
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
    """The answers."""

    total: int
    """How many parts answer, whether they are shown or not."""
    hits: list[Hit]
    sessions: int | None
    """In how many sessions; ``None`` where counting would take longer than searching."""
    widened: bool = False
    """Whether no whole word fits, and these hold the words inside others."""
    note: str = ""
    """Why there may be more; empty if there are not."""


def search(index: DerivedCache, query: Query, *, now: int | None = None) -> Results:
    """Ask an index. It is taken as it is: refresh it first."""
    moment = time.time_ns() // 1_000_000 if now is None else now
    found = _search(index, query, _question(query), moment)
    wider = _wider(query) if not found.total else None
    if wider is not None:
        again = _search(index, query, wider, moment)
        found = again._replace(widened=True) if again.total else found
    return found._replace(note=index.note)


def _search(index: DerivedCache, query: Query, question: Question, now: int) -> Results:
    """The answers; asked again if a record turns out to be gone, or other than the index knows it."""

    if question.inside or any(need.inside for need in question.either):
        index.gather_words()

    def ask(db: Connection) -> tuple[Results, set[str]]:
        asked = _Search(db, index.feeds, query, question, now)
        return asked.results(), asked.stale

    found, stale = index.ask(ask)
    if stale:
        index.recheck(stale)
        found, _ = index.ask(ask)
    return found


def _question(query: Query) -> Question:
    match query.mode:
        case "regex":
            return regex_question(query.text)
        case "text":
            return text_question(query.text)
        case _:
            return words_question(query.text)


def _wider(query: Query) -> Question | None:
    """The same words, wherever they stand inside others."""
    plain = query.text.split()
    if query.mode != "words" or not plain or not all(word.isascii() and word.isalnum() for word in plain):
        return None
    return words_question(" ".join(f"*{word}*" for word in plain))


class _Search:
    def __init__(self, db: Connection, feeds: Sequence[Feed], query: Query, question: Question, now: int) -> None:
        self._db = db
        self._query = query
        self._question = question
        self._now = now
        self._condition = Condition(db, question, query.filters)
        self._texts = Texts(db, feeds)
        self.stale: set[str] = set()
        """Sessions in which a record is not what the index says."""

    def results(self) -> Results:
        if self._question.checks:
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
            (found,) = self._db.execute("SELECT count(*) FROM words WHERE words MATCH ?", match).fetchone()
            if self._db.execute("SELECT 1 FROM dead LIMIT 1").fetchone() is None:
                return found
        return self._one("count(*)")

    def _sessions(self, total: int) -> int | None:
        return self._one("count(DISTINCT p.session)") if total <= _COUNTED else None

    def _page(self, total: int) -> Ranked:
        offset, limit = self._query.offset, self._query.limit or total
        if self._query.newest or not self._condition.match:
            sql = self._condition.sql(
                "p.id", "ORDER BY p.time DESC, p.id DESC LIMIT ? OFFSET ?", values=[limit, offset]
            )
            return [(number, 0.0) for (number,) in self._db.execute(*sql)]
        window = self._window()
        page = [(number, score) for score, number in nlargest(offset + limit, window)[offset:]]
        if len(page) < limit and len(window) == _WINDOW:
            page += self._beyond(min(number for _, number in window), limit - len(page), max(0, offset - _WINDOW))
        return page

    def _window(self) -> list[tuple[float, int]]:
        """The scores of the newest answers, with their numbers; all of them, unless there are very many. What is new
        counts up to twice as much."""
        shown = f"p.id, {_WEIGHTS}, p.time, p.kind"
        rows = self._db.execute(*self._condition.sql(shown, f"ORDER BY words.rowid DESC LIMIT {_WINDOW}"))
        weight, now = _KINDS.get, self._now
        return [
            (-rank * weight(kind, 1.0) * (1 + exp2(min(0, (moment or 0) - now) / _HALF_LIFE)), number)
            for number, rank, moment, kind in rows
        ]

    def _beyond(self, last: int, limit: int, offset: int) -> Ranked:
        tail = f"ORDER BY words.rowid DESC LIMIT {limit} OFFSET {offset}"
        sql = self._condition.sql("p.id", tail, more="words.rowid < ?", values=[last])
        return [(number, 0.0) for (number,) in self._db.execute(*sql)]

    def _checked(self) -> tuple[int, Ranked, int]:
        """Read every part that may answer, and see whether it does; newest first."""
        keep = self._query.offset + self._query.limit if self._query.limit else None
        found: list[tuple[int, int]] = []
        sessions: set[str] = set()
        total = 0
        times: dict[int, int] = {}
        for place, record in self._texts.many(self._places(times)):
            fields = fields_of(record)
            text = "\n".join(fields[name] for name in self._condition.columns or fields) if fields else ""
            moment = times.pop(place.id, 0)
            if fields and all(check(text) for check in self._question.checks):
                total += 1
                sessions.add(place.session)
                found.append((moment, place.id))
                if keep is not None and len(found) > 2 * keep + 1_000:
                    found = nlargest(keep, found)
        found.sort(reverse=True)
        page = found[self._query.offset : keep]
        return total, [(number, 0.0) for _, number in page], len(sessions)

    def _places(self, times: dict[int, int]) -> Iterator[Place]:
        sql = self._condition.sql(f"p.time, {_PLACE}", "ORDER BY p.session DESC, p.id DESC")
        for moment, *rest in self._db.execute(*sql):
            place = Place(*rest)
            times[place.id] = moment
            yield place

    def _hits(self, page: Iterable[tuple[int, float]]) -> Iterator[Hit]:
        scores = dict(page)
        rows = {number: self._row(number) for number in scores}
        shown = self._condition.columns or (("paths",) if self._question == Question() else ())
        for place, record in self._texts.few(Place(*row[:6]) for row in rows.values()):
            directory, moment, kind, tool, digest = rows[place.id][6:]
            kind = str(kind)
            if digest_of(record) != digest:
                self.stale.add(place.session)
            fields = fields_of(record)
            visible = {name: fields[name] for name in shown if name in fields} if shown else fields
            yield Hit(
                session=place.session,
                message=place.message or None,
                part=place.part or None,
                type=TYPES_OF_KINDS.get(kind, kind),
                time=moment or 0,
                score=scores[place.id],
                snippet=self._snippet(visible),
                title=place.title,
                directory=directory or "",
                role=place.role,
                tool=tool or "",
            )

    def _row(self, number: int) -> tuple[Any, ...]:
        joined = "part p LEFT JOIN message m ON m.id = p.message JOIN session s ON s.id = p.session"
        sql = " ".join(
            ("SELECT", _PLACE, ", s.directory, p.time, p.kind, p.tool, p.digest FROM", joined, "WHERE p.id = ?")
        )
        return self._db.execute(sql, [number]).fetchone()

    def _snippet(self, fields: dict[str, str]) -> Snippet:
        found = snippet(fields, self._question.patterns)
        if not found.marks and self._question.loosely:
            return snippet(fields, self._question.loosely)
        return found
