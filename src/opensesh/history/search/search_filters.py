"""Search filters, and the SQL condition that a query and its filters make."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import UsageError
from .query import ParsedQuery, match_of
from .tokenizer import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from sqlite3 import Connection

_BATCH_WORDS = 100
_TEXT_FILTERS = ("session", "tool", "model", "agent", "file")
_JOINED = "LEFT JOIN message m ON m.id = p.message JOIN session s ON s.id = p.session"
_IN_SET = "SELECT id FROM temp.id_set WHERE number = ?"
_TOUCHES_FILE = "p.id IN (SELECT part FROM touched WHERE path IN (SELECT id FROM temp.id_set WHERE number = ?))"
_SESSION_TOUCHES_FILE = """p.session IN (SELECT o.session FROM touched t JOIN part o ON o.id = t.part WHERE t.path IN
    (SELECT id FROM temp.id_set WHERE number = ?))"""
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
"""The fields that a search can be limited to: the column of each, and the kinds of parts that have it."""


class Filters(NamedTuple):
    """Criteria for the parts to search. Empty fields have no effect."""

    session_matches: Callable[[str, str, str], bool] | None = None
    """Called with a session's project, directory and title."""
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
    """A file name, the end of a path, a pattern with ``*``, or a folder followed by ``/``. A path that begins with
    ``/``, ``./`` or ``../`` matches only that file."""
    fields: tuple[str, ...] = ()
    """Names in :data:`FIELDS`; all fields if empty."""
    children: bool = True
    """Whether subagents' sessions are searched as well."""


