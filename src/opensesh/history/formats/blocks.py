"""Display blocks of a session for Markdown and HTML, with subagent sessions after the tool calls that started them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ..formatting import call_line
from ..transcript import (
    FileBlock,
    MarkerBlock,
    ReasoningBlock,
    SubtaskBlock,
    TextBlock,
    ToolBlock,
    TranscriptMessage,
    TranscriptOptions,
    transcript_messages,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..transcript import Block
    from . import ExportedSession, FormatOptions

_MARKER_TEXTS = {"compaction": "the conversation so far was summarised", "retry": "{} failed"}
"""The markers that are shown, with their texts."""


class NoteBlock(NamedTuple):
    """A line about something that happened."""

    text: str


class ImageBlock(NamedTuple):
    """An image that is stored in the session."""

    name: str
    url: str


class ChildBlock(NamedTuple):
    """The session of a subagent."""

    session: ExportedSession


DisplayBlock: TypeAlias = TextBlock | ReasoningBlock | NoteBlock | ImageBlock | ToolBlock | ChildBlock


def display_messages(
    session: ExportedSession, options: FormatOptions
) -> Iterator[tuple[TranscriptMessage, list[DisplayBlock]]]:
    """Yield the messages in order, each with its blocks.

    A subagent session follows the tool call that started it; sessions that no tool call mentions come at the end.
    """
    children = {child.id: child for child in session.children}
    shown = TranscriptOptions(reasoning=options.reasoning, outputs=True, files=True, markers=True)
    for message in transcript_messages(session.messages, shown):
        blocks = [shown for block in message.blocks for shown in _display(block, options, children)]
        if blocks or message.failure:
            yield message, blocks
    if children:
        message = TranscriptMessage("", "assistant", 0, "subagents", "", ())
        yield message, [ChildBlock(child) for child in children.values()]


def agent_and_model(message: TranscriptMessage) -> str:
    """Return the agent and model of a message, as one line."""
    return " · ".join(filter(None, (message.agent, message.model)))


def _display(block: Block, options: FormatOptions, children: dict[str, ExportedSession]) -> Iterator[DisplayBlock]:
    match block:
        case TextBlock() | ReasoningBlock():
            yield block
        case ToolBlock():
            if options.tools == "summary":
                yield NoteBlock(call_line(block.tool, block.subject, block.status, block.error))
            elif options.tools != "skip":
                yield block
            if (child := children.pop(block.session, None)) is not None:
                yield ChildBlock(child)
        case FileBlock():
            name = block.name or block.mime or "file"
            is_embedded = block.url.startswith("data:")
            if block.url.startswith("data:image/"):
                yield ImageBlock(name, block.url)
            else:
                yield NoteBlock(f"attached: {name}{'' if is_embedded else f' ({block.url})'}")
        case SubtaskBlock(agent=agent, text=text):
            yield NoteBlock(f"subtask for {agent}: {text}")
        case MarkerBlock(kind=kind, text=text) if kind in _MARKER_TEXTS:
            yield NoteBlock(_MARKER_TEXTS[kind].format(text))
        case _:  # other markers are not shown
            pass
