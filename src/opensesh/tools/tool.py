"""The tool protocol: what a tool is, what it receives, and what it returns.

The engine calls a tool with the model's arguments, unchecked, and a :class:`Context`. Rules for every tool:

**Permission.** A tool asks (:meth:`Context.ask`) for everything it is about to do before it changes anything. A refusal
is an exception, which the tool does not catch.

**File changes.** A tool announces the new content of files (:meth:`Context.before_write`) before it writes them, and
reports each written file (:meth:`Context.after_write`) afterwards.

**Failure.** A tool raises :class:`~opensesh.errors.ToolFailedError` with a message for the model: what happened, and
what to do instead. A non-zero exit code or a search without matches is a result, not a failure.

**Cancellation** is asyncio's. A cancelled tool ends every process it started, including their children, leaves no
partially written file, and re-raises :class:`~asyncio.CancelledError`. The record keeps what was last passed to
:meth:`Context.progress`.

**Concurrency.** The calls of one step run concurrently, so a tool keeps no state between or during calls. Two calls
that write the same file wait for each other (:meth:`~opensesh.tools.filetimes.FileTimes.lock`).

**Length.** :func:`invoke` truncates the output of a tool that leaves ``truncated`` out of its metadata and saves the
whole in a file. A tool that sets ``truncated``, to either value, handles the length itself.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Protocol, TypeVar, cast

from msgspec import Meta, Struct, convert

from .. import ids
from ..records import plain
from ..text import markdown
from .arguments import Arguments, decode, schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from ..config import Skill
    from ..records import Todo
    from .filetimes import FileTimes
    from .shell.sandbox import Confinement
    from .truncation import Outputs


A = TypeVar("A", bound=Arguments)


class ToolOutput(Struct, frozen=True):
    """The result of a tool call."""

    title: str
    """A few words for the user's screen."""
    output: str
    """The text that the model reads."""
    metadata: dict[str, Any] = {}
    """For programs. ``truncated``: absent, the output is yet to be truncated; false, complete; true, truncated."""
    attachments: tuple[dict[str, Any], ...] = ()
    """Complete file parts (:func:`attachment`)."""


class Context(Protocol):
    """One tool call, as the tool sees it. The engine creates one for each call."""

    @property
    def session_id(self) -> str: ...
    @property
    def message_id(self) -> str: ...
    @property
    def call_id(self) -> str: ...
    @property
    def agent(self) -> str: ...

    @property
    def directory(self) -> str:
        """The absolute directory that relative paths start from."""
        ...

    @property
    def worktree(self) -> str:
        """The absolute root of the project; ``/`` outside of a repository."""
        ...

    @property
    def files(self) -> FileTimes:
        """The files this session has read and written."""
        ...

    @property
    def outputs(self) -> Outputs:
        """Limits for long outputs, and where to save them."""
        ...

    @property
    def todos(self) -> Todos: ...
    @property
    def questions(self) -> UserQuestions: ...
    @property
    def subtasks(self) -> Subtasks: ...
    @property
    def skills(self) -> Skills: ...
    @property
    def instructions(self) -> Instructions: ...
    @property
    def modes(self) -> Modes: ...
    @property
    def hidden_messages(self) -> HiddenMessages: ...
    @property
    def calls(self) -> NestedCalls: ...

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
        """Return if a rule or the user allows every pattern.

        Otherwise raise :class:`~opensesh.errors.PermissionDeniedError`, ``PermissionCorrectedError`` or
        ``PermissionRejectedError``. A reply of "always" allows the patterns in ``always`` from then on. ``possible``
        names what the call may do besides, where the patterns do not show everything: a rule that denies any of it
        denies the call, and wherever a rule does not allow something, the user is asked. ``forms`` are what the
        patterns may stand for, with ``*`` for what is not known: a rule that such a form may meet is kept, too.
        """
        ...

    def allow_check(self, permission: str) -> Callable[[str], bool]:
        """Return a function that tells whether a pattern is allowed without asking the user.

        For tools that skip what is not allowed instead of asking for it.
        """
        ...

    async def progress(self, *, title: str | None = None, metadata: Mapping[str, Any] | None = None) -> None:
        """Show the state of the running call. Replaces the previous one; recorded if the call is cancelled."""
        ...

    async def before_write(self, contents: Mapping[str, bytes | None]) -> None:
        """Announce the new content of files, ``None`` for deletion, and save their present content for a revert.

        What a tool writes without this call cannot be reverted where there are no snapshots.
        """
        ...

    def after_write(self, path: str) -> None:
        """Report that the tool wrote, moved or deleted a file, or failed while it did so."""
        ...

    def track_changes(self) -> AbstractAsyncContextManager[None]:
        """Detect which files change inside the ``with`` block, where there are no snapshots to tell."""
        ...

    def confinement(self) -> Confinement:
        """Return how commands are confined. Valid once the permission to run one has been asked for."""
        ...

    async def shell_env(self, cwd: str) -> Mapping[str, str]:
        """Return variables to add to the environment of a command that runs in ``cwd``."""
        ...


