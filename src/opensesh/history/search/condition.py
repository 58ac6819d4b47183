"""A question to the index, as SQL: which parts answer it."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import UsageError
from .query import Question, match_of
from .tokenizer import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from sqlite3 import Connection

_BATCH = 100
_TYPED = ("session", "tool", "model", "agent", "file")
_JOINED = "LEFT JOIN message m ON m.id = p.message JOIN session s ON s.id = p.session"
_CHOSEN = "SELECT id FROM temp.chosen WHERE which = ?"
_TOUCHING = "p.id IN (SELECT part FROM touched WHERE path IN (SELECT id FROM temp.chosen WHERE which = ?))"
_BESIDE = """p.session IN (SELECT o.session FROM touched t JOIN part o ON o.id = t.part WHERE t.path IN
    (SELECT id FROM temp.chosen WHERE which = ?))"""
FIELDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "titles": ("said", ("title",)),
    "prompts": ("said", ("prompt", "subtask")),
    "answers": ("said", ("answer",)),
    "reasoning": ("said", ("reasoning",)),
    "context": ("said", ("context", "file")),
    "tools": ("tool", ("tool",)),
    "inputs": ("input", ("tool",)),
    "outputs": ("output", ("tool",)),
    "errors": ("error", ("tool", "error", "retry")),
    "paths": ("paths", ("tool", "patch", "file")),
}
"""What one may look in: the column of each, and the kinds of parts that have it."""


class Filters(NamedTuple):
    """Which parts are looked at. What is left empty does not narrow."""

    session_matches: Callable[[str, str, str], bool] | None = None
    """Told a session's project, directory and title."""
    session: str = ""
    since: int = 0
    """Milliseconds."""
    until: int = 0
    role: str = ""
    tool: str = ""
    model: str = ""
    """Part of ``provider/model``."""
    agent: str = ""
    file: str = ""
    """A file's name, the end of its path, a pattern with ``*``, or a folder with ``/`` behind it; one that begins with
    ``/``, ``./`` or ``../`` is the one there alone."""
    fields: tuple[str, ...] = ()
    """Of :data:`FIELDS`."""
    children: bool = True
    """Whether sessions of subagents are looked at too."""


