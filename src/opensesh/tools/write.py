"""Write a whole file."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from . import path_access as paths
from .arguments import Arguments
from .edit import change_file
from .text_files import TextFile, look
from .tool import BuiltinTool, Context, ToolOutput


class WriteArguments(Arguments, frozen=True):
    """What to write, and where."""

    content: Annotated[str, Meta(description="All that the file should hold")]
    file_path: Annotated[str, Meta(description="The absolute path of the file")]


class WriteTool(BuiltinTool[WriteArguments]):
    """A new file, or a new text for one that the session knows."""

    id = "write"
    parameters = WriteArguments

    async def execute(self, args: WriteArguments, ctx: Context) -> ToolOutput:
        """Ask with the difference shown, and write. A byte order mark that was there stays."""
        path = paths.absolute(ctx, args.file_path)
        await paths.ask_if_outside(ctx, path)
        async with ctx.files.lock(path):
            found = look(path)
            if found is not None:
                ctx.files.check(path)
            before = found or TextFile()
            after = before.saying(args.content.removeprefix("\ufeff") if before.bom else args.content)
            await change_file(ctx, path, found, after)
        metadata: dict[str, Any] = {"diagnostics": {}, "filepath": path, "exists": found is not None}
        return ToolOutput(paths.relative(ctx, path), "Wrote file successfully.", metadata)
