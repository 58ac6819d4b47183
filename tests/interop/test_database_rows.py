"""The rows that both programs write for one scenario, each into a database of its own."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from opensesh.storage import open_store
from opensesh.testing.wire import WireServer

from ..storage.opencode_databases import assert_sound, empty_database
from . import scenarios
from .opencode import OpenCode
from .scenarios import Ask, Fork, Scenario
from .sides import EvenModel, Original, Ours, play

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.interop

_TODOS = '{"todos": [{"content": "look", "status": "pending", "priority": "high"}]}'
SCENARIO = Scenario("rows", (Ask(f"CALL todowrite {_TODOS}\n---\nSAY Done."), Ask("SAY second."), Fork()))
TABLES = {
    "project": "id",
    "session": "time_created, id",
    "message": "(SELECT s.time_created FROM session s WHERE s.id = session_id), time_created, id",
    "part": "(SELECT s.time_created FROM session s WHERE s.id = session_id), message_id, id",
    "todo": "position",
}
"""The tables that must have the same rows, and their order."""
_JSON = ("data", "model", "permission", "metadata", "sandboxes")
_NAME = re.compile(r"\b(ses|msg|prt|tool|call)_\w{10,}|\b()[0-9a-f]{40}\b")

_TODO_ID = re.compile(r',\n *"id": "1"')


class Rows:
    """Reads the rows of a database, with names for what is never the same twice."""

    def __init__(self, database: Path, project: Path) -> None:
        self._database = database
        self._project = str(project)
        self._names: dict[str, str] = {}

    def table(self, table: str) -> list[Any]:
        """Return the rows of a table."""
        return [self._clean(row) for row in self._select(f"SELECT * FROM {table} ORDER BY {TABLES[table]}")]

    def events(self, session: str) -> list[tuple[str, ...]]:
        """Return the kinds of records that the log of a session has, and of what they are."""
        rows = list(self._select(f"SELECT seq, type, data FROM event WHERE aggregate_id = '{session}' ORDER BY seq"))
        (counter,) = self._select(f"SELECT seq FROM event_sequence WHERE aggregate_id = '{session}'")
        assert [row["seq"] for row in rows] == list(range(counter["seq"] + 1))
        described = ((row["type"], json.loads(row["data"])) for row in rows)
        return [(kind, data.get("part", {}).get("type") or data["info"].get("role", "")) for kind, data in described]

    def _select(self, sql: str) -> Iterator[dict[str, Any]]:
        with closing(sqlite3.connect(self._database)) as connection:
            connection.row_factory = sqlite3.Row
            yield from [dict(row) for row in connection.execute(sql)]

    def _clean(self, value: Any, field: str = "") -> Any:
        match value:
            case dict():
                fields = cast("dict[str, Any]", value)
                # Todos have ids in opensesh, as in 1.1; OpenCode 1.18 has none.
                return {
                    name: self._clean(item, name)
                    for name, item in fields.items()
                    if not (name == "id" and "priority" in fields)
                }
            case list():
                return [self._clean(item) for item in cast("list[Any]", value)]
            case str() if field in _JSON and value[:1] in ("{", "["):
                return self._clean(json.loads(value))
            case str():
                if field in ("slug", "version"):
                    return field
                # OpenCode 1.18 keeps blanks at the end of an answer; opensesh removes them, as 1.1 did.
                text = _TODO_ID.sub("", value.replace(self._project, "<project>").rstrip(" "))
                return _NAME.sub(lambda match: self._names.setdefault(match[0], f"<{len(self._names)}>"), text)
            case _:
                return "<time>" if isinstance(value, int) and value > 1_600_000_000_000 else value


async def test_both_programs_write_the_same_rows(tmp_path: Path) -> None:
    with WireServer(EvenModel.prompted()) as wire:
        root = tmp_path / "theirs"
        with OpenCode(root, wire, version="1.18.34", config=scenarios.config(wire.base_url)) as opencode:
            original = Original(opencode)
            their_sessions = (await play(original, SCENARIO, wire)).sessions
            for change in ({"title": "Renamed"}, {"time": {"archived": 1_790_000_000_000}}):
                await asyncio.to_thread(opencode.request, "PATCH", f"/session/{their_sessions[0]}", change)
            await original.settle()
            theirs = Rows(opencode.database, opencode.directory)
            their_rows = {table: theirs.table(table) for table in TABLES}
            their_events = [theirs.events(session) for session in their_sessions]
        data = tmp_path / "ours" / "data" / "opencode"
        database = empty_database(data)
        project = Path(shutil.copytree(original.project, tmp_path / "ours" / "project"))
        async with Ours(tmp_path / "ours", project, original.config, store=open_store(str(data))) as side:
            our_sessions = (await play(side, SCENARIO, wire)).sessions
            side.sessions.rename(our_sessions[0], "Renamed")
            side.sessions.archive(our_sessions[0])
    ours = Rows(database, project)
    for table, rows in their_rows.items():
        for our_row, row in zip(ours.table(table), rows, strict=True):
            assert our_row == row, table
    for session, expected in zip(our_sessions, their_events, strict=True):
        # Repeated updates of one record are fewer, and a fork's messages are logged before its parts.
        assert {*ours.events(session)} == {*expected}
    assert_sound(database)
