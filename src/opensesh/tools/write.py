"""Write a whole file."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from msgspec import Meta

from . import diff, external
from .arguments import Arguments
from .edit import ask_edit
from .text import TextFile, look, must_still_be
from .tool import BuiltinTool, Context, ToolOutput


class WriteArguments(Arguments, frozen=True):
    """What to write, and where."""

    content: Annotated[str, Meta(description="All that the file should hold")]
    file_path: Annotated[str, Meta(description="The absolute path of the file")]


class Write(BuiltinTool[WriteArguments]):
    """A new file, or a new text for one that the session knows."""

    id = "write"
    parameters = WriteArguments

    async def execute(self, args: WriteArguments, ctx: Context) -> ToolOutput:
        """Ask with the difference shown, and write. A byte order mark that was there stays."""
        path = external.absolute(ctx, args.file_path)
        await external.check(ctx, path)
        async with ctx.files.lock(path):
            found = look(path)
            if found is not None:
                ctx.files.check(path)
            before = found or TextFile()
            after = before.saying(args.content.removeprefix("\ufeff") if before.bom else args.content)
            difference = await asyncio.to_thread(diff.compare, path, before.shown, after.shown)
            await ask_edit(ctx, [path], {"filepath": path, "diff": difference.text})
            await ctx.changing({path: after.data})
            must_still_be(path, found)
            after.save(path)
            ctx.files.note(path)
            ctx.changed(path)
            ctx.files.note(path)
        metadata: dict[str, Any] = {"diagnostics": {}, "filepath": path, "exists": found is not None}
        return ToolOutput(external.relative(ctx, path), "Wrote file successfully.", metadata)
