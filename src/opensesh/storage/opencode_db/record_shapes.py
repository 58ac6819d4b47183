"""The shapes that OpenCode demands of what it reads from its database.

Since 1.15 its server checks every answer: one session of another shape and no session can be listed any more, one
message or part and its session cannot be shown. So every record is checked here before it is written. An optional field
may be missing but not ``null``; fields that are not named here are kept and do not matter.
"""

from __future__ import annotations

from types import GenericAlias
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ...errors import RecordError
from ...records.codec import MAX_COUNT


def _shape(*tag: str, **fields: Any) -> Any:
    """Return the type of an object with these fields. ``tag`` are the field and the value that mark it in a union."""
    members = [(name, kind, UNSET) if UnsetType in get_args(kind) else (name, kind) for name, kind in fields.items()]
    tag_field, value = tag or (None, None)
    return msgspec.defstruct("Shape", members, kw_only=True, tag_field=tag_field, tag=value)


def _optional(kind: Any) -> Any:
    return kind | UnsetType


def _list_of(kind: Any) -> Any:
    return GenericAlias(list, (kind,))


# Numbers beyond those that JavaScript counts exactly are no integers for OpenCode.
Count: Any = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
Integer: Any = Annotated[int, Meta(ge=-MAX_COUNT, le=MAX_COUNT)]
Milliseconds = Count
Name: Any = Annotated[str, Meta(min_length=1)]
SessionID: Any = Annotated[str, Meta(pattern="^ses")]
MessageID: Any = Annotated[str, Meta(pattern="^msg")]
PartID: Any = Annotated[str, Meta(pattern="^prt")]
Directory: Any = Annotated[str, Meta(pattern=r"^($|/|[A-Za-z]:[\\/]|\\\\)")]
Object: Any = dict[str, Any]
Text = _optional(str)
Flag = _optional(bool)
Metadata = _optional(Object)

# -- projects and sessions ---------------------------------------------------------------------------------------------

_PROJECT = _shape(
    id=Name,
    worktree=Directory,
    vcs=Text,
    name=Text,
    icon=_optional(_shape(url=Text, override=Text, color=Text)),
    commands=Metadata,
    sandboxes=_list_of(str),
    time=_shape(created=Milliseconds, updated=_optional(Milliseconds), initialized=_optional(Milliseconds)),
)
_DIFFS = _list_of(
    _shape(
        file=Text,
        patch=Text,
        additions=float,
        deletions=float,
        status=_optional(Literal["added", "deleted", "modified"]),
    )
)
_TOKENS = _shape(
    total=_optional(float), input=float, output=float, reasoning=float, cache=_shape(read=float, write=float)
)
_RULES = _list_of(_shape(permission=str, pattern=str, action=Literal["allow", "deny", "ask"]))
_SESSION = _shape(
    id=SessionID,
    slug=str,
    projectID=Name,
    workspaceID=_optional(Annotated[str, Meta(pattern="^wrk")]),
    directory=Directory,
    path=Text,
    parentID=_optional(SessionID),
    summary=_optional(_shape(additions=Integer, deletions=Integer, files=Integer, diffs=_optional(_DIFFS))),
    cost=_optional(float),
    tokens=_optional(_TOKENS),
    share=_optional(_shape(url=str)),
    title=str,
    agent=Text,
    model=_optional(_shape(id=str, providerID=str, variant=Text)),
    version=str,
    metadata=Metadata,
    time=_shape(
        created=Milliseconds, updated=Milliseconds, compacting=_optional(Milliseconds), archived=_optional(Integer)
    ),
    permission=_optional(_RULES),
    revert=_optional(_shape(messageID=MessageID, partID=_optional(PartID), snapshot=Text, diff=Text)),
)

# -- messages ----------------------------------------------------------------------------------------------------------


def _error(name: str, data: Any) -> Any:
    return _shape("name", name, data=data)


