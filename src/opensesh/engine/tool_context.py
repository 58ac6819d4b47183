"""What a tool call can use of the engine: the implementation of :class:`opensesh.tools.tool.Context`."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import convert
from msgspec.structs import replace

from .. import events
from ..config import Skill, evaluate, nearby
from ..errors import RecordError
from ..models.request import Text, User
from ..permissions import may_be_denied
from ..plugins import ToolExecuteBeforeInput
from ..records import (
    EXTENSION_KEY,
    Completed,
    Failed,
    FilePart,
    Rule,
    TextPart,
    Todo,
    ToolPart,
    document_of,
    dumps_compact,
    plain,
    read_part,
    without_surrogates,
)
from ..tools.tool import HiddenMessage
from ..tools.truncation import MAX_BYTES, MAX_LINES, Outputs
from ..workspace.files import ABSENT, FileState, blob_id, file_state
from ..workspace.originals import FileWrite, changed_since, file_stats
from .cancellation import run_in_thread_uncancellable
from .context_window import compaction_part, is_pruned, visible
from .plan_mode import PLAN
from .projection import COMPACTION_PROMPT

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from ..config import Agent, Config
    from ..models.request import ModelMessage
    from ..records import Document
    from ..sessions import Sessions
    from ..storage.protocol import StoredMessage
    from ..tools.filetimes import FileTimes
    from ..tools.shell.sandbox import Confinement
    from ..tools.tool import Modes, Subtasks, Tool, ToolOutput, UserQuestion
    from ..workspace.originals import Originals
    from ..workspace.snapshots import Snapshots
    from .components import Environment
    from .plan_mode import PlanModeGuard
    from .tool_calls import CallRunner
    from .user_requests import Questions

_RECALL_HINT = (
    "\n\n<system-reminder>\nWhat follows is a summary. The messages it stands for are kept word for word: where the "
    "summary does not say exactly what you need, look it up with the recall tool.\n</system-reminder>"
)


def output_limits(config: Config, *, delegate: bool = False) -> Outputs:
    """Return where long outputs are kept and how long they may be; ``delegate`` if a subagent could read the rest."""
    limits = config.settings.tool_output
    return Outputs(
        directory=os.path.dirname(config.folders.tool_output),
        max_lines=limits.max_lines or MAX_LINES,
        max_bytes=limits.max_bytes or MAX_BYTES,
        delegate=delegate,
    )


class StepContext(NamedTuple):
    """What the calls of one step have in common."""

    environment: Environment
    session_id: str
    message_id: str
    agent: Agent
    rules: tuple[Rule, ...]
    """The agent's, then the session's."""
    files: FileTimes
    outputs: Outputs
    invalid: Tool
    """Answers calls of tools that do not exist."""
    subtasks: Subtasks
    modes: Modes
    skills: tuple[Skill, ...]
    known_instructions: set[str]
    """Paths of the instruction files that the model has seen."""
    guard: PlanModeGuard | None = None
    absent: frozenset[str] = frozenset()
    """Tools that the prompt disables."""

    def plugin_tool_call(self, tool: str, call_id: str) -> ToolExecuteBeforeInput:
        """Return the input of the plugin hooks for a call."""
        return ToolExecuteBeforeInput(
            session_id=self.session_id,
            message_id=self.message_id,
            call_id=call_id,
            tool=tool,
            agent=self.agent.name,
        )


class CallContext:
    """The context of one call."""

    def __init__(self, step: StepContext, runner: CallRunner, part_id: str, call_id: str) -> None:
        environment = step.environment
        self._step = step
        self._environment = environment
        self._runner = runner
        self._part_id = part_id
        self._permission_needed: str | None = None
        self._is_lifted = False
        self.session_id = step.session_id
        self.message_id = step.message_id
        self.call_id = call_id
        self.agent = step.agent.name
        self.directory = environment.writer.location.directory
        self.worktree = environment.writer.location.sandbox
        self.files = step.files
        self.outputs = step.outputs
        self.subtasks = step.subtasks
        self.modes = step.modes
        self.writes = CallWrites(environment.originals, environment.snapshots, self.directory)

    @property
    def starts_late(self) -> bool:
        """Whether a question of the call is published before the call is stored as running."""
        return self._environment.questions.before_start

    async def start(self) -> None:
        """Store that the call is running, if it is not stored yet."""
        await self._runner.start_late(self._part_id)

    @property
    def todos(self) -> _Todos:
        """The session's todo list."""
        return _Todos(self._environment.writer.sessions, self.session_id)

    @property
    def questions(self) -> _UserQuestions:
        """Asks the user on behalf of the call."""
        return _UserQuestions(self._environment.questions, self)

    @property
    def skills(self) -> _Skills:
        """The skills that the agent's rules allow."""
        return _Skills(self._step)

    @property
    def instructions(self) -> NearbyInstructions:
        """Instruction files near what the call reads, each given once."""
        return NearbyInstructions(self._environment.config, self._step.known_instructions)

    @property
    def hidden_messages(self) -> HiddenHistory:
        """What compaction and pruning hide from the model."""
        return HiddenHistory(self._environment.writer.sessions, self.session_id)

    @property
    def calls(self) -> _NestedCalls:
        """The other tools of the step."""
        return _NestedCalls(self._runner)

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
        """Return if every pattern is allowed, by a rule or by the user."""
        guarded = self._step.guard if permission == self._permission_needed else None
        is_lifted = guarded is not None and guarded.is_explicitly_allowed(permission, patterns)
        ask_anew = guarded is not None and not is_lifted
        uncertain = may_be_denied(permission, patterns, possible, self._step.rules, forms)
        await self._environment.permissions.ask(
            session_id=self.session_id,
            permission=permission,
            patterns=patterns,
            always=None if ask_anew or uncertain else always,
            metadata={
                **plain(dict(metadata or {})),
                **({"mode": PLAN} if ask_anew else {}),
                **({"uncertain": True} if uncertain else {}),
            },
            rules=self._step.rules,
            tool={"messageID": self.message_id, "callID": self.call_id},
        )
        self._is_lifted = self._is_lifted or is_lifted

    def confinement(self) -> Confinement:
        """Return how commands are confined: entirely in plan mode, otherwise as the configuration says."""
        from ..tools.shell.sandbox import Confinement, sandbox_policy  # loads tempfile; only commands need it

        return Confinement(
            planning=self._step.guard is not None and not self._is_lifted,
            policy=sandbox_policy(self._environment.config, (self.worktree, self.directory)),
        )

    def allow_check(self, permission: str) -> Callable[[str], bool]:
        """Return a function that tells whether a pattern is allowed without asking."""
        return self._environment.permissions.allow_check(permission, self._step.rules)

    async def authorise(self, tool: Tool, arguments: Mapping[str, Any]) -> None:
        """In plan mode, ask the user about a call that is not known to be read-only."""
        if self._step.guard is None:
            return
        self._permission_needed = self._step.guard.permission_needed_for(tool, arguments)
        if self._permission_needed is not None and self._permission_needed != "bash":  # bash asks for each command
            await self.ask(self._permission_needed, ["*"], metadata=arguments)
            self._permission_needed = None

    async def progress(self, *, title: str | None = None, metadata: Mapping[str, Any] | None = None) -> None:
        """Show the progress of the call."""
        await self._runner.progress(self._part_id, *plain([title, metadata and dict(metadata)]))

    async def before_write(self, contents: Mapping[str, bytes | None]) -> None:
        """Save what files hold before they are changed, and record the intended changes with the call."""
        await self._runner.announce_writes(self._part_id, await self.writes.begin(contents))

    def after_write(self, path: str) -> None:
        """Note that a tool wrote, moved or deleted this file."""
        self.writes.done(path)
        self._environment.writer.publish(events.FileEdited(file=path))

    def track_changes(self) -> AbstractAsyncContextManager[None]:
        """Find out which files change within the context."""
        return self.writes.track()

    async def shell_env(self, cwd: str) -> Mapping[str, str]:
        """Return variables to add to the environment of a command that runs in ``cwd``."""
        return await self._environment.hooks.shell_env(cwd, self.session_id, self.call_id)


