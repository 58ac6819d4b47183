"""The turns of a session as the forms for people show them: what was asked for, subagents behind the calls that began
them."""

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
)
from ..transcript import transcript_messages as read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..transcript import Block
    from . import ExportedSession, FormatOptions


_MARKS = {"compaction": "the conversation so far was summarised", "retry": "{} failed"}
"""What is told of the machinery."""


class Note(NamedTuple):
    """Something that happened, in a line."""

    text: str


class Image(NamedTuple):
    """A picture that is kept inside of the session."""

    name: str
    url: str


class Child(NamedTuple):
    """A subagent's session."""

    session: ExportedSession


Piece: TypeAlias = TextBlock | ReasoningBlock | Note | Image | ToolBlock | Child


def turns(session: ExportedSession, options: FormatOptions) -> Iterator[tuple[TranscriptMessage, list[Piece]]]:
    """The turns in their order, each with what there is to show of it. A subagent's session comes with the call that
    started it; those that no call mentions come at the end."""
    children = {child.id: child for child in session.children}
    wanted = TranscriptOptions(reasoning=options.reasoning, outputs=True, files=True, marks=True)
    for turn in read(session.messages, wanted):
        pieces = [piece for block in turn.blocks for piece in _pieces(block, options, children)]
        if pieces or turn.failure:
            yield turn, pieces
    if children:
        yield TranscriptMessage("", "assistant", 0, "subagents", "", ()), [Child(child) for child in children.values()]


def who(turn: TranscriptMessage) -> str:
    """Agent and model."""
    return " · ".join(filter(None, (turn.agent, turn.model)))


def _pieces(block: Block, options: FormatOptions, children: dict[str, ExportedSession]) -> Iterator[Piece]:
    match block:
        case TextBlock() | ReasoningBlock():
            yield block
        case ToolBlock():
            if options.tools == "summary":
                yield Note(call_line(block.tool, block.subject, block.status, block.error))
            elif options.tools != "skip":
                yield block
            if (child := children.pop(block.session, None)) is not None:
                yield Child(child)
        case FileBlock():
            yield _file(block)
        case SubtaskBlock(agent=agent, text=text):
            yield Note(f"subtask for {agent}: {text}")
        case MarkerBlock(kind=kind, text=text):
            yield from [Note(_MARKS[kind].format(text))] if kind in _MARKS else []


def _file(file: FileBlock) -> Piece:
    name = file.name or file.mime or "file"
    if file.url.startswith("data:image/"):
        return Image(name, file.url)
    return Note(f"attached: {name}{'' if file.url.startswith('data:') else f' ({file.url})'}")
