"""Find files by name."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated

from msgspec import Meta

from ..config import globs
from ..errors import ToolFailedError
from . import file_search as search
from . import path_access as paths
from .arguments import Arguments
from .tool import BuiltinTool, Context, ToolOutput

MOST = 100


class GlobArguments(Arguments, frozen=True):
    """What to look for, and where."""

    pattern: Annotated[str, Meta(description="The pattern, such as **/*.py or src/**/*.{ts,tsx}")]
    path: Annotated[
        str | None, Meta(description="The directory to look in; leave it out for the working directory")
    ] = None


class GlobTool(BuiltinTool[GlobArguments]):
    """The files that fit a pattern, newest first."""

    id = "glob"
    parameters = GlobArguments

    async def execute(self, args: GlobArguments, ctx: Context) -> ToolOutput:
        """Ask, and look."""
        await ctx.ask("glob", [args.pattern], always=["*"], metadata={"pattern": args.pattern, "path": args.path})
        directory, pattern = paths.absolute(ctx, args.path or "."), args.pattern
        if os.path.isabs(os.path.expanduser(pattern)):
            root, pattern = globs.split_root(os.path.expanduser(pattern))
            directory = paths.absolute(ctx, root)
        await paths.ask_if_outside(ctx, directory, "directory")
        if not os.path.isdir(directory):
            raise ToolFailedError(f"{directory} is not a directory")
        listed = await search.files(directory)
        fitting = [os.path.join(directory, name) for name in listed if globs.matches(pattern, name)]
        found = await asyncio.to_thread(search.newest_first, fitting)
        lines = found[:MOST] or ["No files found"]
        if len(found) > MOST:
            lines += ["", f"(Only the newest {MOST} of {len(found)} files are shown. Narrow the pattern or the path.)"]
        metadata = {"count": min(len(found), MOST), "truncated": len(found) > MOST}
        title = paths.relative(ctx, directory)
        return ToolOutput("" if title == "." else title, "\n".join(lines), metadata)
