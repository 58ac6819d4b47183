"""The states of the MCP servers, for the commands that show them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..config import Config
from ..tools.mcp.conversion import McpTool
from ..tools.mcp.servers import McpServers
from . import output

if TYPE_CHECKING:
    from ..tools.mcp.server import McpServerState

_COLOURS = {"connected": 32, "failed": 31, "needs_auth": 33, "needs_client_registration": 33, "untrusted": 33}
UNUSABLE = ("failed", "needs_auth", "needs_client_registration", "untrusted")
"""States of a server whose tools are missing although it is enabled."""


async def connect_servers(config: Config) -> tuple[tuple[McpTool, ...], Mapping[str, McpServerState]]:
    """Connect all servers, and return their tools and states."""
    servers = McpServers(config, lambda event: None)
    async with asyncio.TaskGroup() as group:
        servers.begin(group)
        try:
            return await servers.tools(), servers.states
        finally:
            servers.end()


def painted_status(state: McpServerState) -> str:
    """Return the status of a server, in its colour."""
    return output.paint(state.status.replace("_", " "), _COLOURS.get(state.status, 2))