class Tool(Protocol):
    """Something a model can call. The module's docstring has the contract."""

    @property
    def id(self) -> str: ...

    @property
    def description(self) -> str:
        """Markdown for the model; may contain the placeholders of
        :func:`~opensesh.tools.tool_registry.description_values`."""
        ...

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the arguments: an object without references. Shared; do not modify."""
        ...

    async def run(self, arguments: Mapping[str, Any], ctx: Context) -> ToolOutput:
        """Run the tool with the arguments as the model wrote them."""
        ...


def missing_attributes(value: object) -> list[str]:
    """Return the attributes that ``value`` lacks to be a :class:`Tool`."""
    return [name for name in ("id", "description", "schema", "run") if not hasattr(value, name)]


class BuiltinTool(ABC, Generic[A]):
    """A tool whose arguments are a struct and whose description is the Markdown file of its name in this package."""

    id: ClassVar[str]
    parameters: type[A]

    @property
    def description(self) -> str:
        """The text of the Markdown file."""
        return markdown(os.path.dirname(__file__), self.id)

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of ``parameters``."""
        return schema_of(self.parameters)

    async def run(self, arguments: Mapping[str, Any], ctx: Context) -> ToolOutput:
        """Validate the arguments, apply defaults, and call :meth:`execute`."""
        return await self.execute(decode(self.id, self.parameters, arguments), ctx)

    @abstractmethod
    async def execute(self, args: A, ctx: Context) -> ToolOutput:
        """Run the tool with valid arguments."""


async def invoke(tool: Tool, arguments: Mapping[str, Any], ctx: Context) -> ToolOutput:
    """Run ``tool`` and truncate its output unless the tool has done so. The engine calls tools through this."""
    result = await tool.run(arguments, ctx)
    if not isinstance(tool, BuiltinTool):  # what cannot be stored is the error of the tool
        fields = {"title": result.title, "output": result.output, "metadata": dict(result.metadata)}
        result = convert(plain(fields | {"attachments": list(result.attachments)}), ToolOutput)
    if "truncated" in result.metadata:
        return result
    preview = ctx.outputs.shorten(result.output)
    metadata = {**result.metadata, "truncated": preview.truncated}
    if preview.path is not None:
        metadata["outputPath"] = preview.path
    return ToolOutput(result.title, preview.text, metadata, result.attachments)


def attachment(ctx: Context, mime: str, url: str, filename: str | None = None) -> dict[str, Any]:
    """Return a file part that belongs to the message of this call."""
    part = {
        "id": ids.ascending("prt"),
        "sessionID": ctx.session_id,
        "messageID": ctx.message_id,
        "type": "file",
        "mime": mime,
    }
    name = {"filename": filename} if filename else {}
    return cast("dict[str, Any]", {**part, **name, "url": url})


class Todos(Protocol):
    """The session's todo list."""

    async def read(self) -> Sequence[Todo]: ...

    async def write(self, todos: Sequence[Todo]) -> None:
        """Replace the list and publish the change."""
        ...


