"""Export formats: one class a format, each turning a session into chunks of bytes while it is read.

To add a format, write a class with the attributes of :class:`Format` and add it to :data:`FORMATS`.
"""

from __future__ import annotations

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


FORMATS = {
    "jsonl": ("jsonl", "JsonlFormat", "one line a session: prompts, answers, reasoning and tokens"),
    "json": ("opencode", "JsonFormat", "OpenCode's export, records as stored; lossless"),
    "opencode": ("opencode", "ImportableFormat", "the same, completed so that the newest OpenCode imports it"),
    "markdown": ("markdown", "MarkdownFormat", "a Markdown document to read"),
    "html": ("html_page", "HtmlFormat", "one HTML page a session, with an index; to read, search and print"),
    "prompts": ("markdown", "PromptsFormat", "only the prompts, as text"),
    "hf": ("jsonl", "TracesFormat", "Hugging Face's session trace format"),
    "parquet": ("parquet", "ParquetFormat", "a table of all parts, for analysis"),
}
"""By name: the module, the class, and a description."""


def find_format(name: str, options: FormatOptions | None = None) -> Format:
    """Return the format of that name."""
    try:
        module, class_name, _ = FORMATS[name]
    except KeyError:
        raise UsageError(f"unknown format {name!r}; available: {', '.join(FORMATS)}") from None
    return cast("Format", getattr(import_module(f".{module}", __name__), class_name)(options or FormatOptions()))
