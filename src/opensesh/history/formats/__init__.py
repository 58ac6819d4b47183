"""The forms a session can leave in: one a module, each turning a session into pieces of bytes as it is read."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from ...errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...records import Document
    from ...storage.protocol import StoredMessage


class ExportedSession(NamedTuple):
    """A session on its way out. The messages can be gone through once."""

    id: str
    """As it is filed."""
    project: str
    """The project it is filed under."""
    info: Document
    messages: Iterable[StoredMessage]
    children: Iterable[ExportedSession] = ()
    """Its subagents' sessions, if they are to appear inside of it."""


class Format(Protocol):
    """What a form offers."""

    suffix: str
    """Of a file that holds one session."""
    together: tuple[bytes, bytes, bytes] | None
    """What stands before, between and after several sessions in one file; ``None`` if a file holds just one."""
    nests: bool
    """Whether subagents' sessions appear inside of the one that started them."""
    reads: frozenset[str] | None
    """The types of the parts it looks at; ``None`` for all. No other is cleaned, or counted as cleaned."""

    def pieces(self, session: ExportedSession) -> Iterator[bytes]:
        """One session, a piece at a time."""
        ...


class FormatOptions(NamedTuple):
    """What a form may be asked."""

    tools: str = ""
    """``skip`` tool calls, or give a ``summary`` of each in a line; otherwise as the form does by itself."""
    reasoning: bool = True
    """Whether to tell what the model thought, where the form leaves a choice."""
    utc: bool = False
    indexed: bool = False
    """Whether it lies in a folder with others, and an index that leads to them all."""


FORMATS = {
    "jsonl": ("jsonl", "JsonlFormat", "one line a session: prompts, answers, thoughts and tokens"),
    "json": ("opencode", "JsonFormat", "as OpenCode exports it, records as stored; loses nothing"),
    "opencode": (
        "opencode",
        "ImportableFormat",
        "the same, filled in until the newest OpenCode imports it",
    ),
    "markdown": ("markdown", "MarkdownFormat", "to read, in Markdown"),
    "html": ("html_page", "HtmlFormat", "a page a session, with an index; to read, search and print"),
    "prompts": ("prompts", "PromptsFormat", "what was asked, nothing else"),
    "hf": ("traces", "TracesFormat", "Hugging Face's session trace format"),
    "parquet": ("parquet", "ParquetFormat", "a table of all parts, for analysis"),
}
"""By name: the module, the class, and what it is."""


def find_format(name: str, options: FormatOptions | None = None) -> Format:
    """The form of that name."""
    try:
        module, kind, _ = FORMATS[name]
    except KeyError:
        raise UsageError(f"there is no format {name!r}; there are: {', '.join(FORMATS)}") from None
    return cast("Format", getattr(import_module(f".{module}", __name__), kind)(options or FormatOptions()))
