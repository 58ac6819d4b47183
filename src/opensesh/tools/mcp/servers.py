"""All MCP servers of a configuration."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ...config.commands import Command
from ...config.commands import hints as hints_of
from ...errors import NotFoundError, OpenseshError
from .conversion import sanitize

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from mcp_types import Prompt

    from ...config import Config, McpConfig
    from ...events import Publish
    from ...records import Document
    from .conversion import McpTool, ResourceContent
    from .logins import McpLogins
    from .server import McpServer, McpServerState

log = logging.getLogger("opensesh.tools")


class McpServers:
    """Starts the servers on first use, concurrently. A server that fails, or that is not trusted, affects no other; it
    is reported in a warning and an event.

    Call :meth:`begin` first and :meth:`end` last: the tasks that own the connections run in the caller's task group,
    and leaving the group waits for the end of every server.
    """

    def __init__(self, config: Config, publish: Publish) -> None:
        self._group: asyncio.TaskGroup | None = None
        self._config = config
        self._publish = publish
        self._servers = {name: self._create(name, section) for name, section in config.settings.mcp.items()}
        self._logins: McpLogins | None = None

    def _create(self, name: str, section: McpConfig, *, is_trusted: bool = False) -> McpServer:
        # Not at the top: most configurations name no server.
        from .server import McpServer
        from .server_trust import untrusted_reason

        return McpServer(
            name,
            section,
            directory=self._config.directory,
            variables=self._config.variables,
            publish=self._publish,
            timeout_ms=self._config.settings.experimental.mcp_timeout,
            untrusted_reason=str if is_trusted else partial(untrusted_reason, self._config, name),
        )

    def add(self, name: str, section: McpConfig) -> None:
        """Add a server that the user asked for, in place of the one of that name."""
        if name in self._servers:
            self._servers[name].end()
        self._servers[name] = self._create(name, section, is_trusted=True)

    async def connect(self, name: str) -> None:
        """Connect a server, also one that is disabled."""
        server = self.find(name)
        server.enable()
        await self._ready([server], required=True)

    async def disconnect(self, name: str) -> None:
        """Disconnect a server until it is connected again."""
        await self.find(name).disable()

    @property
    def logins(self) -> McpLogins:
        """The logins to these servers."""
        if self._logins is None:
            # Not at the top: few servers require a login.
            from .logins import McpLogins

            self._logins = McpLogins(self, self._publish)
        return self._logins

    async def reconnect(self, name: str) -> McpServerState:
        """Connect a server again with its present login, unless it is disabled; return its state."""
        server = self.find(name)
        if server.is_enabled:
            await server.disable()
            await self.connect(name)
        return server.state

    def find(self, name: str) -> McpServer:
        """Return a server. Raises :class:`NotFoundError`."""
        if name not in self._servers:
            raise NotFoundError(f"the configuration has no MCP server {name!r}", server=name)
        return self._servers[name]

    async def resources(self) -> list[tuple[str, Document]]:
        """Return the resources of all servers that are connected, with the name of the server."""
        resources: list[tuple[str, Document]] = []
        for name, server in self._servers.items():
            try:
                listed = await server.resources()
            except OpenseshError as error:
                log.warning("%s", error.message)
                continue
            for resource in listed:
                shown = {"description": resource.description, "mimeType": resource.mime_type}
                document: Document = {"name": resource.name, "uri": str(resource.uri)}
                resources.append((name, document | {key: text for key, text in shown.items() if text is not None}))
        return resources

    def begin(self, group: asyncio.TaskGroup) -> None:
        """Allow servers to start, in this task group."""
        self._group = group

    def end(self) -> None:
        """Close all connections."""
        self._group = None
        for server in self._servers.values():
            server.end()

    @property
    def states(self) -> Mapping[str, McpServerState]:
        """Current state of every server."""
        return {name: server.state for name, server in self._servers.items()}

    async def tools(self) -> tuple[McpTool, ...]:
        """Return the tools of all reachable servers, in the order of the configuration, with recent changes."""
        if not self._servers:
            return ()
        await self._ready(list(self._servers.values()))
        tools: dict[str, McpTool] = {}
        for server in self._servers.values():
            for tool in server.tools:
                first = tools.setdefault(tool.id, tool)
                if first is not tool:
                    message = "the MCP servers %s and %s both have a tool named %s; the first is used"
                    log.warning(message, first.server, tool.server, tool.id)
        return tuple(tools.values())

    async def prompts(self) -> list[Command]:
        """Return the prompts of all servers as commands ``server:prompt``, without templates (:meth:`prompt`)."""
        await self._ready(list(self._servers.values()))
        commands: list[Command] = []
        for name, server in self._servers.items():
            try:
                commands += [_command(name, prompt) for prompt in await server.prompts()]
            except OpenseshError as error:
                log.warning("%s", error.message)
        return commands

    def owns(self, name: str) -> bool:
        """Return whether a command of that name would be a prompt of a configured server. The server is not asked."""
        return any(name.startswith(_prefix(server)) for server in self._servers)

    async def prompt(self, name: str) -> Command:
        """Return the command ``server:prompt`` with its template."""
        why = ""
        for server_name, server in self._servers.items():
            if name.startswith(_prefix(server_name)):
                await self._ready([server], required=True)
                why = f": {server.state.error}" if server.state.error else why
                for prompt in await server.prompts():
                    command = _command(server_name, prompt)
                    if command.name == name:
                        placeholders = {item.name: f"${index}" for index, item in enumerate(prompt.arguments or (), 1)}
                        # !`...` runs a command; text from a server must not.
                        template = (await server.prompt(prompt.name, placeholders)).replace("!`", "! `")
                        return replace(command, template=template, hints=hints_of(template))
        raise NotFoundError(f"no MCP server has a prompt {name!r}{why}", command=name)

    async def read(self, name: str, uri: str) -> list[ResourceContent]:
        """Read a resource of the server ``name``."""
        server = self.find(name)
        await self._ready([server], required=True)
        return await server.read(uri)

    async def _ready(self, servers: list[McpServer], *, required: bool = False) -> None:
        for server in servers:
            await server.wait_until_gone()
            if self._group is not None:
                server.start(self._group, required=required)
        for server in servers:
            await server.settled()
            await server.refresh()


def _command(server: str, prompt: Prompt) -> Command:
    hints = tuple(f"${index}" for index in range(1, len(prompt.arguments or ()) + 1))
    name = _prefix(server) + sanitize(prompt.name)
    return Command(name=name, description=prompt.description, source="mcp", template="", hints=hints)


def _prefix(server: str) -> str:
    """Return the prefix of a server's commands."""
    return f"{sanitize(server)}:"
