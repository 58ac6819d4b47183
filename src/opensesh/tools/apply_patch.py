"""Change several files by one patch."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct

from ..errors import ToolFailedError
from . import diff, patch_text
from . import path_access as paths
from .arguments import Arguments
from .text_files import TextFile, look, must_still_be
from .tool import BuiltinTool, Context, ToolOutput

if TYPE_CHECKING:
    from collections.abc import Sequence


Kind = Literal["add", "update", "delete", "move"]


class ApplyPatchArguments(Arguments, frozen=True):
    """The patch."""

    patch_text: Annotated[str, Meta(description="The whole patch, from *** Begin Patch to *** End Patch")]


class FileChange(Struct, frozen=True, kw_only=True):
    """What is to happen to one file."""

    kind: Kind
    path: str
    target: str
    """Where it will be; the same as ``path`` unless it moves."""
    before: TextFile
    after: TextFile
    difference: diff.Diff


class ApplyPatchTool(BuiltinTool[ApplyPatchArguments]):
    """Adds, updates, moves and deletes. The whole patch is checked, and asked for, before anything is touched."""

    id = "apply_patch"
    parameters = ApplyPatchArguments

    async def execute(self, args: ApplyPatchArguments, ctx: Context) -> ToolOutput:
        """Check, ask with the differences shown, and apply."""
        hunks = patch_text.parse(args.patch_text)
        if not hunks:
            raise ToolFailedError("The patch is empty: it names no file to add, update or delete")
        touched = _touched(ctx, hunks)
        for path in touched:
            await paths.ask_if_outside(ctx, path)
        async with ctx.files.lock(*touched):
            _must_differ(touched)
            found = {path: look(path) for path in touched}
            steps = await asyncio.to_thread(_planned, ctx, hunks, dict(found))
            whole = "".join(f"{step.difference.text}\n" for step in steps)
            described = [_described(ctx, step) for step in steps]
            sources = [paths.relative(ctx, step.path) for step in steps]
            metadata: dict[str, Any] = {"filepath": ", ".join(sources), "diff": whole, "files": described}
            await paths.ask_edit(ctx, touched, metadata)
            await ctx.before_write(_becoming(steps))
            for path, before in found.items():
                must_still_be(path, before)
            _carry_out_all(ctx, steps)
        listed = [f"{_letter(step)} {paths.relative(ctx, step.target)}" for step in steps]
        output = "\n".join(["Success. Updated the following files:", *listed])
        return ToolOutput(output, output, {"diff": whole, "files": described, "diagnostics": {}})


def _touched(ctx: Context, hunks: Sequence[patch_text.Hunk]) -> list[str]:
    named: list[str] = []
    for hunk in hunks:
        named.append(hunk.path)
        if isinstance(hunk, patch_text.Update) and hunk.move_to:
            named.append(hunk.move_to)
    return list(dict.fromkeys(paths.absolute(ctx, path) for path in named))


def _must_differ(named: Sequence[str]) -> None:
    """One file under two names, by a link for instance, would be changed as if it were two, and one change be lost."""
    seen: dict[tuple[int, int], str] = {}
    for path in named:
        if os.path.exists(path):
            file = os.stat(path)
            first = seen.setdefault((file.st_dev, file.st_ino), path)
            if first != path:
                raise ToolFailedError(
                    f"{first} and {path} are the same file; use one name for it in a patch", path=path
                )


def _planned(ctx: Context, hunks: Sequence[patch_text.Hunk], state: dict[str, TextFile | None]) -> list[FileChange]:
    """Every step with its result. ``state`` is what the files hold, and is brought forward step by step."""
    return [_step(ctx, hunk, state) for hunk in hunks]


def _step(ctx: Context, hunk: patch_text.Hunk, state: dict[str, TextFile | None]) -> FileChange:
    path = paths.absolute(ctx, hunk.path)
    match hunk:
        case patch_text.Add():
            _must_be_free(path, state)
            content = hunk.content if not hunk.content or hunk.content.endswith("\n") else f"{hunk.content}\n"
            after = state[path] = TextFile(text=content)
            return _made("add", (path, path), TextFile(), after)
        case patch_text.Delete():
            before = _must_exist(path, state)
            state[path] = None
            return _made("delete", (path, path), before, before.saying(""))
        case patch_text.Update():
            before = _must_exist(path, state)
            after = _updated(path, before, hunk.chunks)
            target = paths.absolute(ctx, hunk.move_to) if hunk.move_to else path
            if target != path:
                _must_be_free(target, state)
            state[path], state[target] = None, after
            return _made("update" if target == path else "move", (path, target), before, after)


def _must_be_free(path: str, state: dict[str, TextFile | None]) -> None:
    if state[path] is not None:
        raise ToolFailedError(
            f"The patch would write a new file over {path}, which exists; update it instead", path=path
        )
    above = os.path.dirname(path)
    while state[above] is None if above in state else not os.path.lexists(above):
        above = os.path.dirname(above)
    if above in state or not os.path.isdir(above):
        raise ToolFailedError(f"The patch would write {path}, but {above} is not a directory", path=path)


def _must_exist(path: str, state: dict[str, TextFile | None]) -> TextFile:
    found = state[path]
    if found is None:
        raise ToolFailedError(f"The patch is about {path}, which does not exist", path=path)
    return found


def _updated(path: str, before: TextFile, chunks: Sequence[patch_text.Chunk]) -> TextFile:
    """Lines that stay keep their own ends; those that come get the ends that the file has, and the last always one."""
    if not chunks:
        return before
    lines = before.text.split("\n")
    tail = "\r" if before.ending == "\r\n" else ""
    if lines[-1] == "":
        lines.pop()
    else:
        lines[-1] += tail
    bare = [line.removesuffix("\r") for line in lines]
    changed = patch_text.apply(path, bare, chunks)
    return before.saying("".join(f"{line}\n" for line in _endings(bare, changed, lines, tail)))


def _endings(old: list[str], new: list[str], raw: list[str], tail: str) -> list[str]:
    result: list[str] = []
    at = 0
    for change in diff.changes(old, new):
        result += raw[at : change.start]
        result += [line + tail for line in new[change.new_start : change.new_end]]
        at = change.end
    return result + raw[at:]


def _made(kind: Kind, places: tuple[str, str], before: TextFile, after: TextFile) -> FileChange:
    path, target = places
    difference = diff.compare(path, before.shown, after.shown)
    return FileChange(kind=kind, path=path, target=target, before=before, after=after, difference=difference)


def _described(ctx: Context, step: FileChange) -> dict[str, Any]:
    described: dict[str, Any] = {
        "filePath": step.path,
        "relativePath": paths.relative(ctx, step.target),
        "type": step.kind,
        "diff": step.difference.text,
        "before": step.before.shown,
        "after": step.after.shown,
        "additions": step.difference.additions,
        "deletions": step.difference.deletions,
    }
    return described | ({"movePath": step.target} if step.kind == "move" else {})


def _becoming(steps: Sequence[FileChange]) -> dict[str, bytes | None]:
    """What the files will hold after all steps."""
    becoming: dict[str, bytes | None] = {}
    for step in steps:
        if step.kind in ("delete", "move"):
            becoming[step.path] = None
        if step.kind != "delete":
            becoming[step.target] = step.after.data
    return becoming


def _letter(step: FileChange) -> str:
    return {"add": "A", "delete": "D"}.get(step.kind, "M")


def _carry_out_all(ctx: Context, steps: Sequence[FileChange]) -> None:
    for number, step in enumerate(steps):
        try:
            _carry_out(ctx, step)
        except ToolFailedError as error:
            done = ", ".join(paths.relative(ctx, each.target) for each in steps[:number]) or "nothing"
            raise ToolFailedError(f"{error.message}. The patch was not applied further; done before: {done}") from error


def _carry_out(ctx: Context, step: FileChange) -> None:
    if step.kind != "delete":
        step.after.save(step.target)
        ctx.files.note(step.target)
        ctx.after_write(step.target)
    if step.kind in ("delete", "move"):
        try:
            os.unlink(step.path)
        except OSError as error:
            raise ToolFailedError(
                f"{step.path} cannot be deleted: {error.strerror or error}", path=step.path
            ) from error
        ctx.files.forget(step.path)
        ctx.after_write(step.path)
