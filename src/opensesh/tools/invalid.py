"""Stands in for a call that could not be made, so that the model hears why."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from .arguments import Arguments
from .tool import BuiltinTool, Context, ToolOutput


class InvalidArgumentsGiven(Arguments, frozen=True):
    """What was called, and what was wrong with it."""

    tool: Annotated[str, Meta(description="The tool that was meant")]
    error: Annotated[str, Meta(description="Why it was not called")]


class InvalidTool(BuiltinTool[InvalidArgumentsGiven]):
    """Never offered to a model; the engine sends broken calls here."""

    id = "invalid"
    parameters = InvalidArgumentsGiven

    async def execute(self, args: InvalidArgumentsGiven, ctx: Context) -> ToolOutput:
        """Say why."""
        return ToolOutput("Invalid Tool", f"The call of {args.tool!r} could not be made: {args.error}")
