"""All servers of a configuration."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from ...config.commands import Command, hints
from ...errors import NotFoundError, OpenseshError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from mcp_types import Prompt

    from ...config import Config
    from ...events import Publish
    from .conversion import McpTool, ResourceContent
    from .server import McpServer, McpServerState

log = logging.getLogger("opensesh.tools")


class McpServers:
    """They are started when first something is asked of them, all at the same time; each that fails costs its own
    tools alone, and is named in a warning and an event. So does one that came with the project, until it is trusted.

    :meth:`begin` comes first, :meth:`end` last: the tasks that hold the connections belong to the group of whoever
    calls, and leaving the group waits for every server's end.
    """

    def __init__(self, config: Config, publish: Publish) -> None:
        self._group: asyncio.TaskGroup | None = None
        self._servers = _configured(config, publish)

    def begin(self, group: asyncio.TaskGroup) -> None:
        """From now on servers may be started, in this group."""
        self._group = group

    def end(self) -> None:
        """Let all of them go."""
        self._group = None
        for server in self._servers.values():
            server.end()

    @property
    def states(self) -> Mapping[str, McpServerState]:
        """How each is."""
        return {name: server.state for name, server in self._servers.items()}

    async def tools(self) -> tuple[McpTool, ...]:
        """The tools of all that can be reached, in the order of the configuration. What a server changed since the
        last time is taken up now."""
        await self._ready(list(self._servers.values()))
        found: dict[str, McpTool] = {}
        for server in self._servers.values():
            for tool in server.tools:
                first = found.setdefault(tool.id, tool)
                if first is not tool:
                    told = "the MCP servers %s and %s both have a tool that is called %s; the first one's counts"
                    log.warning(told, first.server, tool.server, tool.id)
        return tuple(found.values())

    async def prompts(self) -> list[Command]:
        """The prompts of all servers as commands, ``server:prompt``, without their templates (:meth:`prompt`)."""
        await self._ready(list(self._servers.values()))
        found: list[Command] = []
        for name, server in self._servers.items():
            found += [_command(name, each) for each in await _prompts(server)]
        return found

    def owns(self, name: str) -> bool:
        """Whether a command of that name would be a prompt of one of the servers; whether it has it is not said."""
        return any(name.startswith(_prefix(each)) for each in self._servers)

    async def prompt(self, name: str) -> Command:
        """The command ``server:prompt``, complete."""
        why = ""
        for server_name, server in self._servers.items():
            if name.startswith(_prefix(server_name)):
                await self._ready([server], wanted=True)
                why = f": {server.state.error}" if server.state.error else why
                for each in await server.prompts():
                    command = _command(server_name, each)
                    if command.name == name:
                        places = {part.name: f"${place}" for place, part in enumerate(each.arguments or (), 1)}
                        # What a server says is text: only what the user wrote may name commands to run.
                        template = (await server.prompt(each.name, places)).replace("!`", "! `")
                        return Command(
                            name=name,
                            description=command.description,
                            source="mcp",
                            template=template,
                            hints=hints(template),
                        )
        raise NotFoundError(f"no MCP server has a prompt {name!r}{why}", command=name)

    async def read(self, name: str, uri: str) -> list[ResourceContent]:
        """A resource of the server ``name``."""
        server = self._servers.get(name)
        if server is None:
            raise NotFoundError(f"the configuration has no MCP server {name!r}", server=name)
        await self._ready([server], wanted=True)
        return await server.read(uri)

    async def _ready(self, servers: list[McpServer], *, wanted: bool = False) -> None:
        for server in servers:
            await server.gone()
            if self._group is not None:
                server.start(self._group, wanted=wanted)
        for server in servers:
            await server.settled()
            await server.refresh()


def _configured(config: Config, publish: Publish) -> dict[str, McpServer]:
    if not config.settings.mcp:
        return {}
    from .server import McpServer
    from .server_trust import untrusted_reason  # only here: most configurations name none

    timeout = config.settings.experimental.mcp_timeout
    return {
        name: McpServer(
            name,
            section,
            directory=config.directory,
            variables=config.variables,
            publish=publish,
            timeout_ms=timeout,
            untrusted_reason=partial(untrusted_reason, config, name),
        )
        for name, section in config.settings.mcp.items()
    }


async def _prompts(server: McpServer) -> list[Prompt]:
    try:
        return await server.prompts()
    except OpenseshError as error:
        log.warning("%s", error.message)
        return []


def _command(server: str, prompt: Prompt) -> Command:
    from .conversion import sanitize

    places = tuple(f"${place}" for place in range(1, len(prompt.arguments or ()) + 1))
    name = _prefix(server) + sanitize(prompt.name)
    return Command(name=name, description=prompt.description, source="mcp", template="", hints=places)


def _prefix(server: str) -> str:
    """What the commands of a server begin with."""
    from .conversion import sanitize

    return f"{sanitize(server)}:"
