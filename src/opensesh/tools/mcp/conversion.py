"""Conversion of MCP tools to tools, and of MCP results to tool outputs."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Struct

from ...errors import ToolFailedError
from ...records import without_surrogates
from ..tool import ToolOutput, attachment

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from mcp_types import BlobResourceContents, CallToolResult, ContentBlock, TextResourceContents

    from ..tool import Context
    from .server import McpServer

    Progress = Callable[[str], Awaitable[None]]

_INVALID_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")
_RESERVED_KEYS = ("truncated", "outputPath")
_PROTOCOL_KEYS = ("io.modelcontextprotocol/", "progressToken")
_MAX_NAME_CHARACTERS = 64
"""Length of a tool name that every provider accepts."""


class ResourceContent(Struct, frozen=True, kw_only=True):
    """A part of a resource."""

    text: str | None = None
    """``None`` if it is not text."""
    mime: str = ""


class McpTool:
    """A tool of an MCP server."""

    def __init__(
        self, server: McpServer, name: str, description: str, schema: Mapping[str, Any], *, read_only: bool = False
    ) -> None:
        self._server = server
        self._name = name
        self.id = tool_key(server.name, name)
        self.server = server.name
        self.description = description
        self.schema = usable_schema(schema)
        self.read_only = read_only
        """Whether the server declares that the tool changes nothing (``readOnlyHint``)."""

    async def run(self, arguments: Mapping[str, Any], ctx: Context) -> ToolOutput:
        """Ask for the permission named like the tool, then call the server."""
        sent: dict[str, Any] = without_surrogates(dict(arguments))
        await ctx.ask(self.id, ["*"], always=["*"], metadata=sent)

        async def progress(message: str) -> None:
            await ctx.progress(title=message)

        return output(await self._server.call(self._name, sent, progress), ctx)


def sanitize(name: str) -> str:
    """Return ``name`` with ``_`` for characters that providers do not accept in a tool name."""
    return _INVALID_CHARACTER.sub("_", name)


def tool_key(server: str, tool: str) -> str:
    """Return the name of a server's tool. A name that is too long is cut and gets a hash."""
    key = f"{sanitize(server)}_{sanitize(tool)}"
    if len(key) <= _MAX_NAME_CHARACTERS:
        return key
    return f"{key[: _MAX_NAME_CHARACTERS - 9]}_{hashlib.sha256(key.encode()).hexdigest()[:8]}"


def usable_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``schema`` as a valid schema of an object without additional properties."""
    fields: dict[str, Any] = without_surrogates(dict(schema))
    properties, required = fields.get("properties"), fields.get("required")
    fields |= {"type": "object", "properties": properties if isinstance(properties, dict) else {}}
    if not isinstance(required, list):
        fields.pop("required", None)
    return fields | {"additionalProperties": False}


def repair_tools(listed: dict[str, Any]) -> None:
    """Repair a list of tools: the SDK refuses the whole list if one entry is invalid."""
    tools = listed["tools"]
    entries = cast("list[Any]", tools) if isinstance(tools, list) else []
    named = [cast("dict[str, Any]", entry) for entry in entries if isinstance(entry, dict) and "name" in entry]
    for tool in named:
        schema = tool.get("inputSchema")
        tool["inputSchema"] = usable_schema(cast("dict[str, Any]", schema) if isinstance(schema, dict) else {})
        if not isinstance(tool.get("outputSchema", {}), dict):
            del tool["outputSchema"]
        if not isinstance(tool.get("description", ""), str):
            del tool["description"]
    listed["tools"] = [tool for tool in named if isinstance(tool["name"], str)]


def output(result: CallToolResult, ctx: Context) -> ToolOutput:
    """Convert a result. Raises :class:`~opensesh.errors.ToolFailedError` if the result reports a failure."""
    texts: list[str] = []
    files: list[dict[str, Any]] = []
    for block in result.content:
        block_text, file = _convert_block(block, ctx)
        texts += [block_text] if block_text is not None else []
        files += [file] if file is not None else []
    if not result.content and result.structured_content is not None:
        texts.append(msgspec.json.encode(result.structured_content).decode())
    text = without_surrogates("\n\n".join(texts))
    if result.is_error:
        raise ToolFailedError(text or "the tool failed without a message")
    # The reserved keys are set by the engine, which truncates the output; the others belong to the protocol.
    metadata = {
        key: value
        for key, value in (result.meta or {}).items()
        if key not in _RESERVED_KEYS and not key.startswith(_PROTOCOL_KEYS)
    }
    return ToolOutput("", text, metadata, tuple(files))


def _convert_block(block: ContentBlock, ctx: Context) -> tuple[str | None, dict[str, Any] | None]:
    match block.type:
        case "text":
            return block.text, None
        case "image":
            return None, attachment(ctx, block.mime_type, f"data:{block.mime_type};base64,{block.data}")
        case "audio":
            return f"(audio, {block.mime_type}, which cannot be played here)", None
        case "resource_link":
            return f"{block.name}: {block.uri}", None
        case "resource":
            inner = block.resource
            text = getattr(inner, "text", None)
            if text is not None:
                return str(text), None
            mime = inner.mime_type or "application/octet-stream"
            url = f"data:{mime};base64,{getattr(inner, 'blob', '')}"
            return None, attachment(ctx, mime, url, str(inner.uri))


def contents(parts: Sequence[TextResourceContents | BlobResourceContents]) -> list[ResourceContent]:
    """Convert the parts of a resource."""
    return [
        ResourceContent(
            text=text if isinstance(text := getattr(part, "text", None), str) else None, mime=part.mime_type or ""
        )
        for part in parts
    ]
