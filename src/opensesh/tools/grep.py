"""Find lines by content."""

from __future__ import annotations

import asyncio
import os
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from ..errors import ToolFailedError
from . import file_search as search
from . import path_access as paths
from .arguments import Arguments
from .tool import BuiltinTool, Context, ToolOutput

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST = 100
LINE_LENGTH = 2_000


class GrepArguments(Arguments, frozen=True):
    """What to look for, and where."""

    pattern: Annotated[str, Meta(description="The regular expression that lines should match", min_length=1)]
    path: Annotated[
        str | None, Meta(description="The directory or file to search; leave it out for the working directory")
    ] = None
    include: Annotated[str | None, Meta(description="Only files that fit this pattern: *.py, or *.{ts,tsx}")] = None


class GrepTool(BuiltinTool[GrepArguments]):
    """The lines that match, by file, those of the newest files first."""

    id = "grep"
    parameters = GrepArguments

    async def execute(self, args: GrepArguments, ctx: Context) -> ToolOutput:
        """Ask, and search."""
        if "\0" in f"{args.pattern}{args.include}":
            raise ToolFailedError("No line holds a NUL character, so there is nothing to search for")
        asked = {"pattern": args.pattern, "path": args.path, "include": args.include}
        await ctx.ask("grep", [args.pattern], always=["*"], metadata=asked)
        place = paths.absolute(ctx, args.path or ".")
        is_directory = os.path.isdir(place)
        await paths.ask_if_outside(ctx, place, "directory" if is_directory else "file")
        if not os.path.exists(place):
            raise ToolFailedError(f"{place} does not exist")
        if is_directory:
            found = await search.grep(args.pattern, place, args.include, paths.readable(ctx, place))
        else:  # to search one file for anything is to read it
            await ctx.ask("read", paths.names(ctx, place), always=["*"], metadata={})
            found = await search.grep(args.pattern, place)
        ordered = await asyncio.to_thread(_newest_first, found.matches)
        total, truncated = len(ordered), len(ordered) > MOST or not found.complete
        left_out = [_left_out(found.unread)] if found.unread else []
        if not total:
            told = "\n\n".join(["No files found", *left_out])
            return ToolOutput(args.pattern, told, {"matches": 0, "truncated": False})
        count = str(total) if found.complete else f"more than {total}"
        shown = f" (showing first {MOST})" if total > MOST else ""
        blocks = [f"Found {count} matches{shown}\n{_by_file(ordered[:MOST])}"]
        if truncated:
            blocks.append(f"({count} matches in all, {MOST} of them shown. Narrow the pattern, path or include.)")
        return ToolOutput(args.pattern, "\n\n".join([*blocks, *left_out]), {"matches": total, "truncated": truncated})


def _newest_first(matches: Sequence[search.Match]) -> list[search.Match]:
    rank = {path: place for place, path in enumerate(search.newest_first({match.path for match in matches}))}
    return sorted(matches, key=lambda match: (rank[match.path], match.number))


def _left_out(count: int) -> str:
    files, them = ("1 file was", "it") if count == 1 else (f"{count} files were", "them")
    return f"({files} not searched: the rules forbid to read {them}, or to read {them} without asking.)"


def _by_file(matches: Sequence[search.Match]) -> str:
    blocks: list[str] = []
    for path, lines in groupby(matches, key=lambda match: match.path):
        blocks.append("\n".join([f"{path}:", *(f"  Line {match.number}: {_cut(match.line)}" for match in lines)]))
    return "\n\n".join(blocks)


def _cut(line: str) -> str:
    return line if len(line) <= LINE_LENGTH else line[:LINE_LENGTH] + "..."
