"""What comes from a server, as the rest of the house knows it: its tools as tools, its results as outputs."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec
from msgspec import Struct

from ...errors import ToolFailedError
from ..arguments import without_surrogates
from ..tool import ToolOutput, attachment

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from mcp_types import BlobResourceContents, CallToolResult, ContentBlock, TextResourceContents

    from ..tool import Context

    Progress = Callable[[str], Awaitable[None]]

_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")
_OURS = ("truncated", "outputPath")
_THEIRS = ("io.modelcontextprotocol/", "progressToken")
_LONGEST = 64
"""Characters that every provider takes in the name of a tool."""


class ResourceContent(Struct, frozen=True, kw_only=True):
    """A piece of a resource."""

    text: str | None = None
    """``None`` where it is not text."""
    mime: str = ""


class Caller(Protocol):
    """The server, as a tool sees it."""

    @property
    def name(self) -> str: ...

    async def call(self, tool: str, arguments: dict[str, Any], progress: Progress) -> CallToolResult:
        """Call it there; :class:`~opensesh.errors.ToolFailedError` if that cannot be done."""
        ...


class McpTool:
    """A tool of a server's."""

    def __init__(self, server: Caller, name: str, description: str, schema: Mapping[str, Any]) -> None:
        self._server = server
        self._name = name
        self.id = tool_key(server.name, name)
        self.server = server.name
        self.description = description
        self.schema = usable_schema(schema)

    async def run(self, arguments: Mapping[str, Any], ctx: Context) -> ToolOutput:
        """Ask for the permission of the tool's own name, and have the server do it."""
        given: dict[str, Any] = without_surrogates(dict(arguments))
        await ctx.ask(self.id, ["*"], always=["*"], metadata=given)

        async def progress(words: str) -> None:
            await ctx.progress(title=words)

        return output(await self._server.call(self._name, given, progress), ctx)


def sanitize(name: str) -> str:
    """``name`` with ``_`` for what providers do not take in the name of a tool."""
    return _FOREIGN.sub("_", name)


def tool_key(server: str, tool: str) -> str:
    """What a tool of a server's is called here. One that is too long for some provider keeps its beginning."""
    key = f"{sanitize(server)}_{sanitize(tool)}"
    if len(key) <= _LONGEST:
        return key
    return f"{key[: _LONGEST - 9]}_{hashlib.sha256(key.encode()).hexdigest()[:8]}"


def usable_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """``schema`` as one of an object that takes what it names and nothing else, whatever the server made of it."""
    fields: dict[str, Any] = without_surrogates(dict(schema))
    properties, required = fields.get("properties"), fields.get("required")
    fields |= {"type": "object", "properties": properties if isinstance(properties, dict) else {}}
    if not isinstance(required, list):
        fields.pop("required", None)
    return fields | {"additionalProperties": False}


def mend_tools(listed: dict[str, Any]) -> None:
    """Make a list of tools one that the SDK takes: it refuses all of it if anything is wrong with one."""
    tools = listed["tools"]
    entries = cast("list[Any]", tools) if isinstance(tools, list) else []
    named = [cast("dict[str, Any]", each) for each in entries if isinstance(each, dict) and "name" in each]
    for each in named:
        schema = each.get("inputSchema")
        each["inputSchema"] = usable_schema(cast("dict[str, Any]", schema) if isinstance(schema, dict) else {})
        if not isinstance(each.get("outputSchema", {}), dict):
            del each["outputSchema"]
        if not isinstance(each.get("description", ""), str):
            del each["description"]
    listed["tools"] = [each for each in named if isinstance(each["name"], str)]


def output(result: CallToolResult, ctx: Context) -> ToolOutput:
    """What the model reads of a result. Raises :class:`~opensesh.errors.ToolFailedError` for one that says it
    failed."""
    texts: list[str] = []
    files: list[dict[str, Any]] = []
    for block in result.content:
        text, file = _block(block, ctx)
        texts += [text] if text is not None else []
        files += [file] if file is not None else []
    if not result.content and result.structured_content is not None:
        texts.append(msgspec.json.encode(result.structured_content).decode())
    said = without_surrogates("\n\n".join(texts))
    if result.is_error:
        raise ToolFailedError(said or "the tool failed, and did not say why")
    # How long an output may be is for us to say, and the rest of what is left out is the protocol's own.
    told = {
        key: value for key, value in (result.meta or {}).items() if key not in _OURS and not key.startswith(_THEIRS)
    }
    return ToolOutput("", said, told, tuple(files))


def _block(block: ContentBlock, ctx: Context) -> tuple[str | None, dict[str, Any] | None]:
    match block.type:
        case "text":
            return block.text, None
        case "image":
            return None, attachment(ctx, block.mime_type, f"data:{block.mime_type};base64,{block.data}")
        case "audio":
            return f"(audio, {block.mime_type}, which cannot be heard here)", None
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


def contents(found: Sequence[TextResourceContents | BlobResourceContents]) -> list[ResourceContent]:
    """The pieces of a resource."""
    return [
        ResourceContent(
            text=text if isinstance(text := getattr(each, "text", None), str) else None, mime=each.mime_type or ""
        )
        for each in found
    ]
