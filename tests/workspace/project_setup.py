"""A project with sessions whose records are written while their tool calls change files."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from opensesh import ids
from opensesh.bus import Bus
from opensesh.project import ProjectLocation, resolve
from opensesh.records import Document
from opensesh.sessions import Sessions
from opensesh.storage import paths
from opensesh.storage.disk import Disk
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.protocol import Store, StoredMessage
from opensesh.workspace.revert import Reverts
from opensesh.workspace.snapshots import Patch, PendingSnapshot, Snapshots

FileChange = Callable[[Path], Document | None]


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=T", "-c", "user.email=t@example.invalid")
    done = subprocess.run(("git", *who, *words), cwd=folder, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


def new_repository(folder: Path, files: dict[str, str] | None = None) -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    write(folder, files or {"README.md": "hello\n", "src/main.py": "print(1)\n"})
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8", newline="")


def contents(folder: Path) -> dict[str, str]:
    paths = [path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts]
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in sorted(paths)}


class Workspace:
    """A project folder with sessions and snapshots, whose data are below ``home``."""

    def __init__(self, home: Path, folder: Path, *, store: Store | None = None, disk: Disk | None = None) -> None:
        self.home = home
        self.folder = folder
        self.bus = Bus()
        self.place: ProjectLocation = resolve(folder)
        self.sessions = Sessions(
            store or JsonTree(home / "data" / "storage", durability="relaxed"), self.place, bus=self.bus
        )
        self.snapshots = self.open_snapshots()
        self.reverts = Reverts(
            self.sessions,
            self.snapshots,
            publish=self.bus.publish,
            disk=disk or Disk(durable=False),
        )
        self._moment = ids.now_ms() - 1_000_000

    def open_snapshots(self, place: ProjectLocation | None = None, **options: Any) -> Snapshots:
        return Snapshots(place or self.place, data=str(self.home / "data"), **options)

    def begin_snapshot(self) -> PendingSnapshot:
        pending = self.snapshots.begin()
        assert pending is not None
        return pending

    @property
    def state(self) -> Path:
        return Path(paths.state())

    def session(self) -> str:
        return self.sessions.create(title="T").id

    def history(self, session: str) -> list[StoredMessage]:
        return list(self.sessions.messages(session))

    def prompt(self, session: str, text: str = "go") -> str:
        info: Document = {"id": ids.ascending("msg"), "sessionID": session, "role": "user", "time": self._time()}
        self.sessions.update_message(info | {"agent": "build", "model": {"providerID": "p", "modelID": "m"}})
        self.part(session, info["id"], {"type": "text", "text": text})
        return info["id"]

    def step(self, session: str, prompt: str, *changes: FileChange, answer: str = "done", abort: bool = False) -> str:
        """Store one answer whose tool calls, such as shell commands, make these changes without recording them."""
        message = self.open_step(session, prompt)
        before = self.snapshots.track()
        start: Document = {"type": "step-start"}
        self.part(session, message, start | ({"snapshot": before} if before else {}))
        for change in changes:
            self.part(session, message, change(self.folder) or shell())
        self.part(session, message, {"type": "text", "text": answer})
        self.close_step(session, message, before, abort=abort)
        return message

    def open_step(self, session: str, prompt: str) -> str:
        info: Document = {
            "id": ids.ascending("msg"),
            "sessionID": session,
            "role": "assistant",
            "time": self._time(),
            "parentID": prompt,
            "modelID": "m",
            "providerID": "p",
            "mode": "build",
            "agent": "build",
            "path": {"cwd": self.place.directory, "root": self.place.sandbox},
        }
        self.sessions.update_message(info)
        return info["id"]

    def close_step(self, session: str, message: str, before: str | None, *, abort: bool = False) -> None:
        after = self.snapshots.track()
        if not abort:
            finish: Document = {"type": "step-finish", "reason": "stop"}
            self.part(session, message, finish | ({"snapshot": after} if after else {}))
        if before and after:
            patch = self.snapshots.changed(before, after)
            if patch.files:
                self.part(session, message, {"type": "patch", "hash": patch.hash, "files": list(patch.files)})

    def parts(self, session: str, kind: str) -> list[Document]:
        return [part for message in self.history(session) for part in message.parts if part["type"] == kind]

    def part(self, session: str, message: str, part: Document) -> str:
        own = {"id": ids.ascending("prt"), "sessionID": session, "messageID": message}
        self.sessions.update_part(own | part)
        return own["id"]

    def _time(self) -> Document:
        self._moment += 1_000
        return {"created": self._moment}


def call(name: str, arguments: Document, metadata: Document) -> Document:
    state: Document = {"status": "completed", "input": arguments, "output": "", "title": "", "metadata": metadata}
    return {"type": "tool", "callID": "c", "tool": name, "state": state | {"time": {"start": 1, "end": 2}}}


def shell(command: str = "true") -> Document:
    return call("bash", {"command": command}, {})


def writes(files: dict[str, str]) -> FileChange:
    """Return the change of a shell command, which does not record the old content."""

    def act(folder: Path) -> Document:
        write(folder, files)
        return shell("; ".join(f"printf x > {shlex.quote(name)}" for name in files))

    return act


def deletes(*names: str) -> FileChange:
    def act(folder: Path) -> Document:
        for name in names:
            (folder / name).unlink()
        return shell(shlex.join(("rm", *names)))

    return act


def edits(name: str, after: str) -> FileChange:
    """Return the change of the edit tool, which records the old content."""

    def act(folder: Path) -> Document:
        path = folder / name
        before = path.read_text("utf-8")
        write(folder, {name: after})
        diff: Document = {"file": str(path), "before": before, "after": after, "additions": 1, "deletions": 1}
        return call("edit", {"filePath": str(path), "oldString": "x", "newString": "y"}, {"filediff": diff})

    return act


def creates(name: str, text: str) -> FileChange:
    """Return the change of the write tool, on a file that exists or not."""

    def act(folder: Path) -> Document:
        path = folder / name
        existed = path.exists()
        write(folder, {name: text})
        return call("write", {"filePath": str(path), "content": text}, {"filepath": str(path), "exists": existed})

    return act


def since(snapshots: Snapshots, tree: str) -> Patch:
    """Return the files that changed since ``tree``."""
    now = snapshots.track()
    return snapshots.changed(tree, now) if now is not None else Patch(tree)