class _NestedCalls(NamedTuple):
    runner: CallRunner

    @property
    def names(self) -> Sequence[str]:
        return self.runner.names

    async def run(self, tool: str, arguments: Mapping[str, Any]) -> ToolOutput:
        return await self.runner.run_nested(tool, arguments)


class _Todos(NamedTuple):
    sessions: Sessions
    session_id: str

    async def read(self) -> Sequence[Todo]:
        todos = await run_in_thread_uncancellable(self.sessions.todos, self.session_id)
        return [convert(todo, Todo) for todo in todos]

    async def write(self, todos: Sequence[Todo]) -> None:
        documents = [document_of(todo) for todo in todos]
        await run_in_thread_uncancellable(self.sessions.set_todos, self.session_id, documents)


class _UserQuestions(NamedTuple):
    questions: Questions
    context: CallContext

    async def ask(self, questions: Sequence[UserQuestion]) -> Sequence[Sequence[str]]:
        documents: list[Document] = []
        for question in questions:
            options = [{"label": option.label, "description": option.description} for option in question.options]
            document: Document = {"question": question.question, "header": question.header, "options": options}
            extra = {"multiple": question.multiple, "custom": question.custom}
            documents.append(document | {name: value for name, value in extra.items() if value is not None})
        tool = {"messageID": self.context.message_id, "callID": self.context.call_id}
        return await self.questions.ask(self.context.session_id, documents, tool, self.context.start)


