"""Change a piece of a file."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated

from msgspec import Meta

from ..errors import ToolFailed
from . import diff, external
from .arguments import Arguments
from .replace import replace
from .text import TextFile, load, must_still_be
from .tool import BuiltinTool, Context, ToolOutput


class EditArguments(Arguments, frozen=True):
    """What to change, in which file."""

    file_path: Annotated[str, Meta(description="The absolute path of the file")]
    old_string: Annotated[str, Meta(description="The text to replace, exactly as the file has it")]
    new_string: Annotated[str, Meta(description="The text to put in its place; must differ from oldString")]
    replace_all: Annotated[bool, Meta(description="Replace oldString wherever it occurs (default false)")] = False


class Edit(BuiltinTool[EditArguments]):
    """One replacement; all else in the file stays, byte for byte, its mark and its line ends included."""

    id = "edit"
    parameters = EditArguments

    async def execute(self, args: EditArguments, ctx: Context) -> ToolOutput:
        """Find the piece, ask with the difference shown, and write."""
        if args.old_string == args.new_string:
            raise ToolFailed("oldString and newString are the same, so there is nothing to change")
        path = external.absolute(ctx, args.file_path)
        await external.check(ctx, path)
        async with ctx.files.lock(path):
            before = _before(args, ctx, path)
            after = await asyncio.to_thread(_after, before or TextFile(), args)
            return await _write(ctx, path, before, after)


def _before(args: EditArguments, ctx: Context, path: str) -> TextFile | None:
    if args.old_string:
        before = load(path)
        ctx.files.check(path)
        return before
    if os.path.exists(path):
        raise ToolFailed(
            f"oldString is empty, which makes a new file, but {path} exists. Give the text to replace, or use write to "
            "replace the whole file.",
            path=path,
        )
    return None


def _after(before: TextFile, args: EditArguments) -> TextFile:
    if not args.old_string:
        return before.saying(args.new_string)
    old, new = before.adapt(args.old_string), before.adapt(args.new_string)
    return before.saying(replace(before.text, old, new, every=args.replace_all))


async def _write(ctx: Context, path: str, before: TextFile | None, after: TextFile) -> ToolOutput:
    shown = before.shown if before else ""
    difference = await asyncio.to_thread(diff.compare, path, shown, after.shown)
    await ask_edit(ctx, [path], {"filepath": path, "diff": difference.text})
    await ctx.changing({path: after.data})
    must_still_be(path, before)
    after.save(path)
    ctx.files.note(path)
    ctx.changed(path)
    written = load(path)  # whoever hears of the change may have formatted it
    if written.text != after.text:
        ctx.files.note(path)
        difference = await asyncio.to_thread(diff.compare, path, shown, written.shown)
    metadata = {
        "diagnostics": {},
        "diff": difference.text,
        "filediff": diff.file_diff(path, shown, written.shown, difference),
    }
    return ToolOutput(external.relative(ctx, path), "Edit applied successfully.", metadata)


async def ask_edit(ctx: Context, paths: list[str], metadata: dict[str, object]) -> None:
    """Ask for the permission to change these files, under every name that leads to them."""
    names = [external.relative(ctx, name) for path in paths for name in external.names(ctx, path)]
    await ctx.ask("edit", list(dict.fromkeys(names)), always=["*"], metadata=metadata)
