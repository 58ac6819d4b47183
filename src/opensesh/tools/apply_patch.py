"""Change several files by one patch.

::

    *** Begin Patch
    *** Add File: new.txt
    +every line of it
    *** Update File: old.txt
    *** Move to: elsewhere.txt
    @@ def around():
     a line that stays
    -a line that goes
    +a line that comes
    *** End of File
    *** Delete File: gone.txt
    *** End Patch
"""

from __future__ import annotations

import asyncio
import os
import re
import unicodedata
from bisect import bisect_left
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct

from ..errors import ToolFailedError
from ..line_changes import line_changes
from . import diff, real_files
from . import path_access as paths
from .arguments import Arguments
from .file_types import TextFile, ensure_unchanged, load_text_if_exists
from .tool import BuiltinTool, Context, ToolOutput

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


ChangeKind = Literal["add", "update", "delete", "move"]
_HEADERS = ("*** Add File:", "*** Delete File:", "*** Update File:")
_HEREDOC = re.compile(r"\s*(?:cat\s+)?<<-?\s*['\"]?(\w+)['\"]?\s*\n(.*?)\n\1\s*", re.DOTALL)
_DASHES = dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"), "-")
_QUOTES = dict.fromkeys(map(ord, "\u2018\u2019\u201a\u201b"), "'") | dict.fromkeys(
    map(ord, "\u201c\u201d\u201e\u201f"), '"'
)
_SPACES = dict.fromkeys(map(ord, "\u00a0\u2002\u2003\u2007\u2009\u202f\u3000"), " ")
_PUNCTUATION = {**_DASHES, **_QUOTES, **_SPACES, ord("\u2026"): "..."}
_MAX_EMPTY_LINES = 10
"""At the end of a chunk that may not belong to it."""
_COMPARISONS: tuple[Callable[[str], str], ...] = (
    str,
    str.rstrip,
    str.strip,
    lambda line: unicodedata.normalize("NFC", line).translate(_PUNCTUATION).strip(),
)
"""Forms of a line in which it is compared, from the exact to the lenient."""


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
        hunks = parse_patch(args.patch_text)
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


async def _ask_paths(ctx: Context, hunks: Sequence[Hunk]) -> dict[str, paths.Target]:
    """Resolve the paths of a patch, and ask for those outside of the project and for those that it reads.

    A file that is updated or moved is read: the patch shows which lines it has, and carries its text to another name.
    """
    targets: dict[str, paths.Target] = {}
    read: list[str] = []
    for hunk in hunks:
        move_to = hunk.move_to if isinstance(hunk, UpdateHunk) else None
        source = paths.resolve(ctx, hunk.path)
        source = targets.setdefault(source.path, source)
        deletes = bool(move_to) or isinstance(hunk, DeleteHunk)
        await paths.ask_if_outside(ctx, source, deletes=deletes)
        if isinstance(hunk, UpdateHunk):
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


def _plan(ctx: Context, hunks: Sequence[Hunk], state: dict[str, TextFile | None]) -> list[PatchedFile]:
    """Return the change that each hunk makes. ``state`` holds the files' contents and is updated hunk by hunk."""
    changes: list[PatchedFile] = []
    for hunk in hunks:
        path = target = paths.absolute(ctx, hunk.path)
        kind: ChangeKind
        match hunk:
            case AddHunk():
                _require_free(path, state)
                content = hunk.content if not hunk.content or hunk.content.endswith("\n") else f"{hunk.content}\n"
                kind, before, after = "add", TextFile(), TextFile(text=content)
                state[path] = after
            case DeleteHunk():
                before = _require_existing(path, state)
                kind, after = "delete", before.with_text("")
                state[path] = None
            case UpdateHunk():
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


def _updated(path: str, before: TextFile, chunks: Sequence[Chunk]) -> TextFile:
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
    patched = apply_chunks(path, bare, chunks)
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


class Chunk(Struct, kw_only=True):
    """Lines to find, and lines to replace them with."""

    context: str | None = None
    """A line somewhere before them."""
    old: list[str] = []
    new: list[str] = []
    at_end: bool = False
    """Whether they are the last lines of the file."""


class AddHunk(Struct, frozen=True):
    """A new file."""

    path: str
    content: str


class DeleteHunk(Struct, frozen=True):
    """A file to delete."""

    path: str


class UpdateHunk(Struct, frozen=True):
    """A file to change, and perhaps to move."""

    path: str
    move_to: str | None
    chunks: list[Chunk]


Hunk: TypeAlias = AddHunk | DeleteHunk | UpdateHunk


