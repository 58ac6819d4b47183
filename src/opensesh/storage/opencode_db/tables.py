"""The tables of an OpenCode database, and how to select records from them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import StoreError
from . import rows
from .v2 import SESSION_V2, messages_of, read_row, row_id, session_v2_document

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from sqlite3 import Connection

    from ..protocol import Key
    from ..queries import SessionQuery
    from .rows import Row

    Layout = dict[str, set[str]]
    Records = Sequence[tuple[Key, Any]]

DEPTH = {"project": 2, "session": 3, "message": 3, "part": 3, "session_diff": 2, "todo": 2, "session_share": 2}
"""How many components the key of each kind of record has."""

PAGE = 256
"""The number of rows that a scan reads at a time."""

_NEEDED = {
    "project": ("id",),
    "session": ("id", "project_id", "time_created"),
    "message": ("id", "session_id", "time_created", "data"),
    "part": ("id", "message_id", "session_id", "data"),
    "todo": ("session_id", "position", "content", "status", "priority"),
    "session_share": rows.SHARE,
    "session_v2": ("id", "project_id", "time_created", "time_updated"),
    "session_message": ("id", "session_id", "type", "seq", "time_created", "time_updated", "data"),
}
"""The tables that are read, and the columns that each must have. No other table is used."""
_EMPTY = "it has no tables yet. OpenCode makes them when it starts; start it once."
_NOT_OF_OPENCODE = "an SQLite database, but not one of OpenCode's: it has no table of sessions"
_ESSENTIAL = {"message", "part"}
_log = logging.getLogger("opensesh.storage")

_LINES = """(SELECT json_group_array(json_array(u.position, CAST(u.content AS TEXT), CAST(u.status AS TEXT),
    CAST(u.priority AS TEXT))) FROM todo u WHERE u.session_id = t.session_id)"""
_FIRST_LINE = "t.position = (SELECT min(u.position) FROM todo u WHERE u.session_id = t.session_id)"
_PROJECT = "LEFT JOIN project j ON j.id = s.project_id"
# In 2.x, an answer has the agent and model of the prompt before it; the prompt itself has not.
_REPLY = """(SELECT CASE WHEN json_valid(n.data) THEN json_extract(n.data, '$.agent', '$.model') END
    FROM session_message n WHERE n.session_id = t.session_id AND n.type = 'assistant' AND n.seq > t.seq
    ORDER BY n.seq LIMIT 1)"""
_PARENT = """(SELECT p.id FROM session_message p WHERE p.session_id = t.session_id AND p.type = 'user'
    AND p.seq < t.seq ORDER BY p.seq DESC LIMIT 1)"""
# The update time of a session's row may still be that of its last prompt.
_UPDATED = """max(t.time_updated, ifnull((SELECT m.time_updated FROM session_message m WHERE m.session_id = t.id
    ORDER BY m.seq DESC LIMIT 1), 0))"""


class TableSource(NamedTuple):
    """One table as the source of one kind of record."""

    kind: str
    table: str
    key: tuple[str, ...]
    """The columns of the key, after its kind."""
    columns: dict[str, str]
    """The selected expressions, by name."""
    make: Callable[[Row], Any]
    """Makes the record of a row or, if rows are not :attr:`whole`, its records with their keys."""
    where: str = "1"
    joins: str = ""
    newest: str = "t.time_created DESC"
    """The order for ``messages``, newest first."""
    address: Callable[[Key], tuple[str, ...]] = lambda key: key[1:]
    """Returns the values of the key columns for a key or a prefix of one."""
    whole: bool = True
    """Whether a row is one record, whose key is known without decoding it."""

    def records(self, row: Row) -> Records:
        """Return the records of a row, in key order."""
        made = self.make(row)
        if not self.whole:
            return made
        return [((self.kind, *(rows.identifier(row, name) for name in self.key)), made)]

    def below(self, connection: Connection, prefix: Key, order: str = "") -> Generator[Row]:
        """Iterate over the rows below ``prefix``. The caller closes the iterator."""
        values = self.address(prefix)
        return self.select(connection, self._under(values), values, order)

    def select(self, connection: Connection, condition: str, values: Sequence[Any], order: str = "") -> Generator[Row]:
        """Iterate over the rows that fulfil a condition."""
        words = ("SELECT", ", ".join(self.columns.values()), "FROM", self.table, "t", self.joins, "WHERE", condition)
        sql = " ".join((*words, "ORDER BY", order) if order else words)
        cursor = connection.execute(sql, values)
        try:
            names = tuple(self.columns)
            for fields in cursor:
                yield dict(zip(names, fields, strict=True))
        finally:
            cursor.close()  # an open cursor would keep its snapshot of the database

    def page(self, connection: Connection, prefix: Key, after: tuple[bytes, ...]) -> list[Row]:
        """Return the next rows below ``prefix`` in key order, after the one whose :meth:`mark` is ``after``."""
        values, keys = self.address(prefix), self._keys
        condition = self._under(values)
        if after:
            condition += f" AND ({keys}) > ({', '.join(['CAST(? AS TEXT)'] * len(after))})"
        # The rows are chosen by key alone: sorting with the data would need the memory of a whole session.
        chosen = ("SELECT t.rowid FROM", self.table, "t WHERE", condition, "ORDER BY", keys, "LIMIT", str(PAGE))
        within = f"t.rowid IN ({' '.join(chosen)})"
        return list(self.select(connection, within, (*values, *after), keys))

    def keys(self, connection: Connection, prefix: Key) -> Iterator[Key]:
        """Iterate over the keys below ``prefix``, in order, of a source whose rows are whole records."""
        values = self.address(prefix)
        words = ("SELECT", self._keys, "FROM", self.table, "t WHERE", self._under(values), "ORDER BY", self._keys)
        for columns in connection.execute(" ".join(words), values):
            yield (self.kind, *(column.decode(errors="replace") for column in columns))

    def count_rows(self, connection: Connection, condition: str, values: Sequence[Any]) -> int:
        """Return how many rows fulfil a condition."""
        words = ("SELECT count(*) FROM", self.table, "t", self.joins, "WHERE", condition)
        (number,) = connection.execute(" ".join(words), values).fetchone()
        return number

    @property
    def updated(self) -> str:
        """When a session was last updated, as SQL; when it was created, in rows that do not say."""
        return f"coalesce(nullif({self.columns['time_updated']}, 0), t.time_created)"

    def session_filter(self, query: SessionQuery) -> tuple[str, list[Any]]:
        """Return the condition that selects sessions, as SQL, and its values."""
        conditions, values = [self._under(())], list[Any]()
        if query.projects is not None:
            conditions.append(f"t.project_id IN ({', '.join('?' * len(query.projects))})")
            values += sorted(query.projects)
        if not query.children:
            conditions.append(f"{self.columns['parent_id']} IS NULL")
        if not query.archived:
            conditions.append(f"{self.columns['time_archived']} IS NULL")
        if query.since:
            conditions.append(f"{self.updated} >= ?")
            values.append(query.since)
        if query.until:
            conditions.append(f"{self.updated} < ?")
            values.append(query.until)
        return " AND ".join(conditions), values

    def mark(self, row: Row) -> tuple[bytes, ...]:
        """Return the position after which :meth:`page` continues."""
        return tuple(row[name] for name in self.key)

    def place(self, row: Row) -> str:
        """Return the table and the id of a row."""
        return f"{self.table}/{row[self.key[-1]].decode(errors='replace')}"

    @property
    def _keys(self) -> str:
        return ", ".join(f"t.{name}" for name in self.key)

    def _under(self, values: Sequence[str]) -> str:
        equal = [f"t.{name} = ?" for name, _ in zip(self.key, values, strict=False)]
        # Values that are not text are not identifiers, and sort differently.
        return " AND ".join([*equal, *(f"typeof(t.{name}) = 'text'" for name in self.key), self.where])


def read_layout(connection: Connection, path: str) -> Layout:
    """Return the tables that are read, with their columns; raise :class:`StoreError` if they have no sessions.

    A table that is not as it should be is left out, with a warning: the records of the others can still be read.
    """
    names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    layout: Layout = {}
    for table in _NEEDED.keys() & {name.decode(errors="replace") for (name,) in names}:
        columns = {column[1].decode() for column in connection.execute(f"PRAGMA table_info({table})")}
        missing = [name for name in _NEEDED[table] if name not in columns]
        if not missing:
            layout[table] = columns
        elif table != "session_message":  # some versions of 1.x have such a table too, and do not use it
            _log.warning("%s: its table %s is not read, as it has no %s", path, table, ", ".join(missing))
            if table == "message":
                layout[table] = set()  # it is there: these are not sessions of 2.x
    if "session_v2" in layout and "session_message" not in layout:
        raise _unknown(path, "its sessions are of OpenCode 2, but their messages are not where they should be")
    if not layout.keys() & {"session", "session_v2"}:
        if layout:
            raise _unknown(path, "it has no table session that is known. It may be of a newer OpenCode.")
        raise _unknown(path, _NOT_OF_OPENCODE if names else _EMPTY)
    if "session_message" not in layout or "message" in layout:
        for table in _ESSENTIAL - layout.keys() - {name.decode(errors="replace") for (name,) in names}:
            _log.warning("%s: it has no table %s. It may be of a newer OpenCode.", path, table)
    return layout


def sources(layout: Layout) -> dict[str, list[TableSource]]:
    """Return the sources of each kind of record. A session that 2.x has is read from its tables only."""
    v2 = _v2_sessions(layout)
    by_kind: dict[str, list[TableSource]] = {}
    for source in [*_v1_sources(layout, v2), *_other_sources(layout), *_v2_sources(layout, v2)]:
        by_kind.setdefault(source.kind, []).append(source)
    return by_kind


def _v2_sessions(layout: Layout) -> str:
    """Return the table of the sessions whose messages are in ``session_message``, if there is one."""
    if "session_v2" in layout:
        return "session_v2"
    preview = "message" not in layout or "fork_session_id" in layout["session"]
    return "session" if preview and "session_message" in layout else ""


def _v1_sources(layout: Layout, v2: str) -> Iterator[TableSource]:
    def where(owner: str, *more: str) -> str:
        hidden = [" ".join(("NOT EXISTS (SELECT 1 FROM", v2, f"v WHERE v.id = t.{owner})"))] if v2 else []
        return " AND ".join(["1", *more, *hidden])

    if "session" in layout and v2 != "session":
        columns = _columns(layout["session"], rows.SESSION)
        yield TableSource("session", "session", ("project_id", "id"), columns, rows.session_record, where("id"))
        yield from _diffs(layout, "session", where("id", "t.summary_diffs IS NOT NULL"))
    if layout.get("message"):
        columns = _columns(layout["message"], rows.MESSAGE)
        yield TableSource("message", "message", ("session_id", "id"), columns, rows.message_record, where("session_id"))
    if "part" in layout:
        columns = _columns(layout["part"], rows.PART)
        yield TableSource("part", "part", ("message_id", "id"), columns, rows.part_document, where("session_id"))


def _other_sources(layout: Layout) -> Iterator[TableSource]:
    if "project" in layout:
        columns = _columns(layout["project"], rows.PROJECT)
        yield TableSource("project", "project", ("id",), columns, rows.project_document)
    if "todo" in layout:
        columns = {"session_id": "t.session_id", "lines": _LINES}
        yield TableSource("todo", "todo", ("session_id",), columns, rows.todo_document, _FIRST_LINE)
    if "session_share" in layout:
        columns = _columns(layout["session_share"], rows.SHARE)
        yield TableSource("session_share", "session_share", ("session_id",), columns, rows.share_document)


def _v2_sources(layout: Layout, v2: str) -> Iterator[TableSource]:
    if not v2:
        return
    columns = _columns(layout[v2], SESSION_V2) | {"time_updated": _UPDATED}
    yield TableSource("session", v2, ("project_id", "id"), columns, session_v2_document)
    yield from _diffs(layout, v2, "t.summary_diffs IS NOT NULL")
    message = TableSource(
        kind="message",
        table="session_message",
        key=("session_id", "id"),
        columns=_v2_columns(layout, v2),
        make=_v2_messages,
        where=" ".join(("EXISTS (SELECT 1 FROM", v2, "v WHERE v.id = t.session_id)")),
        joins=" ".join(("JOIN", v2, "s ON s.id = t.session_id", _PROJECT if "project" in layout else "")),
        newest="t.seq DESC",
        address=_message_row,
        whole=False,
    )
    yield message
    yield message._replace(kind="part", key=("id",), make=_v2_parts, address=_row_of_parts)


def _diffs(layout: Layout, table: str, where: str) -> Iterator[TableSource]:
    if "summary_diffs" in layout[table]:
        columns = _columns(layout[table], ("id", "summary_diffs"))
        yield TableSource("session_diff", table, ("id",), columns, rows.diff_document, where)


def _v2_columns(layout: Layout, v2: str) -> dict[str, str]:
    own = ("id", "session_id", "type", "seq", "time_created", "time_updated", "data")
    session = _columns(layout[v2], ("agent", "model", "directory"), "s")
    root = "j.worktree" if "worktree" in layout.get("project", ()) else "NULL"
    return {
        **_columns(layout["session_message"], own),
        "reply": _REPLY,
        "parent_id": _PARENT,
        "session_agent": session["agent"],
        "session_model": session["model"],
        "directory": session["directory"],
        "worktree": root,
    }


def _columns(present: set[str], names: tuple[str, ...], table: str = "t") -> dict[str, str]:
    """Return the expression for each of ``names``: ``NULL`` if the table does not have it."""
    return {name: f"{table}.{name}" if name in present else "NULL" for name in names}


def _unknown(path: str, reason: str) -> StoreError:
    return StoreError(f"{path}: {reason}", path=path)


def _message_row(key: Key) -> tuple[str, ...]:
    return (*key[1:2], *(row_id(name) for name in key[2:]))


def _row_of_parts(key: Key) -> tuple[str, ...]:
    return tuple(row_id(name) for name in key[1:2])


def _v2_messages(row: Row) -> Records:
    return [(("message", info["sessionID"], info["id"]), info) for info, _ in messages_of(read_row(row))]


def _v2_parts(row: Row) -> Records:
    messages = messages_of(read_row(row))
    return [(("part", info["id"], part["id"]), part) for info, parts in messages for part in parts]
