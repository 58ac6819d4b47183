from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from opensesh import ids
from opensesh.records import dumps

Json = dict[str, Any]
START = 1_790_000_000_000
DAY = 86_400_000


class Sample:
    """Writes sessions as plain files, as OpenCode 1.1.65 does, with costs that are easy to add up."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = START
        self._mint = ids.IdGenerator(clock=lambda: self.clock)
        self.write(("project", "proj"), {"id": "proj", "worktree": "/srv/dev/shop", "vcs": "git", "sandboxes": []})
        (root / "migration").write_text("2")

    def write(self, key: tuple[str, ...], value: object) -> Path:
        path = self.root.joinpath(*key[:-1], f"{key[-1]}.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(dumps(value))
        return path

    def session(self, title: str = "Work", *, parent: str = "", project: str = "proj", **more: Any) -> Json:
        self.clock += 1000
        info: Json = {
            "id": self._mint.descending("ses"),
            "slug": "calm-river",
            "version": "1.1.65",
            "projectID": project,
            "directory": "/srv/dev/shop",
            **({"parentID": parent} if parent else {}),
            "title": title,
            "time": {"created": self.clock, "updated": self.clock},
            **more,
        }
        self.write(("session", project, info["id"]), info)
        return info

    def prompt(self, session: Json, text: str = "Why?", **more: Any) -> Json:
        self.clock += 1000
        info: Json = {
            "id": self._mint.ascending("msg"),
            "sessionID": session["id"],
            "role": "user",
            "time": {"created": self.clock},
            "agent": "build",
            "model": {"providerID": "anthropic", "modelID": "claude-sonnet-4-5"},
            **more,
        }
        self.write(("message", session["id"], info["id"]), info)
        self.part(info, type="text", text=text)
        return info

    def answer(self, session: Json, text: str = "Because.", *, cost: float = 0.25, **more: Any) -> Json:
        self.clock += 1000
        tokens = {"input": 1000, "output": 100, "reasoning": 10, "cache": {"read": 500, "write": 50}}
        info: Json = {
            "id": self._mint.ascending("msg"),
            "sessionID": session["id"],
            "role": "assistant",
            "time": {"created": self.clock, "completed": self.clock + 500},
            "parentID": "msg_parent",
            "modelID": "claude-sonnet-4-5",
            "providerID": "anthropic",
            "mode": "build",
            "agent": "build",
            "path": {"cwd": "/srv/dev/shop", "root": "/srv/dev/shop"},
            "cost": cost,
            "tokens": tokens,
            "finish": "stop",
            **more,
        }
        self.write(("message", session["id"], info["id"]), info)
        self.part(info, type="step-start")
        self.part(info, type="text", text=text)
        self.part(info, type="step-finish", reason="stop", cost=info["cost"], tokens=info["tokens"])
        return info

    def part(self, message: Json, **fields: Any) -> Json:
        part = {
            "id": self._mint.ascending("prt"),
            "sessionID": message["sessionID"],
            "messageID": message["id"],
            **fields,
        }
        self.write(("part", message["id"], part["id"]), part)
        return part

    def tool(self, message: Json, tool: str = "bash", status: str = "completed", **state: Any) -> Json:
        span = {"start": self.clock, "end": self.clock + 200}
        ended = {"output": "fine", "title": "t", "metadata": {}, "time": span} if status == "completed" else {}
        failed = {"error": "no", "time": span} if status == "error" else {}
        fields = {"status": status, "input": {"command": "ls"}, **ended, **failed, **state}
        return self.part(message, type="tool", callID="call_1", tool=tool, state=fields)

    def talk(self, title: str = "Work", answers: int = 2, **more: Any) -> Json:
        session = self.session(title, **more)
        for number in range(answers):
            self.prompt(session, f"Question {number}")
            self.answer(session, f"Answer {number}")
        return session

    def messages(self, session: Json) -> list[Json]:
        folder = self.root / "message" / session["id"]
        result = [json.loads(path.read_bytes()) for path in folder.glob("*.json")]
        return sorted(result, key=lambda info: info["time"]["created"])

    def fork(self, session: Json, *, upto: int | None = None, title: str | None = None, **more: Any) -> Json:
        """Copy a session as OpenCode does: with new ids, and the same times, tokens and costs."""
        copy = self.session(title or f"{session['title']} (fork #1)", **more)
        for info in self.messages(session)[:upto]:
            new = info | {"id": self._mint.ascending("msg"), "sessionID": copy["id"]}
            self.write(("message", copy["id"], new["id"]), new)
            for path in sorted((self.root / "part" / info["id"]).glob("*.json")):
                part = json.loads(path.read_bytes())
                own = {"id": self._mint.ascending("prt"), "sessionID": copy["id"], "messageID": new["id"]}
                self.write(("part", new["id"], own["id"]), part | own)
        return copy

    def path(self, *key: str) -> Path:
        return self.root.joinpath(*key[:-1], f"{key[-1]}.json")


def contents(root: Path) -> dict[str, bytes]:
    """Return the content of every file below a folder, by its path."""
    return {
        os.path.relpath(os.path.join(base, name), root): Path(base, name).read_bytes()
        for base, _, names in os.walk(root)
        for name in names
    }
