"""A workbench for tools: a context that allows everything, writes down what it was asked, and can be told to refuse."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from opensesh.config import Skill, rule
from opensesh.config.rules import allowing
from opensesh.errors import QuestionRejectedError
from opensesh.records import Rule, Todo
from opensesh.tools import Tool, ToolOutput
from opensesh.tools.filetimes import FileTimes
from opensesh.tools.shell.sandbox import Confinement
from opensesh.tools.tool import ChildSession, HiddenMessage, Subtask, UserQuestion, invoke
from opensesh.tools.truncation import Outputs


class Asked(NamedTuple):
    permission: str
    patterns: list[str]
    always: list[str]
    metadata: dict[str, Any]


class BenchTodos:
    def __init__(self) -> None:
        self.list: list[Todo] = []

    async def read(self) -> Sequence[Todo]:
        return self.list

    async def write(self, todos: Sequence[Todo]) -> None:
        self.list = list(todos)


class BenchQuestions:
    def __init__(self) -> None:
        self.asked: list[UserQuestion] = []
        self.answers: list[list[str]] | None = []

    async def ask(self, questions: Sequence[UserQuestion]) -> Sequence[Sequence[str]]:
        self.asked += questions
        if self.answers is None:
            raise QuestionRejectedError("dismissed")
        return self.answers


class BenchSubtasks:
    def __init__(self) -> None:
        self.opened: list[Subtask] = []
        self.says = "done"
        self.fails: Exception | None = None

    async def open(self, task: Subtask) -> ChildSession:
        self.opened.append(task)
        return ChildSession(session_id=task.task_id or "ses_child", model={"modelID": "scripted", "providerID": "fake"})

    async def run(self, child: ChildSession, task: Subtask) -> str:
        if self.fails is not None:
            raise self.fails
        return self.says


class BenchSkills:
    def __init__(self) -> None:
        self.list: list[Skill] = []

    async def all(self) -> Sequence[Skill]:
        return self.list


class BenchInstructions:
    def __init__(self) -> None:
        self.list: list[tuple[str, str]] = []

    async def near(self, path: str) -> Sequence[tuple[str, str]]:
        return self.list


class BenchModes:
    plan = "/plans/p.md"

    def __init__(self) -> None:
        self.switched: list[tuple[str, str]] = []

    async def switch(self, agent: str, text: str) -> None:
        self.switched.append((agent, text))


class BenchPast:
    def __init__(self) -> None:
        self.list: list[HiddenMessage] = []

    async def all(self) -> Sequence[HiddenMessage]:
        return self.list


class BenchCalls:
    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.tools: dict[str, Tool] = {}

    @property
    def names(self) -> Sequence[str]:
        return list(self.tools)

    async def run(self, tool: str, arguments: Mapping[str, Any]) -> ToolOutput:
        return await invoke(self.tools[tool], arguments, self._bench)


class Bench:
    session_id = "ses_1"
    message_id = "msg_1"
    call_id = "call_1"
    agent = "build"

    def __init__(self, directory: Path, worktree: Path | None = None) -> None:
        self.directory = str(directory)
        self.worktree = str(worktree or directory)
        self.files = FileTimes()
        self.outputs = Outputs(directory=str(directory.parent / "tool-output"))
        self.todos = BenchTodos()
        self.questions = BenchQuestions()
        self.subtasks = BenchSubtasks()
        self.skills = BenchSkills()
        self.instructions = BenchInstructions()
        self.modes = BenchModes()
        self.hidden_messages = BenchPast()
        self.calls = BenchCalls(self)
        self.asked: list[Asked] = []
        self.refuse: dict[str, Exception] = {}
        self.rules: tuple[Rule, ...] = (rule("*", "allow"),)
        self.while_asked: Callable[[], object] = lambda: None
        self.shown: list[tuple[str | None, dict[str, Any]]] = []
        self.announced: dict[str, bytes | None] = {}
        self.written: list[str] = []
        self.watched = 0
        self.variables: dict[str, str] = {}
        self.confined = Confinement()

    async def ask(
        self,
        permission: str,
        patterns: Sequence[str],
        *,
        always: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        possible: Sequence[str] = (),
        forms: Sequence[str] = (),
    ) -> None:
        self.asked.append(Asked(permission, list(patterns), list(always), dict(metadata or {})))
        self.while_asked()
        if permission in self.refuse:
            raise self.refuse[permission]

    def allow_check(self, permission: str) -> Callable[[str], bool]:
        return allowing(permission, self.rules)

    async def progress(self, *, title: str | None = None, metadata: Mapping[str, Any] | None = None) -> None:
        self.shown.append((title, dict(metadata or {})))

    async def before_write(self, contents: Mapping[str, bytes | None]) -> None:
        self.announced.update(contents)

    def after_write(self, path: str) -> None:
        self.written.append(path)

    @asynccontextmanager
    async def track_changes(self) -> AsyncGenerator[None]:
        self.watched += 1
        yield

    def confinement(self) -> Confinement:
        return self.confined

    async def shell_env(self, cwd: str) -> Mapping[str, str]:
        return self.variables

    # For tests.

    def path(self, name: str) -> Path:
        return Path(self.directory) / name

    def put(self, name: str, content: str | bytes, *, seen: bool = False) -> str:
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        if seen:
            self.files.note(str(path))
        return str(path)

    def permissions(self) -> list[str]:
        return [asked.permission for asked in self.asked]

    def patterns(self, permission: str) -> list[str]:
        return [pattern for asked in self.asked if asked.permission == permission for pattern in asked.patterns]

    async def run(self, tool: Tool, /, **arguments: Any) -> ToolOutput:
        return await invoke(tool, arguments, self)


def older(path: str, seconds: float) -> None:
    """Make a file's last change lie that far back."""
    stat = os.stat(path)
    os.utime(path, (stat.st_atime, stat.st_mtime - seconds))
