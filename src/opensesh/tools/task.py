"""Run a subagent."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ..errors import SubtaskFailedError
from .arguments import Arguments
from .tool import BuiltinTool, Context, Subtask, ToolOutput


class TaskArguments(Arguments, frozen=True, rename=str):
    """The task and the agent."""

    description: Annotated[str, Meta(description="The task in 3 to 5 words")]
    prompt: Annotated[str, Meta(description="All that the agent needs to know to do it")]
    subagent_type: Annotated[str, Meta(description="The name of the agent")]
    task_id: Annotated[
        str | None, Meta(description="The task_id of an earlier task, to continue it; leave it out for a new one")
    ] = None
    command: Annotated[str | None, Meta(description="The command that this task comes from, if one does")] = None


class TaskTool(BuiltinTool[TaskArguments]):
    """Runs a child session to its end and returns its last text."""

    id = "task"
    parameters = TaskArguments

    async def execute(self, args: TaskArguments, ctx: Context) -> ToolOutput:
        """Ask, create or continue the child session, and run it. Cancelling cancels the child."""
        asked = {"description": args.description, "subagent_type": args.subagent_type}
        await ctx.ask("task", [args.subagent_type], always=["*"], metadata=asked)
        work = Subtask(
            description=args.description,
            prompt=args.prompt,
            agent=args.subagent_type,
            task_id=args.task_id,
            command=args.command,
        )
        child = await ctx.subtasks.open(work)
        metadata = {"sessionId": child.session_id, "model": child.model}
        await ctx.progress(title=args.description, metadata=metadata)
        try:
            text = await ctx.subtasks.run(child, work)
        except SubtaskFailedError as error:
            # The record of a failed call keeps the last progress.
            await ctx.progress(title=args.description, metadata=metadata | {"state": error.state})
            message = f"{error.message}\n\n{_resume(child.session_id)}"
            raise SubtaskFailedError(message, state=error.state, **metadata) from error
        output = f"{_resume(child.session_id)}\n\n<task_result>\n{text}\n</task_result>"
        return ToolOutput(args.description, output, metadata)


def _resume(session_id: str) -> str:
    return f"task_id: {session_id} (to continue this task, call the tool again with this id)"
