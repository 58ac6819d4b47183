"""List the MCP servers of this directory with their state, log in to one that requires it, or log out.

To list them, the servers are connected; those of a project only if they are trusted ('opensesh plugins'). Logins are
kept in OpenCode's data folder, and both programs use them.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
from argparse import Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..config import Config, McpConfig
from ..tools.mcp.servers import McpServers
from . import output
from .command_arguments import CommandParser
from .directory_config import add_directory_option, load_config
from .logfile import show_warnings
from .mcp_states import UNUSABLE, connect_servers, painted_status
from .terminal import error_stream, escape_control

if TYPE_CHECKING:
    from ..tools.mcp.server import McpServerState


def configure(parser: CommandParser) -> None:
    """Declare the actions and their arguments."""
    add_directory_option(parser.add_action("list", "list the servers with their state"))
    for action, summary in (("auth", "log in to a server with a browser"), ("logout", "forget the login to a server")):
        leaf = parser.add_action(action, summary)
        leaf.add_argument("name", metavar="SERVER", help="its name in the configuration")
        add_directory_option(leaf)


def run(options: Namespace) -> int:
    """Run the action; the exit code is 1 if a server cannot be used."""
    _, config = load_config(options)
    if options.action == "list":
        with show_warnings(lambda text: None):  # problems are printed below
            _, states = asyncio.run(connect_servers(config))
        return _print_servers(options, config, states)
    return asyncio.run(_log_in(options, config) if options.action == "auth" else _log_out(options, config))


async def _log_in(options: Namespace, config: Config) -> int:
    def show(url: str) -> None:
        print(f"Log in at this address; a browser is opened if there is one:\n{escape_control(url)}", file=sys.stderr)

    servers = McpServers(config, lambda event: None)
    async with asyncio.TaskGroup() as group:
        servers.begin(group)
        try:
            with show_warnings(lambda text: None):  # the state is printed
                state = await servers.logins.run(options.name, show)
        finally:
            servers.end()
    if options.json:
        output.print_json({"name": options.name, "status": state.status, "error": state.error})
    else:
        error = f": {state.error}" if state.error else ""
        print(f"MCP server {options.name}: {painted_status(state)}{escape_control(error)}")
    return 1 if state.status in UNUSABLE else 0


async def _log_out(options: Namespace, config: Config) -> int:
    removed = await McpServers(config, lambda event: None).logins.remove(options.name)
    if options.json:
        output.print_json({"name": options.name, "removed": removed})
    else:
        print(f"Logged out of {options.name}." if removed else f"There is no login to {options.name}.")
    return 0


def _print_servers(options: Namespace, config: Config, states: Mapping[str, McpServerState]) -> int:
    sections = config.settings.mcp
    if options.json:
        servers = [
            {"name": name, "status": state.status, "error": state.error, "address": _address(sections[name])}
            for name, state in states.items()
        ]
        output.print_json({"servers": servers})
    elif not states:
        print("The configuration has no MCP servers.")
    else:
        rows = [(name, painted_status(state), _address(sections[name])) for name, state in states.items()]
        output.table(("SERVER", "STATUS", "ADDRESS OR COMMAND"), rows)
        for name, state in states.items():
            if state.error:
                print(f"{name}: {escape_control(state.error)}", file=error_stream())
    return 1 if any(state.status in UNUSABLE for state in states.values()) else 0


def _address(config: McpConfig) -> str:
    """Return where a server is, without the query of an address and the arguments of a command, which may be secret."""
    return escape_control((config.url or "").partition("?")[0] or shlex.join((config.command or [])[:1]))