_API_ERROR = _error(
    "APIError",
    _shape(
        message=str,
        statusCode=_optional(Count),
        isRetryable=bool,
        responseHeaders=_optional(dict[str, str]),
        responseBody=Text,
        metadata=_optional(dict[str, str]),
    ),
)
_ERROR = (
    _error("ProviderAuthError", _shape(providerID=str, message=str))
    | _error("UnknownError", _shape(message=str, ref=Text))
    | _error("MessageOutputLengthError", Object)
    | _error("MessageAbortedError", _shape(message=str))
    | _error("StructuredOutputError", _shape(message=str, retries=Count))
    | _error("ContextOverflowError", _shape(message=str, responseBody=Text))
    | _error("ContentFilterError", _shape(message=str))
    | _API_ERROR
)
"""The errors that OpenCode knows. An answer with another one cannot be shown."""
_MODEL = _shape(providerID=str, modelID=str, variant=Text)
_CREATED = _shape(created=Milliseconds)
_MESSAGE = _shape(
    "role",
    "user",
    id=MessageID,
    sessionID=SessionID,
    time=_CREATED,
    summary=_optional(_shape(title=Text, body=Text, diffs=_DIFFS)),
    agent=str,
    model=_MODEL,
    system=Text,
    tools=_optional(dict[str, bool]),
) | _shape(
    "role",
    "assistant",
    id=MessageID,
    sessionID=SessionID,
    time=_shape(created=Milliseconds, completed=_optional(Milliseconds)),
    error=_optional(_ERROR),
    parentID=MessageID,
    modelID=str,
    providerID=str,
    mode=str,
    agent=str,
    path=_shape(cwd=str, root=str),
    summary=Flag,
    cost=float,
    tokens=_TOKENS,
    variant=Text,
    finish=Text,
)

# -- parts -------------------------------------------------------------------------------------------------------------


def _part(kind: str, **fields: Any) -> Any:
    return _shape("type", kind, id=PartID, sessionID=SessionID, messageID=MessageID, **fields)


_SPAN = _shape(start=Milliseconds, end=_optional(Milliseconds))
_CLOSED_SPAN = _shape(start=Milliseconds, end=Milliseconds, compacted=_optional(Milliseconds))
_MENTION = _shape(value=str, start=float, end=float)
_POSITION = _shape(line=Count, character=Count)
_FILE_SOURCE = (
    _shape("type", "file", text=_MENTION, path=str)
    | _shape(
        "type", "symbol", text=_MENTION, path=str, range=_shape(start=_POSITION, end=_POSITION), name=str, kind=Count
    )
    | _shape("type", "resource", text=_MENTION, clientName=str, uri=str)
)
_FILE = _part("file", mime=str, filename=Text, url=str, source=_optional(_FILE_SOURCE))
_TOOL_STATE = (
    _shape("status", "pending", input=Object, raw=str)
    | _shape("status", "running", input=Object, title=Text, metadata=Metadata, time=_shape(start=Milliseconds))
    | _shape(
        "status",
        "completed",
        input=Object,
        output=str,
        title=str,
        metadata=Object,
        time=_CLOSED_SPAN,
        attachments=_optional(_list_of(_FILE)),
    )
    | _shape("status", "error", input=Object, error=str, metadata=Metadata, time=_CLOSED_SPAN)
)
_PART = (
    _FILE
    | _part("text", text=str, synthetic=Flag, ignored=Flag, time=_optional(_SPAN), metadata=Metadata)
    | _part("subtask", prompt=str, description=str, agent=str, model=_optional(_MODEL), command=Text)
    | _part("reasoning", text=str, metadata=Metadata, time=_SPAN)
    | _part("tool", callID=str, tool=str, state=_TOOL_STATE, metadata=Metadata)
    | _part("step-start", snapshot=Text)
    | _part("step-finish", reason=str, snapshot=Text, cost=float, tokens=_TOKENS)
    | _part("snapshot", snapshot=str)
    | _part("patch", hash=str, files=_list_of(str))
    | _part("agent", name=str, source=_optional(_shape(value=str, start=Count, end=Count)))
    | _part("retry", attempt=Count, error=_API_ERROR, time=_CREATED)
    | _part("compaction", auto=bool, overflow=Flag, tail_start_id=_optional(MessageID))
)

_SHAPES: dict[str, Any] = {
    "project": _PROJECT,
    "session": _SESSION,
    "message": _MESSAGE,
    "part": _PART,
    "todo": _list_of(_shape(content=str, status=str, priority=str)),
    "session_share": _shape(id=str, secret=str, url=str),
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
        msgspec.convert(error, _ERROR)
    except (msgspec.ValidationError, UnicodeEncodeError):
        return False
    return True
