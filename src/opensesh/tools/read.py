"""Read a file or list a directory."""

from __future__ import annotations

import asyncio
import io
import os
from typing import IO, TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from ..errors import ToolFailedError
from . import file_types, real_files
from . import path_access as paths
from .arguments import Arguments, Positive
from .tool import BuiltinTool, Context, ToolOutput, attachment
from .truncation import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT_LINES = 2_000
MAX_LINE_CHARACTERS = 2_000
_PREVIEW_LINES = 20
_MAX_LINE_BYTES = 4 * (MAX_LINE_CHARACTERS + 1)
"""Enough bytes for the characters of a line that are shown, in any encoding of them."""
_CHUNK_BYTES = 1 << 16


class ReadArguments(Arguments, frozen=True):
    """The file and which part of it."""

    file_path: Annotated[str, Meta(description="The absolute path of the file or directory")]
    offset: Annotated[Positive | None, Meta(description="The first line to read, counted from 1")] = None
    limit: Annotated[Positive | None, Meta(description="How many lines to read; 2000 if not given")] = None


class ReadTool(BuiltinTool[ReadArguments]):
    """Returns text with line numbers, the entries of a directory, and images and PDFs as attachments."""

    id = "read"
    parameters = ReadArguments

    async def execute(self, args: ReadArguments, ctx: Context) -> ToolOutput:
        """Ask, and read. The session may then edit the file."""
        target = paths.resolve(ctx, args.file_path)
        path, real = target.path, target.real
        is_directory = os.path.isdir(real)
        await paths.ask_if_outside(ctx, target, "directory" if is_directory else "file")
        await ctx.ask("read", paths.names(ctx, target), always=["*"], metadata={})
        title = paths.relative(ctx, path)
        offset, limit = args.offset or 1, args.limit or DEFAULT_LINES
        if is_directory:
            return await asyncio.to_thread(_list_directory, target, title, offset, limit)
        _require_file(target)
        mime = file_types.attachment_type(real)
        if mime is not None:
            url = await asyncio.to_thread(file_types.data_url, real, mime)
            ctx.files.note(path)
            output = "PDF read successfully" if mime == file_types.PDF else "Image read successfully"
            metadata: dict[str, Any] = {"preview": output, "truncated": False, "loaded": []}
            return ToolOutput(title, output, metadata, (attachment(ctx, mime, url),))
        if await asyncio.to_thread(file_types.is_binary, real):
            raise ToolFailedError(f"Cannot read binary file: {path}", path=path)
        page = await asyncio.to_thread(_read_page, real, offset, limit)
        ctx.files.note(path)
        numbered = "\n".join(f"{number}: {line}" for number, line in enumerate(page.lines, page.first))
        output = f"<path>{path}</path>\n<type>file</type>\n<content>{numbered}\n\n{page.note}\n</content>"
        instructions = await ctx.instructions.near(path)
        if instructions:
            texts = "\n\n".join(f"Instructions from: {source}\n{text}" for source, text in instructions)
            output += f"\n\n<system-reminder>\n{texts}\n</system-reminder>"
        metadata = {
            "preview": "\n".join(page.lines[:_PREVIEW_LINES]),
            "truncated": page.total is None,
            "loaded": [source for source, _ in instructions],
        }
        return ToolOutput(title, output, metadata)


class _FilePage(Struct, frozen=True, kw_only=True):
    lines: list[str]
    first: int
    total: int | None
    """Number of lines of the file; unknown if there are more than were read."""
    cut_by_size: bool = False

    @property
    def note(self) -> str:
        last = self.first + len(self.lines) - 1
        if self.cut_by_size:
            return f"(Cut at {MAX_BYTES} bytes, after line {last}. To read on, use offset {last + 1})"
        if self.total is None:
            return f"(The file goes on after line {last}. To read on, use offset {last + 1})"
        return f"(End of file - total {self.total} lines)"


def _read_page(path: str, offset: int, limit: int) -> _FilePage:
    lines: list[str] = []
    size = 0
    count = 0
    try:
        with real_files.open_file(path) as file:
            for count, raw in enumerate(_raw_lines(file), 1):
                if count < offset:
                    continue
                if len(lines) == limit:
                    return _FilePage(lines=lines, first=offset, total=None)
                line = raw.removesuffix(b"\r").decode("utf-8", "replace")
                line = line if len(line) <= MAX_LINE_CHARACTERS else line[:MAX_LINE_CHARACTERS] + "..."
                size += len(line.encode()) + (1 if lines else 0)
                if size > MAX_BYTES:
                    return _FilePage(lines=lines, first=offset, total=None, cut_by_size=True)
                lines.append(line)
    except OSError as error:
        raise paths.unreadable(path, error) from error
    if offset > count:
        raise ToolFailedError(f"Offset {offset} is out of range for this file ({count} lines)", path=path)
    return _FilePage(lines=lines, first=offset, total=count)


def _raw_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines without their endings, and only the beginning of long ones.

    A file that ends in a newline has an empty last line, as editors show it.
    """
    encoding = file_types.skip_bom(file)
    decoded = io.TextIOWrapper(file, encoding, "replace", newline="\n") if encoding else None

    def readline(limit: int) -> bytes:
        return file.readline(limit) if decoded is None else decoded.readline(limit).encode()

    ended = True
    while line := readline(_MAX_LINE_BYTES):
        yield line.removesuffix(b"\n")
        ended = line.endswith(b"\n")
        while not ended and (more := readline(_CHUNK_BYTES)):
            ended = more.endswith(b"\n")
    if ended:
        yield b""


def _list_directory(target: paths.Target, title: str, offset: int, limit: int) -> ToolOutput:
    path = target.path
    try:
        with real_files.open_folder(target.real) as folder, folder.scan() as scan:
            names = [entry.name + ("/" if entry.is_dir() else "") for entry in scan]
    except OSError as error:
        raise ToolFailedError(f"{path} cannot be listed: {error.strerror or error}", path=path) from error
    entries = sorted(names, key=lambda name: (name.casefold(), name))
    shown = entries[offset - 1 : offset - 1 + limit]
    truncated = offset - 1 + len(shown) < len(entries)
    if truncated:
        note = f"({len(shown)} of {len(entries)} entries. To read on, use offset {offset + len(shown)})"
    else:
        note = f"({len(entries)} entries)"
    listing = "\n".join([f"<path>{path}</path>", "<type>directory</type>", "<entries>", *shown])
    metadata: dict[str, Any] = {"preview": "\n".join(shown[:_PREVIEW_LINES]), "truncated": truncated, "loaded": []}
    return ToolOutput(title, f"{listing}\n\n{note}\n</entries>", metadata)


def _require_file(target: paths.Target) -> None:
    """Raise :class:`ToolFailedError` unless it is a file; suggest up to three files with a similar name."""
    path = target.path
    if os.path.isfile(target.real):
        return
    if os.path.exists(target.real):
        raise ToolFailedError(f"{path} is a special file, and reading it might never end", path=path)
    directory, name = os.path.split(path)
    try:
        neighbours = sorted(os.listdir(os.path.dirname(target.real)))
    except OSError:
        neighbours = []
    lower = name.lower()
    similar = [other for other in neighbours if lower in other.lower() or other.lower() in lower][:3]
    suggestions = "\n".join(os.path.join(directory, other) for other in similar)
    hint = f"\n\nDid you mean one of these?\n{suggestions}" if similar else ""
    raise ToolFailedError(f"File not found: {path}{hint}", path=path)
