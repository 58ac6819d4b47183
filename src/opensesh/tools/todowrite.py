"""Replace the list of things to do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from ..records import Todo, document_of
from .arguments import Arguments
from .tool import BuiltinTool, Context, ToolOutput

if TYPE_CHECKING:
    from collections.abc import Sequence


class TodoItem(Struct, frozen=True, kw_only=True):
    """One line of the list."""

    content: Annotated[str, Meta(description="What to do, in a few words")]
    status: Annotated[str, Meta(description="pending, in_progress, completed or cancelled")] = "pending"
    priority: Annotated[str, Meta(description="high, medium or low")] = "medium"
    id: Annotated[str | None, Meta(description="What tells it from the others; numbered if left out")] = None


class TodoWriteArguments(Arguments, frozen=True):
    """The list."""

    todos: Annotated[tuple[TodoItem, ...], Meta(description="The whole list, as it should be from now on")]


class TodoWriteTool(BuiltinTool[TodoWriteArguments]):
    """The list is the session's, and shown to the user."""

    id = "todowrite"
    parameters = TodoWriteArguments

    async def execute(self, args: TodoWriteArguments, ctx: Context) -> ToolOutput:
        """Ask, and store."""
        await ctx.ask("todowrite", ["*"], always=["*"], metadata={})
        todos = [
            Todo(content=item.content, status=item.status, priority=item.priority, id=item.id or str(number))
            for number, item in enumerate(args.todos, 1)
        ]
        await ctx.todos.write(todos)
        return shown(todos)


def shown(todos: Sequence[Todo]) -> ToolOutput:
    """The list as the model and the user see it."""
    documents: list[dict[str, Any]] = [document_of(todo) for todo in todos]
    left = sum(todo.status != "completed" for todo in todos)
    output = json.dumps(documents, ensure_ascii=False, indent=2)
    return ToolOutput(f"{left} todos", output, {"todos": documents})
