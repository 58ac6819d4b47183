"""Make several calls at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from ..errors import OpenseshError, PermissionRejectedError, QuestionRejectedError
from .arguments import Arguments
from .tool import BuiltinTool, Context, ToolOutput

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST = 25


class OneCall(Struct, frozen=True):
    """A call of another tool."""

    tool: Annotated[str, Meta(description="The name of the tool")]
    parameters: Annotated[dict[str, Any], Meta(description="Its arguments")]


class BatchArguments(Arguments, frozen=True, rename=str):
    """The calls."""

    tool_calls: Annotated[tuple[OneCall, ...], Meta(description="The calls to make at the same time", min_length=1)]


class BatchTool(BuiltinTool[BatchArguments]):
    """Each call has a part, and a fate, of its own."""

    id = "batch"
    parameters = BatchArguments

    async def execute(self, args: BatchArguments, ctx: Context) -> ToolOutput:
        """Run the first 25 at the same time; say how many went well, and why others did not."""
        results: list[ToolOutput | str] = ["" for _ in args.tool_calls]
        try:
            async with asyncio.TaskGroup() as group:
                for place, call in enumerate(args.tool_calls):
                    group.create_task(_one(ctx, call, place, results))
        except BaseExceptionGroup as errors:
            for error in errors.exceptions:
                if isinstance(error, (PermissionRejectedError, QuestionRejectedError)):
                    raise error from None
            raise
        return _answer(args.tool_calls, results)


async def _one(ctx: Context, call: OneCall, place: int, results: list[ToolOutput | str]) -> None:
    if place >= MOST:
        results[place] = f"not run: a batch is of {MOST} calls at most"
    elif call.tool == BatchTool.id or call.tool not in ctx.calls.names:
        allowed = ", ".join(sorted(name for name in ctx.calls.names if name != BatchTool.id))
        results[place] = f"not run: a batch can call {allowed}"
    else:
        try:
            results[place] = await ctx.calls.run(call.tool, call.parameters)
        except (PermissionRejectedError, QuestionRejectedError):
            raise  # the user wants the turn to stop, and the other calls with it
        except OpenseshError as error:
            results[place] = error.message


def _answer(calls: Sequence[OneCall], results: Sequence[ToolOutput | str]) -> ToolOutput:
    done = [result for result in results if isinstance(result, ToolOutput)]
    failed = len(calls) - len(done)
    details = [
        {"tool": call.tool, "success": isinstance(result, ToolOutput)}
        for call, result in zip(calls, results, strict=True)
    ]
    output = f"Executed {len(done)}/{len(calls)} tools successfully."
    if failed:
        reasons = [
            f"- {call.tool}: {result}" for call, result in zip(calls, results, strict=True) if isinstance(result, str)
        ]
        output = "\n".join([f"{output} {failed} failed.", *reasons])
    metadata = {
        "totalCalls": len(calls),
        "successful": len(done),
        "failed": failed,
        "tools": [call.tool for call in calls],
        "details": details,
    }
    attachments = tuple(attached for result in done for attached in result.attachments)
    title = f"Batch execution ({len(done)}/{len(calls)} successful)"
    return ToolOutput(title, output, metadata, attachments)
