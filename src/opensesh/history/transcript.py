"""A session as something to read: one pure function from its messages to turns and blocks.

What people want to read is kept: text, and tool calls with their key input and what went wrong. Reasoning, what tools
answered, text nobody typed, files and the marks of the machinery (snapshots, patches, steps, compactions) are left out
unless asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..errors import RecordError
from ..records import (
    AgentPart,
    AssistantMessage,
    CompactionPart,
    Completed,
    Failed,
    FilePart,
    Message,
    MessageOutputLengthError,
    Part,
    PatchPart,
    ReasoningPart,
    RetryPart,
    SubtaskPart,
    TextPart,
    ToolPart,
    as_object,
    read_message,
    read_part,
)
from . import todos
from .formats.wording import key_input

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ..records import Document
    from ..storage.store import Damage, StoredMessage

    Children = Callable[[str], "Transcript | None"]


class Wanted(NamedTuple):
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
    def everything(cls) -> Wanted:
        """All there is."""
        return cls(*[True] * len(cls._fields))


class Said(NamedTuple):
    """Words, in Markdown as a rule."""

    text: str
    synthetic: bool = False


class Thought(NamedTuple):
    """What the model thought."""

    text: str


class Call(NamedTuple):
    """A tool call."""

    tool: str
    subject: str
    """The input that tells most: a path, a command, a pattern."""
    status: str
    """pending, running, completed or error."""
    error: str = ""
    output: str = ""
    """Empty unless asked for."""
    diff: str = ""
    """What it changed, if it says so."""
    child: Transcript | None = None
    """What the subagent did, if asked for."""
    todos: str = ""
    """The list of things to do that it wrote, a line each with a mark for its state."""


class Attached(NamedTuple):
    """A file that came with a prompt."""

    mime: str
    name: str


class Asked(NamedTuple):
    """A task for a subagent that the user gave."""

    agent: str
    text: str


class Marked(NamedTuple):
    """Something of the machinery."""

    kind: str
    text: str = ""


Block: TypeAlias = Said | Thought | Call | Attached | Asked | Marked


class Turn(NamedTuple):
    """One message."""

    id: str
    role: str
    created: int
    agent: str
    model: str
    blocks: tuple[Block, ...]
    failure: str = ""
    """Why it ended, if it ended badly."""


class Transcript(NamedTuple):
    """A whole session, or the last part of one."""

    session: str
    title: str
    turns: tuple[Turn, ...]
    """Those in which there is something to read."""


def transcript(
    info: Document,
    messages: Iterable[StoredMessage],
    wanted: Wanted | None = None,
    *,
    children: Children | None = None,
    report: Callable[[Damage], None] | None = None,
) -> Transcript:
    """What there is to read in a session's messages, in their order.

    ``children`` gives the transcript of a subagent's session; without it they are not shown. A message or part that
    cannot be read costs itself alone, and is told to ``report``.
    """
    turns: list[Turn] = []
    read = _Reader(wanted or Wanted(), children, report)
    for message in messages:
        turn = read.turn(message)
        if turn is not None and (turn.blocks or turn.failure):
            turns.append(turn)
    return Transcript(_string(info.get("id")), _string(info.get("title")), tuple(turns))


class _Reader:
    def __init__(self, wanted: Wanted, children: Children | None, report: Callable[[Damage], None] | None) -> None:
        self._wanted = wanted
        self._children = children
        self._report = report

    def turn(self, message: StoredMessage) -> Turn | None:
        try:
            info = read_message(message.info)
        except RecordError as error:
            self._tell(message.info, error)
            return None
        blocks = tuple(block for part in self._parts(message.parts) for block in self._blocks(part))
        return _turn(info, blocks)

    def _parts(self, parts: Iterable[Document]) -> Iterator[Part]:
        for part in parts:
            try:
                yield read_part(part)
            except RecordError as error:
                self._tell(part, error)

    def _blocks(self, part: Part) -> Iterator[Block]:
        wanted = self._wanted
        match part:
            case TextPart(text=text, synthetic=synthetic):
                if text.strip() and (wanted.synthetic or not synthetic):
                    yield Said(text, bool(synthetic))
            case ReasoningPart(text=text):
                if text.strip() and wanted.reasoning:
                    yield Thought(text)
            case ToolPart():
                yield self._call(part)
            case FilePart(mime=mime, filename=name, url=url):
                if wanted.files:
                    yield Attached(mime, name or url[:60])
            case SubtaskPart(agent=agent):
                yield Asked(agent, part.description or part.prompt)
            case _:
                if wanted.marks:
                    yield _mark(part)

    def _call(self, part: ToolPart) -> Call:
        state = part.state
        document = as_object(part.document.get("state")) or {}
        metadata = as_object(document.get("metadata")) or {}
        listed = part.tool == todos.TOOL
        return Call(
            tool=part.tool,
            subject=todos.progress(state.input) if listed else key_input(document),
            todos="\n".join(todos.marked(state.input)) if listed else "",
            status=str(document.get("status")),
            error=state.error if isinstance(state, Failed) else "",
            output=state.output if isinstance(state, Completed) and self._wanted.outputs else "",
            diff=_string(metadata.get("diff")),
            child=self._child(metadata),
        )

    def _child(self, metadata: Document) -> Transcript | None:
        name = _string(metadata.get("sessionId")) or _string(metadata.get("sessionID"))
        return self._children(name) if self._children and name else None

    def _tell(self, document: Document, error: RecordError) -> None:
        if self._report is not None:
            from ..storage.store import Damage

            self._report(Damage(str(document.get("id")), f"{error.place}: {error.reason}"))


def _turn(info: Message, blocks: tuple[Block, ...]) -> Turn:
    if isinstance(info, AssistantMessage):
        model = f"{info.provider_id}/{info.model_id}".strip("/")
        return Turn(info.id, "assistant", info.time.created, info.agent_name, model, blocks, _failure(info))
    model = f"{info.model.provider_id}/{info.model.model_id}".strip("/") if info.model else ""
    return Turn(info.id, "user", info.time.created, info.agent or "", model, blocks)


def _failure(info: AssistantMessage) -> str:
    try:
        failure = info.failure
    except RecordError:
        return "an error nobody can read"
    if failure is None:
        return ""
    if isinstance(failure, MessageOutputLengthError):
        return "the answer was cut off"
    return failure.message or type(failure).__name__


def _mark(part: Part) -> Marked:
    match part:
        case PatchPart(files=files):
            return Marked("patch", ", ".join(files))
        case AgentPart(name=name):
            return Marked("agent", name)
        case CompactionPart(auto=auto):
            return Marked("compaction", "automatic" if auto else "asked for")
        case RetryPart(attempt=attempt):
            return Marked("retry", f"attempt {attempt}")
        case _:
            return Marked(part.type)


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""