class Condition:
    """The condition of a query and its filters, on ``words``, ``part p``, ``message m`` and ``session s``."""

    def __init__(self, db: Connection, parsed: ParsedQuery, filters: Filters) -> None:
        self._db = db
        self._filters = filters._replace(**{name: clean(getattr(filters, name)) for name in _TEXT_FILTERS})
        self._sets = 0
        for field in filters.fields:
            if field not in FIELDS:
                raise UsageError(f"unknown field {field!r}; fields are: {', '.join(FIELDS)}")
        self.columns = tuple(dict.fromkeys(FIELDS[field][0] for field in filters.fields))
        self.match = self._within_fields(parsed.match)
        self._conditions = ["p.kind != ''"]
        self._values: list[Any] = []
        for excluded in parsed.excluded:
            self._add("p.id NOT IN (SELECT rowid FROM words WHERE words MATCH ?)", self._within_fields(excluded))
        for inside in parsed.inside:
            self._add(f"p.id IN ({_IN_SET})", self._parts_matching(self._words_containing(inside)))
        if parsed.either:
            matches = (
                match
                for terms in parsed.either
                for match in ([match_of(terms)] if terms.words else self._words_containing(terms.inside))
            )
            self._add(f"p.id IN ({_IN_SET})", self._parts_matching(matches))
        self._add_filters(has_words=parsed != ParsedQuery())

    @property
    def is_narrowed(self) -> bool:
        """Whether there are conditions besides ``match``."""
        return len(self._conditions) > 1

    def sql(self, shown: str, tail: str = "", *, more: str = "", values: Sequence[Any] = ()) -> tuple[str, list[Any]]:
        """Return a statement that selects ``shown`` of every matching part, and its values."""
        conditions = [*self._conditions, more] if more else self._conditions
        source = "words CROSS JOIN part p ON p.id = words.rowid" if self.match else "part p"
        where = " AND ".join(["words MATCH ?", *conditions] if self.match else conditions)
        words = ("SELECT", shown, "FROM", source, _JOINED, "WHERE", where, tail)
        return " ".join(words), [*([self.match] if self.match else []), *self._values, *values]

    def _within_fields(self, match: str) -> str:
        return f"{{{' '.join(self.columns)}}} : ({match})" if match and self._filters.fields else match

    def _add(self, condition: str, *values: Any) -> None:
        self._conditions.append(condition)
        self._values += values

    def _add_filters(self, *, has_words: bool) -> None:
        filters = self._filters
        for condition, value in (
            ("s.name = ?", filters.session),
            ("p.time >= ?", filters.since),
            ("p.time < ?", filters.until),
            ("m.role = ?", filters.role),
            ("p.tool GLOB ?", filters.tool),
            ("m.agent = ? COLLATE NOCASE", filters.agent),
            ("instr(lower(m.model), ?)", filters.model.lower()),
        ):
            if value:
                self._add(condition, value)
        if not filters.children:
            self._add("s.parent = ''")
        if filters.session_matches:
            rows = self._db.execute("SELECT id, project, directory, title FROM session").fetchall()
            numbers = (number for number, *texts in rows if filters.session_matches(*(text or "" for text in texts)))
            self._add(f"p.session IN ({_IN_SET})", self._id_set(numbers))
        if filters.fields:
            kinds = sorted({kind for name in filters.fields for kind in FIELDS[name][1]})
            self._add(f"p.kind IN ({', '.join('?' * len(kinds))})", *kinds)
        if filters.file:
            # With words: parts of the sessions that touched the file. Without: the parts that touched it.
            paths = self._id_set(matching_paths(self._db, filters.file))
            self._add(_SESSION_TOUCHES_FILE if has_words else _TOUCHES_FILE, paths)

    def _words_containing(self, inside: str) -> Iterator[str]:
        """Return FTS5 expressions that together find every part with a word that contains ``inside``."""
        words = self._db.execute("SELECT word FROM term WHERE instr(word, ?)", [inside])
        while batch := words.fetchmany(_BATCH_WORDS):
            yield " OR ".join('"' + word.replace('"', '""') + '"' for (word,) in batch)

    def _parts_matching(self, matches: Iterable[str]) -> int:
        """Store the parts that any of these expressions finds as a set."""
        number = self._id_set(())
        sql = "INSERT OR IGNORE INTO temp.id_set SELECT ?, rowid FROM words WHERE words MATCH ?"
        for match in matches:
            self._db.execute(sql, [number, self._within_fields(match)])
        return number

    def _id_set(self, ids: Iterable[int]) -> int:
        """Store a set of ids that a condition can refer to, and return its number."""
        self._sets += 1
        if self._sets == 1:
            columns = "(number INTEGER, id INTEGER, PRIMARY KEY (number, id)) WITHOUT ROWID"
            self._db.execute(f"CREATE TEMP TABLE id_set {columns}")
        self._db.executemany("INSERT INTO temp.id_set VALUES (?, ?)", ((self._sets, number) for number in ids))
        return self._sets


def matching_paths(db: Connection, name: str) -> list[int]:
    """Return the numbers of the files that match ``name``."""
    typed = _slashed(os.path.expanduser(name))
    if any(character in typed for character in "*?["):
        pattern = typed if typed.startswith(("/", "*")) else f"*/{typed}"
        rows = db.execute("SELECT id, name FROM path")
        return [number for number, name in rows if fnmatchcase("/" + _slashed(name).lstrip("/"), pattern)]
    whole = _slashed(os.path.abspath(typed)).casefold()
    # A path with a location matches that file only; any other name matches wherever the file is.
    loose = "" if typed.startswith(("/", "./", "../")) else _slashed(os.path.normpath(typed)).casefold()
    if typed.endswith("/"):
        rows = db.execute("SELECT id, name FROM path")
        folder = whole.rstrip("/") + "/"
        names = ((number, _slashed(name).casefold()) for number, name in rows)
        return [number for number, name in names if name.startswith(folder) or (loose and f"/{loose}/" in f"/{name}")]
    base = whole.rpartition("/")[2]
    rows = db.execute("SELECT id, name FROM path WHERE base = ?", [base])
    names = ((number, _slashed(name).casefold()) for number, name in rows)
    return [number for number, name in names if name in (whole, loose) or (loose and name.endswith("/" + loose))]


def _slashed(path: str) -> str:
    return path.replace("\\", "/")
