"""Find files by name."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated

from msgspec import Meta

from ..config import globs
from ..errors import ToolFailedError
from . import file_search
from . import path_access as paths
from .arguments import Arguments
from .tool import BuiltinTool, Context, ToolOutput

MAX_FILES = 100


class GlobArguments(Arguments, frozen=True):
    """The pattern and the directory."""

    pattern: Annotated[str, Meta(description="The pattern, such as **/*.py or src/**/*.{ts,tsx}")]
    path: Annotated[
        str | None, Meta(description="The directory to look in; leave it out for the working directory")
    ] = None


class GlobTool(BuiltinTool[GlobArguments]):
    """Returns the files that match a pattern, newest first."""

    id = "glob"
    parameters = GlobArguments

    async def execute(self, args: GlobArguments, ctx: Context) -> ToolOutput:
        """Ask, and search."""
        if len(args.pattern) > globs.MAX_PATTERN:
            raise ToolFailedError(f"The pattern is longer than any path: more than {globs.MAX_PATTERN:,} characters")
        await ctx.ask("glob", [args.pattern], always=["*"], metadata={"pattern": args.pattern, "path": args.path})
        target, pattern = paths.resolve(ctx, args.path or "."), args.pattern
        if os.path.isabs(os.path.expanduser(pattern)):
            root, pattern = globs.split_root(os.path.expanduser(pattern))
            target = paths.resolve(ctx, root)
        directory = target.path
        await paths.ask_if_outside(ctx, target, "directory")
        if not os.path.isdir(directory):
            raise ToolFailedError(f"{directory} is not a directory")
        names = await file_search.files(directory)

        def search() -> list[str]:
            matching = [os.path.join(directory, name) for name in names if globs.matches(pattern, name)]
            return file_search.newest_first(matching)

        newest = await asyncio.to_thread(search)
        lines = newest[:MAX_FILES] or ["No files found"]
        truncated = len(newest) > MAX_FILES
        if truncated:
            note = f"(Only the newest {MAX_FILES} of {len(newest)} files are shown. Narrow the pattern or the path.)"
            lines += ["", note]
        title = paths.relative(ctx, directory)
        metadata = {"count": min(len(newest), MAX_FILES), "truncated": truncated}
        return ToolOutput("" if title == "." else title, "\n".join(lines), metadata)
