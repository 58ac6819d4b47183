"""Run a shell command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from .arguments import Arguments
from .tool import BuiltinTool, Context, ToolOutput

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .shell.sandbox import Lock

DEFAULT_TIMEOUT_MS = 120_000


class BashArguments(Arguments, frozen=True):
    """The command, its directory and its timeout."""

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
    """Runs one shell per call, without input. Only changes to files outlast the call."""

    id = "bash"
    parameters = BashArguments

    def __init__(
        self,
        *,
        timeout_ms: float = DEFAULT_TIMEOUT_MS,
        grace_seconds: float | None = None,
        environment: Mapping[str, str] | None = None,
        lock: Callable[[], Lock | None] | None = None,
    ) -> None:
        """``environment`` defaults to that of the process, ``lock`` to the one of this machine."""
        self.timeout_ms = timeout_ms
        self.grace_seconds = grace_seconds
        self.environment = environment
        self.lock = lock

    async def execute(self, args: BashArguments, ctx: Context) -> ToolOutput:
        """Parse, classify, ask, run, and return the output. A non-zero exit code is a result, not a failure."""
        from .bash_execution import execute_command  # the parser and the sandbox are half of what the tools load

        return await execute_command(self, args, ctx)
