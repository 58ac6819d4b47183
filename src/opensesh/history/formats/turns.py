"""A session as a person reads it: turns made of blocks, whatever form they are then given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ...errors import RecordError
from ...records import as_object, read_failure
from .wording import key_input, text, tool_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...records import Document
    from ...storage.store import StoredMessage
    from . import Exported, Options


class Text(NamedTuple):
    """Words."""

    text: str


class Thought(NamedTuple):
    """The model thinking."""

    text: str


class Note(NamedTuple):
    """Something that happened, in a line."""

    text: str


class Image(NamedTuple):
    """A picture that is kept inside of the session."""

    name: str
    url: str


class ToolCall(NamedTuple):
    """A tool call and what became of it."""

    tool: str
    about: str
    status: str
    input: Document
    output: str
    error: str
    diff: str
    """What it changed, as a unified diff; empty if it changed nothing, or does not say."""


class Child(NamedTuple):
    """A subagent's session."""

    session: Exported


Block: TypeAlias = Text | Thought | Note | Image | ToolCall | Child


class Prompt(NamedTuple):
    """What the user said."""

    id: str
    created: Any
    blocks: list[Block]


class Answer(NamedTuple):
    """What the model answered in one step."""

    id: str
    created: Any
    blocks: list[Block]
    who: str
    """Agent and model."""
    failure: str
    cost: float
    tokens: int


Turn: TypeAlias = Prompt | Answer


def turns(session: Exported, options: Options) -> Iterator[Turn]:
    """The turns in their order, those without anything to read left out. A subagent's session comes with the call that
    started it; one that no call mentions comes at the end."""
    children = {child.id: child for child in session.children}
    for message in session.messages:
        turn = _turn(message, options, children)
        if turn.blocks or (isinstance(turn, Answer) and turn.failure):
            yield turn
    if children:
        yield Answer("", None, [Child(child) for child in children.values()], "subagents", "", 0.0, 0)


def _turn(message: StoredMessage, options: Options, children: dict[str, Exported]) -> Turn:
    info = message.info
    name, created = text(info, "id"), (as_object(info.get("time")) or {}).get("created")
    blocks = [block for part in message.parts for block in _blocks(part, options, children)]
    if info.get("role") != "assistant":
        return Prompt(name, created, blocks)
    agent = text(info, "agent") or text(info, "mode")
    model = "/".join(filter(None, (text(info, "providerID"), text(info, "modelID"))))
    cost = info.get("cost")
    return Answer(
        name,
        created,
        blocks,
        " · ".join(filter(None, (agent, model))),
        failure_line(info),
        float(cost) if isinstance(cost, (int, float)) else 0.0,
        _tokens(as_object(info.get("tokens")) or {}),
    )


def _tokens(held: Document) -> int:
    cache = as_object(held.get("cache")) or {}
    counts = (*(held.get(name) for name in ("input", "output", "reasoning")), cache.get("read"), cache.get("write"))
    return sum(int(count) for count in counts if isinstance(count, (int, float)))


def failure_line(info: Document) -> str:
    """What went wrong with an answer, if anything did."""
    held = as_object(info.get("error"))
    if held is None:
        return ""
    try:
        failure = read_failure(held)
    except RecordError:
        return str(held.get("name") or "an error that cannot be read")
    return getattr(failure, "message", "") or str(held.get("name") or "")


def _blocks(part: Document, options: Options, children: dict[str, Exported]) -> Iterator[Block]:
    match part.get("type"):
        case "text" if text(part, "text").strip() and not (part.get("synthetic") or part.get("ignored")):
            yield Text(text(part, "text"))
        case "reasoning" if options.reasoning and text(part, "text").strip():
            yield Thought(text(part, "text"))
        case "tool":
            yield from _tool(part, options, children)
        case "file":
            yield _file(part)
        case "subtask":
            yield Note(f"subtask for {text(part, 'agent')}: {text(part, 'description') or text(part, 'prompt')}")
        case "compaction":
            yield Note("the conversation so far was summarised")
        case "retry":
            yield Note(f"attempt {part.get('attempt')} failed")
        case _:
            return


def _file(part: Document) -> Block:
    name = text(part, "filename") or text(part, "mime") or "file"
    url = text(part, "url")
    if url.startswith("data:image/"):
        return Image(name, url)
    return Note(f"attached: {name}{'' if url.startswith('data:') else f' ({url})'}")


def _tool(part: Document, options: Options, children: dict[str, Exported]) -> Iterator[Block]:
    state = as_object(part.get("state")) or {}
    metadata = as_object(state.get("metadata")) or {}
    if options.tools == "summary":
        yield Note(tool_line(part))
    elif options.tools != "skip":
        yield ToolCall(
            text(part, "tool"),
            key_input(state),
            text(state, "status"),
            as_object(state.get("input")) or {},
            text(state, "output"),
            text(state, "error"),
            text(metadata, "diff"),
        )
    child = children.pop(text(metadata, "sessionId"), None)
    if child is not None:
        yield Child(child)
