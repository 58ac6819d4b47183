"""Stores of a given size, made in OpenCode's format."""

from __future__ import annotations

import json
import os
import random
import sqlite3
from collections.abc import Sequence
from glob import iglob
from typing import Any

from opensesh import ids
from opensesh.records import dumps

WORDS = (
    "the parser reads every token and the test fails when a file is missing because its path was never checked".split()
)


class Builder:
    """Writes records as plain files, as fast as the disk allows."""

    def __init__(self, root: str, *, seed: int = 1, vocabulary: Sequence[str] = WORDS) -> None:
        self.root = root
        self.vocabulary = vocabulary
        self.random = random.Random(seed)
        self.clock = 1_790_000_000_000
        self._mint = ids.IdGenerator(clock=lambda: self.clock, entropy=self.random.randbytes)
        self.files = 0
        self._project()

    def session(
        self, messages: int, parts: int = 4, *, words: int = 150, title: str = "", directory: str = "/srv/dev/bench"
    ) -> str:
        """A session of so many messages, each with so many parts; its id."""
        self.clock += 60_000
        session = self._mint.descending("ses")
        info = {
            "id": session, "slug": "amber-cove", "version": "1.1.65", "projectID": "global",
            "directory": directory, "title": title or f"Session {session[-4:]}",
            "time": {"created": self.clock, "updated": self.clock},
        }  # fmt: skip
        self._write(("session", "global", session), info)
        parent = ""
        for number in range(messages):
            self.clock += 1_000
            parent = self._message(session, number, parent, parts, words)
        return session

    def _message(self, session: str, number: int, parent: str, parts: int, words: int) -> str:
        message = self._mint.ascending("msg")
        base: dict[str, Any] = {"id": message, "sessionID": session}
        if number % 2 == 0:
            model = {"providerID": "fake", "modelID": "scripted"}
            info = base | {"role": "user", "time": {"created": self.clock}, "agent": "build", "model": model}
        else:
            info = base | {
                "role": "assistant", "time": {"created": self.clock, "completed": self.clock + 900}, "parentID": parent,
                "modelID": "scripted", "providerID": "fake", "mode": "build", "agent": "build",
                "path": {"cwd": "/srv/dev/bench", "root": "/srv/dev/bench"}, "cost": 0.0034,
                "tokens": {"input": 900, "output": 120, "reasoning": 0, "cache": {"read": 300, "write": 0}},
                "finish": "stop",
            }  # fmt: skip
        self._write(("message", session, message), info)
        for position in range(parts if number % 2 else 1):
            part = self._mint.ascending("prt")
            text = " ".join(self.random.choices(self.vocabulary, k=words))
            own = {"id": part, "sessionID": session, "messageID": message}
            self._write(
                ("part", message, part), own | (self._tool(text) if position % 2 else {"type": "text", "text": text})
            )
        return message

    def _tool(self, text: str) -> dict[str, Any]:
        time = {"start": self.clock, "end": self.clock + 40}
        state = {
            "status": "completed",
            "input": {"filePath": "/srv/dev/bench/a.py"},
            "output": text,
            "title": "a.py",
            "metadata": {},
            "time": time,
        }
        return {"type": "tool", "callID": "call_1", "tool": "read", "state": state}

    def _project(self) -> None:
        self._write(
            ("project", "global"),
            {"id": "global", "worktree": "/", "sandboxes": [], "time": {"created": 1, "updated": 1}},
        )
        with open(os.path.join(self.root, "migration"), "w") as file:
            file.write("2")

    def _write(self, key: tuple[str, ...], value: object) -> None:
        path = os.path.join(self.root, *key) + ".json"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(dumps(value))
        self.files += 1


def plant(root: str, session: str, text: str, *, position: int = 0) -> None:
    """Make ``text`` the only part of a message of a session: of its first prompt, or at another position."""
    message = sorted(os.listdir(os.path.join(root, "message", session)))[position].removesuffix(".json")
    (name,) = os.listdir(os.path.join(root, "part", message))
    path = os.path.join(root, "part", message, name)
    with open(path, encoding="utf-8") as file:
        part = json.load(file)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(part | {"text": text}, file)


def to_database(root: str, path: str) -> None:
    """The sessions of a tree as OpenCode 1.18 keeps them, in tables that it made itself."""
    made = os.path.join(os.path.dirname(__file__), "..", "tests", "fixtures", "opencode-1.18.33", "opencode.db")
    theirs, database = sqlite3.connect(made), sqlite3.connect(path)
    for (sql,) in theirs.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"):
        database.execute(sql)
    migrations = theirs.execute("SELECT * FROM migration").fetchall()  # without them, OpenCode makes its tables again
    database.executemany(f"INSERT INTO migration VALUES ({', '.join('?' * len(migrations[0]))})", migrations)
    theirs.close()
    project = "INSERT INTO project (id, worktree, time_created, time_updated, sandboxes) VALUES (?, ?, 1, 1, '[]')"
    database.execute(project, ["global", "/"])
    for kind, row in (("session", _session_row), ("message", _message_row), ("part", _part_row)):
        for file in iglob(os.path.join(root, kind, "*", "*.json")):
            with open(file, "rb") as stream:
                values = row(json.load(stream))
            words = ("INSERT INTO", kind, "(", ", ".join(values), ") VALUES (", ", ".join("?" * len(values)), ")")
            database.execute(" ".join(words), [*values.values()])
    database.commit()
    database.close()


def _session_row(record: dict[str, Any]) -> dict[str, Any]:
    same = {name: record[name] for name in ("id", "slug", "directory", "title", "version")}
    return same | {"project_id": record["projectID"]} | _times(record["time"])


def _message_row(record: dict[str, Any]) -> dict[str, Any]:
    own = {"id": record.pop("id"), "session_id": record.pop("sessionID")}
    return own | _times(record["time"]) | {"data": json.dumps(record)}


def _part_row(record: dict[str, Any]) -> dict[str, Any]:
    own = {"id": record.pop("id"), "session_id": record.pop("sessionID"), "message_id": record.pop("messageID")}
    return own | _times({}) | {"data": json.dumps(record)}


def _times(time: dict[str, int]) -> dict[str, int]:
    created = time.get("created", 1)
    return {"time_created": created, "time_updated": time.get("updated", created)}