class _Skills(NamedTuple):
    step: StepContext

    async def all(self) -> Sequence[Skill]:
        rules = self.step.rules
        return [skill for skill in self.step.skills if evaluate("skill", skill.name, rules) != "deny"]


class NearbyInstructions(NamedTuple):
    """Finds instruction files near what is read, each one once."""

    config: Config
    known: set[str]
    """Paths of files that the model has seen; it is updated."""

    async def near(self, path: str) -> Sequence[tuple[str, str]]:
        """Return path and content of the instruction files that apply to ``path`` and are not known yet."""
        files = await run_in_thread_uncancellable(nearby, self.config, path, self.known)
        self.known.update(file.source for file in files)
        return [(file.source, file.content) for file in files]


# -- files that a call changes -----------------------------------------------------------------------------------------


class CallWrites:
    """The files that one call changes: what they held before, saved before the first write, and what they hold after.

    The changes are recorded in the call's metadata, beside the tool's own. While the call runs they are those that it
    intends, so that the record is right whenever the process dies.
    """

    def __init__(self, originals: Originals, snapshots: Snapshots, directory: str) -> None:
        self._originals = originals
        self._snapshots = snapshots
        self._directory = directory
        self._intended: dict[str, FileWrite] = {}
        self._written: set[str] = set()
        self._tracked: list[FileWrite] = []
        self._has_tracked = False

    async def begin(self, contents: Mapping[str, bytes | None]) -> Document:
        """Save what files hold that are about to hold ``contents``. Return all changes that the call is about to make,
        as metadata."""

        def save() -> None:
            for path, data in contents.items():
                for name in _link_and_target(path):
                    before = self._originals.put(name)
                    follows_link = name != path or not os.path.islink(path)
                    after = ABSENT if data is None else FileState(blob_id(data)) if follows_link else before
                    known = self._intended.get(name)
                    self._intended[name] = FileWrite(name, known.before if known else before, after)

        await run_in_thread_uncancellable(save)
        return {EXTENSION_KEY: {"writes": [write.document for write in self._intended.values()]}}

    def done(self, path: str) -> None:
        """Note that a file was written or deleted."""
        self._written.update(_link_and_target(path))

    @asynccontextmanager
    async def track(self) -> AsyncGenerator[None]:
        """Find out which files change meanwhile, where there are no snapshots to compare."""
        if self._snapshots.enabled:
            yield
            return
        limit = self._snapshots.limits.watched_files
        before = await run_in_thread_uncancellable(lambda: file_stats(self._directory, max_files=limit))
        try:
            yield
        finally:
            changes = await run_in_thread_uncancellable(lambda: changed_since(self._directory, before, max_files=limit))
            self._has_tracked |= changes is not None
            self._tracked += changes or []

    async def summary(self) -> Document:
        """Return the changes that the call made, as metadata; empty for a call that changes no files."""
        return await run_in_thread_uncancellable(self._summary) if self._intended else self._summary()

    def _summary(self) -> Document:
        writes: list[FileWrite] = []
        for write in self._intended.values():
            state = file_state(write.file)
            if write.file not in self._written and (write.after is None or not state.fits(write.after)):
                continue  # the call ended before this write
            if write.before is None or not state.fits(write.before):
                writes.append(write._replace(after=None if state.obstacle else state))
        writes += [write for write in self._tracked if write.file not in self._intended]
        # An empty list says that the call changed nothing. Without it, OpenCode's fields would count, which for a
        # write say that the file was overwritten, but not what it held.
        if not writes and not self._intended and not self._has_tracked:
            return {}
        return {EXTENSION_KEY: {"writes": [write.document for write in writes]}}


