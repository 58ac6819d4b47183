"""Find lines by content."""

from __future__ import annotations

import asyncio
import os
from itertools import groupby
from typing import Annotated

from msgspec import Meta

from ..errors import ToolFailedError
from . import file_search
from . import path_access as paths
from .arguments import Arguments
from .tool import BuiltinTool, Context, ToolOutput

MAX_MATCHES = 100
MAX_LINE_CHARACTERS = 2_000


class GrepArguments(Arguments, frozen=True):
    """The expression and where to search."""

    pattern: Annotated[str, Meta(description="The regular expression that lines should match", min_length=1)]
    path: Annotated[
        str | None, Meta(description="The directory or file to search; leave it out for the working directory")
    ] = None
    include: Annotated[str | None, Meta(description="Only files that fit this pattern: *.py, or *.{ts,tsx}")] = None


class GrepTool(BuiltinTool[GrepArguments]):
    """Returns the matching lines by file, those of the newest files first."""

    id = "grep"
    parameters = GrepArguments

    async def execute(self, args: GrepArguments, ctx: Context) -> ToolOutput:
        """Ask, and search. Files that may not be read without asking are skipped."""
        if "\0" in f"{args.pattern}{args.include}":
            raise ToolFailedError("A line never contains a NUL character, so nothing can match")
        asked = {"pattern": args.pattern, "path": args.path, "include": args.include}
        await ctx.ask("grep", [args.pattern], always=["*"], metadata=asked)
        target = paths.resolve(ctx, args.path or ".")
        is_directory = os.path.isdir(target.real)
        await paths.ask_if_outside(ctx, target, "directory" if is_directory else "file")
        if not os.path.exists(target.real):
            raise ToolFailedError(f"{target.path} does not exist")
        if not is_directory and not os.path.isfile(target.real):
            raise ToolFailedError(f"{target.path} is a special file, and reading it might never end", path=target.path)
        if is_directory:
            readable = paths.readable_check(ctx, target)
            result = await file_search.grep(args.pattern, target.path, args.include, readable)
        else:  # searching a single file is reading it
            await ctx.ask("read", paths.names(ctx, target), always=["*"], metadata={})
            result = await file_search.grep(args.pattern, target.path)
        matches = await asyncio.to_thread(file_search.confirmed, result.matches, target.path, target.real)
        result = result._replace(matches=matches)
        notes: list[str] = []
        if result.unread:
            files, them = ("1 file was", "it") if result.unread == 1 else (f"{result.unread} files were", "them")
            notes = [f"({files} not searched: the rules forbid to read {them}, or to read {them} without asking.)"]
        newest = await asyncio.to_thread(file_search.newest_first, {match.path for match in result.matches})
        rank = {path: index for index, path in enumerate(newest)}
        matches = sorted(result.matches, key=lambda match: (rank[match.path], match.number))
        total, truncated = len(matches), len(matches) > MAX_MATCHES or not result.complete
        if not total:
            return ToolOutput(args.pattern, "\n\n".join(["No files found", *notes]), {"matches": 0, "truncated": False})
        count = str(total) if result.complete else f"more than {total}"
        first = f" (showing first {MAX_MATCHES})" if total > MAX_MATCHES else ""
        if truncated:
            hint = f"({count} matches in all, {MAX_MATCHES} of them shown. Narrow the pattern, path or include.)"
            notes.insert(0, hint)
        blocks: list[str] = []
        for path, group in groupby(matches[:MAX_MATCHES], key=lambda match: match.path):
            lines = [f"{path}:"]
            for match in group:
                rest = "..." if len(match.line) > MAX_LINE_CHARACTERS else ""
                lines.append(f"  Line {match.number}: {match.line[:MAX_LINE_CHARACTERS]}{rest}")
            blocks.append("\n".join(lines))
        text = f"Found {count} matches{first}\n" + "\n\n".join(blocks)
        return ToolOutput(args.pattern, "\n\n".join([text, *notes]), {"matches": total, "truncated": truncated})
