"""Stores of a given size, made in OpenCode's format."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
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
        self._mint = ids.Minter(clock=lambda: self.clock, entropy=self.random.randbytes)
        self.files = 0
        self._project()

    def session(self, messages: int, parts: int = 4, *, words: int = 150) -> str:
        """A session of so many messages, each with so many parts; its id."""
        self.clock += 60_000
        session = self._mint.descending("ses")
        info = {
            "id": session, "slug": "amber-cove", "version": "1.1.65", "projectID": "global",
            "directory": "/srv/dev/bench", "title": f"Session {session[-4:]}",
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
