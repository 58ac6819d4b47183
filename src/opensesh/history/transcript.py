"""A session as something to read: one pure function from its messages to turns and blocks.

What people want to read is kept: text, and tool calls with their key input and what went wrong. Reasoning, what tools
answered, text nobody typed, files and the marks of the machinery (snapshots, patches, steps, compactions) are left out
unless asked for. A record that lacks something, or is of a version to come, is read for what it does say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..errors import RecordError
from ..records import as_list, as_object, as_whole, read_failure
from ..storage.protocol import Damage
from . import todos
from .formatting import key_input, text, uncoloured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ..records import Document
    from ..storage.protocol import StoredMessage

    Children = Callable[[str], "Transcript | None"]
    Report = Callable[[Damage], None]

_CUT_OFF = "MessageOutputLengthError"
_MOST = 1e15


class TranscriptOptions(NamedTuple):
    """What else to show."""

    reasoning: bool = False
    outputs: bool = False
    """What tools answered."""
    synthetic: bool = False
    """Text that the program added to a prompt."""
    files: bool = False
    marks: bool = False
    """Snapshots, patches, steps, compactions, retries, and parts of unknown kinds, by name."""

    @classmethod
    def everything(cls) -> TranscriptOptions:
        """All there is."""
        return cls(*[True] * len(cls._fields))


class TextBlock(NamedTuple):
    """Words, in Markdown as a rule."""

    text: str
    synthetic: bool = False


class ReasoningBlock(NamedTuple):
    """What the model thought."""

    text: str


class ToolBlock(NamedTuple):
    """A tool call."""

    tool: str
    subject: str
    """The input that tells most: a path, a command, a pattern."""
    status: str
    """pending, running, completed or error."""
    input: Document
    error: str = ""
    output: str = ""
    """Empty unless asked for."""
    diff: str = ""
    """What it changed, as a unified diff, if it says so."""
    todos: str = ""
    """The list of things to do that it wrote, a line each with a mark for its state."""
    session: str = ""
    """The session of the subagent that it began."""
    child: Transcript | None = None
    """What the subagent did, if asked for."""


class FileBlock(NamedTuple):
    """A file that came with a prompt."""

    mime: str
    name: str
    url: str
    """Where it is; or all of it, as a ``data:`` URL."""


class SubtaskBlock(NamedTuple):
    """A task for a subagent that the user gave."""

    agent: str
    text: str


class MarkerBlock(NamedTuple):
    """Something of the machinery."""

    kind: str
    text: str = ""


Block: TypeAlias = TextBlock | ReasoningBlock | ToolBlock | FileBlock | SubtaskBlock | MarkerBlock


class TranscriptMessage(NamedTuple):
    """One message."""

    id: str
    role: str
    """user or assistant."""
    created: int
    agent: str
    model: str
    blocks: tuple[Block, ...]
    failure: str = ""
    """Why it ended, if it ended badly."""
    cost: float = 0.0
    tokens: int = 0


class Transcript(NamedTuple):
    """A whole session, or the last part of one."""

    session: str
    title: str
    messages: tuple[TranscriptMessage, ...]
    """Those in which there is something to read."""


def transcript(
    info: Document,
    messages: Iterable[StoredMessage],
    wanted: TranscriptOptions | None = None,
    *,
    children: Children | None = None,
    report: Report | None = None,
) -> Transcript:
    """What there is to read in a session's messages, in their order.

    ``children`` gives the transcript of a subagent's session; without it they are not shown. What a part is if nothing
    in it says so, nobody can read: that is told to ``report``.
    """
    return Transcript(
        text(info, "id"), text(info, "title"), tuple(transcript_messages(messages, wanted, children, report))
    )


def transcript_messages(
    messages: Iterable[StoredMessage],
    wanted: TranscriptOptions | None = None,
    children: Children | None = None,
    report: Report | None = None,
) -> Iterator[TranscriptMessage]:
    """The same, turn by turn as the messages are read."""
    reader = _Reader(wanted or TranscriptOptions(), children, report)
    for message in messages:
        turn = reader.turn(message)
        if turn.blocks or turn.failure:
            yield turn


class _Reader:
    def __init__(self, wanted: TranscriptOptions, children: Children | None, report: Report | None) -> None:
        self._wanted = wanted
        self._children = children
        self._report = report

    def turn(self, message: StoredMessage) -> TranscriptMessage:
        info = message.info
        answers = info.get("role") == "assistant"
        model = info if answers else as_object(info.get("model")) or {}
        return TranscriptMessage(
            id=text(info, "id"),
            role="assistant" if answers else "user",
            created=as_whole((as_object(info.get("time")) or {}).get("created")),
            agent=text(info, "agent") or text(info, "mode"),
            model="/".join(filter(None, (text(model, "providerID"), text(model, "modelID")))),
            blocks=tuple(block for part in message.parts for block in self._blocks(part)),
            failure=_failure(info),
            cost=_number(info.get("cost")),
            tokens=_tokens(as_object(info.get("tokens")) or {}),
        )

    def _blocks(self, part: Document) -> Iterator[Block]:
        wanted = self._wanted
        match part.get("type"):
            case "text" | "reasoning":
                yield from self._words(part)
            case "tool":
                yield self._call(part)
            case "file":
                if wanted.files:
                    yield FileBlock(text(part, "mime"), text(part, "filename"), text(part, "url"))
            case "subtask":
                yield SubtaskBlock(text(part, "agent"), text(part, "description") or text(part, "prompt"))
            case str(kind):
                if wanted.marks:
                    yield _mark(kind, part)
            case _:
                self._tell(part, "$.type: expected text")

    def _words(self, part: Document) -> Iterator[TextBlock | ReasoningBlock]:
        words, synthetic = part.get("text"), bool(part.get("synthetic") or part.get("ignored"))
        if not isinstance(words, str):
            self._tell(part, "$.text: expected text")
        elif not words.strip():
            return
        elif part.get("type") == "reasoning":
            if self._wanted.reasoning:
                yield ReasoningBlock(words)
        elif self._wanted.synthetic or not synthetic:
            yield TextBlock(words, synthetic)

    def _call(self, part: Document) -> ToolBlock:
        state = as_object(part.get("state")) or {}
        metadata = as_object(state.get("metadata")) or {}
        given = as_object(state.get("input")) or {}
        listed = part.get("tool") == todos.TOOL
        session = text(metadata, "sessionId") or text(metadata, "sessionID")
        return ToolBlock(
            tool=text(part, "tool"),
            subject=todos.progress(given) if listed else key_input(state),
            status=text(state, "status"),
            input=given,
            error=uncoloured(text(state, "error")),
            output=uncoloured(text(state, "output")) if self._wanted.outputs else "",
            diff=text(metadata, "diff"),
            todos="\n".join(todos.marked(given)) if listed else "",
            session=session,
            child=self._children(session) if self._children and session else None,
        )

    def _tell(self, part: Document, reason: str) -> None:
        if self._report is not None:
            self._report(Damage(str(part.get("id")), reason))


def _failure(info: Document) -> str:
    held = as_object(info.get("error"))
    if held is None:
        return ""
    if held.get("name") == _CUT_OFF:
        return "the answer was cut off"
    try:
        message = getattr(read_failure(held), "message", "")
    except RecordError:
        message = ""
    return message or text(held, "name") or "an error that cannot be read"


def _mark(kind: str, part: Document) -> MarkerBlock:
    match kind:
        case "patch":
            return MarkerBlock(kind, ", ".join(map(str, as_list(part.get("files")) or ())))
        case "agent":
            return MarkerBlock(kind, text(part, "name"))
        case "compaction":
            return MarkerBlock(kind, "automatic" if part.get("auto") else "asked for")
        case "retry":
            return MarkerBlock(kind, f"attempt {part.get('attempt')}")
        case _:
            return MarkerBlock(kind)


def _tokens(held: Document) -> int:
    cache = as_object(held.get("cache")) or {}
    counts = (*(held.get(name) for name in ("input", "output", "reasoning")), cache.get("read"), cache.get("write"))
    return sum(map(as_whole, counts))


def _number(value: Any) -> float:
    """An amount that a record holds; 0 for what is none."""
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _MOST
    return float(value) if known else 0.0
