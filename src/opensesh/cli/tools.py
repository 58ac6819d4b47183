"""List the tools that a model can be offered here: built in, brought along by installed packages, and those of the MCP
servers that the configuration names, which are started for it. Which of them an agent may use, its rules say."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from . import output

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Mapping

    from ..config import Config
    from ..tools.installed import Installed, Unusable
    from ..tools.mcp import State
    from ..tools.mcp.answers import McpTool
    from ..tools.tool import Tool
    from .app import Parser

_COLOURS = {"connected": 32, "failed": 31, "needs_auth": 33}


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.add_argument("--dir", metavar="D", help="for this directory (default: here)")


def run(options: Namespace) -> int:
    """Print them; 1 if a server or a package could not be used."""
    import asyncio

    from .. import project
    from ..config import load
    from ..tools.installed import installed
    from .driving import warnings_told

    place = project.resolve(options.dir or os.getcwd())
    config = load(place.directory, place.sandbox)
    with warnings_told(lambda text: None):  # each is told of below
        brought = installed()
        remote, states = asyncio.run(_remote(config))
    tools = list(_all(config, brought, remote))
    if options.json:
        output.print_json(_document(tools, states, brought))
    else:
        _print(tools, states, brought.unusable)
    failed = any(state.status in ("failed", "needs_auth") for state in states.values())
    return 1 if failed or brought.unusable else 0


async def _remote(config: Config) -> tuple[tuple[McpTool, ...], Mapping[str, State]]:
    import asyncio

    from ..tools.mcp import Servers

    servers = Servers(config, lambda event: None)
    async with asyncio.TaskGroup() as group:
        servers.begin(group)
        try:
            return await servers.tools(), servers.states
        finally:
            servers.end()


def _all(config: Config, brought: Installed, remote: Iterable[McpTool]) -> Iterable[tuple[Tool, str, str]]:
    """Every tool, the kind of its origin, and the name of that."""
    from ..engine.step import features
    from ..tools.registry import builtin

    seen: set[str] = set()
    origins: list[tuple[Tool, str, str]] = [
        *((tool, "built-in", "") for tool in builtin(features(config, interactive=True)) if tool.id != "invalid"),
        *((each.tool, "package", each.package) for each in brought.tools),
        *((tool, "mcp", tool.server) for tool in remote),
    ]
    for tool, kind, name in origins:
        if tool.id not in seen:
            seen.add(tool.id)
            yield tool, kind, name


def _document(tools: list[tuple[Tool, str, str]], states: Mapping[str, State], brought: Installed) -> dict[str, Any]:
    return {
        "tools": [
            {
                "id": tool.id,
                "origin": {"kind": kind} | ({"name": name} if name else {}),
                "description": tool.description,
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


def _print(tools: list[tuple[Tool, str, str]], states: Mapping[str, State], unusable: Iterable[Unusable]) -> None:
    from .terminal import tame

    said = {"built-in": "built in", "package": "package ", "mcp": "MCP server "}
    rows = [(tool.id, f"{said[kind]}{name}", _first_line(tool.description)) for tool, kind, name in tools]
    output.table(("TOOL", "FROM", "WHAT IT DOES"), rows)
    if states or unusable:
        print()
    for name, state in states.items():
        status = output.paint(state.status.replace("_", " "), _COLOURS.get(state.status, 2))
        more = (
            f", {len(state.tools)} tools" if state.status == "connected" else f": {state.error}" if state.error else ""
        )
        print(f"MCP server {name}: {status}{tame(more)}")
    for each in unusable:
        print(f"package {each.package}: {output.paint('failed', 31)}: {each.entry}: {tame(each.error)}")


def _first_line(description: str) -> str:
    from .terminal import tame

    lines = tame(description).strip().splitlines()
    return output.clip(lines[0], 60) if lines else ""
