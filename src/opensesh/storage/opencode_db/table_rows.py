"""Rows of an OpenCode database one by one, for repairs. See :class:`~opensesh.storage.protocol.RawRows`.

A row is written as JSON with its columns in the order of the table. Text that is not UTF-8 and blobs are base64, so
that a row comes back exactly as it was.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from contextlib import suppress
from sqlite3 import DatabaseError
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from ...errors import RecordError, StoreError
from ...records.codec import as_object, loads
from ..protocol import RawRow
from . import rows as documents
from .record_reader import is_corruption
from .record_shapes import validate
from .rows import data_of, project_columns, session_columns, total_columns
from .table_schema import as_text
from .tables import DEPTH

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from sqlite3 import Connection

    from ...records import Document
    from .record_reader import RecordReader
    from .sqlite_writer import Transactions

_KEYS = {
    "project": ("id",),
    "session": ("id",),
    "message": ("id",),
    "part": ("id",),
    "workspace": ("id",),
    "event": ("id",),
    "event_sequence": ("aggregate_id",),
}
"""The tables whose rows are examined, with their keys."""
_OWN_COLUMNS = {"message": ("session_id",), "part": ("session_id", "message_id")}
_OWNERS = {"session_id": "sessionID", "message_id": "messageID"}
_NOT_EXAMINED = {"event": frozenset(("data",))}
_PAGE = 256


class TableRows:
    """The rows of one database: a base class of its store."""

    def __init__(self, reader: RecordReader, transactions: Transactions) -> None:
        self._reader = reader
        self._transactions = transactions

    def rows(self, table: str) -> Iterator[RawRow]:
        """Iterate over the rows of a table, a page at a time: nothing is locked in between."""
        after = -1
        while True:
            with self._reader.snapshot() as (connection, known):
                names = [name for name in _columns(connection, table) if name not in _NOT_EXAMINED.get(table, ())]
                # A table that a newer OpenCode has changed is not damaged.
                if not set(_KEYS[table]) <= set(names) or (table in DEPTH and table not in known):
                    return
                words = ("SELECT rowid,", ", ".join(names), "FROM", table, "WHERE rowid > ? ORDER BY rowid LIMIT ?")
                page = connection.execute(" ".join(words), [after, _PAGE]).fetchall()
            for _, *values in page:
                columns = dict(zip(names, values, strict=True))
                record, fault = _record(table, columns)
                path = "/".join((table, *(quote(as_text(columns[name]), safe="") for name in _KEYS[table])))
                yield RawRow(path, columns, record, fault)
            if len(page) < _PAGE:
                return
            after = page[-1][0]

    def row_of(self, table: str, record: Document, columns: dict[str, Any]) -> bytes:
        """Return a row with another record, which OpenCode can read; without ``columns`` it is a new row."""
        validate(table, record, table)
        with self._reader.snapshot() as (connection, _):
            names = _columns(connection, table)
        new = {name: columns.get(name) for name in names}
        match table:
            case "project":
                new |= project_columns(record, names)
            case "session":
                totals = total_columns({"cost": 0} | record)
                new |= session_columns(record, names)
                new |= {
                    name: float(value) if name == "cost" else value for name, value in totals.items() if name in new
                }
            case _:
                owners = _OWN_COLUMNS[table]
                new |= {"id": record["id"]} | {name: record[_OWNERS[name]] for name in owners}
                new["data"] = data_of(record, "id", *(_OWNERS[name] for name in owners))
                new["time_created"] = new["time_created"] or record["time"]["created"]
                new["time_updated"] = new["time_updated"] or new["time_created"]
        return _encode({name: value.decode() if isinstance(value, bytes) else value for name, value in new.items()})

    def read_row(self, path: str) -> bytes | None:
        """Return a row as JSON; ``None`` if there is none."""
        with self._reader.snapshot() as (connection, _):
            row = _row(connection, path)
            if row is None:
                return None
            table, condition, values = _parse(path)
            kinds = ", ".join(f"typeof({name})" for name in row)
            sql = " ".join(("SELECT", kinds, "FROM", table, "WHERE", condition))
            types = connection.execute(sql, values).fetchone()
        for name, kind in zip(row, types, strict=True):
            value = row[name]
            if isinstance(value, bytes):
                row[name] = {"blob": b64encode(value).decode()} if kind == b"blob" else _json_text(value)
        return _encode(row)

    def change_rows(self, changes: Sequence[tuple[str, bytes | None]]) -> None:
        """Replace, insert or delete rows in one transaction, with the events of those that OpenCode can read."""
        with self._transactions.begin(cascades=False) as (connection, writer):
            for path, data in changes:
                table, condition, values = _parse(path)
                before = _row(connection, path)
                connection.execute(" ".join(("DELETE FROM", table, "WHERE", condition)), values)
                if data is not None:
                    _insert(connection, table, json.loads(data))
                after = _row(connection, path)
                shown = after or before
                if shown is not None and table in ("session", "message", "part"):
                    record, fault = _record(table, shown)
                    if not fault:
                        writer.log_repair(table, record, removed=after is None)

    def structural_damage(self) -> list[str]:
        """Return what SQLite says about the pages and indexes of the file; nothing if they are sound."""
        lines: list[str] = []
        with self._reader.snapshot() as (connection, _):
            try:
                lines += (line.decode(errors="replace") for (line,) in connection.execute("PRAGMA quick_check(20)"))
            except DatabaseError as error:  # a page that the check itself needs is damaged
                if not is_corruption(error):
                    raise
                lines.append(str(error))
        return [] if lines == ["ok"] else lines


def _record(table: str, columns: dict[str, Any]) -> tuple[Document, str]:
    """Return the record of a row as far as it can be read, and why OpenCode could not read it."""
    row = dict.fromkeys(documents.SESSION + documents.PROJECT + documents.PART + documents.MESSAGE) | columns
    match table:
        case "session":
            make, whole = documents.session_document, _readable_columns(row)
        case "project":
            make, whole = documents.project_document, _readable_columns(row)
        case "message" | "part":
            make = documents.message_document if table == "message" else documents.part_document
            whole = row
        case _:
            return {}, ""
    try:
        record = make(row)
        validate(table, record, "")
    except RecordError as error:
        fault = error.detail
        with suppress(RecordError):
            return make(whole), fault
        owners = {_OWNERS[name]: as_text(row[name]) for name in _OWN_COLUMNS.get(table, ())}
        stored: Document | None = None
        with suppress(RecordError):
            stored = as_object(loads(row["data"] or b""))
        return (stored or {}) | {"id": as_text(row["id"])} | owners, fault
    return record, ""


def _readable_columns(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with ``None`` for each column whose number, JSON or text cannot be read."""
    readable = dict(row)
    for name in documents.NUMBER_COLUMNS & readable.keys():
        value = readable[name]
        if value is not None and not isinstance(value, (int, float)):
            readable[name] = 0 if name == "time_created" else None
    for name in documents.JSON_COLUMNS:
        value = readable.get(name)
        if value is not None:
            try:
                loads(value if isinstance(value, bytes) else b"")
            except RecordError:
                readable[name] = None
    for name, value in readable.items():
        if isinstance(value, bytes):
            readable[name] = value.decode(errors="replace").encode()
    return readable


