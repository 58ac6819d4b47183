"""Records to model request: what a model gets to see of a session.

A pure function of a message and the model it is for. Whatever the history holds, what comes out is a valid
conversation: every tool call is followed by exactly one result, under an id that every provider takes and no other
call has; no content is empty, no text holds half a character, no file is one the model cannot read, and thought that
another model signed is left out. What had to be left out is explained in its place.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct
from msgspec.structs import replace

from ..errors import RecordError
from ..models.request import (
    Assistant,
    File,
    ModelMessage,
    Reasoning,
    System,
    Text,
    ToolResults,
    ToolUse,
    ToolUseResult,
    User,
)
from ..records import (
    AssistantMessage,
    CompactionPart,
    Completed,
    Failed,
    FilePart,
    MessageAbortedError,
    Part,
    ReasoningPart,
    StepStartPart,
    SubtaskPart,
    TextPart,
    ToolPart,
    UserMessage,
    read_message,
    read_part,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from ..models.model import Model
    from ..storage.protocol import StoredMessage

COMPACTION_PROMPT = "What did we do so far?"
SUBTASK_PROMPT = "The following tool was executed by the user"
PRUNED = "[Old tool result content cleared]"
INTERRUPTED = "[Tool execution was interrupted]"
MASKED = "[Left out: the provider would not take this part of the history]"
_ATTACHED = "Attached image(s) from tool result:"
_OPENING = "(The beginning of this conversation is not available.)"
_TEXT_MIMES = ("text/plain", "application/x-directory")
_SURROGATE = "[\ud800-\udfff]"
_FIRST = re.compile(r"[A-Za-z_]")
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")
_MEDIA_IN_RESULTS = ("@ai-sdk/anthropic", "@ai-sdk/openai", "@ai-sdk/amazon-bedrock", "@ai-sdk/google-vertex/anthropic")
_CACHING = ("anthropic", "claude")


class Block(Struct, frozen=True):
    """One step of an answer: what the model said, and what its tools said back."""

    content: list[Text | Reasoning | ToolUse]
    results: list[ToolUseResult]


def turns_of(message: StoredMessage, model: Model, masked: Collection[str] = ()) -> tuple[ModelMessage, ...]:
    """One message as the model sees it; ``masked`` are the ids of parts that a provider has refused."""
    try:
        info = read_message(message.info)
    except RecordError:
        return ()
    parts = [part for part in _parts(message) if part.id not in masked]
    if isinstance(info, UserMessage):
        content = tuple(_mask(message, masked)) + tuple(piece for part in parts for piece in _said(part, model))
        return (User(content=content),) if content else ()
    return tuple(_answered(info, parts, model)) if _counts(info) else ()


class Projection:
    """A conversation as one model sees it, a message at a time: adding one costs the same however many there are."""

    def __init__(self, model: Model, messages: Iterable[StoredMessage] = (), masked: Collection[str] = ()) -> None:
        self.model = model
        self._masked = masked
        self._turns: list[ModelMessage] = []
        self._messages: list[str] = []
        self._used: set[str] = set()
        for message in messages:
            self.add(message)

    def add(self, message: StoredMessage) -> None:
        """Append a message that will not change any more."""
        turns = list(turns_of(message, self.model, self._masked))
        if turns and not self._turns and not isinstance(turns[0], User):
            turns.insert(0, User(content=(Text(text=_OPENING),)))
        for turn in _unique(turns, self._used):
            last = self._turns[-1] if self._turns else None
            if isinstance(turn, Assistant) and isinstance(last, Assistant):
                # An answer that was cut off and gone on with; some providers take no two answers in a row.
                self._turns[-1] = Assistant(content=last.content + turn.content)
            else:
                self._turns.append(turn)
                self._messages.append(str(message.info.get("id")))

    def turns(self) -> tuple[ModelMessage, ...]:
        """The conversation so far; it begins with the user, and no call id is used twice."""
        return tuple(self._turns) or (User(content=(Text(text=_OPENING),)),)

    def origins(self) -> list[tuple[ModelMessage, str]]:
        """Each turn, with the id of the message it comes from."""
        return list(zip(self._turns, self._messages, strict=True))


def mark_cache_points(turns: Sequence[ModelMessage], model: Model) -> tuple[ModelMessage, ...]:
    """Cache points after the first two system blocks and the last two other turns, for the models that want them.

    ``turns`` begin with the system blocks, if there are any.
    """
    names = f"{model.provider_id} {model.id} {model.wire_id} {model.npm}".lower()
    if not any(word in names for word in _CACHING):
        return tuple(turns)
    marked = list(turns)
    for at in range(min(2, len(turns))):
        if isinstance(turns[at], System):
            marked[at] = replace(turns[at], cache=True)
    for at in range(max(0, len(turns) - 2), len(turns)):
        if not isinstance(turns[at], System):
            marked[at] = replace(turns[at], cache=True)
    return tuple(marked)


def clean(text: str) -> str:
    """``text`` without half characters, which no provider takes."""
    return text if text.isascii() else re.sub(_SURROGATE, "\N{REPLACEMENT CHARACTER}", text)


def _parts(message: StoredMessage) -> list[Part]:
    found: list[Part] = []
    for document in message.parts:
        try:
            found.append(read_part(document))
        except RecordError:
            continue
    return found


def _mask(message: StoredMessage, masked: Collection[str]) -> list[Text]:
    return [Text(text=MASKED)] if any(str(part.get("id")) in masked for part in message.parts) else []


def _said(part: Part, model: Model) -> list[Text | File]:
    """What a part of a prompt says to the model."""
    match part:
        case TextPart(text=text) if not part.ignored and text.strip():
            return [Text(text=_steering(clean(text)) if is_steering(part) else clean(text))]
        case FilePart() if part.mime not in _TEXT_MIMES:
            return [_file(part.mime, part.url, part.filename, model)]
        case CompactionPart():
            return [Text(text=COMPACTION_PROMPT)]
        case SubtaskPart():
            return [Text(text=SUBTASK_PROMPT)]
        case _:
            return []


def is_steering(part: TextPart) -> bool:
    """Whether the user sent this while the model was at work."""
    ours = (part.metadata or {}).get("opensesh")
    return isinstance(ours, dict) and bool(cast("dict[str, object]", ours).get("steering"))


def _steering(text: str) -> str:
    return (
        "<system-reminder>\nThe user sent this while you were working:\n"
        f"{text}\n\nTake it into account, then go on with the task.\n</system-reminder>"
    )


def _counts(info: AssistantMessage) -> bool:
    """Whether an answer is part of the conversation: not if it failed, but what was said before it was stopped is."""
    try:
        return info.error is None or isinstance(info.failure, MessageAbortedError)
    except RecordError:
        return False


def _answered(info: AssistantMessage, parts: Sequence[Part], model: Model) -> Iterable[ModelMessage]:
    same = f"{info.provider_id}/{info.model_id}" == model.ref
    apart: list[File] = []
    for block in _blocks(parts, model, same, apart):
        if block.content:
            yield Assistant(content=tuple(block.content))
        if block.results:
            yield ToolResults(content=tuple(block.results))
    if apart:
        yield User(content=(Text(text=_ATTACHED), *apart))


def _blocks(parts: Sequence[Part], model: Model, same: bool, apart: list[File]) -> list[Block]:
    blocks = [Block([], [])]
    for part in parts:
        match part:
            case StepStartPart():
                blocks.append(Block([], []))
            case TextPart(text=text) if text.strip():
                blocks[-1].content.append(Text(text=clean(text), metadata=_whole(part.metadata) if same else None))
            case ReasoningPart() if same and (part.text.strip() or part.metadata):
                blocks[-1].content.append(Reasoning(text=clean(part.text), metadata=_whole(part.metadata)))
            case ToolPart():
                call, result = _tool(part, model, same, apart)
                blocks[-1].content.append(call)
                blocks[-1].results.append(result)
            case _:
                pass
    return [_worth_sending(block) for block in blocks]


def _worth_sending(block: Block) -> Block:
    """Thought that nothing said or done follows is refused by the providers that sign it."""
    while block.content and isinstance(block.content[-1], Reasoning):
        block.content.pop()
    return block


def _tool(part: ToolPart, model: Model, same: bool, apart: list[File]) -> tuple[ToolUse, ToolUseResult]:
    identity, name = _identity(part), _tool_name(part.tool)
    metadata = _whole(part.metadata) if same else None
    call = ToolUse(id=identity, name=name, input=_whole(part.state.input), metadata=metadata)
    output, failed = _outcome(part, model, apart)
    return call, ToolUseResult(id=identity, name=name, output=output, failed=failed, metadata=metadata)


def _identity(part: ToolPart) -> str:
    """The id of a call, in the characters and the length that every provider takes."""
    return _FOREIGN.sub("_", part.call_id or part.id)[:40] or "call"


def _tool_name(name: str) -> str:
    plain = _FOREIGN.sub("_", name)
    return (plain if _FIRST.match(plain) else f"_{plain}")[:64] if plain else "invalid"


def _whole(value: Any) -> Any:
    """``value`` without half characters in any of its texts."""
    match value:
        case str():
            return clean(value)
        case list():
            return [_whole(item) for item in cast("list[Any]", value)]
        case dict():
            return {clean(key): _whole(item) for key, item in cast("dict[str, Any]", value).items()}
        case _:
            return value


def _outcome(part: ToolPart, model: Model, apart: list[File]) -> tuple[tuple[Text | File, ...], bool]:
    match part.state:
        case Completed() as state if state.time.compacted:
            return (Text(text=PRUNED),), False
        case Completed() as state:
            files = _attachments(state, model, apart)
            said = (Text(text=clean(state.output)),) if state.output.strip() or not files else ()
            return (*said, *files), False
        case Failed(error=error):
            return (Text(text=clean(error).strip() or "Error"),), True
        case _:
            return (Text(text=INTERRUPTED),), True


def _attachments(state: Completed, model: Model, apart: list[File]) -> list[Text | File]:
    """Files that a tool gave; those that this wire has no place for in a result go into a message of their own."""
    kept: list[Text | File] = []
    for document in state.attachments or ():
        mime, url = str(document.get("mime", "")), str(document.get("url", ""))
        if not url.startswith("data:") or "," not in url:
            continue
        file = _file(mime, url, document.get("filename"), model)
        if isinstance(file, File) and _is_media(file.mime) and not _takes_media_in_results(model):
            apart.append(replace(file, filename=None))
        else:
            kept.append(file)
    return kept


def _file(mime: str, url: str, filename: object, model: Model) -> Text | File:
    from .media import problem_with

    name = clean(filename) if isinstance(filename, str) and filename else None
    mime = clean(mime).partition(";")[0].strip().lower()
    problem = problem_with(mime, url, model)
    if problem:
        return Text(text=f"[{name or mime or 'A file'} was left out: {problem}]")
    return File(mime=mime, url=url, filename=name)


def _is_media(mime: str) -> bool:
    return mime.startswith("image/") or mime == "application/pdf"


def _takes_media_in_results(model: Model) -> bool:
    wire = model.wire_id.lower()
    gemini3 = model.npm == "@ai-sdk/google" and "gemini-3" in wire and "gemini-2" not in wire
    return gemini3 or model.npm in _MEDIA_IN_RESULTS


def _unique(turns: list[ModelMessage], used: set[str]) -> list[ModelMessage]:
    """Rename the calls whose id was used before: a fork, or a server that counts from one each time."""
    for at in range(len(turns)):
        calls = _calls(turns[at])
        names = {call.id for call in calls}
        if names & used or len(names) < len(calls):
            turns[at : at + 2] = _renamed(cast("Assistant", turns[at]), cast("ToolResults", turns[at + 1]), used)
        used.update(call.id for call in _calls(turns[at]))
    return turns


def _renamed(turn: Assistant, answer: ToolResults, used: set[str]) -> list[ModelMessage]:
    taken = set(used)
    fresh: list[str] = []
    for call in _calls(turn):
        name, number = call.id, 1
        while name in taken:
            number += 1
            name = f"{call.id[:32]}_{number}"
        taken.add(name)
        fresh.append(name)
    names = iter(fresh)
    content = tuple(replace(piece, id=next(names)) if isinstance(piece, ToolUse) else piece for piece in turn.content)
    results = tuple(replace(result, id=name) for result, name in zip(answer.content, fresh, strict=True))
    return [replace(turn, content=content), replace(answer, content=results)]


def _calls(turn: ModelMessage) -> list[ToolUse]:
    return [piece for piece in turn.content if isinstance(piece, ToolUse)] if isinstance(turn, Assistant) else []
