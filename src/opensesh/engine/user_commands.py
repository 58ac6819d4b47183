"""From a command and what was typed behind it to the prompt it stands for."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..config import commands, expand, skills
from ..errors import NotFoundError, OpenseshError
from ..tools.shell.execution import CommandRun, select_shell
from .prompt import Prompt, mentioned_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..config import Agent, Command
    from ..records import Document
    from .components import Runtime


def find_command(runtime: Runtime, name: str) -> Command:
    """A command by name, without the slash or with it."""
    known = commands(runtime.config, skills(runtime.config).values())
    found = known.get(name.removeprefix("/"))
    if found is None:
        raise NotFoundError(f"there is no command {name!r}; there are: {', '.join(sorted(known))}", command=name)
    return found


async def fetch_command(runtime: Runtime, name: str) -> Command:
    """Like :func:`find_command`; the prompts of MCP servers are commands too, ``server:prompt``."""
    if runtime.mcp.owns(name.removeprefix("/")):
        return await runtime.mcp.prompt(name.removeprefix("/"))
    return find_command(runtime, name)


async def prompt_of(runtime: Runtime, command: Command, arguments: str, asked: Prompt) -> Prompt:
    """The prompt that ``command`` stands for. ``asked`` says by which agent and model, and what is attached.

    The command's own agent and model come first. One that is for a subagent becomes a subtask, which leaves agent and
    model of the prompt itself as they were asked for.
    """
    agent = runtime.agent(command.agent or asked.agent)
    model = command.model or (_model(agent) if command.agent else None) or asked.model
    if model is not None:
        runtime.find_model(model)
    expansion = expand(command.template, arguments)
    text = expansion.text(await _printed(runtime, expansion.commands))
    if command.subtask or (agent.mode == "subagent" and command.subtask is not False):
        return replace(asked, parts=(_subtask(command, agent, model, text),))
    said = arguments if command.source == "mcp" else " ".join(expansion.pieces)
    parts = mentioned_parts(text, runtime, said=said)
    return replace(asked, parts=(*parts, *asked.parts), agent=agent.name, model=model)


def _model(agent: Agent) -> str | None:
    return f"{agent.model.provider_id}/{agent.model.model_id}" if agent.model else None


def _subtask(command: Command, agent: Agent, model: str | None, text: str) -> Document:
    part: Document = {
        "type": "subtask",
        "agent": agent.name,
        "description": command.description or "",
        "command": command.name,
        "prompt": text,
    }
    if model is not None:
        provider, _, name = model.partition("/")
        part["model"] = {"providerID": provider, "modelID": name}
    return part


async def _printed(runtime: Runtime, lines: Sequence[str]) -> list[str]:
    """What each of a template's shell commands prints; they run side by side."""
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(_print(runtime, line)) for line in lines]
    return [each.result() for each in running]


async def _print(runtime: Runtime, line: str) -> str:
    environment = os.environ | await runtime.hooks.shell_env(runtime.place.directory)
    running = CommandRun(runtime.outputs())
    try:
        arguments = select_shell(environment).arguments(line)
        preview = await running.run(arguments, runtime.place.directory, environment, stderr=False)
    except OpenseshError as error:
        return f"(the command {line!r} could not be run: {error.message})"
    return preview.text
