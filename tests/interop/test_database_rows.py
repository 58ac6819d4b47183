"""The rows that both programs write for one scenario, each into a database of its own."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import pytest

from opensesh.storage import open_store
from opensesh.testing.wire import WireServer

from ..sharing.process import Server
from ..storage.opencode_databases import assert_sound, empty_database
from . import scenarios
from .opencode import OpenCode
from .scenarios import SCENARIOS, Ask, Compact, Fork, Scenario
from .sides import EvenModel, Original, Ours, play

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.interop

Change = Literal["rename", "archive", "share", "unshare", "undo compaction", "remove"]


class Case(NamedTuple):
    """A scenario, changes after it, and the fields in which opensesh differs on purpose."""

    scenario: Scenario
    changes: tuple[Change, ...] = ()
    differs: tuple[str, ...] = ()


_TODOS = '{"todos": [{"content": "look", "status": "pending", "priority": "high"}]}'
_BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
_COMPACTED = Scenario("compacted", (Ask("SAY one."), Ask("SAY two."), Compact()))
_TOTALS = ("summary_additions", "summary_deletions", "summary_files", "totals")
"""OpenCode 1.18 counts the changed lines of a session only while it is reverted."""
CASES = {
    "todos, a rename and archiving": Case(
        Scenario("rows", (Ask(f"CALL todowrite {_TODOS}\n---\nSAY Done."), Ask("SAY second."))), ("rename", "archive")
    ),
    "a fork": Case(Scenario("forked", (Ask("SAY one."), Fork()))),
    "a fork that continues": Case(_BY_NAME["a fork that continues"]),
    # The rules of 1.1 also deny a subagent its parent's todos.
    "a subagent": Case(_BY_NAME["a subagent"], (), ("permission",)),
    "a revert": Case(_BY_NAME["reverted"]),
    "a revert within an answer": Case(_BY_NAME["reverted within an answer"]),
    "a revert and a prompt": Case(_BY_NAME["reverted and continued"], (), _TOTALS),
    # OpenCode does not delete again what a revert had restored, so that its snapshots differ afterwards.
    "a revert that is undone": Case(_BY_NAME["reverted and unreverted"], (), (*_TOTALS, "snapshot")),
    # No file changes while a summary is written, so that opensesh takes no snapshots around it.
    "a compaction": Case(_COMPACTED, (), ("snapshot",)),
    "a compaction and a prompt": Case(_BY_NAME["compacted on request"], (), ("snapshot",)),
    "a compaction that is undone": Case(_COMPACTED._replace(name="undone"), ("undo compaction",), ("snapshot",)),
    "a share": Case(Scenario("shared", (Ask("SAY one."),)), ("share",)),
    # OpenCode 1.18 leaves the address of a share that it has removed.
    "a share that is removed": Case(
        Scenario("unshared", (Ask("SAY one."),)), ("share", "unshare"), ("share_url", "share")
    ),
    "a removal": Case(_BY_NAME["a subagent"]._replace(name="removed"), ("remove",)),
}
SOME_CASES = [pytest.param(name, marks=[pytest.mark.slow] if number % 4 else []) for number, name in enumerate(CASES)]
"""All cases, of which a few are played in every run."""
TABLES = {
    "session": "SELECT * FROM session t WHERE t.id = ?",
    "message": "SELECT * FROM message WHERE session_id = ? ORDER BY time_created, id",
    "part": "SELECT part.* FROM part JOIN message m ON m.id = message_id WHERE part.session_id = ? "
    "ORDER BY m.time_created, m.id, part.id",
    "todo": "SELECT * FROM todo WHERE session_id = ? ORDER BY position",
    "session_share": "SELECT * FROM session_share WHERE session_id = ?",
}
"""The tables that must have the same rows for a session, and their order."""
_JSON = ("data", "model", "permission", "metadata", "sandboxes", "revert", "summary_diffs")
_NAME = re.compile(r"\b(?:ses|msg|prt|tool|call)_\w{10,}|\b[0-9a-f]{40}\b")
_SHARE = re.compile(r"(?<=/share/)[\w-]+")
_OWN_WORDS = re.compile(r"\n\n## The user's own words\n.*", re.DOTALL)
"""What opensesh adds to a summary."""

_TODO_ID = re.compile(r',\n *"id": "1"')


class Rows:
    """Reads the rows of a database, with names for what is never the same twice."""

    def __init__(self, database: Path, project: Path, ignored: tuple[str, ...]) -> None:
        self._database = database
        self._project = str(project)
        self._ignored = {*ignored, "opensesh"}
        self._names: dict[str, str] = {}

    def family(self, session: str) -> list[str]:
        """Return a session and its children."""
        children = self._select("SELECT id FROM session WHERE parent_id = ? ORDER BY time_created", session)
        return [session, *(row["id"] for row in children)]

    def of(self, session: str) -> dict[str, list[Any]]:
        """Return the rows of a session, by table."""
        return {table: [self._clean(row) for row in self._select(sql, session)] for table, sql in TABLES.items()}

    def events(self, session: str) -> dict[tuple[str, str], Any]:
        """Return the last event of each kind about each record. opensesh repeats fewer, and in a fork all messages come
        before their parts."""
        rows = self._select("SELECT seq, type, data FROM event WHERE aggregate_id = ? ORDER BY seq", session)
        counters = self._select("SELECT seq FROM event_sequence WHERE aggregate_id = ?", session)
        assert [row["seq"] for row in rows] == [number for row in counters for number in range(row["seq"] + 1)]
        events: dict[tuple[str, str], Any] = {}
        for row in rows:
            data = self._clean(json.loads(row["data"]))
            if row["type"] == "session.created.1":
                # OpenCode stores the agent of a subagent's session when it is created, opensesh with its prompt.
                data["info"].pop("agent", None)
            record = data.get("part") or data.get("info") or {"id": data.get("messageID")}
            events[row["type"], record["id"]] = data
        return events

    def _select(self, sql: str, *values: str) -> list[dict[str, Any]]:
        with closing(sqlite3.connect(self._database)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(sql, values)]

    def _clean(self, value: Any, field: str = "") -> Any:
        match value:
            case dict():
                return self._clean_fields(cast("dict[str, Any]", value))
            case list():
                return [self._clean(item) for item in cast("list[Any]", value)]
            case str() if field in _JSON and value[:1] in ("{", "["):
                return self._clean(json.loads(value))
            case str():
                if field in ("slug", "version", "secret"):
                    return field
                # OpenCode 1.18 keeps blanks at the end of an answer; opensesh removes them, as 1.1 did.
                text = _OWN_WORDS.sub("", value.replace(self._project, "<project>").rstrip(" "))
                text = _SHARE.sub("<share>", _TODO_ID.sub("", text))
                return _NAME.sub(lambda match: self._names.setdefault(match[0], f"<{len(self._names)}>"), text)
            case _:
                return "<time>" if isinstance(value, int) and value > 1_600_000_000_000 else value

    def _clean_fields(self, fields: dict[str, Any]) -> Any:
        if "totals" in self._ignored and fields.keys() == {"additions", "deletions", "files"}:
            return "totals"
        if fields.get("type") == "tool":  # what a tool tells has changed since 1.1
            compared = ("status", "input", "time")
            fields = fields | {"state": {name: fields["state"].get(name) for name in compared}}
        # Todos have ids in opensesh, as in 1.1; OpenCode 1.18 has none. The id of a share is chosen by its server.
        skipped = self._ignored | ({"id"} if {"priority", "secret"} & fields.keys() else set[str]())
        return {name: self._clean(item, name) for name, item in fields.items() if name not in skipped}


class Place(NamedTuple):
    """Where the two programs write."""

    theirs: Original
    ours: Path
    database: Path
    project: Path


@pytest.fixture(scope="module")
def wire() -> Iterator[WireServer]:
    with WireServer(EvenModel.prompted()) as server:
        yield server


@pytest.fixture(scope="module")
def place(wire: WireServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    root = tmp_path_factory.mktemp("rows")
    shares = Server(root / "shares")
    shares.start()
    config = scenarios.config(wire.base_url) | {"share": "manual", "enterprise": {"url": shares.url}}
    try:
        with OpenCode(root / "theirs", wire, version="1.18.34", config=config) as opencode:
            opencode.list()
            database = empty_database(root / "ours" / "data" / "opencode")
            project = Path(shutil.copytree(opencode.directory, root / "ours" / "project"))
            yield Place(Original(opencode), root / "ours", database, project)
            assert_sound(opencode.database)
            assert_sound(database)
    finally:
        shares.stop()


async def change_ours(side: Ours, what: Change, session: str) -> None:
    """Make a change that a scenario does not have."""
    match what:
        case "rename":
            side.sessions.rename(session, "Renamed")
        case "archive":
            side.sessions.archive(session)
        case "share":
            await side.engine.share(session)
        case "unshare":
            await side.engine.unshare(session)
        case "undo compaction":
            await side.engine.undo_compaction(session)
        case "remove":
            side.sessions.remove(session)


def change_theirs(opencode: OpenCode, what: Change, session: str) -> None:
    """Make a change that a scenario does not have."""
    match what:
        case "rename":
            opencode.update(session, title="Renamed")
        case "archive":
            opencode.update(session, archived=1_790_000_000_000)
        case "share":
            opencode.request("POST", f"/session/{session}/share")
        case "unshare":
            opencode.request("DELETE", f"/session/{session}/share")
        case "undo compaction":
            for message in reversed(opencode.messages(session)[-2:]):
                opencode.request("DELETE", f"/session/{session}/message/{message['info']['id']}")
        case "remove":
            opencode.delete(session)


async def rows_after(side: Original | Ours, case: Case, wire: WireServer, rows: Rows) -> list[Any]:
    """Play a case, and return the rows and events of its sessions and their children."""
    played = (await play(side, case.scenario, wire)).sessions
    await side.settle()
    sessions = [name for session in played for name in rows.family(session)]
    for what in case.changes:
        if isinstance(side, Ours):
            await change_ours(side, what, played[0])
        else:
            change_theirs(side.opencode, what, played[0])
    await side.settle()
    return [(rows.of(session), rows.events(session)) for session in sessions]


@pytest.mark.parametrize("name", SOME_CASES)
async def test_both_programs_write_the_same_rows(name: str, place: Place, wire: WireServer) -> None:
    opencode, case = place.theirs.opencode, CASES[name]
    their_rows = Rows(opencode.database, opencode.directory, case.differs)
    theirs = await rows_after(place.theirs, case, wire, their_rows)
    store = open_store(str(place.database.parent))
    async with Ours(place.ours, place.project, place.theirs.config, store=store) as side:
        ours = await rows_after(side, case, wire, Rows(place.database, place.project, case.differs))
    assert len(ours) == len(theirs)
    for (our_tables, our_events), (their_tables, their_events) in zip(ours, theirs, strict=True):
        for table, rows in their_tables.items():
            assert our_tables[table] == rows, table
        assert our_events.keys() == their_events.keys()
        for key, event in their_events.items():
            assert our_events[key] == event, key
