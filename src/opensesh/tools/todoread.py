"""Look at the list of things to do."""

from __future__ import annotations

from .arguments import Arguments
from .todowrite import shown
from .tool import BuiltinTool, Context, ToolOutput


class TodoReadArguments(Arguments, frozen=True):
    """None."""


class TodoRead(BuiltinTool[TodoReadArguments]):
    """The session's list."""

    id = "todoread"
    parameters = TodoReadArguments

    async def execute(self, args: TodoReadArguments, ctx: Context) -> ToolOutput:
        """Ask, and read."""
        await ctx.ask("todoread", ["*"], always=["*"], metadata={})
        return shown(await ctx.todos.read())