class Condition:
    """The condition that a question and its filters make, for ``words``, ``part p``, ``message m``, ``session s``."""

    def __init__(self, db: Connection, question: Question, filters: Filters) -> None:
        self._db = db
        self._filters = filters._replace(**{name: clean(getattr(filters, name)) for name in _TYPED})
        self._sets = 0
        self.columns = _columns(filters.fields)
        self.match = self._within(question.match)
        self._conditions = ["p.kind != ''"]
        self._values: list[Any] = []
        self._add_question(question)
        self._add_session()
        self._add_message()
        self._add_file(wholly=question == Question())

    @property
    def is_narrowed(self) -> bool:
        """Whether anything but ``match`` decides."""
        return len(self._conditions) > 1

    def sql(self, shown: str, tail: str = "", *, more: str = "", values: Sequence[Any] = ()) -> tuple[str, list[Any]]:
        """A statement that selects ``shown`` of every part that answers, and the values it takes."""
        conditions = [*self._conditions, more] if more else self._conditions
        source = "words CROSS JOIN part p ON p.id = words.rowid" if self.match else "part p"
        where = " AND ".join(["words MATCH ?", *conditions] if self.match else conditions)
        words = ("SELECT", shown, "FROM", source, _JOINED, "WHERE", where, tail)
        return " ".join(words), [*([self.match] if self.match else []), *self._values, *values]

    def _within(self, match: str) -> str:
        return f"{{{' '.join(self.columns)}}} : ({match})" if match and self._filters.fields else match

    def _add(self, condition: str, *values: Any) -> None:
        self._conditions.append(condition)
        self._values += values

    def _add_question(self, question: Question) -> None:
        for unwanted in question.unwanted:
            self._add("p.id NOT IN (SELECT rowid FROM words WHERE words MATCH ?)", self._within(unwanted))
        for inside in question.inside:
            self._add(f"p.id IN ({_CHOSEN})", self._gather(self._holding(inside)))
        if question.either:
            asked = (
                match
                for need in question.either
                for match in ([match_of(need)] if need.words else self._holding(need.inside))
            )
            self._add(f"p.id IN ({_CHOSEN})", self._gather(asked))

    def _add_session(self) -> None:
        filters = self._filters
        if filters.session:
            self._add("s.name = ?", filters.session)
        if not filters.children:
            self._add("s.parent = ''")
        if filters.since:
            self._add("p.time >= ?", filters.since)
        if filters.until:
            self._add("p.time < ?", filters.until)
        if filters.session_matches:
            rows = self._db.execute("SELECT id, project, directory, title FROM session").fetchall()
            chosen = (number for number, *told in rows if filters.session_matches(*(text or "" for text in told)))
            self._add(f"p.session IN ({_CHOSEN})", self._choose(chosen))

    def _add_message(self) -> None:
        filters = self._filters
        if filters.fields:
            kinds = sorted({kind for name in filters.fields for kind in FIELDS[name][1]})
            self._add(f"p.kind IN ({', '.join('?' * len(kinds))})", *kinds)
        if filters.role:
            self._add("m.role = ?", filters.role)
        if filters.tool:
            self._add("p.tool GLOB ?", filters.tool)
        if filters.agent:
            self._add("m.agent = ? COLLATE NOCASE", filters.agent)
        if filters.model:
            self._add("instr(lower(m.model), ?)", filters.model.lower())

    def _add_file(self, *, wholly: bool) -> None:
        """With words to look for, in sessions that touched the file; without, where they touched it."""
        if not self._filters.file:
            return
        chosen = self._choose(paths_like(self._db, self._filters.file))
        self._add(_TOUCHING if wholly else _BESIDE, chosen)

    def _holding(self, inside: str) -> Iterator[str]:
        """FTS5 expressions that together find every part with a word in which ``inside`` stands."""
        found = self._db.execute("SELECT word FROM term WHERE instr(word, ?)", [inside])
        while batch := found.fetchmany(_BATCH):
            yield " OR ".join('"' + word.replace('"', '""') + '"' for (word,) in batch)

    def _gather(self, matches: Iterable[str]) -> int:
        """Choose the parts that any of these expressions finds."""
        chosen = self._choose(())
        sql = "INSERT OR IGNORE INTO temp.chosen SELECT ?, rowid FROM words WHERE words MATCH ?"
        for match in matches:
            self._db.execute(sql, [chosen, self._within(match)])
        return chosen

    def _choose(self, numbers: Iterable[int]) -> int:
        """Keep numbers for a condition to refer to; the name under which they are kept."""
        self._sets += 1
        if self._sets == 1:
            columns = "(which INTEGER, id INTEGER, PRIMARY KEY (which, id)) WITHOUT ROWID"
            self._db.execute(f"CREATE TEMP TABLE chosen {columns}")
        self._db.executemany("INSERT INTO temp.chosen VALUES (?, ?)", ((self._sets, number) for number in numbers))
        return self._sets


def paths_like(db: Connection, given: str) -> list[int]:
    """The files that ``given`` names, as the index numbers them."""
    wanted = _slashed(os.path.expanduser(given))
    if any(character in wanted for character in "*?["):
        pattern = wanted if wanted.startswith(("/", "*")) else f"*/{wanted}"
        rows = db.execute("SELECT id, name FROM path")
        return [number for number, name in rows if fnmatchcase("/" + _slashed(name).lstrip("/"), pattern)]
    whole = _slashed(os.path.abspath(wanted)).casefold()
    # One that says where it is, is the one there; any other is whatever is called so, wherever it is.
    loose = "" if wanted.startswith(("/", "./", "../")) else _slashed(os.path.normpath(wanted)).casefold()
    if wanted.endswith("/"):
        rows = db.execute("SELECT id, name FROM path")
        return [number for number, name in rows if _is_below(_slashed(name).casefold(), whole, loose)]
    base = whole.rpartition("/")[2]
    rows = db.execute("SELECT id, name FROM path WHERE base = ?", [base])
    return [number for number, name in rows if _is_called(_slashed(name).casefold(), whole, loose)]


def _slashed(path: str) -> str:
    return path.replace("\\", "/")


def _is_called(name: str, whole: str, loose: str) -> bool:
    return name in (whole, loose) or (bool(loose) and name.endswith("/" + loose))


def _is_below(name: str, whole: str, loose: str) -> bool:
    return name.startswith(whole.rstrip("/") + "/") or (bool(loose) and f"/{loose}/" in f"/{name}")


def _columns(fields: Sequence[str]) -> tuple[str, ...]:
    unknown = [name for name in fields if name not in FIELDS]
    if unknown:
        raise UsageError(f"one cannot look in {unknown[0]!r}; there are: {', '.join(FIELDS)}")
    return tuple(dict.fromkeys(FIELDS[name][0] for name in fields))
