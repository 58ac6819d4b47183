"""List the tools that a model can be offered here: built in, brought along by installed packages and plugins, and those
of the MCP servers that the configuration names, which are started for it; those of a project only once they are trusted
('opensesh plugins'). Which of them an agent may use, its rules say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import directory, output

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Mapping

    from ..config import Config
    from ..project import ProjectLocation
    from ..tools.custom import InstalledTools, UnusableEntryPoint
    from ..tools.mcp.conversion import McpTool
    from ..tools.mcp.server import McpServerState
    from ..tools.registry import DescriptionVariables
    from ..tools.tool import Tool
    from .arguments import Parser

_COLOURS = {"connected": 32, "failed": 31, "needs_auth": 33, "untrusted": 33}
_UNUSABLE = ("failed", "needs_auth", "untrusted")


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    directory.declare(parser)


def run(options: Namespace) -> int:
    """Print them; 1 if a server or a package could not be used."""
    import asyncio

    from ..config import load
    from ..tools.custom import load_installed_tools
    from .logfile import warnings_told

    place = directory.place_of(options)
    config = load(place.directory, place.sandbox)
    told = _surroundings(config, place)
    with warnings_told(lambda text: None):  # each is told of below
        brought = load_installed_tools()
        plugged = _plugged(config, place)
        remote, states = asyncio.run(_remote(config))
    tools = list(_all(config, brought, plugged, remote))
    if options.json:
        output.print_json(_document(tools, told, states, brought))
    else:
        _print(tools, told, states, brought.unusable)
    failed = any(state.status in _UNUSABLE for state in states.values())
    return 1 if failed or brought.unusable else 0


async def _remote(config: Config) -> tuple[tuple[McpTool, ...], Mapping[str, McpServerState]]:
    import asyncio

    from ..tools.mcp.servers import McpServers

    servers = McpServers(config, lambda event: None)
    async with asyncio.TaskGroup() as group:
        servers.begin(group)
        try:
            return await servers.tools(), servers.states
        finally:
            servers.end()


def _plugged(config: Config, place: ProjectLocation) -> list[tuple[Tool, str, str]]:
    from ..plugins import Host, Plugins, load_plugins, plugin_tools

    host = Host(directory=place.directory, worktree=place.sandbox, project_id=place.id)
    return [
        (tool, "plugin", plugin.name)
        for plugin in load_plugins(config, host).loaded
        for tool in plugin_tools(Plugins([plugin]))
    ]


def _all(
    config: Config, brought: InstalledTools, plugged: Iterable[tuple[Tool, str, str]], remote: Iterable[McpTool]
) -> Iterable[tuple[Tool, str, str]]:
    """Every tool, the kind of its origin, and the name of that. A plugin's takes the place of any other."""
    from ..engine.step import features
    from ..tools.registry import builtin

    origins: list[tuple[Tool, str, str]] = [
        *((tool, "built-in", "") for tool in builtin(features(config, interactive=True)) if tool.id != "invalid"),
        *((each.tool, "package", each.package) for each in brought.tools),
        *((tool, "mcp", tool.server) for tool in remote),
    ]
    found: dict[str, tuple[Tool, str, str]] = {}
    for each in origins:
        found.setdefault(each[0].id, each)
    return (found | {each[0].id: each for each in plugged}).values()


def _surroundings(config: Config, place: ProjectLocation) -> DescriptionVariables:
    """What the descriptions speak of, whichever agent reads them."""
    from ..config import agents, skills
    from ..engine.subtasks import subagents
    from ..tools.registry import CatalogEntry, DescriptionVariables

    return DescriptionVariables(
        directory=place.directory,
        agents=tuple(CatalogEntry(each.name, each.description or "") for each in subagents(agents(config))),
        skills=tuple(CatalogEntry(each.name, each.description, each.location) for each in skills(config).values()),
    )


def _document(
    tools: list[tuple[Tool, str, str]],
    told: DescriptionVariables,
    states: Mapping[str, McpServerState],
    brought: InstalledTools,
) -> dict[str, Any]:
    return {
        "tools": [
            {
                "id": tool.id,
                "origin": {"kind": kind} | ({"name": name} if name else {}),
                "description": told.fill(tool.description),
                "parameters": tool.schema,
            }
            for tool, kind, name in tools
        ],
        "servers": {
            name: {"status": state.status, "tools": list(state.tools)} | ({"error": state.error} if state.error else {})
            for name, state in states.items()
        },
        "unusable": [each._asdict() for each in brought.unusable],
    }


def _print(
    tools: list[tuple[Tool, str, str]],
    told: DescriptionVariables,
    states: Mapping[str, McpServerState],
    unusable: Iterable[UnusableEntryPoint],
) -> None:
    from .terminal import tame

    said = {"built-in": "built in", "package": "package ", "plugin": "plugin ", "mcp": "MCP server "}
    rows = [(tool.id, f"{said[kind]}{name}", _first_line(told.fill(tool.description))) for tool, kind, name in tools]
    output.table(("TOOL", "FROM", "WHAT IT DOES"), rows)
    if states or unusable:
        print()
    for name, state in states.items():
        status = output.paint(state.status.replace("_", " "), _COLOURS.get(state.status, 2))
        more = f": {state.error}" if state.error else ""
        if state.status == "connected":
            more = f", {output.pluralize(len(state.tools), 'tool')}"
        print(f"MCP server {name}: {status}{tame(more)}")
    for each in unusable:
        print(f"package {each.package}: {output.paint('failed', 31)}: {each.entry}: {tame(each.error)}")


def _first_line(description: str) -> str:
    from .terminal import tame

    lines = tame(description).strip().splitlines()
    return output.clip(lines[0], 60) if lines else ""
