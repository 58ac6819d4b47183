"""Read a file or list a directory."""

from __future__ import annotations

import asyncio
import os
from typing import IO, TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from ..errors import ToolFailedError
from . import file_types as media
from . import path_access as paths
from .arguments import Arguments, Positive
from .tool import BuiltinTool, Context, ToolOutput, attachment
from .truncation import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LINES = 2_000
LINE_LENGTH = 2_000
_PREVIEW = 20
_ENOUGH = 4 * (LINE_LENGTH + 1)
"""Bytes of a line that are sure to be more than is shown of it."""
_CHUNK = 1 << 16


class ReadArguments(Arguments, frozen=True):
    """What to read, and which part of it."""

    file_path: Annotated[str, Meta(description="The absolute path of the file or directory")]
    offset: Annotated[Positive | None, Meta(description="The first line to read, counted from 1")] = None
    limit: Annotated[Positive | None, Meta(description="How many lines to read; 2000 if not given")] = None


class ReadTool(BuiltinTool[ReadArguments]):
    """Text with line numbers, directories by name, images and PDFs as attachments."""

    id = "read"
    parameters = ReadArguments

    async def execute(self, args: ReadArguments, ctx: Context) -> ToolOutput:
        """Ask, and read. The session then knows the file."""
        path = paths.absolute(ctx, args.file_path)
        is_directory = os.path.isdir(path)
        await paths.ask_if_outside(ctx, path, "directory" if is_directory else "file")
        await ctx.ask("read", paths.names(ctx, path), always=["*"], metadata={})
        title = paths.relative(ctx, path)
        offset, limit = args.offset or 1, args.limit or LINES
        if is_directory:
            return await asyncio.to_thread(_directory, path, title, offset, limit)
        _must_be_file(path)
        mime = media.attachable(path)
        if mime is not None:
            return await _attached(ctx, path, title, mime)
        if await asyncio.to_thread(media.is_binary, path):
            raise ToolFailedError(f"Cannot read binary file: {path}", path=path)
        page = await asyncio.to_thread(_read_page, path, offset, limit)
        ctx.files.note(path)
        return _text(path, title, page, await ctx.instructions.near(path))


class _Page(Struct, frozen=True, kw_only=True):
    lines: list[str]
    first: int
    total: int | None
    """How many lines the file has; unknown if there are more than were read."""
    out_of_room: bool = False

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1

    @property
    def note(self) -> str:
        if self.out_of_room:
            return f"(Cut at {MAX_BYTES} bytes, after line {self.last}. To read on, use offset {self.last + 1})"
        if self.total is None:
            return f"(The file goes on after line {self.last}. To read on, use offset {self.last + 1})"
        return f"(End of file - total {self.total} lines)"


def _text(path: str, title: str, page: _Page, instructions: Sequence[tuple[str, str]]) -> ToolOutput:
    numbered = "\n".join(f"{number}: {line}" for number, line in enumerate(page.lines, page.first))
    output = f"<path>{path}</path>\n<type>file</type>\n<content>{numbered}\n\n{page.note}\n</content>"
    if instructions:
        told = "\n\n".join(f"Instructions from: {source}\n{text}" for source, text in instructions)
        output += f"\n\n<system-reminder>\n{told}\n</system-reminder>"
    metadata: dict[str, Any] = {
        "preview": "\n".join(page.lines[:_PREVIEW]),
        "truncated": page.total is None,
        "loaded": [source for source, _ in instructions],
    }
    return ToolOutput(title, output, metadata)


def _read_page(path: str, offset: int, limit: int) -> _Page:
    lines: list[str] = []
    size = 0
    count = 0
    try:
        with open(path, "rb") as file:
            for count, raw in enumerate(_raw_lines(file), 1):
                if count < offset:
                    continue
                if len(lines) == limit:
                    return _Page(lines=lines, first=offset, total=None)
                line = _shown(raw)
                size += len(line.encode()) + (1 if lines else 0)
                if size > MAX_BYTES:
                    return _Page(lines=lines, first=offset, total=None, out_of_room=True)
                lines.append(line)
    except OSError as error:
        raise paths.unreadable(path, error) from error
    if offset > count:
        raise ToolFailedError(f"Offset {offset} is out of range for this file ({count} lines)", path=path)
    return _Page(lines=lines, first=offset, total=count)


def _raw_lines(file: IO[bytes]) -> Iterator[bytes]:
    """The lines without their ends, of long ones the beginning. A file that ends in a newline has an empty last line,
    as an editor shows it."""
    encoding = media.wide_encoding(file)
    if encoding:
        yield from (line.encode() for line in file.read().decode(encoding, "replace").split("\n"))
        return
    ended = True
    while line := file.readline(_ENOUGH):
        yield line.removesuffix(b"\n")
        ended = line.endswith(b"\n")
        while not ended and (more := file.readline(_CHUNK)):
            ended = more.endswith(b"\n")
    if ended:
        yield b""


def _shown(raw: bytes) -> str:
    line = raw.removesuffix(b"\r").decode("utf-8", "replace")
    return line if len(line) <= LINE_LENGTH else line[:LINE_LENGTH] + "..."


async def _attached(ctx: Context, path: str, title: str, mime: str) -> ToolOutput:
    url = await asyncio.to_thread(media.data_url, path, mime)
    ctx.files.note(path)
    output = "PDF read successfully" if mime == media.PDF else "Image read successfully"
    metadata: dict[str, Any] = {"preview": output, "truncated": False, "loaded": []}
    return ToolOutput(title, output, metadata, (attachment(ctx, mime, url),))


def _directory(path: str, title: str, offset: int, limit: int) -> ToolOutput:
    try:
        with os.scandir(path) as found:
            entries = sorted((entry.name + ("/" if entry.is_dir() else "") for entry in found), key=_by_name)
    except OSError as error:
        raise ToolFailedError(f"{path} cannot be listed: {error.strerror or error}", path=path) from error
    shown = entries[offset - 1 : offset - 1 + limit]
    truncated = offset - 1 + len(shown) < len(entries)
    if truncated:
        note = f"({len(shown)} of {len(entries)} entries. To read on, use offset {offset + len(shown)})"
    else:
        note = f"({len(entries)} entries)"
    listing = "\n".join([f"<path>{path}</path>", "<type>directory</type>", "<entries>", *shown])
    metadata: dict[str, Any] = {"preview": "\n".join(shown[:_PREVIEW]), "truncated": truncated, "loaded": []}
    return ToolOutput(title, f"{listing}\n\n{note}\n</entries>", metadata)


def _by_name(name: str) -> tuple[str, str]:
    return name.casefold(), name


def _must_be_file(path: str) -> None:
    if os.path.isfile(path):
        return
    if os.path.exists(path):
        raise ToolFailedError(f"{path} is neither a file nor a directory, and reading it might never end", path=path)
    similar = _similar(path)
    hint = "\n\nDid you mean one of these?\n" + "\n".join(similar) if similar else ""
    raise ToolFailedError(f"File not found: {path}{hint}", path=path)


def _similar(path: str) -> list[str]:
    """Up to three neighbours whose name contains the one asked for, or is contained in it."""
    directory, name = os.path.split(path)
    wanted = name.lower()
    try:
        neighbours = sorted(os.listdir(directory))
    except OSError:
        return []
    alike = [each for each in neighbours if wanted in each.lower() or each.lower() in wanted]
    return [os.path.join(directory, each) for each in alike[:3]]
