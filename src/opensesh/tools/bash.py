"""Run a shell command."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from ..errors import ToolFailed
from . import external
from .arguments import Arguments
from .shell import intent, process
from .shell.capture import Capture
from .shell.choice import choose
from .tool import BuiltinTool, Context, ToolOutput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .truncation import Preview

TIMEOUT_MS = 120_000
_PROGRESS_EVERY = 0.2


class BashArguments(Arguments, frozen=True):
    """What to run, where, and for how long."""

    command: Annotated[str, Meta(description="The command line to run")]
    timeout: Annotated[
        float | None, Meta(description="Milliseconds after which the command is stopped; 120000 if not given")
    ] = None
    workdir: Annotated[
        str | None,
        Meta(description="The directory to run it in, if not the working directory. Better than a cd in the command."),
    ] = None
    description: Annotated[
        str, Meta(description="What the command does, in 5 to 10 words, for the user who watches")
    ] = ""


class Bash(BuiltinTool[BashArguments]):
    """One shell a call, without input; nothing of it is left for the next call but what it did to files."""

    id = "bash"
    parameters = BashArguments

    def __init__(
        self,
        *,
        timeout_ms: float = TIMEOUT_MS,
        grace: float = process.GRACE,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """``environment`` is that of the process unless given."""
        self._timeout_ms = timeout_ms
        self._grace = grace
        self._environment = environment

    async def execute(self, args: BashArguments, ctx: Context) -> ToolOutput:
        """Ask, run, and answer with the output; a non-zero exit code is an answer like any other."""
        timeout_ms = self._timeout_ms if args.timeout is None else args.timeout
        if timeout_ms <= 0:
            raise ToolFailed(f"A timeout of {timeout_ms:g} ms cannot be kept; give a positive number of milliseconds")
        if "\0" in args.command:
            raise ToolFailed("The command holds a NUL character, which no shell can be given")
        directory = external.absolute(ctx, args.workdir or ".")
        if not os.path.isdir(directory):
            raise ToolFailed(f"The working directory {directory} does not exist")
        environment = dict(os.environ if self._environment is None else self._environment)
        environment |= await ctx.shell_env()
        shell = choose(environment)
        posix, readable = shell.language == "posix", shell.language != "other"
        await _ask(ctx, intent.study(args.command, directory, posix=posix, readable=readable), directory)
        run = _Run(ctx, args.description or args.command.strip().split("\n")[0], timeout_ms, self._grace)
        return await run.through(shell.arguments(args.command), directory, environment)


async def _ask(ctx: Context, plan: intent.Intent, directory: str) -> None:
    outside = [path for path in (directory, *plan.paths) if not external.inside(ctx, path)]
    if outside:
        await external.ask(ctx, sorted({_directory_of(path) for path in outside}))
    written = [path for path in plan.writes if path not in outside]
    if written:
        patterns = [external.relative(ctx, name) for path in written for name in external.names(ctx, path)]
        await ctx.ask("edit", patterns, always=["*"], metadata={"filepath": written[0], "diff": ""})
    if plan.patterns:
        await ctx.ask("bash", plan.patterns, always=plan.always, metadata={})


def _directory_of(path: str) -> str:
    real = os.path.realpath(path)
    return real if os.path.isdir(real) else os.path.dirname(real)


class _Run:
    """One command, from start to end."""

    def __init__(self, ctx: Context, description: str, timeout_ms: float, grace: float) -> None:
        self._ctx = ctx
        self._description = description
        self._timeout_ms = timeout_ms
        self._grace = grace
        self._capture = Capture(ctx.outputs)
        self._notes: list[str] = []

    async def through(self, arguments: list[str], directory: str, environment: Mapping[str, str]) -> ToolOutput:
        await self._show()
        running = await self._start(arguments, directory, environment)
        try:
            in_time = await self._wait(running)
        except BaseException as error:
            await running.stop(self._grace)
            if isinstance(error, asyncio.CancelledError):
                await self._show()
            raise
        finally:
            running.close()
            self._capture.close()
        return self._answer(_exit_code(running) if in_time else None, self._capture.finish())

    async def _start(self, arguments: list[str], directory: str, environment: Mapping[str, str]) -> process.Process:
        try:
            return await process.start(arguments, cwd=directory, env=environment, received=self._capture.feed)
        except OSError as error:
            raise ToolFailed(f"{arguments[0]} could not be started: {error.strerror or error}") from error
        except asyncio.CancelledError:
            self._capture.close()
            await self._show()
            raise

    async def _wait(self, running: process.Process) -> bool:
        """Until the command exits, or its time is up; whether it exited by itself."""
        deadline = time.monotonic() + self._timeout_ms / 1000
        shown = 0
        while not await running.wait(min(_PROGRESS_EVERY, max(0.0, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                await running.stop(self._grace)
                await running.drain()
                self._notes.append(
                    f"The command took longer than its timeout of {self._timeout_ms:g} ms and was stopped. "
                    "If it needs more time, run it again with a larger timeout."
                )
                return False
            if self._capture.size != shown:
                shown = self._capture.size
                await self._show()
        if not await running.drain():
            self._notes.append(
                "A process that the command left in the background still has the output open. What it writes from now "
                "on is lost, and writing may end it: send its output to a file."
            )
        return True

    async def _show(self) -> None:
        shown = {"output": self._capture.recent(), "description": self._description}
        await self._ctx.progress(title=self._description, metadata=shown)

    def _answer(self, exit_code: int | None, preview: Preview) -> ToolOutput:
        metadata = {
            "output": self._capture.recent() + _block(self._notes),
            "exit": exit_code,
            "description": self._description,
            "truncated": preview.truncated,
        }
        if preview.path is not None:
            metadata["outputPath"] = preview.path
        code = [f"exit code {exit_code}"] if exit_code else []
        output = (preview.text or "(no output)") + _block([*self._notes, *code])
        return ToolOutput(self._description, output, metadata)


def _block(notes: list[str]) -> str:
    return "\n".join(["", "", "<bash_metadata>", *notes, "</bash_metadata>"]) if notes else ""


def _exit_code(running: process.Process) -> int | None:
    """As a shell would give it: 128 and the number of the signal, if one ended the command."""
    code = running.exit_code
    return code if code is None or code >= 0 else 128 - code
