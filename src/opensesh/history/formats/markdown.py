"""Formats to read as text: a whole session in Markdown, and only its prompts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...records import as_object, dumps
from ..formatting import when
from ..transcript import ReasoningBlock, TextBlock, ToolBlock, transcript_messages
from .blocks import ChildBlock, ImageBlock, NoteBlock, agent_and_model, display_messages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from . import ExportedSession, FormatOptions
    from .blocks import DisplayBlock

_FENCE = re.compile(r"^[ ]{0,3}(`{3,})", re.MULTILINE)


class MarkdownFormat:
    """One Markdown document a session, with tool calls, results and subagent sessions."""

    suffix = ".md"
    delimiters = (b"", b"\n", b"")
    nests = True
    part_types = None

    def __init__(self, options: FormatOptions) -> None:
        self._options = options

    def chunks(self, session: ExportedSession) -> Iterator[bytes]:
        """Render the heading and the messages."""
        for text in self._session(session, 1):
            yield text.encode(errors="replace")

    def _session(self, session: ExportedSession, level: int) -> Iterator[str]:
        info, utc = session.info, self._options.utc
        time = as_object(info.get("time")) or {}
        yield f"{'#' * level} {_line(info.get('title')) or session.id}\n\n"
        yield f"- session: `{session.id}`\n- folder: `{_line(info.get('directory'))}`\n"
        yield f"- created {when(time.get('created'), utc=utc)}, updated {when(time.get('updated'), utc=utc)}\n\n"
        yield from self.messages(session, level)

    def messages(self, session: ExportedSession, level: int = 1) -> Iterator[str]:
        """Render the messages without the heading of the session."""
        for message, blocks in display_messages(session, self._options):
            name = "User" if message.role == "user" else f"Assistant · {_line(agent_and_model(message))}"
            yield f"{'#' * (level + 1)} {name} · {when(message.created or None, utc=self._options.utc)}\n\n"
            for block in blocks:
                yield from self._block(block, level)
            if message.failure:
                yield f"> **Error:** {_line(message.failure)}\n\n"

    def _block(self, block: DisplayBlock, level: int) -> Iterator[str]:
        match block:
            case TextBlock(text=text):
                yield f"{text.strip()}\n\n"
            case ReasoningBlock(text=text):
                yield "".join(f"> {line}\n" for line in ("*Thinking*", "", *text.strip().splitlines())) + "\n"
            case ImageBlock(name=name):
                yield f"*attached: {_line(name)}*\n\n"
            case NoteBlock(text=text):
                yield f"*{_line(text)}*\n\n"
            case ToolBlock():
                yield from _tool(block)
            case ChildBlock(session=session):
                yield from self._session(session, min(level + 2, 5))


class PromptsFormat:
    """The prompts of a session, as plain text. A session without a prompt is left out."""

    suffix = ".txt"
    delimiters = (b"", b"", b"")
    nests = False
    part_types = frozenset(("text", "file", "subtask"))

    def __init__(self, options: FormatOptions) -> None:
        self._options = options

    def chunks(self, session: ExportedSession) -> Iterator[bytes]:
        """Render a heading, then each prompt with its time."""
        title = session.info.get("title")
        heading = f"# {title if isinstance(title, str) else ''} ({session.id})\n\n"
        for message in transcript_messages(session.messages):
            texts = [block.text.strip("\n") for block in message.blocks if isinstance(block, TextBlock)]
            if message.role == "user" and texts:
                time, prompt = when(message.created, utc=self._options.utc), "\n\n".join(texts)
                yield f"{heading}[{time}]\n{prompt}\n\n".encode(errors="replace")
                heading = ""


def _tool(call: ToolBlock) -> Iterator[str]:
    subject = _line(call.subject)
    if subject:  # as code, between more backticks than it contains
        ticks = "`" * (max((len(run) for run in re.findall(r"`+", subject)), default=0) + 1)
        pad = " " if "`" in (subject[0], subject[-1]) else ""
        subject = f"{ticks}{pad}{subject}{pad}{ticks}"
    yield f"**{_line(call.tool)}** {subject}{'' if call.status == 'completed' else f' ({call.status})'}\n\n"
    if call.diff:
        yield _fenced(call.diff, "diff")
    elif call.todos:
        yield "".join(f"- {line}\n" for line in call.todos.splitlines()) + "\n"
    elif call.input:
        yield _fenced(dumps(call.input).decode(errors="replace"), "json")
    if call.error:
        yield _fenced(call.error, "text")
    elif call.output and not call.diff and not call.todos:
        yield _fenced(call.output, "text")


def _fenced(text: str, language: str) -> str:
    """Return a code block whose fence is longer than any in the text."""
    longest = max((len(fence) for fence in _FENCE.findall(text)), default=2)
    fence = "`" * max(longest + 1, 3)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}\n\n"


def _line(value: object) -> str:
    return " ".join(value.split()) if isinstance(value, str) else ""
