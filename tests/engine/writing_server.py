"""An MCP server whose tools write to files, run as a program. One tool declares that it only reads."""

from __future__ import annotations

from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("writing", version="1.0")


@server.tool()
def put(path: str) -> str:
    """Write to a file."""
    Path(path).write_text("x")
    return "written"


@server.tool(annotations=ToolAnnotations(read_only_hint=False))
def change(path: str) -> str:
    """Write to a file."""
    return put(path)


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def peek(path: str) -> str:
    """Read a file."""
    return Path(path).read_text()


if __name__ == "__main__":
    server.run()
