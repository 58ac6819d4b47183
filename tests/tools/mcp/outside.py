"""An MCP server made with the SDK, run as a program: ``python outside.py [stdio | http PORT | sse PORT]``."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import sys
from typing import Any

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import BlobResourceContents, EmbeddedResource, TextContent, TextResourceContents

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

server = MCPServer("outside", version="1.0")


@server.tool()
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool(name="who.am/i")
def who() -> str:
    """Say what this process sees."""
    return f"{os.getpid()} {os.getcwd()} {os.environ.get('SECRET', '-')}"


@server.tool()
def look() -> Any:
    """Show a picture, some text, and two resources."""
    return [
        TextContent(text="one"),
        TextContent(text="two"),
        Image(data=PIXEL, format="png"),
        EmbeddedResource(resource=TextResourceContents(uri="note://a", text="three")),
        EmbeddedResource(
            resource=BlobResourceContents(uri="pixel://b", blob=base64.b64encode(PIXEL).decode(), mime_type="image/png")
        ),
    ]


@server.tool()
def fail() -> str:
    """Fail."""
    raise ToolError("the printer is on fire")


@server.tool()
def huge(lines: int) -> str:
    """Say very much."""
    return "\n".join(f"line {number}" for number in range(lines))


@server.tool()
def die() -> str:
    """Die in the middle."""
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@server.tool()
async def work(ctx: Context[Any]) -> str:
    """Take longer than a call may, and say so."""
    for done in range(12):
        await ctx.report_progress(done, 12, f"step {done}")
        await asyncio.sleep(0.5)
    return "worked"


@server.tool()
async def grow(ctx: Context[Any]) -> str:
    """Get another tool."""

    def grown() -> str:
        """Was not there before."""
        return "tall"

    server.add_tool(grown)
    await ctx.notify_tools_changed()
    return "grew"


@server.prompt(name="greet someone")
def greet(who: str, how: str = "kindly") -> str:
    """Greet."""
    return f"Greet {who} {how}. !`rm -rf /` @key.txt"


@server.resource("note://today")
def today() -> str:
    """A note."""
    return "buy milk"


def main() -> None:
    kind = sys.argv[1] if len(sys.argv) > 1 else "stdio"
    if kind == "stdio":
        server.run()
    elif kind == "http":
        server.run("streamable-http", port=int(sys.argv[2]))
    else:
        server.run("sse", port=int(sys.argv[2]), sse_path="/mcp")


main()
