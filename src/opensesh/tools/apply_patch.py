"""Change several files by one patch."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct

from ..errors import ToolFailedError
from ..line_changes import line_changes
from . import diff, patch_text, real_files
from . import path_access as paths
from .arguments import Arguments
from .file_types import TextFile, ensure_unchanged, load_text_if_exists
from .tool import BuiltinTool, Context, ToolOutput

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


ChangeKind = Literal["add", "update", "delete", "move"]


class ApplyPatchArguments(Arguments, frozen=True):
    """The patch."""

    patch_text: Annotated[str, Meta(description="The whole patch, from *** Begin Patch to *** End Patch")]


class PatchedFile(Struct, frozen=True, kw_only=True):
    """A planned change of one file."""

    kind: ChangeKind
    path: str
    target: str
    """The path afterwards; the same as ``path`` unless the file moves."""
    before: TextFile
    after: TextFile
    difference: diff.Diff


class ApplyPatchTool(BuiltinTool[ApplyPatchArguments]):
    """Adds, updates, moves and deletes files. Checks and asks for the whole patch before it changes anything."""

    id = "apply_patch"
    parameters = ApplyPatchArguments

    async def execute(self, args: ApplyPatchArguments, ctx: Context) -> ToolOutput:
        """Check, ask with the differences shown, and apply."""
        hunks = patch_text.parse(args.patch_text)
        if not hunks:
            raise ToolFailedError("The patch is empty: it names no file to add, update or delete")
        targets = await _ask_paths(ctx, hunks)
        async with ctx.files.lock(*targets):
            _require_distinct(targets)
            before = {path: load_text_if_exists(target.real) for path, target in targets.items()}
            changes = await asyncio.to_thread(_plan, ctx, hunks, dict(before))
            whole = "".join(f"{change.difference.text}\n" for change in changes)
            described = [_metadata(ctx, change) for change in changes]
            sources = [paths.relative(ctx, change.path) for change in changes]
            metadata: dict[str, Any] = {"filepath": ", ".join(sources), "diff": whole, "files": described}
            await paths.ask_edit(ctx, [*targets.values()], metadata)
            contents: dict[str, bytes | None] = {}
            for change in changes:
                if change.kind in ("delete", "move"):
                    contents[change.path] = None
                if change.kind != "delete":
                    contents[change.target] = change.after.data
            await ctx.before_write(contents)
            for path, text in before.items():
                ensure_unchanged(targets[path].real, text)
            _apply(ctx, changes, targets)
        letters = {"add": "A", "delete": "D"}
        lines = [f"{letters.get(change.kind, 'M')} {paths.relative(ctx, change.target)}" for change in changes]
        output = "\n".join(["Success. Updated the following files:", *lines])
        return ToolOutput(output, output, {"diff": whole, "files": described, "diagnostics": {}})


async def _ask_paths(ctx: Context, hunks: Sequence[patch_text.Hunk]) -> dict[str, paths.Target]:
    """Resolve the paths of a patch, and ask for those outside of the project and for those that it reads.

    A file that is updated or moved is read: the patch shows which lines it has, and carries its text to another name.
    """
    targets: dict[str, paths.Target] = {}
    read: list[str] = []
    for hunk in hunks:
        move_to = hunk.move_to if isinstance(hunk, patch_text.UpdateHunk) else None
        source = paths.resolve(ctx, hunk.path)
        source = targets.setdefault(source.path, source)
        deletes = bool(move_to) or isinstance(hunk, patch_text.DeleteHunk)
        await paths.ask_if_outside(ctx, source, deletes=deletes)
        if isinstance(hunk, patch_text.UpdateHunk):
            read += paths.names(ctx, source)
        if move_to:
            destination = paths.resolve(ctx, move_to)
            await paths.ask_if_outside(ctx, targets.setdefault(destination.path, destination))
    if read:
        await ctx.ask("read", list(dict.fromkeys(read)), always=["*"], metadata={})
    return targets


def _require_distinct(targets: Mapping[str, paths.Target]) -> None:
    """Refuse two names for one file, through a link for instance: one of the two changes would be lost."""
    seen: dict[tuple[int, int], str] = {}
    for path, target in targets.items():
        if os.path.exists(target.real):
            file = os.stat(target.real)
            first = seen.setdefault((file.st_dev, file.st_ino), path)
            if first != path:
                raise ToolFailedError(
                    f"{first} and {path} are the same file; use one name for it in a patch", path=path
                )


def _plan(ctx: Context, hunks: Sequence[patch_text.Hunk], state: dict[str, TextFile | None]) -> list[PatchedFile]:
    """Return the change that each hunk makes. ``state`` holds the files' contents and is updated hunk by hunk."""
    changes: list[PatchedFile] = []
    for hunk in hunks:
        path = target = paths.absolute(ctx, hunk.path)
        kind: ChangeKind
        match hunk:
            case patch_text.AddHunk():
                _require_free(path, state)
                content = hunk.content if not hunk.content or hunk.content.endswith("\n") else f"{hunk.content}\n"
                kind, before, after = "add", TextFile(), TextFile(text=content)
                state[path] = after
            case patch_text.DeleteHunk():
                before = _require_existing(path, state)
                kind, after = "delete", before.with_text("")
                state[path] = None
            case patch_text.UpdateHunk():
                before = _require_existing(path, state)
                after = _updated(path, before, hunk.chunks)
                target = paths.absolute(ctx, hunk.move_to) if hunk.move_to else path
                if target != path:
                    _require_free(target, state)
                kind = "update" if target == path else "move"
                state[path], state[target] = None, after
        difference = diff.compare(path, before.shown, after.shown)
        change = PatchedFile(kind=kind, path=path, target=target, before=before, after=after, difference=difference)
        changes.append(change)
    return changes


