"""Replace the todo list."""

from __future__ import annotations

import json
from typing import Annotated, Any

from msgspec import Meta, Struct

from ..records import Todo, document_of
from .arguments import Arguments
from .tool import BuiltinTool, Context, ToolOutput


class TodoItem(Struct, frozen=True, kw_only=True):
    """One item of the list."""

    content: Annotated[str, Meta(description="What to do, in a few words")]
    status: Annotated[str, Meta(description="pending, in_progress, completed or cancelled")] = "pending"
    priority: Annotated[str, Meta(description="high, medium or low")] = "medium"
    id: Annotated[str | None, Meta(description="What tells it from the others; numbered if left out")] = None


class TodoWriteArguments(Arguments, frozen=True):
    """The list."""

    todos: Annotated[tuple[TodoItem, ...], Meta(description="The whole list, as it should be from now on")]


class TodoWriteTool(BuiltinTool[TodoWriteArguments]):
    """Stores the session's todo list, which the user sees."""

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
        documents: list[dict[str, Any]] = [document_of(todo) for todo in todos]
        open_count = sum(todo.status != "completed" for todo in todos)
        output = json.dumps(documents, ensure_ascii=False, indent=2)
        return ToolOutput(f"{open_count} todos", output, {"todos": documents})
