"""Change a piece of a file."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated

from msgspec import Meta

from ..errors import ToolFailedError
from . import diff
from . import path_access as paths
from .arguments import Arguments
from .replace import replace
from .text_files import TextFile, load, must_still_be
from .tool import BuiltinTool, Context, ToolOutput


class EditArguments(Arguments, frozen=True):
    """What to change, in which file."""

    file_path: Annotated[str, Meta(description="The absolute path of the file")]
    old_string: Annotated[str, Meta(description="The text to replace, exactly as the file has it")]
    new_string: Annotated[str, Meta(description="The text to put in its place; must differ from oldString")]
    replace_all: Annotated[bool, Meta(description="Replace oldString wherever it occurs (default false)")] = False


class EditTool(BuiltinTool[EditArguments]):
    """One replacement; all else in the file stays, byte for byte, its mark and its line ends included."""

    id = "edit"
    parameters = EditArguments

    async def execute(self, args: EditArguments, ctx: Context) -> ToolOutput:
        """Find the piece, ask with the difference shown, and write."""
        if args.old_string == args.new_string:
            raise ToolFailedError("oldString and newString are the same, so there is nothing to change")
        path = paths.absolute(ctx, args.file_path)
        await paths.ask_if_outside(ctx, path)
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
        raise ToolFailedError(
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
    difference = await change_file(ctx, path, before, after)
    shown, written = before.shown if before else "", load(path)
    if written.text != after.text:  # whoever heard of the change has formatted it
        difference = await asyncio.to_thread(diff.compare, path, shown, written.shown)
    metadata = {
        "diagnostics": {},
        "diff": difference.text,
        "filediff": diff.file_diff(path, shown, written.shown, difference),
    }
    return ToolOutput(paths.relative(ctx, path), "Edit applied successfully.", metadata)


async def change_file(ctx: Context, path: str, before: TextFile | None, after: TextFile) -> diff.Diff:
    """Ask with the difference shown, and write; that difference. A file that is no longer as it was ``before`` is
    :class:`ToolFailedError`."""
    difference = await asyncio.to_thread(diff.compare, path, before.shown if before else "", after.shown)
    await paths.ask_edit(ctx, [path], {"filepath": path, "diff": difference.text})
    await ctx.before_write({path: after.data})
    must_still_be(path, before)
    after.save(path)
    ctx.files.note(path)
    ctx.after_write(path)
    ctx.files.note(path)
    return difference