def parse_patch(text: str) -> list[Hunk]:
    """Return the hunks of a patch. Lines that belong to no hunk are skipped."""
    wrapped = _HEREDOC.fullmatch(text)
    lines = (wrapped[2] if wrapped else text).replace("\r\n", "\n").strip().split("\n")
    try:
        start = next(index for index, line in enumerate(lines) if line.strip() == "*** Begin Patch")
        end = next(index for index in range(len(lines) - 1, start, -1) if lines[index].strip() == "*** End Patch")
    except StopIteration:
        raise ToolFailedError(
            "Invalid patch: it must begin with the line '*** Begin Patch' and end with '*** End Patch'"
        ) from None
    lines = lines[start + 1 : end]
    headers = [index for index, line in enumerate(lines) if line.startswith(_HEADERS)]
    hunks: list[Hunk] = []
    for index, following in pairwise([*headers, len(lines)]):
        line, body = lines[index], lines[index + 1 : following]
        if line.startswith("*** Add File:"):
            hunks.append(AddHunk(_file_name(line), "\n".join(row[1:] for row in body if row.startswith("+"))))
        elif line.startswith("*** Delete File:"):
            hunks.append(DeleteHunk(_file_name(line)))
        else:
            hunks.append(_parse_update(_file_name(line), body))
    return hunks


def _file_name(line: str) -> str:
    name = line.partition(":")[2].strip()
    if not name:
        raise ToolFailedError(f"The patch names no file in {line!r}")
    return name


def _parse_update(path: str, body: list[str]) -> UpdateHunk:
    move_to = None
    if body and body[0].startswith("*** Move to:"):
        move_to = _file_name(body[0])
        body = body[1:]
    chunks: list[Chunk] = []
    for line in body:
        if line.startswith("@@"):
            chunks.append(Chunk(context=line[2:].strip() or None, old=[], new=[]))
        elif line.strip() == "*** End of File":
            if chunks:
                chunks[-1].at_end = True
        elif line[:1] in (" ", "-", "+", "") and not line.startswith("*** "):
            if not chunks:
                chunks.append(Chunk(old=[], new=[]))
            if not line.startswith("+"):
                chunks[-1].old.append(line[1:])
            if not line.startswith("-"):
                chunks[-1].new.append(line[1:])
    return UpdateHunk(path, move_to, chunks)


def apply_chunks(path: str, lines: Sequence[str], chunks: Sequence[Chunk]) -> list[str]:
    """Return ``lines`` with every chunk applied, in order.

    Raises :class:`ToolFailedError`, quoting the lines that the file does not contain.
    """
    result, searched = list(lines), _SearchedLines(lines)
    replacements: list[tuple[int, int, list[str]]] = []
    position = 0
    for chunk in chunks:
        if chunk.context is not None:
            context = searched.find([chunk.context], position)
            if context is None:
                raise ToolFailedError(f"{path} has no line like {chunk.context!r} after line {position}", path=path)
            position = context + 1
        old, new = chunk.old, chunk.new
        if not old:
            start = len(result) if chunk.context is None or chunk.at_end else position
        else:
            start = searched.find(old, position, at_end=chunk.at_end)
            for _ in range(_MAX_EMPTY_LINES):
                if start is not None or len(old) == 1 or old[-1]:
                    break
                # An empty line at the end of a chunk may only separate it from the next.
                old, new = old[:-1], (new[:-1] if new and not new[-1] else new)
                start = searched.find(old, position, at_end=chunk.at_end)
        if start is None:
            raise ToolFailedError(
                f"{path} does not contain these lines of the patch; read the file again and write a new patch:\n"
                + "\n".join(chunk.old),
                path=path,
            )
        replacements.append((start, len(old), new))
        position = start + len(old)
    for start, count, new in sorted(replacements, key=lambda replacement: replacement[:2], reverse=True):
        result[start : start + count] = new
    return result


class _SearchedLines:
    """Lines in which others are found, in time that is proportional to their length, however often they repeat."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._texts: dict[int, tuple[str, list[int]]] = {}
        """The lines by comparison, each after a line feed, and where each begins."""

    def find(self, quoted: Sequence[str], start: int, *, at_end: bool = False) -> int | None:
        """Return where ``quoted`` begins at or after ``start``: first exactly, then with looser comparisons."""
        last = len(self._lines) - len(quoted)
        if start > last:
            return None
        for number, normalise in enumerate(_COMPARISONS):
            text, begins = self._compared(number)
            folded = "".join(f"\n{normalise(line)}" for line in quoted) + "\n"
            at = text.find(folded, begins[last if at_end else start])
            if at >= 0:
                return bisect_left(begins, at)
        return None

    def _compared(self, number: int) -> tuple[str, list[int]]:
        if number not in self._texts:
            folded = [f"\n{_COMPARISONS[number](line)}" for line in self._lines]
            self._texts[number] = "".join(folded) + "\n", [0, *accumulate(map(len, folded))]
        return self._texts[number]
