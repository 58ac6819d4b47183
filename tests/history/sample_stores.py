"""Small stores for the tests of history: a JSON tree written in place, as OpenCode does, and databases."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from itertools import count
from pathlib import Path
from typing import Any

START = 1_790_000_000_000

V1 = """
CREATE TABLE project (id text PRIMARY KEY, worktree text, vcs text, name text, time_created integer,
  time_updated integer, sandboxes text);
CREATE TABLE session (id text PRIMARY KEY, project_id text NOT NULL, parent_id text, slug text, directory text,
  title text, version text, time_created integer, time_updated integer, time_archived integer);
CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL, time_created integer, time_updated integer,
  data text NOT NULL);
CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL, time_created integer,
  time_updated integer, data text NOT NULL);
"""


class Tree:
    """A JSON tree whose files are written in place, which does not change the times of their folders."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._numbers = count(1)
        self._clock = START

    def project(self, identity: str, worktree: str, **more: Any) -> None:
        self.write(("project", identity), {"id": identity, "worktree": worktree, "time": {"created": 1}, **more})

    def session(self, name: str = "", *, project: str = "global", **more: Any) -> str:
        name = name or self.mint("ses")
        self._clock += 1_000
        info = {"id": name, "slug": f"slug-{name}", "projectID": project, "directory": "/srv/app", "title": "A session"}
        self.write(("session", project, name), info | {"time": {"created": self._clock, "updated": self._clock}} | more)
        return name

    def message(self, session: str, role: str = "user", **more: Any) -> str:
        name = self.mint("msg")
        self._clock += 1_000
        time_ = {"created": self._clock} | ({"completed": self._clock + 500} if role == "assistant" else {})
        own = {"agent": "build", "providerID": "acme", "modelID": "m1"} if role == "assistant" else {}
        self.write(
            ("message", session, name), {"id": name, "sessionID": session, "role": role, "time": time_} | own | more
        )
        return name

    def part(self, session: str, message: str, name: str = "", **content: Any) -> str:
        name = name or self.mint("prt")
        own = {"id": name, "sessionID": session, "messageID": message}
        self.write(("part", message, name), own | content)
        return name

    def text(self, session: str, text: str, role: str = "user", **more: Any) -> tuple[str, str]:
        message = self.message(session, role)
        return message, self.part(session, message, type="text", text=text, **more)

    def tool(self, session: str, tool: str, *, message: str = "", name: str = "", **state: Any) -> tuple[str, str]:
        message = message or self.message(session, "assistant")
        kept: dict[str, Any] = {"status": "completed", "input": {}, "output": "", "title": "", "metadata": {}}
        kept |= state
        return message, self.part(session, message, name, type="tool", callID="c", tool=tool, state=kept)

    def write(self, key: tuple[str, ...], value: object) -> Path:
        path = self.path(*key)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value))
        return path

    def path(self, *key: str) -> Path:
        return self.root.joinpath(*key).with_suffix(".json")

    def mint(self, prefix: str) -> str:
        return f"{prefix}_{next(self._numbers):012x}Aa"

    def settle(self, seconds: float = 3_600) -> None:
        """Set the times of all files and folders back, as if they had been written a while ago."""
        for path in (self.root, *self.root.rglob("*")):
            moment = path.stat().st_mtime_ns - int(seconds * 1e9)
            os.utime(path, ns=(moment, moment))


class Database:
    """An ``opencode.db`` of 1.x."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.executescript(V1)
        self.clock = START + 10_000_000

    def session(self, name: str, **more: Any) -> str:
        row = {"id": name, "project_id": "global", "slug": "s", "directory": "/srv/app", "title": "In a database",
               "version": "1.2", "time_created": self.clock, "time_updated": self.clock} | more  # fmt: skip
        return self._insert("session", row)

    def message(self, session: str, name: str, **data: Any) -> str:
        self.clock += 1_000
        data = {"role": "user", "time": {"created": self.clock}} | data
        row = {"id": name, "session_id": session, "data": json.dumps(data)}
        return self._insert("message", row | {"time_created": self.clock, "time_updated": self.clock})

    def part(self, session: str, message: str, name: str, **data: Any) -> str:
        row = {"id": name, "message_id": message, "session_id": session, "data": json.dumps(data)}
        return self._insert("part", row | {"time_created": self.clock, "time_updated": self.clock})

    def close(self) -> None:
        self.connection.close()

    def _insert(self, table: str, row: dict[str, Any]) -> str:
        marks = ", ".join("?" * len(row))
        self.connection.execute(f"INSERT OR REPLACE INTO {table} ({', '.join(row)}) VALUES ({marks})", [*row.values()])
        return row["id"]


def settle(path: Path, seconds: float = 3_600) -> None:
    moment = time.time() - seconds
    for item in (path, path.with_name(path.name + "-wal")):
        if item.exists():
            os.utime(item, (moment, moment))
