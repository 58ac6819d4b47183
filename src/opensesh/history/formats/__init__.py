"""Export formats: one class a format, each turning a session into chunks of bytes while it is read.

To add a format, write a class with the attributes of :class:`Format` and add it to :data:`FORMATS`.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from ...errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...records import Document
    from ...storage.protocol import StoredMessage


class ExportedSession(NamedTuple):
    """A session to be exported. Its messages and children can be iterated once."""

    id: str
    """The id under which it is stored."""
    project: str
    """The project under which it is stored."""
    info: Document
    messages: Iterable[StoredMessage]
    children: Iterable[ExportedSession] = ()
    """The sessions of its subagents, if the format includes them."""
    related: Document | None = None
    """Its todo list and its diffs, by the kind of record; ``None`` without either."""


class Format(Protocol):
    """An export format."""

    suffix: str
    """The file name suffix of a file with one session."""
    delimiters: tuple[bytes, bytes, bytes] | None
    """What to write before, between and after several sessions in one file; ``None`` if a file holds only one."""
    nests: bool
    """Whether subagent sessions are included in the session that started them."""
    part_types: frozenset[str] | None
    """The types of the parts that it uses; ``None`` for all. Others are neither redacted nor counted as redacted."""

    def chunks(self, session: ExportedSession) -> Iterator[bytes]:
        """Render one session, a chunk at a time."""
        ...


class FormatOptions(NamedTuple):
    """Options of the formats; a format ignores those that do not apply to it."""

    tools: str = ""
    """How to export tool calls: ``skip``, ``summary`` (one line each), or empty for the format's default."""
    reasoning: bool = True
    utc: bool = False
    indexed: bool = False
    """Whether the file is in a folder with an index page, to link to it."""


class FormatEntry(NamedTuple):
    """The class of a format, the file name endings that choose it, and its media type."""

    module: str
    class_name: str
    endings: tuple[str, ...] = ()
    """The file name endings for which the command line chooses this format."""
    media_type: str = "application/json"


FORMATS = {
    "jsonl": FormatEntry("jsonl", "JsonlFormat", (".jsonl",), "application/x-ndjson"),
    "json": FormatEntry("opencode", "JsonFormat", (".json",)),
    "opencode": FormatEntry("opencode", "ImportableFormat"),
    "markdown": FormatEntry("markdown", "MarkdownFormat", (".md", ".markdown"), "text/markdown"),
    "html": FormatEntry("html_page", "HtmlFormat", (".html", ".htm"), "text/html"),
    "prompts": FormatEntry("markdown", "PromptsFormat", media_type="text/plain"),
    "hf": FormatEntry("jsonl", "TracesFormat"),
    "parquet": FormatEntry("parquet", "ParquetFormat", (".parquet",)),
}
"""The formats by name. The docstring of a class says what its format contains."""


def find_format(name: str, options: FormatOptions | None = None) -> Format:
    """Return the format of that name."""
    try:
        entry = FORMATS[name]
    except KeyError:
        raise UsageError(f"unknown format {name!r}; available: {', '.join(FORMATS)}") from None
    module = import_module(f".{entry.module}", __name__)
    return cast("Format", getattr(module, entry.class_name)(options or FormatOptions()))


def format_of(path: str) -> str:
    """Return the name of the format that the ending of a file names; ``jsonl`` if it names none."""
    ending = os.path.splitext(path)[1].lower()
    return next((name for name, entry in FORMATS.items() if ending in entry.endings), "jsonl")
