"""The turns of a session as the forms for people show them: what was asked for, subagents behind the calls that began
them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ..transcript import Asked, Attached, Call, Marked, Said, Thought, Turn, Wanted
from ..transcript import turns as read
from ..wording import call_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..transcript import Block
    from . import Exported, Options


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

    session: Exported


Piece: TypeAlias = Said | Thought | Note | Image | Call | Child


def turns(session: Exported, options: Options) -> Iterator[tuple[Turn, list[Piece]]]:
    """The turns in their order, each with what there is to show of it. A subagent's session comes with the call that
    started it; those that no call mentions come at the end."""
    children = {child.id: child for child in session.children}
    wanted = Wanted(reasoning=options.reasoning, outputs=True, files=True, marks=True)
    for turn in read(session.messages, wanted):
        pieces = [piece for block in turn.blocks for piece in _pieces(block, options, children)]
        if pieces or turn.failure:
            yield turn, pieces
    if children:
        yield Turn("", "assistant", 0, "subagents", "", ()), [Child(child) for child in children.values()]


def who(turn: Turn) -> str:
    """Agent and model."""
    return " · ".join(filter(None, (turn.agent, turn.model)))


def _pieces(block: Block, options: Options, children: dict[str, Exported]) -> Iterator[Piece]:
    match block:
        case Said() | Thought():
            yield block
        case Call():
            if options.tools == "summary":
                yield Note(call_line(block.tool, block.subject, block.status, block.error))
            elif options.tools != "skip":
                yield block
            if (child := children.pop(block.session, None)) is not None:
                yield Child(child)
        case Attached():
            yield _file(block)
        case Asked(agent=agent, text=text):
            yield Note(f"subtask for {agent}: {text}")
        case Marked(kind=kind, text=text):
            yield from [Note(_MARKS[kind].format(text))] if kind in _MARKS else []


def _file(file: Attached) -> Piece:
    name = file.name or file.mime or "file"
    if file.url.startswith("data:image/"):
        return Image(name, file.url)
    return Note(f"attached: {name}{'' if file.url.startswith('data:') else f' ({file.url})'}")
