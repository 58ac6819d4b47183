"""Make several tool calls at once."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from msgspec import Meta, Struct

from ..errors import OpenseshError, PermissionRejectedError, QuestionRejectedError
from .arguments import Arguments
from .tool import BuiltinTool, Context, ToolOutput

MAX_CALLS = 25


class BatchedCall(Struct, frozen=True):
    """A call of another tool."""

    tool: Annotated[str, Meta(description="The name of the tool")]
    parameters: Annotated[dict[str, Any], Meta(description="Its arguments")]


class BatchArguments(Arguments, frozen=True, rename=str):
    """The calls."""

    tool_calls: Annotated[tuple[BatchedCall, ...], Meta(description="The calls to make at the same time", min_length=1)]


class BatchTool(BuiltinTool[BatchArguments]):
    """Runs calls concurrently. Each has a part of its own and fails alone."""

    id = "batch"
    parameters = BatchArguments

    async def execute(self, args: BatchArguments, ctx: Context) -> ToolOutput:
        """Run the first 25 calls concurrently; report how many succeeded, and the errors of the others."""
        calls = args.tool_calls
        tasks: list[asyncio.Task[ToolOutput | str]] = []
        try:
            async with asyncio.TaskGroup() as group:
                tasks += [group.create_task(_run(ctx, call, index)) for index, call in enumerate(calls)]
        except BaseExceptionGroup as errors:
            for error in errors.exceptions:
                if isinstance(error, (PermissionRejectedError, QuestionRejectedError)):
                    raise error from None
            raise
        results = [task.result() for task in tasks]
        outputs = [result for result in results if isinstance(result, ToolOutput)]
        failed = len(calls) - len(outputs)
        pairs = list(zip(calls, results, strict=True))
        output = f"Executed {len(outputs)}/{len(calls)} tools successfully."
        if failed:
            reasons = [f"- {call.tool}: {result}" for call, result in pairs if isinstance(result, str)]
            output = "\n".join([f"{output} {failed} failed.", *reasons])
        metadata = {
            "totalCalls": len(calls),
            "successful": len(outputs),
            "failed": failed,
            "tools": [call.tool for call in calls],
            "details": [{"tool": call.tool, "success": isinstance(result, ToolOutput)} for call, result in pairs],
        }
        attachments = tuple(attached for result in outputs for attached in result.attachments)
        title = f"Batch execution ({len(outputs)}/{len(calls)} successful)"
        return ToolOutput(title, output, metadata, attachments)


async def _run(ctx: Context, call: BatchedCall, index: int) -> ToolOutput | str:
    """Return the output of one call, or its error."""
    if index >= MAX_CALLS:
        return f"not run: a batch has at most {MAX_CALLS} calls"
    if call.tool == BatchTool.id or call.tool not in ctx.calls.names:
        allowed = ", ".join(sorted(name for name in ctx.calls.names if name != BatchTool.id))
        return f"not run: a batch can call {allowed}"
    try:
        return await ctx.calls.run(call.tool, call.parameters)
    except (PermissionRejectedError, QuestionRejectedError):
        raise  # the user stops the turn, and the other calls with it
    except OpenseshError as error:
        return error.message
