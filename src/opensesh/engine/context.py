"""What a tool call sees of the engine: the implementation of :class:`opensesh.tools.tool.Context`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import convert

from .. import events
from ..config import evaluate, nearby
from ..permissions import disabled
from ..records import Rule, Todo, document_of
from .planning import PLAN
from .recall import HiddenHistory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from ..config import Agent, Skill
    from ..plugins import ToolExecuteBeforeInput
    from ..records import Document
    from ..tools.filetimes import FileTimes
    from ..tools.services import Modes, Subtasks, UserQuestion
    from ..tools.tool import Tool, ToolOutput
    from .calls import CallRunner
    from .components import Runtime
    from .planning import PlanModeGuard


class Surroundings(NamedTuple):
    """What all calls of one step have in common."""

    runtime: Runtime
    session_id: str
    message_id: str
    agent: Agent
    rules: tuple[Rule, ...]
    """The agent's, then the session's."""
    files: FileTimes
    invalid: Tool
    """Answers calls of tools that do not exist."""
    subtasks: Subtasks
    modes: Modes
    skills: tuple[Skill, ...]
    known_instructions: set[str]
    """The instruction files that the model has been given."""
    gate: PlanModeGuard | None = None
    """What stands before the calls of a session that plans."""

    def told(self, tool: str, call_id: str) -> ToolExecuteBeforeInput:
        """What plugins are told of a call."""
        from ..plugins import ToolExecuteBeforeInput

        return ToolExecuteBeforeInput(
            session_id=self.session_id,
            message_id=self.message_id,
            call_id=call_id,
            tool=tool,
            agent=self.agent.name,
        )

    def context(self, runner: CallRunner, part_id: str, call_id: str) -> CallContext:
        """One call's view."""
        return CallContext(self, runner, part_id, call_id)


class CallContext:
    """One call."""

    def __init__(self, around: Surroundings, runner: CallRunner, part_id: str, call_id: str) -> None:
        self._around = around
        self._runner = runner
        self._part_id = part_id
        self._unproven: str | None = None
        self.session_id = around.session_id
        self.message_id = around.message_id
        self.call_id = call_id
        self.agent = around.agent.name
        self.directory = around.runtime.place.directory
        self.worktree = around.runtime.place.sandbox
        self.files = around.files
        self.outputs = around.runtime.outputs(delegate="task" not in disabled(("task",), around.rules))
        self.todos = _Todos(around)
        self.questions = _Questions(around, call_id)
        self.subtasks = around.subtasks
        self.skills = _Skills(around)
        self.instructions = _Instructions(around)
        self.modes = around.modes
        self.hidden_messages = HiddenHistory(around.runtime.sessions, around.session_id)
        self.calls = _Calls(runner)
        from .writes import CallWrites

        self.writes = CallWrites(around.runtime)

    async def ask(
        self,
        permission: str,
        patterns: Sequence[str],
        *,
        always: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Return if every pattern is allowed, by rule or by the user."""
        gate = self._around.gate
        anew = gate is not None and permission == self._unproven and not gate.is_lifted(permission, patterns)
        await self._around.runtime.permissions.ask(
            session_id=self.session_id,
            permission=permission,
            patterns=patterns,
            always=None if anew else always,
            metadata={**(metadata or {}), **({"mode": PLAN} if anew else {})},
            rules=self._around.rules,
            tool={"messageID": self.message_id, "callID": self.call_id},
        )

    def allow_check(self, permission: str) -> Callable[[str], bool]:
        """Tells of any pattern whether it is allowed without asking."""
        return self._around.runtime.permissions.allow_check(permission, self._around.rules)

    async def authorise(self, tool: Tool, given: Mapping[str, Any]) -> None:
        """Have the user's word for a call that nobody knows to be harmless, where only such calls may be made."""
        self._unproven = self._around.gate.unproven(tool, given) if self._around.gate is not None else None
        if self._unproven is not None and self._unproven != "bash":  # which asks by itself, for each command in it
            await self.ask(self._unproven, ["*"], metadata=given)
            self._unproven = None

    async def progress(self, *, title: str | None = None, metadata: Mapping[str, Any] | None = None) -> None:
        """Show how far the call is."""
        await self._runner.progress(self._part_id, title, metadata)

    async def before_write(self, contents: Mapping[str, bytes | None]) -> None:
        """Put aside what files hold that are about to hold something else, and say so in the call's record."""
        await self.writes.begin(contents)
        await self._runner.announce(self._part_id, self.writes.intended)

    def after_write(self, path: str) -> None:
        """Tell that a tool wrote, moved or deleted this file."""
        self.writes.done(path)
        self._around.runtime.publish(events.FileEdited(file=path))

    def track_changes(self) -> AbstractAsyncContextManager[None]:
        """Around something that may change any file."""
        return self.writes.watching()

    async def shell_env(self, cwd: str) -> Mapping[str, str]:
        """Variables to add to the environment of a command that runs in ``cwd``."""
        return await self._around.runtime.hooks.shell_env(cwd, self.session_id, self.call_id)


class _Calls:
    """The other tools of the step."""

    def __init__(self, runner: CallRunner) -> None:
        self._runner = runner

    @property
    def names(self) -> Sequence[str]:
        return self._runner.names

    async def run(self, tool: str, arguments: Mapping[str, Any]) -> ToolOutput:
        return await self._runner.run_nested(tool, arguments)


class _Todos:
    """The session's list."""

    def __init__(self, around: Surroundings) -> None:
        self._sessions = around.runtime.sessions
        self._session_id = around.session_id

    async def read(self) -> Sequence[Todo]:
        found = await asyncio.to_thread(self._sessions.todos, self._session_id)
        return [convert(todo, Todo) for todo in found]

    async def write(self, todos: Sequence[Todo]) -> None:
        documents = [document_of(todo) for todo in todos]
        await asyncio.to_thread(self._sessions.set_todos, self._session_id, documents)


class _Questions:
    """The user, asked on behalf of one call."""

    def __init__(self, around: Surroundings, call_id: str) -> None:
        self._around = around
        self._tool = {"messageID": around.message_id, "callID": call_id}

    async def ask(self, questions: Sequence[UserQuestion]) -> Sequence[Sequence[str]]:
        asked: list[Document] = [_question(each) for each in questions]
        return await self._around.runtime.questions.ask(self._around.session_id, asked, self._tool)


class _Skills:
    """The skills that the agent's rules allow."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around

    async def all(self) -> Sequence[Skill]:
        rules = self._around.rules
        return [skill for skill in self._around.skills if evaluate("skill", skill.name, rules) != "deny"]


class _Instructions:
    """Instruction files near what a call reads, each given once."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around

    async def near(self, path: str) -> Sequence[tuple[str, str]]:
        known = self._around.known_instructions
        found = await asyncio.to_thread(nearby, self._around.runtime.config, path, known)
        known.update(each.source for each in found)
        return [(each.source, each.content) for each in found]


def _question(question: UserQuestion) -> Document:
    document: Document = {
        "question": question.question,
        "header": question.header,
        "options": [{"label": each.label, "description": each.description} for each in question.options],
    }
    extra = {"multiple": question.multiple, "custom": question.custom}
    return document | {name: value for name, value in extra.items() if value is not None}
