"""Commands that a user gives: those of the configuration, which become prompts, and shell commands.

A shell command asks no model, but the next model call sees its output. It is recorded as OpenCode does: a prompt that
was not typed, answered by a call of the shell without a model call around it.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from msgspec.structs import replace

from .. import ids
from ..config import commands, expand, skills
from ..config.commands import commands_needing_trust
from ..config.skills import builtin_skill, is_own_skill
from ..config.trust import owner_of, why_untrusted
from ..errors import NotFoundError, OpenseshError, UsageError
from .cancellation import run_uncancellable
from .prompt import Prompt, mentioned_parts
from .tool_context import output_limits

if TYPE_CHECKING:
    from ..config import Command
    from ..records import Document
    from ..tools.mcp.servers import McpServers
    from ..tools.truncation import Outputs
    from .components import Environment
    from .plugin_hooks import PluginHooks
    from .session_writer import AnswerWriter


class UserCommands:
    """The commands of one directory."""

    def __init__(self, environment: Environment, mcp: McpServers) -> None:
        self._config = environment.config
        self._location = environment.writer.location
        self._hooks = environment.hooks
        self._agents = environment.agents
        self._models = environment.models
        self._mcp = mcp

    def find(self, name: str) -> Command | None:
        """Return a command of the configuration, by its name with or without the slash; ``None`` for the name of an MCP
        server's prompt, which is known once the server is connected. Raises
        :class:`~opensesh.errors.NotFoundError`."""
        name = name.removeprefix("/")
        if self._mcp.owns(name):
            return None
        known = commands(self._config, (*skills(self._config).values(), builtin_skill()))
        if name not in known:
            names = ", ".join(sorted(known))
            raise NotFoundError(f"there is no command {name!r}; the commands are: {names}", command=name)
        return known[name]

    async def fetch(self, name: str) -> Command:
        """Return a command of the configuration or, named ``server:prompt``, of an MCP server."""
        return self.find(name) or await self._mcp.prompt(name.removeprefix("/"))

    async def prompt(self, command: Command, arguments: str, options: Prompt) -> Prompt:
        """Return the prompt that a command becomes. ``options`` has the agent, the model and the attachments.

        The command's own agent and model come first. A command for a subagent becomes a subtask, and leaves the agent
        and the model of the prompt itself unchanged.
        """
        agent = self._agents.get(command.agent or options.agent)
        of_agent = f"{agent.model.provider_id}/{agent.model.model_id}" if command.agent and agent.model else None
        model = command.model or of_agent or options.model
        if model is not None:
            self._models.catalogue.find(model)
        for item in commands_needing_trust(self._config):
            if item.name == command.name and (reason := why_untrusted(self._config, item)):
                raise UsageError(
                    f"the command {item.name} of this project replaces the one of opensesh and would run {item.what}: "
                    f"{reason}. 'opensesh plugins --trust' trusts it.",
                    command=item.name,
                )
        expansion = expand(command.template, arguments)
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(self._run(line)) for line in expansion.commands]
        text = expansion.text([task.result() for task in running])
        if command.subtask or (agent.mode == "subagent" and command.subtask is not False):
            part: Document = {
                "type": "subtask",
                "agent": agent.name,
                "description": command.description or "",
                "command": command.name,
                "prompt": text,
            }
            if model is not None:
                provider_id, _, model_id = model.partition("/")
                part["model"] = {"providerID": provider_id, "modelID": model_id}
            return replace(options, parts=(part,))
        written = "" if command.source == "mcp" else " ".join(expansion.pieces)
        is_own = self._is_own(command)
        parts = mentioned_parts(
            text,
            self._location,
            self._agents,
            typed=written if is_own else arguments,
            foreign="" if is_own else written,
        )
        return replace(options, parts=(*parts, *options.parts), agent=agent.name, model=model)

    def _is_own(self, command: Command) -> bool:
        """Return whether the text of a command is the user's, or ours; not the project's, a server's or a URL's."""
        if command.source == "skill":
            skill = skills(self._config).get(command.name)
            return command.name == builtin_skill().name if skill is None else is_own_skill(self._config, skill)
        origin = self._config.origins.get(("command", command.name, "template"))
        return command.source == "command" and (origin is None or owner_of(origin, self._config) == "user")

    async def _run(self, line: str) -> str:
        """Return the output of a shell command in a template."""
        from ..tools.shell.execution import CommandRun, select_shell

        directory = self._location.directory
        environment = os.environ | await self._hooks.shell_env(directory)
        try:
            arguments = select_shell(environment).arguments(line)
            preview = await CommandRun(output_limits(self._config)).run(arguments, directory, environment, stderr=False)
        except OpenseshError as error:
            return f"(the command {line!r} could not be run: {error.message})"
        return preview.text


async def run_user_shell(
    answer: AnswerWriter, command: str, directory: str, outputs: Outputs, hooks: PluginHooks
) -> bool:
    """Run ``command`` in the user's shell and record it in ``answer``; whether it was not cancelled."""
    from ..tools.shell.execution import CommandRun, user_shell

    start = ids.now_ms()
    call = answer.new_tool_part("bash")

    async def put(output: str, completed: Document | None = None, path: str | None = None) -> None:
        metadata: Document = {"output": output, "description": ""} | ({"outputPath": path} if path else {})
        if completed is None:
            state: Document = {"status": "running", "input": {"command": command}}
            state |= {"metadata": metadata} if output else {}
            time = {"start": start}
        else:
            state = {"status": "completed", "input": {"command": command}, **completed, "metadata": metadata}
            time = {"start": start, "end": ids.now_ms()}
        await answer.put(call | {"state": state | {"time": time}})

    running = CommandRun(outputs, on_output=put)
    is_cancelled = False
    try:
        added = await hooks.shell_env(directory, answer.info["sessionID"], call["callID"])
        environment = os.environ | added | {"TERM": "dumb"}
        preview = await running.run(user_shell(environment).interactive_arguments(command), directory, environment)
    except asyncio.CancelledError:
        is_cancelled = True
        running.notes.append("The user stopped the command")
        preview = running.finish()
    notes = "\n".join(["", "", "<metadata>", *running.notes, "</metadata>"]) if running.notes else ""
    completed: Document = {"output": preview.text + notes, "title": ""}
    await run_uncancellable(put(running.recent + notes, completed, preview.path))
    return not is_cancelled
