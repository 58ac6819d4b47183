"""The shapes that OpenCode demands of what it reads from its database.

Since 1.15 its server checks every answer: one session of another shape and no session can be listed any more, one
message or part and its session cannot be shown. So every record is checked here before it is written. A field that is
marked as optional may be missing but not ``null``; fields that are not named here are kept and do not matter.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from ...errors import RecordError
from ...records.view import js_name

Milliseconds = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=0)]
SessionID = Annotated[str, Meta(pattern="^ses")]
MessageID = Annotated[str, Meta(pattern="^msg")]
PartID = Annotated[str, Meta(pattern="^prt")]
Directory = Annotated[str, Meta(pattern=r"^($|/|[A-Za-z]:[\\/]|\\\\)")]
Text = str | UnsetType
Object = dict[str, Any]


class _Shape(Struct, kw_only=True, rename=js_name):
    """An object of which only these fields matter."""


class _CacheShape(_Shape, kw_only=True):
    read: float
    write: float


class _TokensShape(_Shape, kw_only=True):
    total: float | UnsetType = UNSET
    input: float
    output: float
    reasoning: float
    cache: _CacheShape


class _Diff(_Shape, kw_only=True):
    file: Text = UNSET
    patch: Text = UNSET
    additions: float
    deletions: float
    status: Literal["added", "deleted", "modified"] | UnsetType = UNSET


class _SessionSummary(_Shape, kw_only=True):
    additions: int
    deletions: int
    files: int
    diffs: list[_Diff] | UnsetType = UNSET


class _SessionTime(_Shape, kw_only=True):
    created: Milliseconds
    updated: Milliseconds
    compacting: Milliseconds | UnsetType = UNSET
    archived: int | UnsetType = UNSET


class _Link(_Shape, kw_only=True):
    url: str


class _SessionModel(_Shape, kw_only=True):
    id: str
    provider_id: str
    variant: Text = UNSET


class _Rule(_Shape, kw_only=True):
    permission: str
    pattern: str
    action: Literal["allow", "deny", "ask"]


class _Revert(_Shape, kw_only=True):
    message_id: MessageID
    part_id: PartID | UnsetType = UNSET
    snapshot: Text = UNSET
    diff: Text = UNSET


class _Session(_Shape, kw_only=True):
    id: SessionID
    slug: str
    project_id: Annotated[str, Meta(min_length=1)]
    workspace_id: Annotated[str, Meta(pattern="^wrk")] | UnsetType = UNSET
    directory: Directory
    path: Text = UNSET
    parent_id: SessionID | UnsetType = UNSET
    summary: _SessionSummary | UnsetType = UNSET
    cost: float | UnsetType = UNSET
    tokens: _TokensShape | UnsetType = UNSET
    share: _Link | UnsetType = UNSET
    title: str
    agent: Text = UNSET
    model: _SessionModel | UnsetType = UNSET
    version: str
    metadata: Object | UnsetType = UNSET
    time: _SessionTime
    permission: list[_Rule] | UnsetType = UNSET
    revert: _Revert | UnsetType = UNSET


class _TurnSummary(_Shape, kw_only=True):
    title: Text = UNSET
    body: Text = UNSET
    diffs: list[_Diff]


class _ModelShape(_Shape, kw_only=True):
    provider_id: str
    model_id: str
    variant: Text = UNSET


class _Created(_Shape, kw_only=True):
    created: Milliseconds


class _AnswerTime(_Shape, kw_only=True):
    created: Milliseconds
    completed: Milliseconds | UnsetType = UNSET


class _User(_Shape, kw_only=True, tag_field="role", tag="user"):
    id: MessageID
    session_id: SessionID
    time: _Created
    summary: _TurnSummary | UnsetType = UNSET
    agent: str
    model: _ModelShape
    system: Text = UNSET
    tools: dict[str, bool] | UnsetType = UNSET


class _Message(_Shape, kw_only=True):
    message: str


class _AuthData(_Shape, kw_only=True):
    provider_id: str
    message: str


class _UnknownData(_Shape, kw_only=True):
    message: str
    ref: Text = UNSET


class _StructuredData(_Shape, kw_only=True):
    message: str
    retries: Count


class _OverflowData(_Shape, kw_only=True):
    message: str
    response_body: Text = UNSET


class _APIData(_Shape, kw_only=True):
    message: str
    status_code: Count | UnsetType = UNSET
    is_retryable: bool
    response_headers: dict[str, str] | UnsetType = UNSET
    response_body: Text = UNSET
    metadata: dict[str, str] | UnsetType = UNSET


class _Auth(_Shape, kw_only=True, tag_field="name", tag="ProviderAuthError"):
    data: _AuthData


class _Unknown(_Shape, kw_only=True, tag_field="name", tag="UnknownError"):
    data: _UnknownData


class _Length(_Shape, kw_only=True, tag_field="name", tag="MessageOutputLengthError"):
    data: Object


class _Aborted(_Shape, kw_only=True, tag_field="name", tag="MessageAbortedError"):
    data: _Message


class _Structured(_Shape, kw_only=True, tag_field="name", tag="StructuredOutputError"):
    data: _StructuredData


class _Overflow(_Shape, kw_only=True, tag_field="name", tag="ContextOverflowError"):
    data: _OverflowData


class _Filtered(_Shape, kw_only=True, tag_field="name", tag="ContentFilterError"):
    data: _Message


class _API(_Shape, kw_only=True, tag_field="name", tag="APIError"):
    data: _APIData


ERROR_SHAPES = _Auth | _Unknown | _Length | _Aborted | _Structured | _Overflow | _Filtered | _API
ERROR_NAMES = frozenset(
    str(kind.__struct_config__.tag)
    for kind in (_Auth, _Unknown, _Length, _Aborted, _Structured, _Overflow, _Filtered, _API)
)
"""The errors that OpenCode knows. An answer with another one cannot be shown."""


class _Path(_Shape, kw_only=True):
    cwd: str
    root: str


class _Assistant(_Shape, kw_only=True, tag_field="role", tag="assistant"):
    id: MessageID
    session_id: SessionID
    time: _AnswerTime
    error: ERROR_SHAPES | UnsetType = UNSET
    parent_id: MessageID
    model_id: str
    provider_id: str
    mode: str
    agent: str
    path: _Path
    summary: bool | UnsetType = UNSET
    cost: float
    tokens: _TokensShape
    variant: Text = UNSET
    finish: Text = UNSET


class _SpanShape(_Shape, kw_only=True):
    start: Milliseconds
    end: Milliseconds | UnsetType = UNSET


class _ClosedSpan(_Shape, kw_only=True):
    start: Milliseconds
    end: Milliseconds
    compacted: Milliseconds | UnsetType = UNSET


class _Start(_Shape, kw_only=True):
    start: Milliseconds


class _Part(_Shape, kw_only=True, tag_field="type"):
    id: PartID
    session_id: SessionID
    message_id: MessageID


class _TextShape(_Part, kw_only=True, tag="text"):
    text: str
    synthetic: bool | UnsetType = UNSET
    ignored: bool | UnsetType = UNSET
    time: _SpanShape | UnsetType = UNSET
    metadata: Object | UnsetType = UNSET


class _Subtask(_Part, kw_only=True, tag="subtask"):
    prompt: str
    description: str
    agent: str
    model: _ModelShape | UnsetType = UNSET
    command: Text = UNSET


class _Reasoning(_Part, kw_only=True, tag="reasoning"):
    text: str
    metadata: Object | UnsetType = UNSET
    time: _SpanShape


class _Mention(_Shape, kw_only=True):
    value: str
    start: float
    end: float


class _FileSource(_Shape, kw_only=True, tag_field="type", tag="file"):
    text: _Mention
    path: str


class _Position(_Shape, kw_only=True):
    line: Count
    character: Count


class _Range(_Shape, kw_only=True):
    start: _Position
    end: _Position


class _SymbolSource(_Shape, kw_only=True, tag_field="type", tag="symbol"):
    text: _Mention
    path: str
    range: _Range
    name: str
    kind: Count


class _ResourceSource(_Shape, kw_only=True, tag_field="type", tag="resource"):
    text: _Mention
    client_name: str
    uri: str


class _File(_Part, kw_only=True, tag="file"):
    mime: str
    filename: Text = UNSET
    url: str
    source: _FileSource | _SymbolSource | _ResourceSource | UnsetType = UNSET


class _Pending(_Shape, kw_only=True, tag_field="status", tag="pending"):
    input: Object
    raw: str


class _Running(_Shape, kw_only=True, tag_field="status", tag="running"):
    input: Object
    title: Text = UNSET
    metadata: Object | UnsetType = UNSET
    time: _Start


class _Completed(_Shape, kw_only=True, tag_field="status", tag="completed"):
    input: Object
    output: str
    title: str
    metadata: Object
    time: _ClosedSpan
    attachments: list[_File] | UnsetType = UNSET


class _Failed(_Shape, kw_only=True, tag_field="status", tag="error"):
    input: Object
    error: str
    metadata: Object | UnsetType = UNSET
    time: _ClosedSpan


class _Tool(_Part, kw_only=True, tag="tool"):
    call_id: str
    tool: str
    state: _Pending | _Running | _Completed | _Failed
    metadata: Object | UnsetType = UNSET


class _StepStart(_Part, kw_only=True, tag="step-start"):
    snapshot: Text = UNSET


class _StepFinish(_Part, kw_only=True, tag="step-finish"):
    reason: str
    snapshot: Text = UNSET
    cost: float
    tokens: _TokensShape


class _Snapshot(_Part, kw_only=True, tag="snapshot"):
    snapshot: str


class _Patch(_Part, kw_only=True, tag="patch"):
    hash: str
    files: list[str]


class _AgentSource(_Shape, kw_only=True):
    value: str
    start: Count
    end: Count


class _Agent(_Part, kw_only=True, tag="agent"):
    name: str
    source: _AgentSource | UnsetType = UNSET


class _Retry(_Part, kw_only=True, tag="retry"):
    attempt: Count
    error: _API
    time: _Created


class _CompactionShape(_Part, kw_only=True, tag="compaction"):
    auto: bool
    overflow: bool | UnsetType = UNSET
    tail_start_id: MessageID | UnsetType = msgspec.field(default=UNSET, name="tail_start_id")


class _Todo(_Shape, kw_only=True):
    content: str
    status: str
    priority: str


class _Share(_Shape, kw_only=True):
    id: str
    secret: str
    url: str


class _ProjectTime(_Shape, kw_only=True):
    created: Milliseconds
    updated: Milliseconds | UnsetType = UNSET
    initialized: Milliseconds | UnsetType = UNSET


class _Icon(_Shape, kw_only=True):
    url: Text = UNSET
    override: Text = UNSET
    color: Text = UNSET


class _Project(_Shape, kw_only=True):
    id: Annotated[str, Meta(min_length=1)]
    worktree: Directory
    vcs: Text = UNSET
    name: Text = UNSET
    icon: _Icon | UnsetType = UNSET
    commands: Object | UnsetType = UNSET
    sandboxes: list[str]
    time: _ProjectTime


_SHAPES: dict[str, Any] = {
    "project": _Project,
    "session": _Session,
    "message": _User | _Assistant,
    "part": _TextShape
    | _Subtask
    | _Reasoning
    | _File
    | _Tool
    | _StepStart
    | _StepFinish
    | _Snapshot
    | _Patch
    | _Agent
    | _Retry
    | _CompactionShape,
    "todo": list[_Todo],
    "session_share": _Share,
}


def validate(kind: str, record: object, path: str) -> None:
    """Raise :class:`RecordError` unless OpenCode can read the record."""
    try:
        msgspec.convert(record, _SHAPES[kind])
    except msgspec.ValidationError as error:
        reason, _, field = str(error).replace("`", "").partition(" - at ")
        raise RecordError(f"OpenCode could not read this {kind}: {reason}", path=path, place=field or "$") from None
    except UnicodeEncodeError:
        raise RecordError(f"OpenCode could not read this {kind}: a lone surrogate in a name", path=path) from None


def is_readable_error(error: object) -> bool:
    """Return whether OpenCode can read the error of an answer."""
    try:
        msgspec.convert(cast("Any", error), ERROR_SHAPES)
    except (msgspec.ValidationError, UnicodeEncodeError):
        return False
    return True
