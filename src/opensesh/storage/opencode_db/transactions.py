"""Transactions on an OpenCode database: when it may be written, and which programs have it open."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...errors import ReadOnlyStoreError
from .record_writer import RecordWriter
from .sqlite_reader import FileIdentity
from .sqlite_writer import WRITE_BUSY_SECONDS, SqliteWriter
from .table_schema import NEWEST, Schema, examine, tables_version

if TYPE_CHECKING:
    from collections.abc import Generator
    from sqlite3 import Connection


_PROTECTED = ("the file or its folder is read-only", "the file is read-only")


class Transactions:
    """Writes to one database, each in one short transaction.

    Its tables are examined before the first write, and again when they have changed: OpenCode may be upgraded while
    the database is open here.
    """

    def __init__(self, path: str, busy_seconds: float = WRITE_BUSY_SECONDS) -> None:
        self._file = SqliteWriter(path, busy_seconds)
        self._examined_file = FileIdentity(path)
        self._examined_version = (-1, 0)
        self._schema = Schema({}, logs_events=False, refusal="")

    def close(self) -> None:
        """Close the database. Closing twice is not an error."""
        self._file.close()

    def refusal(self, connection: Connection) -> str:
        """Return why the database must not be written; empty if it may be."""
        path = self._file.path
        if not (os.access(path, os.W_OK) and os.access(os.path.dirname(path), os.W_OK)):
            return _PROTECTED[0]
        return self._file.damage or self._examined(connection).refusal

    def columns(self, connection: Connection, table: str) -> frozenset[str]:
        """Return the columns of a table; none if the database does not have it."""
        return self._examined(connection).columns.get(table, frozenset())

    @contextmanager
    def begin(self, *, cascades: bool = True) -> Generator[tuple[Connection, RecordWriter]]:
        """Open a transaction; raise :class:`ReadOnlyStoreError` if the tables are not known.

        Without ``cascades``, deleting a row deletes none of those that refer to it.
        """
        path = self._file.path
        if not os.access(path, os.W_OK) and os.path.exists(path):
            raise read_only(path, _PROTECTED[1])
        with self._file.transaction(cascades=cascades) as connection:
            schema = self._examined(connection)
            if schema.refusal:
                raise read_only(path, schema.refusal)
            writer = RecordWriter(connection, schema, path)
            yield connection, writer
            self._file.count_bytes(writer.bytes)

    def _examined(self, connection: Connection) -> Schema:
        version = tables_version(connection)
        if version != self._examined_version or self._examined_file.has_changed():
            self._examined_file = FileIdentity(self._file.path)
            self._schema = examine(connection)
            self._examined_version = version
        return self._schema


def read_only(path: str, reason: str) -> ReadOnlyStoreError:
    """Return the error of a write to a database that is only read, and why."""
    advice = ""
    if reason not in _PROTECTED:
        advice = (
            f" opensesh writes databases of OpenCode 1.2 to {NEWEST}, as OpenCode made them; a newer opensesh may know "
            "this one. 'opensesh import' copies its sessions into a store that can be written."
        )
    return ReadOnlyStoreError(f"{path} is only read: {reason}.{advice}", path=path, reason=reason)