def _require_free(path: str, state: dict[str, TextFile | None]) -> None:
    if state[path] is not None:
        raise ToolFailedError(
            f"The patch would write a new file over {path}, which exists; update it instead", path=path
        )
    parent = os.path.dirname(path)
    while state[parent] is None if parent in state else not os.path.lexists(parent):
        parent = os.path.dirname(parent)
    if parent in state or not os.path.isdir(parent):
        raise ToolFailedError(f"The patch would write {path}, but {parent} is not a directory", path=path)


def _require_existing(path: str, state: dict[str, TextFile | None]) -> TextFile:
    existing = state[path]
    if existing is None:
        raise ToolFailedError(f"The patch changes {path}, which does not exist", path=path)
    return existing


def _updated(path: str, before: TextFile, chunks: Sequence[patch_text.Chunk]) -> TextFile:
    """Apply chunks. Unchanged lines keep their endings; new ones get the file's, and the last line always has one."""
    if not chunks:
        return before
    lines = before.text.split("\n")
    carriage_return = "\r" if before.line_ending == "\r\n" else ""
    if lines[-1] == "":
        lines.pop()
    else:
        lines[-1] += carriage_return
    bare = [line.removesuffix("\r") for line in lines]
    patched = patch_text.apply(path, bare, chunks)
    result: list[str] = []
    position = 0
    for change in line_changes(bare, patched):
        result += lines[position : change.start]
        result += [line + carriage_return for line in patched[change.new_start : change.new_end]]
        position = change.end
    result += lines[position:]
    return before.with_text("".join(f"{line}\n" for line in result))


def _metadata(ctx: Context, change: PatchedFile) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "filePath": change.path,
        "relativePath": paths.relative(ctx, change.target),
        "type": change.kind,
        "diff": change.difference.text,
        "before": change.before.shown,
        "after": change.after.shown,
        "additions": change.difference.additions,
        "deletions": change.difference.deletions,
    }
    return metadata | ({"movePath": change.target} if change.kind == "move" else {})


def _apply(ctx: Context, changes: Sequence[PatchedFile], targets: Mapping[str, paths.Target]) -> None:
    for number, change in enumerate(changes):
        try:
            if change.kind != "delete":
                try:
                    change.after.save(targets[change.target].real)
                finally:  # also if it failed: for the revert, if the old content could not be restored
                    ctx.files.note(change.target)
                    ctx.after_write(change.target)
            if change.kind in ("delete", "move"):
                try:
                    real_files.delete_file(targets[change.path].entry)
                except OSError as error:
                    reason = error.strerror or error
                    raise ToolFailedError(f"{change.path} cannot be deleted: {reason}", path=change.path) from error
                ctx.files.forget(change.path)
                ctx.after_write(change.path)
        except ToolFailedError as error:
            done = ", ".join(paths.relative(ctx, applied.target) for applied in changes[:number]) or "nothing"
            raise ToolFailedError(f"{error.message}. The patch was not applied further; done before: {done}") from error
