"""List the tools that models are offered here: built in, from installed packages and plugins, and from MCP servers.

The configured MCP servers are started for this; those of a project only if they are trusted ('opensesh plugins'). Which
tools an agent may use is decided by its permission rules.
"""

from __future__ import annotations

import asyncio
from argparse import Namespace
from typing import NamedTuple

from ..config import agents, skills
from ..engine.model_choice import subagents
from ..engine.step import enabled_features
from ..plugins import Host, Plugins, load_plugins, plugin_tools
from ..text import pluralize
from ..tools.builtin_tools import builtin
from ..tools.custom import load_installed_tools
from ..tools.tool import Tool
from ..tools.tool_registry import description_values, to_spec
from . import output
from .command_arguments import CommandParser
from .directory_config import add_directory_option, load_config
from .logfile import show_warnings
from .mcp_states import UNUSABLE, connect_servers, painted_status
from .terminal import escape_control

_KINDS = {"built-in": "built in", "package": "package ", "plugin": "plugin ", "mcp": "MCP server "}


class _ListedTool(NamedTuple):
    """A tool and where it comes from."""

    tool: Tool
    kind: str
    source: str
    description: str


def configure(parser: CommandParser) -> None:
    """Declare the arguments."""
    add_directory_option(parser)


def run(options: Namespace) -> int:
    """Print the tools; the exit code is 1 if a server or a package cannot be used."""
    location, config = load_config(options)
    # Descriptions name the agents and skills there are.
    values = description_values(
        location.directory, agents=subagents(agents(config).values()), skills=skills(config).values()
    )
    with show_warnings(lambda text: None):  # problems are printed below
        packages = load_installed_tools()
        host = Host(directory=location.directory, worktree=location.sandbox, project_id=location.id)
        plugins = load_plugins(config, host).loaded
        server_tools, states = asyncio.run(connect_servers(config))
    builtins = builtin(enabled_features(config, interactive=True))
    by_source: list[tuple[Tool, str, str]] = [
        *((tool, "built-in", "") for tool in builtins if tool.id != "invalid"),
        *((entry.tool, "package", entry.package) for entry in packages.tools),
        *((tool, "mcp", tool.server) for tool in server_tools),
    ]
    tools: dict[str, _ListedTool] = {}
    for tool, kind, source in by_source:
        tools.setdefault(tool.id, _ListedTool(tool, kind, source, to_spec(tool, values).description))
    for plugin in plugins:  # a plugin replaces tools of the same name
        for tool in plugin_tools(Plugins([plugin])):
            tools[tool.id] = _ListedTool(tool, "plugin", plugin.name, to_spec(tool, values).description)
    if options.json:
        document = {
            "tools": [
                {
                    "id": listed.tool.id,
                    "origin": {"kind": listed.kind} | ({"name": listed.source} if listed.source else {}),
                    "description": listed.description,
                    "parameters": listed.tool.schema,
                }
                for listed in tools.values()
            ],
            "servers": {
                name: {"status": state.status, "tools": list(state.tools)}
                | ({"error": state.error} if state.error else {})
                for name, state in states.items()
            },
            "unusable": [entry._asdict() for entry in packages.unusable],
        }
        output.print_json(document)
    else:
        rows: list[tuple[str, str, str]] = []
        for listed in tools.values():
            lines = escape_control(listed.description).strip().splitlines() or [""]
            rows.append((listed.tool.id, f"{_KINDS[listed.kind]}{listed.source}", output.clip(lines[0], 60)))
        output.table(("TOOL", "FROM", "WHAT IT DOES"), rows)
        if states or packages.unusable:
            print()
        for name, state in states.items():
            status = painted_status(state)
            more = f": {state.error}" if state.error else ""
            if state.status == "connected":
                more = f", {pluralize(len(state.tools), 'tool')}"
            print(f"MCP server {name}: {status}{escape_control(more)}")
        for entry in packages.unusable:
            error = escape_control(entry.error)
            print(f"package {entry.package}: {output.paint('failed', 31)}: {entry.entry}: {error}")
    failed = any(state.status in UNUSABLE for state in states.values())
    return 1 if failed or packages.unusable else 0
