"""Search the web."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from . import exa
from .arguments import Arguments, Positive
from .tool import BuiltinTool, Context, ToolOutput

if TYPE_CHECKING:
    import httpx2


class WebSearchArguments(Arguments, frozen=True):
    """What to search for."""

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


class WebSearchTool(BuiltinTool[WebSearchArguments]):
    """By way of Exa."""

    id = "websearch"
    parameters = WebSearchArguments

    def __init__(self, *, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        """``transport`` in place of the network, for tests."""
        self._transport = transport

    async def execute(self, args: WebSearchArguments, ctx: Context) -> ToolOutput:
        """Ask, and search."""
        query = {
            "query": args.query,
            "type": args.type,
            "numResults": args.num_results,
            "livecrawl": args.livecrawl,
        }
        limit = {} if args.context_max_characters is None else {"contextMaxCharacters": args.context_max_characters}
        await ctx.ask("websearch", [args.query], always=["*"], metadata={**query, **limit})
        text = await exa.call("web_search_exa", {**query, **limit}, seconds=25, transport=self._transport)
        return ToolOutput(f"Web search: {args.query}", text or "No search results found. Try another query.")
