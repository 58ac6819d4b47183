"""The twelve types of message parts, and the four states of a tool call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from msgspec import field

from ..errors import RecordError
from .usage import ModelRef, Tokens
from .view import Count, Dollars, Milliseconds, Record, View, view

if TYPE_CHECKING:
    from .codec import Document


class Span(View, frozen=True, kw_only=True):
    """Start and end, in milliseconds since 1970."""

    start: Milliseconds = 0
    end: Milliseconds | None = None
    compacted: Milliseconds | None = None
    """When the output was pruned from requests; the output itself stays stored."""


class Created(View, frozen=True, kw_only=True):
    """A creation time, in milliseconds since 1970."""

    created: Milliseconds = 0


class BasePart(Record, frozen=True, kw_only=True):
    """The fields of every part."""

    id: str
    session_id: str = ""
    message_id: str = ""


class TextPart(BasePart, frozen=True, kw_only=True):
    """Text of the user or the model."""

    type: Literal["text"] = "text"
    text: str = ""
    synthetic: bool | None = None
    """Added by the program: sent to the model, not written by the user."""
    ignored: bool | None = None
    """Shown, never sent to the model."""
    time: Span | None = None
    metadata: dict[str, Any] | None = None


class SubtaskPart(BasePart, frozen=True, kw_only=True):
    """A task for a subagent, requested by the user."""

    type: Literal["subtask"] = "subtask"
    prompt: str = ""
    description: str = ""
    agent: str = ""
    model: ModelRef | None = None
    command: str | None = None


class ReasoningPart(BasePart, frozen=True, kw_only=True):
    """The model's reasoning."""

    type: Literal["reasoning"] = "reasoning"
    text: str = ""
    metadata: dict[str, Any] | None = None
    """Signatures and other data of the provider."""
    time: Span = Span()


class SourceText(View, frozen=True, kw_only=True):
    """The mention in the prompt that a file or agent came from; offsets are characters."""

    value: str = ""
    start: Count = 0
    end: Count = 0


class FileSource(View, frozen=True, kw_only=True):
    """A file, a symbol in one, or an MCP resource; ``type`` tells which fields are set."""

    text: SourceText = SourceText()
    type: str = "file"
    path: str | None = None
    range: dict[str, Any] | None = None
    name: str | None = None
    kind: Count | None = None
    client_name: str | None = None
    uri: str | None = None


class FilePart(BasePart, frozen=True, kw_only=True):
    """An attachment."""

    type: Literal["file"] = "file"
    mime: str = ""
    filename: str | None = None
    url: str = ""
    """``data:``, ``file:`` or anything else a client sent."""
    source: FileSource | None = None


class Pending(View, frozen=True, kw_only=True, tag_field="status", tag="pending"):
    """The model is still streaming the call."""

    input: dict[str, Any] = {}
    raw: str = ""


class Running(View, frozen=True, kw_only=True, tag_field="status", tag="running"):
    """The tool is running."""

    input: dict[str, Any] = {}
    title: str | None = None
    metadata: dict[str, Any] | None = None
    time: Span = Span()


class Completed(View, frozen=True, kw_only=True, tag_field="status", tag="completed"):
    """The tool succeeded."""

    input: dict[str, Any] = {}
    output: str = ""
    title: str = ""
    metadata: dict[str, Any] = {}
    time: Span = Span()
    attachments: tuple[dict[str, Any], ...] | None = None


class Failed(View, frozen=True, kw_only=True, tag_field="status", tag="error"):
    """The tool failed."""

    input: dict[str, Any] = {}
    error: str = ""
    metadata: dict[str, Any] | None = None
    time: Span = Span()


EXTENSION_KEY = "opensesh"
"""The field of a record, or of a tool call's metadata, for data that OpenCode does not store."""

ToolState: TypeAlias = Pending | Running | Completed | Failed


class ToolPart(BasePart, frozen=True, kw_only=True):
    """A tool call and its state."""

    type: Literal["tool"] = "tool"
    call_id: str = ""
    tool: str = ""
    state: ToolState
    metadata: dict[str, Any] | None = None


class StepStartPart(BasePart, frozen=True, kw_only=True):
    """The start of a model call, with a snapshot of the files before it."""

    type: Literal["step-start"] = "step-start"
    snapshot: str | None = None


class StepFinishPart(BasePart, frozen=True, kw_only=True):
    """The end of a model call, with the finish reason, tokens and cost."""

    type: Literal["step-finish"] = "step-finish"
    reason: str = ""
    snapshot: str | None = None
    cost: Dollars = 0.0
    tokens: Tokens = Tokens()


class SnapshotPart(BasePart, frozen=True, kw_only=True):
    """A snapshot; only in older sessions."""

    type: Literal["snapshot"] = "snapshot"
    snapshot: str = ""


class PatchPart(BasePart, frozen=True, kw_only=True):
    """The absolute paths of the files that a step changed since the snapshot ``hash``."""

    type: Literal["patch"] = "patch"
    hash: str = ""
    files: tuple[str, ...] = ()


class AgentPart(BasePart, frozen=True, kw_only=True):
    """An agent that the user mentioned."""

    type: Literal["agent"] = "agent"
    name: str = ""
    source: SourceText | None = None


class RetryPart(BasePart, frozen=True, kw_only=True):
    """A failed model call that was retried."""

    type: Literal["retry"] = "retry"
    attempt: Count = 0
    error: dict[str, Any] = {}
    time: Created = Created()


class CompactionPart(BasePart, frozen=True, kw_only=True):
    """A request for a compaction."""

    type: Literal["compaction"] = "compaction"
    auto: bool = False
    overflow: bool | None = None
    tail_start_id: str | None = field(default=None, name="tail_start_id")
    """The first of the earlier messages that stay visible (OpenCode 1.2 and later)."""


class OtherPart(BasePart, frozen=True, kw_only=True):
    """A part of an unknown type; kept as it is and shown by its type."""

    type: str


Part: TypeAlias = (
    TextPart
    | SubtaskPart
    | ReasoningPart
    | FilePart
    | ToolPart
    | StepStartPart
    | StepFinishPart
    | SnapshotPart
    | PatchPart
    | AgentPart
    | RetryPart
    | CompactionPart
    | OtherPart
)

PART_TYPES: dict[str, type[BasePart]] = {
    "text": TextPart,
    "subtask": SubtaskPart,
    "reasoning": ReasoningPart,
    "file": FilePart,
    "tool": ToolPart,
    "step-start": StepStartPart,
    "step-finish": StepFinishPart,
    "snapshot": SnapshotPart,
    "patch": PatchPart,
    "agent": AgentPart,
    "retry": RetryPart,
    "compaction": CompactionPart,
}


def read_part(document: Document, path: str = "") -> Part:
    """Return a typed view of a stored part."""
    kind = document.get("type")
    if not isinstance(kind, str):
        raise RecordError("a part without a type", path=path, place="$.type")
    return cast("Part", view(document, PART_TYPES.get(kind, OtherPart), path))
