"""Edit a part of a file, or write a whole one."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated, Any

from msgspec import Meta

from ..errors import ToolFailedError
from . import diff
from . import path_access as paths
from .arguments import Arguments
from .file_types import TextFile, ensure_unchanged, load_text, load_text_if_exists
from .replace import replace
from .tool import BuiltinTool, Context, ToolOutput


class EditArguments(Arguments, frozen=True):
    """The file and the replacement."""

    file_path: Annotated[str, Meta(description="The absolute path of the file")]
    old_string: Annotated[str, Meta(description="The text to replace, exactly as the file has it")]
    new_string: Annotated[str, Meta(description="The text to put in its place; must differ from oldString")]
    replace_all: Annotated[bool, Meta(description="Replace oldString wherever it occurs (default false)")] = False


class EditTool(BuiltinTool[EditArguments]):
    """Replaces one text. Everything else in the file stays, byte for byte, with byte order mark and line endings."""

    id = "edit"
    parameters = EditArguments

    async def execute(self, args: EditArguments, ctx: Context) -> ToolOutput:
        """Find the text, ask with the difference shown, and write."""
        if args.old_string == args.new_string:
            raise ToolFailedError("oldString and newString are the same, so there is nothing to change")
        target = paths.resolve(ctx, args.file_path)
        path = target.path
        await paths.ask_if_outside(ctx, target)
        async with ctx.files.lock(path):
            before: TextFile | None = None
            if args.old_string:
                before = load_text(target.real)
                ctx.files.check(path)
                old, new = before.with_line_endings(args.old_string), before.with_line_endings(args.new_string)
                text = await asyncio.to_thread(replace, before.text, old, new, replace_all=args.replace_all)
                after = before.with_text(text)
            elif os.path.lexists(target.real):
                raise ToolFailedError(
                    f"oldString is empty, which creates a file, but {path} exists. Give the text to replace, or use "
                    "write to replace the whole file.",
                    path=path,
                )
            else:
                after = TextFile(text=args.new_string)
            difference = await change_file(ctx, target, before, after)
            shown, written = before.shown if before else "", load_text(target.real)
            if written.text != after.text:  # a subscriber of the change event has formatted the file
                difference = await asyncio.to_thread(diff.compare, path, shown, written.shown)
            metadata = {
                "diagnostics": {},
                "diff": difference.text,
                "filediff": diff.file_diff(path, shown, written.shown, difference),
            }
            return ToolOutput(paths.relative(ctx, path), "Edit applied successfully.", metadata)


class WriteArguments(Arguments, frozen=True):
    """The file and its content."""

    content: Annotated[str, Meta(description="All that the file should hold")]
    file_path: Annotated[str, Meta(description="The absolute path of the file")]


class WriteTool(BuiltinTool[WriteArguments]):
    """Creates a file, or replaces the text of one that the session has read."""

    id = "write"
    parameters = WriteArguments

    async def execute(self, args: WriteArguments, ctx: Context) -> ToolOutput:
        """Ask with the difference shown, and write. An existing byte order mark is kept."""
        target = paths.resolve(ctx, args.file_path)
        path = target.path
        await paths.ask_if_outside(ctx, target)
        async with ctx.files.lock(path):
            existing = load_text_if_exists(target.real)
            if existing is not None:
                ctx.files.check(path)
            before = existing or TextFile()
            after = before.with_text(args.content.removeprefix("\ufeff") if before.bom else args.content)
            await change_file(ctx, target, existing, after)
        metadata: dict[str, Any] = {"diagnostics": {}, "filepath": path, "exists": existing is not None}
        return ToolOutput(paths.relative(ctx, path), "Wrote file successfully.", metadata)


async def change_file(ctx: Context, target: paths.Target, before: TextFile | None, after: TextFile) -> diff.Diff:
    """Ask with the difference shown, write the file, and return the difference.

    Raises :class:`ToolFailedError` if the file no longer equals ``before`` when the user has answered.
    """
    path = target.path
    difference = await asyncio.to_thread(diff.compare, path, before.shown if before else "", after.shown)
    await paths.ask_edit(ctx, [target], {"filepath": path, "diff": difference.text})
    await ctx.before_write({path: after.data})
    ensure_unchanged(target.real, before)
    try:
        after.save(target.real)
    except BaseException:
        ctx.after_write(path)  # for the revert, if the old content could not be restored
        raise
    ctx.files.note(path)
    ctx.after_write(path)
    ctx.files.note(path)  # again: a subscriber may have formatted the file
    return difference
