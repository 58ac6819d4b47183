"""Change several pieces of a file, one after the other."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from ..errors import ToolFailedError
from .arguments import Arguments
from .edit import Edit
from .tool import BuiltinTool, Context, ToolOutput


class OneEdit(Struct, frozen=True, kw_only=True, rename="camel"):
    """One replacement."""

    file_path: Annotated[str | None, Meta(description="Not needed: the file is the same for all")] = None
    old_string: Annotated[str, Meta(description="The text to replace, as the file has it after the edits before")]
    new_string: Annotated[str, Meta(description="The text to put in its place")]
    replace_all: Annotated[bool, Meta(description="Replace oldString wherever it occurs (default false)")] = False


class MultiEditArguments(Arguments, frozen=True):
    """Which file, and what to change in it."""

    file_path: Annotated[str, Meta(description="The absolute path of the file")]
    edits: Annotated[tuple[OneEdit, ...], Meta(description="The edits, in the order to make them", min_length=1)]


class MultiEdit(BuiltinTool[MultiEditArguments]):
    """A row of edits; those before one that fails stay done."""

    id = "multiedit"
    parameters = MultiEditArguments

    async def execute(self, args: MultiEditArguments, ctx: Context) -> ToolOutput:
        """Make the edits, and answer as the last of them does."""
        results: list[ToolOutput] = []
        for number, edit in enumerate(args.edits, 1):
            fields = {
                "filePath": args.file_path,
                "oldString": edit.old_string,
                "newString": edit.new_string,
                "replaceAll": edit.replace_all,
            }
            try:
                results.append(await Edit().run(fields, ctx))
            except ToolFailedError as error:
                done = f" The {number - 1} before it were made." if number > 1 else ""
                raise ToolFailedError(f"Edit {number} of {len(args.edits)} failed: {error.message}{done}") from error
        last = results[-1]
        metadata = {"results": [result.metadata for result in results]}
        return ToolOutput(last.title, last.output, metadata)
