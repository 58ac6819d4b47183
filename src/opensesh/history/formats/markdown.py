"""Formats to read as text: a whole session in Markdown, and only its prompts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...records import dumps, object_at
from ..formatting import call_line, text, when
from ..transcript import (
    Block,
    FileBlock,
    MarkerBlock,
    ReasoningBlock,
    SubtaskBlock,
    TextBlock,
    ToolBlock,
    TranscriptOptions,
    transcript_messages,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from . import ExportedSession, FormatOptions

_FENCE = re.compile(r"^[ ]{0,3}(`{3,})", re.MULTILINE)
_MARKER_TEXTS = {"compaction": "the conversation so far was summarised", "retry": "{} failed"}
"""The markers that are shown, with their texts."""


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
        for piece in self._session(session, 1):
            yield piece.encode(errors="replace")

    def _session(self, session: ExportedSession, level: int) -> Iterator[str]:
        info, utc = session.info, self._options.utc
        time = object_at(info, "time")
        yield f"{'#' * level} {_line(info.get('title')) or session.id}\n\n"
        yield f"- session: `{session.id}`\n- folder: `{_line(info.get('directory'))}`\n"
        yield f"- created {when(time.get('created'), utc=utc)}, updated {when(time.get('updated'), utc=utc)}\n\n"
        yield from self.messages(session, level)

    def messages(self, session: ExportedSession, level: int = 1) -> Iterator[str]:
        """Render the messages without the heading of the session.

        A subagent session follows the tool call that started it; sessions that no tool call mentions come at the end.
        """
        children = {child.id: child for child in session.children}
        options = TranscriptOptions(reasoning=self._options.reasoning, outputs=True, files=True, markers=True)
        for message in transcript_messages(session.messages, options):
            texts = [text for block in message.blocks for text in self._block(block, children, level)]
            if texts or message.failure:
                agent_and_model = _line(" · ".join(filter(None, (message.agent, message.model))))
                name = "User" if message.role == "user" else f"Assistant · {agent_and_model}"
                yield f"{'#' * (level + 1)} {name} · {when(message.created or None, utc=self._options.utc)}\n\n"
                yield from texts
            if message.failure:
                yield f"> **Error:** {_line(message.failure)}\n\n"
        if children:
            yield f"{'#' * (level + 1)} Assistant · subagents · \n\n"
        for child in children.values():
            yield from self._session(child, min(level + 2, 5))

    def _block(self, block: Block, children: dict[str, ExportedSession], level: int) -> Iterator[str]:
        match block:
            case TextBlock(text=text):
                yield f"{text.strip()}\n\n"
            case ReasoningBlock(text=text):
                yield "".join(f"> {line}\n" for line in ("*Thinking*", "", *text.strip().splitlines())) + "\n"
            case ToolBlock():
                if self._options.tools == "summary":
                    yield _note(call_line(block.tool, block.subject, block.status, block.error))
                elif self._options.tools != "skip":
                    yield from _tool(block)
                if (child := children.pop(block.session, None)) is not None:
                    yield from self._session(child, min(level + 2, 5))
            case FileBlock(mime=mime, name=name, url=url):
                yield _note(f"attached: {name or mime or 'file'}{'' if url.startswith('data:') else f' ({url})'}")
            case SubtaskBlock(agent=agent, text=text):
                yield _note(f"subtask for {agent}: {text}")
            case MarkerBlock(kind=kind, text=text) if kind in _MARKER_TEXTS:
                yield _note(_MARKER_TEXTS[kind].format(text))
            case _:  # other markers are not shown
                pass


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
        heading = f"# {text(session.info, 'title')} ({session.id})\n\n"
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


def _note(text: str) -> str:
    return f"*{_line(text)}*\n\n"


def _line(value: object) -> str:
    return " ".join(value.split()) if isinstance(value, str) else ""
