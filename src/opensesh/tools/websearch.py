"""Search the web, and search for code, through Exa's MCP server over HTTP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from ..errors import ToolFailedError
from ..models.sse import SSESplitter
from ..records import as_list, as_object, object_at
from .arguments import Arguments, Positive
from .tool import BuiltinTool, Context, ToolOutput

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx2

A = TypeVar("A", bound=Arguments)
EXA_URL = "https://mcp.exa.ai/mcp"


class _ExaTool(BuiltinTool[A]):
    """A tool that asks Exa. Each call is one request, so the MCP SDK is not used."""

    def __init__(self, *, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        """``transport`` replaces the network in tests."""
        self._transport = transport

    async def call(self, tool: str, arguments: Mapping[str, Any], timeout_seconds: float) -> str:
        """Return the text that Exa's ``tool`` answers; empty if it found nothing."""
        import httpx2  # takes long to import

        request = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": tool, "arguments": dict(arguments)},
        }
        headers = {"accept": "application/json, text/event-stream"}
        try:
            async with (
                asyncio.timeout(timeout_seconds),
                httpx2.AsyncClient(transport=self._transport, timeout=timeout_seconds) as client,
            ):
                response = await client.post(EXA_URL, json=request, headers=headers)
        except TimeoutError:
            raise ToolFailedError(f"The search took longer than {timeout_seconds:g} s") from None
        except httpx2.HTTPError as error:
            reason = error or type(error).__name__
            raise ToolFailedError(f"The search service could not be reached: {reason}") from error
        if not response.is_success:
            raise ToolFailedError(f"The search service answered {response.status_code}: {response.text[:500]}")
        splitter = SSESplitter()
        events = [*splitter.feed(response.content), *splitter.close()]
        for message in [event.data for event in events] or [response.content.decode("utf-8", "replace")]:
            try:
                fields = msgspec.json.decode(message, type=dict[str, Any])
            except (msgspec.MsgspecError, RecursionError):
                continue
            if "error" in fields:
                raise ToolFailedError(f"The search service reported an error: {fields['error']}")
            for content in as_list(object_at(fields, "result").get("content")) or []:
                text = (as_object(content) or {}).get("text")
                if isinstance(text, str):
                    return text
        return ""


class WebSearchArguments(Arguments, frozen=True):
    """The query and how to search."""

    query: Annotated[str, Meta(description="What to search for")]
    num_results: Annotated[Positive, Meta(description="How many results to return (default 8)")] = 8
    livecrawl: Annotated[
        Literal["fallback", "preferred"],
        Meta(
            description="Fetch pages anew: only where there is no stored copy (fallback, the default), or first of all"
        ),
    ] = "fallback"
    type: Annotated[
        Literal["auto", "fast", "deep"], Meta(description="How thorough to be: auto (default), fast or deep")
    ] = "auto"
    context_max_characters: Annotated[
        Positive | None, Meta(description="How many characters of text to return at most")
    ] = None


class WebSearchTool(_ExaTool[WebSearchArguments]):
    """Searches the web."""

    id = "websearch"
    parameters = WebSearchArguments

    async def execute(self, args: WebSearchArguments, ctx: Context) -> ToolOutput:
        """Ask, and search."""
        query: dict[str, Any] = {
            "query": args.query,
            "type": args.type,
            "numResults": args.num_results,
            "livecrawl": args.livecrawl,
        }
        if args.context_max_characters is not None:
            query["contextMaxCharacters"] = args.context_max_characters
        await ctx.ask("websearch", [args.query], always=["*"], metadata=query)
        text = await self.call("web_search_exa", query, timeout_seconds=25)
        return ToolOutput(f"Web search: {args.query}", text or "No search results found. Try another query.")


class CodeSearchArguments(Arguments, frozen=True):
    """The query and the size of the result."""

    query: Annotated[str, Meta(description="A library, interface or problem, with the words that narrow it down")]
    tokens_num: Annotated[
        int, Meta(description="How much to return, in tokens: 1000 to 50000 (default 5000)", ge=1000, le=50_000)
    ] = 5000


class CodeSearchTool(_ExaTool[CodeSearchArguments]):
    """Searches for code and documentation."""

    id = "codesearch"
    parameters = CodeSearchArguments

    async def execute(self, args: CodeSearchArguments, ctx: Context) -> ToolOutput:
        """Ask, and search."""
        query = {"query": args.query, "tokensNum": args.tokens_num}
        await ctx.ask("codesearch", [args.query], always=["*"], metadata=query)
        text = await self.call("get_code_context_exa", query, timeout_seconds=30)
        return ToolOutput(f"Code search: {args.query}", text or "Nothing was found. Try other words.")