def _parse(path: str) -> tuple[str, str, list[str]]:
    """Return the table of a row, and the condition that selects it with its values."""
    table, *values = path.split("/")
    if len(values) != len(_KEYS.get(table, ())):
        raise StoreError(f"{path} is not a row of OpenCode's tables", path=path)
    return table, " AND ".join(f"{name} = ?" for name in _KEYS[table]), [unquote(value) for value in values]


def _columns(connection: Connection, table: str) -> list[str]:
    return [column[1].decode() for column in connection.execute(f"PRAGMA table_info({table})")]


def _row(connection: Connection, path: str) -> dict[str, Any] | None:
    table, condition, values = _parse(path)
    names = _columns(connection, table)
    row = connection.execute(
        " ".join(("SELECT", ", ".join(names), "FROM", table, "WHERE", condition)), values
    ).fetchone()
    return None if row is None else dict(zip(names, row, strict=True))


def _json_text(value: bytes) -> Any:
    with suppress(UnicodeDecodeError):
        return value.decode()
    return {"text": b64encode(value).decode()}


def _encode(row: dict[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()


def _insert(connection: Connection, table: str, row: dict[str, Any]) -> None:
    if not row.keys() <= set(_columns(connection, table)):
        raise StoreError(f"this is not a row of the table {table}", table=table)
    holes: list[str] = []
    values: list[Any] = []
    for value in row.values():
        coded = as_object(value) or {}
        holes.append("CAST(? AS TEXT)" if "text" in coded else "?")
        values.append(b64decode(coded.get("text") or coded.get("blob") or "") if coded else value)
    words = ("INSERT INTO", table, f"({', '.join(row)})", f"VALUES ({', '.join(holes)})")
    connection.execute(" ".join(words), values)