class QuestionOption(Struct, frozen=True):
    """An answer offered to the user."""

    label: Annotated[str, Meta(description="The answer, in 1 to 5 words")]
    description: Annotated[str, Meta(description="What choosing it means")]


class ModelQuestion(Struct, frozen=True, kw_only=True):
    """A question to the user, as a model asks it; the descriptions are for the model."""

    question: Annotated[str, Meta(description="The whole question")]
    header: Annotated[str, Meta(description="A name for it, of at most 30 characters")]
    options: Annotated[tuple[QuestionOption, ...], Meta(description="The answers to choose from")]
    multiple: Annotated[bool | None, Meta(description="Whether more than one answer may be chosen")] = None


class UserQuestion(ModelQuestion, frozen=True, kw_only=True):
    """A question to the user."""

    custom: bool | None = None
    """Whether free text is accepted as an answer; it is unless this is false."""


class UserQuestions(Protocol):
    """Asks the user."""

    async def ask(self, questions: Sequence[UserQuestion]) -> Sequence[Sequence[str]]:
        """Return one list of labels (or free text) for each question, in order; empty for an unanswered one.

        Waits without a timeout. Raises :class:`~opensesh.errors.QuestionRejectedError` if the user dismisses it.
        """
        ...


class Subtask(Struct, frozen=True, kw_only=True):
    """Work for a subagent."""

    description: str
    prompt: str
    agent: str
    task_id: str | None = None
    """The id of an earlier child session to continue."""
    command: str | None = None


class ChildSession(Struct, frozen=True, kw_only=True):
    """A child session, ready to run."""

    session_id: str
    model: dict[str, Any]
    """``{"modelID": ..., "providerID": ...}``."""


class Subtasks(Protocol):
    """Runs subagents in sessions of their own."""

    async def open(self, task: Subtask) -> ChildSession:
        """Create the child session, or return the one that ``task_id`` names.

        Raises :class:`~opensesh.errors.SubtaskFailedError` if the agent does not exist or cannot be a subagent, or if
        subagents are nested too deeply.
        """
        ...

    async def run(self, child: ChildSession, task: Subtask) -> str:
        """Run the child session to its end and return its last text.

        Raises :class:`~opensesh.errors.SubtaskFailedError` with the reason if it does not finish. Cancelling this
        cancels the child.
        """
        ...


class Skills(Protocol):
    """The skills that the agent may use."""

    async def all(self) -> Sequence[Skill]: ...


class Instructions(Protocol):
    """Instruction files (``AGENTS.md`` and similar) in subdirectories of the project."""

    async def near(self, path: str) -> Sequence[tuple[str, str]]:
        """Return path and text of the files that apply to ``path`` and that the model has not seen yet."""
        ...


class Modes(Protocol):
    """Plan mode and build mode."""

    @property
    def plan(self) -> str:
        """The path of the session's plan file; it may not exist yet."""
        ...

    async def switch(self, agent: str, text: str) -> None:
        """Continue with ``agent``; ``text`` becomes the user message that announces it."""
        ...


class HiddenMessage(Struct, frozen=True, kw_only=True):
    """A text that compaction or pruning removed from the model's view."""

    number: int
    """The position of its message in the session, from 1. Several texts of one message share it."""
    speaker: str
    text: str
    """The complete text."""
    call_id: str | None = None
    """The id of the tool call, if this is its result."""
    tool: str = ""


class HiddenMessages(Protocol):
    """The part of the session's history that the model does not see."""

    async def all(self) -> Sequence[HiddenMessage]:
        """Return what was compacted or pruned, oldest first."""
        ...


class NestedCalls(Protocol):
    """Calls of other tools from inside a tool."""

    @property
    def names(self) -> Sequence[str]:
        """The tools offered in this step."""
        ...

    async def run(self, tool: str, arguments: Mapping[str, Any]) -> ToolOutput:
        """Run a tool as a call with its own part and return its output.

        Raises what the tool raises, after it was recorded in that part.
        """
        ...