def _link_and_target(path: str) -> tuple[str, ...]:
    """Return the file and, if it is a link, its target: a tool writes through a link, but deletes the link."""
    return (path, os.path.realpath(path)) if os.path.islink(path) else (path,)


# -- hidden messages, for the recall tool ------------------------------------------------------------------------------


class HiddenHistory(NamedTuple):
    """What a session holds beyond what its model sees."""

    sessions: Sessions
    session_id: str

    async def all(self) -> Sequence[HiddenMessage]:
        """Return what was compacted or pruned, oldest first."""

        def read() -> list[HiddenMessage]:
            messages = self.sessions.messages(self.session_id)
            shown = {id(message) for message in visible(messages)}
            hidden: list[HiddenMessage] = []
            for number, message in enumerate(messages, 1):
                for part in message.parts:
                    if id(message) not in shown or is_pruned(part):
                        hidden += _hidden_messages(message, number, part)
            return hidden

        return await run_in_thread_uncancellable(read)


def has_hidden_messages(messages: Iterable[StoredMessage]) -> bool:
    """Whether there is anything for the recall tool: a summary, or an output that was pruned."""
    for at, message in enumerate(messages):
        if at == 0 and compaction_part(message):
            return True
        for part in message.parts:
            if is_pruned(part):
                return True
    return False


def add_recall_hint(conversation: tuple[ModelMessage, ...]) -> tuple[ModelMessage, ...]:
    """Add a note about the recall tool before the summary, if the conversation begins with one."""
    first = conversation[0]
    if not isinstance(first, User) or first.content[0] != Text(text=COMPACTION_PROMPT):
        return conversation
    text = Text(text=COMPACTION_PROMPT + _RECALL_HINT)
    return (replace(first, content=(text, *first.content[1:])), *conversation[1:])


def _hidden_messages(message: StoredMessage, number: int, document: Document) -> Iterator[HiddenMessage]:
    """Yield a part that is hidden, unless it has no text or cannot be read."""
    speaker = "assistant" if message.info.get("role") == "assistant" else "user"
    try:
        part = read_part(document)
    except RecordError:
        return
    text, call_id, tool = "", None, ""
    match part:
        case TextPart() if not part.ignored:
            text = without_surrogates(part.text).strip()
        case FilePart():
            text = f"(attached: {part.filename or part.mime})"
        case ToolPart(state=state):
            match state:
                case Completed(output=result) | Failed(error=result):
                    result = without_surrogates(result)
                case _:
                    result = "(never finished)"
            text = f"{dumps_compact(state.input).decode()}\n{result}"
            call_id, tool = part.call_id or part.id, part.tool
        case _:
            pass
    if text:
        yield HiddenMessage(number=number, speaker=speaker, text=text, call_id=call_id, tool=tool)
