"""Executes the commands of the bash tool: what they affect, the permissions for it, the sandbox, the output."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from .. import safe_git
from ..errors import ToolFailedError
from . import path_access as paths
from .shell import process, sandbox
from .shell.effects import analyse_command
from .shell.execution import CommandRun, select_shell
from .shell.read_only import is_read_only
from .tool import Context, ToolOutput

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from .bash import BashArguments, BashTool
    from .shell.effects import CommandEffects
    from .shell.sandbox import Confinement, Lock


async def execute_command(tool: BashTool, args: BashArguments, ctx: Context) -> ToolOutput:
    """Parse, classify, ask, run, and return the output. A non-zero exit code is a result, not a failure."""
    timeout_ms = tool.timeout_ms if args.timeout is None else args.timeout
    if not timeout_ms > 0:  # also refuses NaN
        raise ToolFailedError(f"Invalid timeout of {timeout_ms:g} ms; give a positive number of milliseconds")
    if "\0" in args.command:
        raise ToolFailedError("The command contains a NUL character, which a shell cannot receive")
    directory = paths.absolute(ctx, args.workdir or ".")
    if not os.path.isdir(directory):
        raise ToolFailedError(f"The working directory {directory} does not exist")
    environment = dict(os.environ if tool.environment is None else tool.environment)
    environment |= await ctx.shell_env(directory)
    for name in ("CDPATH", "OLDPWD"):  # with them cd reaches directories that the command does not name
        environment.pop(name, None)
    shell = select_shell(environment)
    effects = analyse_command(args.command, directory, shell.language, environment)
    await _ask(ctx, effects, directory)
    description = args.description or args.command.strip().split("\n")[0]

    async def show(output: str) -> None:
        await ctx.progress(metadata={"output": output, "description": description})

    confinement = ctx.confinement()
    running = CommandRun(
        ctx.outputs,
        timeout_ms=timeout_ms,
        grace_seconds=process.GRACE_SECONDS if tool.grace_seconds is None else tool.grace_seconds,
        on_output=show,
        stop_background=confinement.planning,
    )
    if any(pattern.partition(" ")[0] == "git" for pattern in effects.patterns):
        # A bare repository among the files of a project brings a configuration that names programs.
        environment |= safe_git.setting_variables({"safe.bareRepository": "explicit"}, environment)
    only_reads = is_read_only(args.command, shell.language, environment)
    async with ctx.track_changes():
        with _confined(tool.lock or sandbox.find_lock, environment, confinement, only_reads=only_reads) as confine:
            preview = await running.run(confine(shell.arguments(args.command)), directory, environment)
    if confinement.planning and running.exit_code:
        running.notes.append("In plan mode no command can change files; this is not a defect of the command.")
    metadata = {
        "output": running.recent + _note_block(running.notes),
        "exit": running.exit_code,
        "description": description,
        "truncated": preview.truncated,
    }
    if preview.path is not None:
        metadata["outputPath"] = preview.path
    code = [f"exit code {running.exit_code}"] if running.exit_code else []
    output = (preview.text or "(no output)") + _note_block([*running.notes, *code])
    return ToolOutput(description, output, metadata)


@contextmanager
def _confined(
    find_lock: Callable[[], Lock | None], environment: dict[str, str], confinement: Confinement, *, only_reads: bool
) -> Generator[Callable[[list[str]], list[str]]]:
    """Adapt the environment of a command, and yield a function that puts the command in its sandbox."""
    locked = only_reads or confinement.planning
    if locked:
        environment |= sandbox.guarded_git_variables(environment)
    policy = sandbox.SandboxPolicy(network=not only_reads) if locked else confinement.policy
    lock = find_lock() if policy is not None else None
    if policy is None or (lock is None and locked):
        # Without a lock, plan mode has asked about all but a few commands that are known to the letter.
        yield list
    elif lock is None:
        raise ToolFailedError(
            "The command was not run: the configuration asks for a sandbox (opensesh.sandbox), and this machine "
            "has none. `opensesh doctor` shows what is missing."
        )
    elif not locked:
        yield lambda arguments: sandbox.sandboxed_arguments(arguments, policy, lock)
    else:
        with sandbox.private_folder() as folder:
            environment |= sandbox.temporary_variables(folder)
            writable = replace(policy, writable=(folder,))
            yield lambda arguments: sandbox.sandboxed_arguments(arguments, writable, lock)


_ORDINARY_FILE = "opensesh-any-file"
"""A name in the project that no rule is about."""


async def _ask(ctx: Context, effects: CommandEffects, directory: str) -> None:
    outside: set[str] = set()
    for path in (directory, *effects.paths):
        real = os.path.realpath(path)
        if not paths.is_inside(ctx, real):
            outside.add(real if os.path.isdir(real) else os.path.dirname(real))
    if outside:
        await paths.ask_outside(ctx, sorted(outside))
    if effects.any_path:
        await paths.ask_anywhere(ctx, "external_directory")
    if effects.writes:
        await paths.ask_edit(ctx, effects.writes, {"filepath": effects.writes[0], "diff": ""})
    if effects.any_write:
        await paths.ask_anywhere(ctx, "edit")
    # Whether programs may change files is a matter of the rules for bash. But where edits are allowed in general, an
    # exception for a file, which is a rule about just that file, also holds for the usual commands that name it.
    is_allowed = ctx.allow_check("edit")
    if effects.changed and is_allowed(_ORDINARY_FILE):
        names = {name: paths.relative(ctx, name) for path in effects.changed for name in paths.names(ctx, path)}
        exceptions = [name for name, pattern in names.items() if not is_allowed(pattern)]
        if exceptions:
            await paths.ask_edit(ctx, exceptions, {"filepath": exceptions[0], "diff": ""})
    await ctx.ask(
        "bash",
        effects.patterns,
        always=effects.always,
        metadata={},
        possible=effects.possible,
        forms=effects.forms,
    )


def _note_block(notes: list[str]) -> str:
    return "\n".join(["", "", "<bash_metadata>", *notes, "</bash_metadata>"]) if notes else ""
