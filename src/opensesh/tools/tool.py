"""What a tool is, what it is given, and what it gives back.

A tool is called with the model's arguments, as they came, and a :class:`Context`. What holds for every tool:

**Asking comes first.** A tool asks (:meth:`Context.ask`) for all it is about to do before it changes anything. An
answer of no is an exception, which a tool lets pass; nothing has been done then.

**Saying so comes next.** A tool says what files will hold (:meth:`Context.changing`) before it writes them.

**Failing** is raising :class:`~opensesh.errors.ToolFailedError` with a message for the model: what happened, and what
to
do instead. A command that ran and answered "no" (a non-zero exit code, a search without hits) is no failure.

**Cancellation** is asyncio's. A cancelled tool ends every process it started, the children of those included, leaves
no file half written, and lets the :class:`~asyncio.CancelledError` pass. What it had so far is what it last handed to
:meth:`Context.progress`.

**Concurrency.** The calls of one step run at the same time, so a tool keeps no state of its own between or during
calls. Two that write the same file wait for each other (:meth:`~opensesh.tools.filetimes.FileTimes.lock`).

**Length.** A tool that leaves ``truncated`` out of its metadata has its output shortened for it, the whole kept in a
file (:func:`invoke`). One that sets it, to either value, has seen to its own.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, cast

from msgspec import Struct

from .. import ids
from .arguments import Arguments, decode, schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from .filetimes import FileTimes
    from .services import Calls, Instructions, Modes, Past, Questions, Skills, Subtasks, Todos
    from .truncation import Outputs

A = TypeVar("A", bound=Arguments)


class ToolOutput(Struct, frozen=True):
    """What a tool answers."""

    title: str
    """A few words for a person's screen."""
    output: str
    """What the model reads."""
    metadata: dict[str, Any] = {}
    """For programs. ``truncated``: absent, the output is yet to be shortened; false, whole; true, shortened already."""
    attachments: tuple[dict[str, Any], ...] = ()
    """File parts, complete (:func:`attachment`)."""


class Context(Protocol):
    """One call, seen from inside the tool. The engine makes one for each."""

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
        """Where relative paths start: absolute."""
        ...

    @property
    def worktree(self) -> str:
        """The top of the project: absolute; ``/`` where there is no repository."""
        ...

    @property
    def files(self) -> FileTimes:
        """What this session has read and written."""
        ...

    @property
    def outputs(self) -> Outputs:
        """Where long outputs go, and how long is too long."""
        ...

    @property
    def todos(self) -> Todos: ...
    @property
    def questions(self) -> Questions: ...
    @property
    def subtasks(self) -> Subtasks: ...
    @property
    def skills(self) -> Skills: ...
    @property
    def instructions(self) -> Instructions: ...
    @property
    def modes(self) -> Modes: ...
    @property
    def past(self) -> Past: ...
    @property
    def calls(self) -> Calls: ...

    async def ask(
        self,
        permission: str,
        patterns: Sequence[str],
        *,
        always: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Return if every pattern is allowed, by rule or by the user; otherwise raise
        :class:`~opensesh.errors.PermissionDeniedError`, ``PermissionCorrectedError`` or ``PermissionRejectedError``.

        ``always`` are the patterns that an answer of "always" allows from then on.
        """
        ...

    def allowing(self, permission: str) -> Callable[[str], bool]:
        """Tells of any pattern whether it is allowed already, so that nobody would be asked. For what a tool leaves out
        rather than asks for."""
        ...

    async def progress(self, *, title: str | None = None, metadata: Mapping[str, Any] | None = None) -> None:
        """Show how far the call is. Replaces what was shown before; kept if the call is cancelled."""
        ...

    async def changing(self, becoming: Mapping[str, bytes | None]) -> None:
        """Tell what files are about to hold, ``None`` for one that goes: what they hold now is put aside, so that it
        can be brought back. A tool that writes without a word writes what no revert can undo."""
        ...

    def changed(self, path: str) -> None:
        """Tell that a tool wrote, moved or deleted this file."""
        ...

    def watching(self) -> AbstractAsyncContextManager[None]:
        """Around something that may change any file: which ones it changed is found out, where nothing else does."""
        ...

    async def shell_env(self, cwd: str) -> Mapping[str, str]:
        """Variables to add to the environment of a command that runs in ``cwd``."""
        ...


class Tool(Protocol):
    """Something a model can call. See the module's contract."""

    @property
    def id(self) -> str: ...

    @property
    def description(self) -> str:
        """For the model, in Markdown; may hold the placeholders of :class:`~opensesh.tools.registry.Surroundings`."""
        ...

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of its arguments: an object, with nothing left to look up. Shared; not to be changed."""
        ...

    async def run(self, arguments: Mapping[str, Any], ctx: Context) -> ToolOutput:
        """Do it, with the arguments as the model wrote them."""
        ...


def lacking(thing: object) -> list[str]:
    """What ``thing`` has not, and would have to have to be a :class:`Tool`."""
    return [name for name in ("id", "description", "schema", "run") if not hasattr(thing, name)]


class BuiltinTool(ABC, Generic[A]):
    """A tool whose arguments are a struct, and whose description is the Markdown file of its name in this folder."""

    id: ClassVar[str]
    parameters: type[A]

    @property
    def description(self) -> str:
        """The text of the Markdown file."""
        return _markdown(self.id)

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of ``parameters``."""
        return schema_of(self.parameters)

    async def run(self, arguments: Mapping[str, Any], ctx: Context) -> ToolOutput:
        """Check the arguments, apply their defaults, and do it."""
        return await self.execute(decode(self.id, self.parameters, arguments), ctx)

    @abstractmethod
    async def execute(self, args: A, ctx: Context) -> ToolOutput:
        """Do it, with arguments that fit."""


@cache
def _markdown(name: str) -> str:
    path = os.path.join(os.path.dirname(__file__), f"{name}.md")
    with open(path, encoding="utf-8") as file:
        return file.read().strip()


async def invoke(tool: Tool, arguments: Mapping[str, Any], ctx: Context) -> ToolOutput:
    """Run ``tool`` and shorten what it answers, unless it has done so itself. How the engine calls tools."""
    answer = await tool.run(arguments, ctx)
    if "truncated" in answer.metadata:
        return answer
    preview = ctx.outputs.shorten(answer.output)
    metadata = {**answer.metadata, "truncated": preview.truncated}
    if preview.path is not None:
        metadata["outputPath"] = preview.path
    return ToolOutput(answer.title, preview.text, metadata, answer.attachments)


def attachment(ctx: Context, mime: str, url: str, filename: str | None = None) -> dict[str, Any]:
    """A file part that belongs to the message of this call."""
    part = {
        "id": ids.ascending("prt"),
        "sessionID": ctx.session_id,
        "messageID": ctx.message_id,
        "type": "file",
        "mime": mime,
    }
    named = {"filename": filename} if filename else {}
    return cast("dict[str, Any]", {**part, **named, "url": url})
