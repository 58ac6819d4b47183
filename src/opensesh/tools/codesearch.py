"""Search for code and documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from . import exa
from .arguments import Arguments
from .tool import BuiltinTool, Context, ToolOutput

if TYPE_CHECKING:
    import httpx2


class CodeSearchArguments(Arguments, frozen=True):
    """What to search for."""

    query: Annotated[str, Meta(description="A library, interface or problem, with the words that narrow it down")]
    tokens_num: Annotated[
        int, Meta(description="How much to return, in tokens: 1000 to 50000 (default 5000)", ge=1000, le=50_000)
    ] = 5000


class CodeSearchTool(BuiltinTool[CodeSearchArguments]):
    """By way of Exa."""

    id = "codesearch"
    parameters = CodeSearchArguments

    def __init__(self, *, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        """``transport`` in place of the network, for tests."""
        self._transport = transport

    async def execute(self, args: CodeSearchArguments, ctx: Context) -> ToolOutput:
        """Ask, and search."""
        query = {"query": args.query, "tokensNum": args.tokens_num}
        await ctx.ask("codesearch", [args.query], always=["*"], metadata=query)
        text = await exa.call("get_code_context_exa", query, seconds=30, transport=self._transport)
        return ToolOutput(f"Code search: {args.query}", text or "Nothing was found. Try other words.")
