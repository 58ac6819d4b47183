"""Sixty sessions with known messages and costs, stored as each generation of OpenCode stores them."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections.abc import Collection, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from .sample_stores import V1
from .sample_tree import Json, Sample

SESSIONS, CHILDREN, MONEY = 60, 5, Decimal("34.81")
V2 = """
CREATE TABLE IF NOT EXISTS project (id text PRIMARY KEY, worktree text, vcs text, name text, time_created integer,
  time_updated integer, sandboxes text);
CREATE TABLE session_v2 (id text PRIMARY KEY, project_id text NOT NULL, parent_id text, fork_session_id text,
  fork_boundary text, slug text NOT NULL, directory text NOT NULL, title text, version text NOT NULL,
  cost real DEFAULT 0 NOT NULL, model text, time_created integer NOT NULL, time_updated integer NOT NULL,
  time_archived integer);
CREATE TABLE session_message (id text PRIMARY KEY, session_id text NOT NULL, type text NOT NULL, seq integer NOT NULL,
  time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
"""


class Generations:
    """Fills data folders with the sessions of :attr:`sample`."""

    def __init__(self, folder: Path) -> None:
        self.sample = Sample(folder / "truth" / "storage")
        self.sessions = list(self._sessions())
        self.messages = {session["id"]: self.sample.messages(session) for session in self.sessions}

    def _sessions(self) -> Iterator[Json]:
        chance = random.Random(20260923)
        left = MONEY
        roots: list[Json] = []
        for number in range(SESSIONS):
            parent = chance.choice(roots)["id"] if number >= SESSIONS - CHILDREN else ""
            session = self.sample.session(f"Session {number}", parent=parent)
            answers = chance.randint(1, 9)
            for turn in range(answers):
                cost = left if (number, turn) == (SESSIONS - 1, answers - 1) else _price(chance)
                left -= cost
                self.sample.prompt(session, f"Question {number}.{turn}")
                answer = self.sample.answer(session, f"Answer {number}.{turn}", cost=float(cost))
                self.sample.tool(answer, "read", input={"filePath": f"/srv/dev/shop/{number}.py"})
            roots += [] if parent else [session]
            yield session

    def tree(self, data: Path) -> Sample:
        """Create the JSON tree of 1.1 and before in a data folder."""
        shutil.copytree(self.sample.root, data / "storage")
        copy = Sample(data / "storage")
        copy.clock = self.sample.clock + 60_000
        return copy

    def v1(self, data: Path, sessions: Collection[Json], *, cut: str = "") -> None:
        """Create the tables of 1.2 to 1.18 with these sessions; of the session ``cut`` only the first half."""
        with _database(data / "opencode.db", V1) as database:
            for session in sessions:
                row = _session_row(session)
                database.execute(_insert("session", row), row)
                messages = self.messages[session["id"]]
                for info in messages[: len(messages) // 2] if session["id"] == cut else messages:
                    self._v1_message(database, info)
        database.close()

    def _v1_message(self, database: sqlite3.Connection, info: Json) -> None:
        moment = info["time"]["created"]
        times = {"time_created": moment, "time_updated": moment}
        data = json.dumps({name: value for name, value in info.items() if name not in ("id", "sessionID")})
        row = {"id": info["id"], "session_id": info["sessionID"], "data": data} | times
        database.execute(_insert("message", row), row)
        for part in self._parts(info):
            own = {"id": part.pop("id"), "session_id": part.pop("sessionID"), "message_id": part.pop("messageID")}
            row = own | {"data": json.dumps(part)} | times
            database.execute(_insert("part", row), row)

    def v2(self, data: Path, sessions: Collection[Json]) -> None:
        """Create the tables of 2.0 with these sessions."""
        with _database(data / "opencode.db", V2) as database:
            for session in sessions:
                row = _session_row(session) | {"version": "2.0.26"}
                database.execute(_insert("session_v2", row), row)
                for number, info in enumerate(self.messages[session["id"]]):
                    moment = info["time"]["created"]
                    row = {"id": info["id"], "session_id": session["id"], "type": info["role"], "seq": number + 1}
                    row |= {"time_created": moment, "time_updated": moment, "data": json.dumps(self._v2_data(info))}
                    database.execute(_insert("session_message", row), row)
        database.close()

    def _v2_data(self, info: Json) -> Json:
        parts = list(self._parts(info))
        if info["role"] == "user":
            return {"time": info["time"], "text": parts[0]["text"], "files": []}
        content = [_v2_content(part) for part in parts if part["type"] in ("text", "tool")]
        model = {"id": info["modelID"], "providerID": info["providerID"]}
        same = {name: info[name] for name in ("time", "agent", "finish", "cost", "tokens")}
        return same | {"model": model, "content": content}

    def _parts(self, info: Json) -> Iterator[Json]:
        for path in sorted((self.sample.root / "part" / info["id"]).glob("*.json")):
            yield json.loads(path.read_bytes())


def tear(path: Path) -> None:
    """Cut a file in half, as a crash in the middle of a write does."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def _price(chance: random.Random) -> Decimal:
    return Decimal(chance.randint(5_000, 200_000)).scaleb(-6)


def _session_row(session: Json) -> dict[str, Any]:
    times = {"time_created": session["time"]["created"], "time_updated": session["time"]["updated"]}
    same = {name: session[name] for name in ("id", "slug", "directory", "title", "version")}
    return same | times | {"project_id": session["projectID"], "parent_id": session.get("parentID")}


def _v2_content(part: Json) -> Json:
    if part["type"] == "text":
        return {"type": "text", "text": part["text"]}
    state = part["state"]
    reported = [{"type": "text", "text": state["output"]}]
    kept: Json = {"status": state["status"], "input": state["input"], "content": reported, "metadata": {}}
    span = state["time"]
    times = {"created": span["start"], "ran": span["start"], "completed": span["end"]}
    return {"type": "tool", "id": part["callID"], "name": part["tool"], "state": kept, "time": times}


def _database(path: Path, schema: str) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(path)
    database.executescript(schema)
    database.execute("INSERT OR IGNORE INTO project (id, worktree, sandboxes) VALUES ('proj', '/srv/dev/shop', '[]')")
    return database


def _insert(table: str, row: dict[str, Any]) -> str:
    return f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join(f':{name}' for name in row)})"
