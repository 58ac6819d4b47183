"""Parquet format: a table with a row for each part, with columns of its message and session. Needs DuckDB."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Any

import msgspec

from ...errors import OpenseshError
from ...records import Document, as_object, dumps_compact, object_at
from ..formatting import text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...storage.protocol import StoredMessage
    from . import ExportedSession, FormatOptions

_MAX_ROW_BYTES = 1 << 30
_MAX_INTEGER = 1 << 62

COLUMNS = {
    "session_id": "VARCHAR",
    "project_id": "VARCHAR",
    "parent_session_id": "VARCHAR",
    "directory": "VARCHAR",
    "title": "VARCHAR",
    "message_id": "VARCHAR",
    "message_number": "INTEGER",
    "role": "VARCHAR",
    "agent": "VARCHAR",
    "provider": "VARCHAR",
    "model": "VARCHAR",
    "created": "BIGINT",
    "completed": "BIGINT",
    "finish": "VARCHAR",
    "cost": "DOUBLE",
    "tokens_input": "BIGINT",
    "tokens_output": "BIGINT",
    "tokens_reasoning": "BIGINT",
    "tokens_cache_read": "BIGINT",
    "tokens_cache_write": "BIGINT",
    "part_id": "VARCHAR",
    "part_number": "INTEGER",
    "type": "VARCHAR",
    "text": "VARCHAR",
    "synthetic": "BOOLEAN",
    "tool": "VARCHAR",
    "status": "VARCHAR",
    "input": "VARCHAR",
    "output": "VARCHAR",
    "error": "VARCHAR",
    "started": "BIGINT",
    "ended": "BIGINT",
}
"""The columns. ``input`` is JSON, times are in milliseconds. Only the first row of a message has cost and tokens, so
that they can be summed."""


class ParquetFormat:
    """Renders rows; :func:`write_table` writes the file."""

    suffix = ".parquet"
    delimiters = (b"", b"", b"")
    nests = False
    part_types = None

    def __init__(self, options: FormatOptions) -> None:
        pass

    def chunks(self, session: ExportedSession) -> Iterator[bytes]:
        """Render the rows of one session, a line of JSON each."""
        for number, message in enumerate(session.messages):
            for row in _rows(session, message, number):
                try:
                    line = msgspec.json.encode(row)
                except UnicodeEncodeError:  # a lone surrogate, which DuckDB would reject
                    texts = {name: value for name, value in row.items() if isinstance(value, str)}
                    replaced = {name: value.encode(errors="replace").decode() for name, value in texts.items()}
                    line = msgspec.json.encode(row | replaced)
                yield line + b"\n"


def write_table(lines: Iterable[bytes], path: str) -> None:
    """Write rows to a Parquet file, atomically. Memory use does not grow with their number."""
    try:
        import duckdb
    except ImportError:
        install = "pip install duckdb (with pipx: pipx inject opensesh duckdb)"
        raise OpenseshError(f"Parquet needs DuckDB: {install}", extra="analytics") from None
    folder = os.path.dirname(os.path.abspath(path))
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".opensesh-", suffix=".ndjson") as rows:
        rows.writelines(lines)
        rows.flush()
        temporary = f"{rows.name}.parquet"
        try:
            with duckdb.connect() as connection:
                connection.execute("SET preserve_insertion_order = true")
                table = connection.read_json(
                    rows.name, columns=COLUMNS, format="newline_delimited", maximum_object_size=_MAX_ROW_BYTES
                )
                table.write_parquet(temporary, compression="zstd")
            os.replace(temporary, path)
        except duckdb.Error as error:
            raise OpenseshError(f"the table could not be written: {error}", path=path) from None
        finally:
            if os.path.exists(temporary):
                os.unlink(temporary)


def _rows(session: ExportedSession, message: StoredMessage, number: int) -> Iterator[Document]:
    """Return a row for each part; one for the message if it has none."""
    head, info = session.info, message.info
    time = object_at(info, "time")
    model = object_at(info, "model")
    row: Document = {
        "session_id": session.id,
        "project_id": text(head, "projectID") or session.project,
        "parent_session_id": text(head, "parentID") or None,
        "directory": text(head, "directory"),
        "title": text(head, "title"),
        "message_number": number,
        "message_id": text(info, "id"),
        "role": text(info, "role"),
        "agent": text(info, "agent") or text(info, "mode") or None,
        "provider": text(info, "providerID") or text(model, "providerID") or None,
        "model": text(info, "modelID") or text(model, "modelID") or None,
        "created": _integer(time.get("created")),
        "completed": _integer(time.get("completed")),
        "finish": text(info, "finish") or None,
    }
    usage: Document = {}
    tokens = as_object(info.get("tokens"))
    if tokens is not None:
        cache = object_at(tokens, "cache")
        cost = info.get("cost")
        usage["cost"] = cost if isinstance(cost, (int, float)) else None
        usage |= {f"tokens_{name}": _integer(tokens.get(name)) for name in ("input", "output", "reasoning")}
        usage |= {f"tokens_cache_{name}": _integer(cache.get(name)) for name in ("read", "write")}
    for position, part in enumerate(message.parts or [{}]):
        yield row | (usage if position == 0 else {}) | ({"part_number": position, **_part(part)} if part else {})


def _part(part: Document) -> Document:
    state = object_at(part, "state")
    time = object_at(state, "time") or object_at(part, "time")
    tool_input = state.get("input")
    return {
        "part_id": text(part, "id"),
        "type": text(part, "type"),
        "text": text(part, "text") or None,
        "synthetic": bool(part.get("synthetic")) or None,
        "tool": text(part, "tool") or None,
        "status": text(state, "status") or None,
        "input": None if tool_input is None else dumps_compact(tool_input).decode(errors="replace"),
        "output": text(state, "output") or None,
        "error": text(state, "error") or None,
        "started": _integer(time.get("start")),
        "ended": _integer(time.get("end")),
    }


def _integer(value: Any) -> int | None:
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _MAX_INTEGER
    return int(value) if fits else None
