"""Run a shell command."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from ..errors import ToolFailedError
from . import path_access as paths
from .arguments import Arguments
from .shell import effects as intent
from .shell import process
from .shell.execution import CommandRun, select_shell
from .tool import BuiltinTool, Context, ToolOutput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .truncation import OutputPreview

TIMEOUT_MS = 120_000
_MISLEADING = ("CDPATH", "OLDPWD")
"""Variables by which ``cd`` leads to where nothing in the command does."""


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


class BashTool(BuiltinTool[BashArguments]):
    """One shell a call, without input; nothing of it is left for the next call but what it did to files."""

    id = "bash"
    parameters = BashArguments

    def __init__(
        self,
        *,
        timeout_ms: float = TIMEOUT_MS,
        grace_seconds: float = process.GRACE_SECONDS,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """``environment`` is that of the process unless given."""
        self._timeout_ms = timeout_ms
        self._grace_seconds = grace_seconds
        self._environment = environment

    async def execute(self, args: BashArguments, ctx: Context) -> ToolOutput:
        """Ask, run, and answer with the output; a non-zero exit code is an answer like any other."""
        timeout_ms = self._timeout_ms if args.timeout is None else args.timeout
        if not timeout_ms > 0:  # which no NaN is
            raise ToolFailedError(
                f"A timeout of {timeout_ms:g} ms cannot be kept; give a positive number of milliseconds"
            )
        if "\0" in args.command:
            raise ToolFailedError("The command holds a NUL character, which no shell can be given")
        directory = paths.absolute(ctx, args.workdir or ".")
        if not os.path.isdir(directory):
            raise ToolFailedError(f"The working directory {directory} does not exist")
        environment = dict(os.environ if self._environment is None else self._environment)
        environment |= await ctx.shell_env(directory)
        for misleading in _MISLEADING:
            environment.pop(misleading, None)
        shell = select_shell(environment)
        posix, readable = shell.language == "posix", shell.language != "other"
        plan = intent.analyse_command(args.command, directory, posix=posix, readable=readable, environment=environment)
        await _ask(ctx, plan, directory)
        description = args.description or args.command.strip().split("\n")[0]

        async def show(output: str) -> None:
            await ctx.progress(title=description, metadata={"output": output, "description": description})

        running = CommandRun(ctx.outputs, timeout_ms=timeout_ms, grace_seconds=self._grace_seconds, on_output=show)
        async with ctx.track_changes():
            preview = await running.run(shell.arguments(args.command), directory, environment)
        return _answer(running, preview, description)


async def _ask(ctx: Context, plan: intent.CommandEffects, directory: str) -> None:
    outside = [path for path in (directory, *plan.paths) if not paths.inside(ctx, path)]
    if outside:
        await paths.ask_outside(ctx, sorted({_directory_of(path) for path in outside}))
    if plan.writes:
        await paths.ask_edit(ctx, plan.writes, {"filepath": plan.writes[0], "diff": ""})
    if plan.patterns:
        await ctx.ask("bash", plan.patterns, always=plan.always, metadata={})


def _directory_of(path: str) -> str:
    real = os.path.realpath(path)
    return real if os.path.isdir(real) else os.path.dirname(real)


def _answer(running: CommandRun, preview: OutputPreview, description: str) -> ToolOutput:
    metadata = {
        "output": running.recent + _block(running.notes),
        "exit": running.exit_code,
        "description": description,
        "truncated": preview.truncated,
    }
    if preview.path is not None:
        metadata["outputPath"] = preview.path
    code = [f"exit code {running.exit_code}"] if running.exit_code else []
    output = (preview.text or "(no output)") + _block([*running.notes, *code])
    return ToolOutput(description, output, metadata)


def _block(notes: list[str]) -> str:
    return "\n".join(["", "", "<bash_metadata>", *notes, "</bash_metadata>"]) if notes else ""
