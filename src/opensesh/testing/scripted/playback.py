"""Turning turns of a script into events, pauses and errors, and reading what a script needs from a request."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from msgspec import structs

from ...errors import ModelConnectionError, ModelError
from ...models import failures
from ...models.model import Model
from ...models.openai_chat_request import chat_messages
from ...models.request import (
    File,
    Reasoning,
    System,
    Text,
    ToolUse,
    ToolUseResult,
)
from ...models.stream_events import (
    FinishReason,
    FinishStep,
    Metadata,
    StartStep,
    StreamEvent,
    TextDelta,
    TextEnd,
    TextKind,
    TextStart,
    ToolInputDelta,
    ToolInputStart,
    Usage,
)
from ...models.wire_helpers import encode_json, tool_call
from .steps import (
    CallTool,
    Drip,
    Fail,
    FinishWith,
    Hang,
    Meta,
    ReportUsage,
    Say,
    ScriptStep,
    Split,
    Think,
    Title,
    Wait,
    prompt_usage,
)

if TYPE_CHECKING:
    from ...models.request import ModelMessage, Request
    from .language import ScriptTurn
    from .steps import FailureKind

Action: TypeAlias = StreamEvent | Wait | Hang | Fail

_PLAIN_MODEL = Model(id="", provider_id="")
_CONNECTION_FAILURES: dict[FailureKind, str] = {
    "reset": "The connection was reset",
    "malformed": "The stream contained something other than a JSON object",
    "torn": "The stream ended in the middle of a character",
}


class ErrorResponse(NamedTuple):
    """The response of a provider to a call that fails."""

    status: int
    type: str
    code: str | int
    message: str
    headers: dict[str, str]

    @property
    def body(self) -> dict[str, Any]:
        """The body in OpenAI's format."""
        return {"error": {"message": self.message, "type": self.type, "code": self.code}}


_ERROR_RESPONSES: dict[FailureKind, tuple[int, str, str, str]] = {
    "auth": (401, "authentication_error", "invalid_api_key", "The key was not accepted"),
    "overflow": (
        400,
        "invalid_request_error",
        "context_length_exceeded",
        "The prompt is too long: the maximum context length is 200000 tokens",
    ),
    "rate-limit": (429, "rate_limit_error", "rate_limit_exceeded", "Too many requests"),
    "overloaded": (529, "overloaded_error", "overloaded_error", "Overloaded"),
    "content-filter": (400, "invalid_request_error", "content_filter", "The content filter withheld the answer"),
}


def error_response(fail: Fail, now: float) -> ErrorResponse | None:
    """Return the response for a failure, or ``None`` for a failure of the connection."""
    if fail.kind in _CONNECTION_FAILURES:
        return None
    headers: dict[str, str] = {}
    if fail.after is not None and fail.form == "date":
        from email.utils import formatdate  # loads the email package, which few scripts need

        headers = {"retry-after": formatdate(now + fail.after, usegmt=True)}
    elif fail.after is not None:
        name, factor = ("retry-after-ms", 1000) if fail.form == "ms" else ("retry-after", 1)
        headers = {name: f"{fail.after * factor:g}"}
    if fail.kind == "status":
        # In recorded sessions every status has this type, and the error's body is stored with them.
        status = fail.status or 500
        return ErrorResponse(status, "rate_limit_error", status, fail.message or "scripted failure", headers)
    status, kind, code, message = _ERROR_RESPONSES[fail.kind]
    return ErrorResponse(fail.status or status, kind, code, fail.message or message, headers)


def model_error(fail: Fail, now: float, *, begun: bool) -> ModelError:
    """Return the error that an adapter raises for ``fail``, before or after the answer began."""
    response = error_response(fail, now)
    if response is None:
        return ModelConnectionError(fail.message or _CONNECTION_FAILURES[fail.kind], url="scripted:")
    if begun:
        return failures.from_stream_error(response.body, url="scripted:")
    return failures.from_response(response.status, response.headers, json.dumps(response.body), "scripted:")


def actions_of(turn: ScriptTurn, usage: Usage, id_prefix: str) -> list[Action]:
    """Return the actions of ``turn``. Ids of calls begin with ``call_`` and ``id_prefix``."""
    builder = _ActionBuilder(usage, id_prefix)
    for step, following in pairwise((*turn.steps, None)):
        builder.add(step, following.data if isinstance(following, Meta) else None)
    if not isinstance(turn.steps[-1], Fail | Hang):
        builder.begin(None)
        reason = builder.reason or ("tool-calls" if builder.calls else "stop")
        builder.actions.append(FinishStep(reason, builder.usage))
    return builder.actions


class _ActionBuilder:
    """Collects the actions of a turn, step by step."""

    def __init__(self, usage: Usage, id_prefix: str) -> None:
        self.actions: list[Action] = []
        self.usage = usage
        self.reason: FinishReason | None = None
        self.calls = 0
        self._id_prefix = id_prefix
        self._texts = 0
        self._is_begun = False
        self._text_end: TextEnd | None = None
        """What will end the open text or reasoning."""
        self._size: int | str | None = None
        self._drip_seconds = 0.0

    def add(self, step: ScriptStep | None, metadata: Metadata | None) -> None:
        """Add a step, with the metadata of the text, reasoning or call that it is."""
        match step:
            case Say() | Title() | Think():
                self._add_text("reasoning" if isinstance(step, Think) else "text", step.text, metadata)
            case CallTool():
                self._add_call(step, metadata)
            case Split():
                self._size = step.size
            case Drip():
                self._drip_seconds = step.seconds
            case ReportUsage():
                self.usage = step.usage
            case FinishWith():
                self.reason = step.reason
            case Wait() | Hang() | Fail():
                self.actions.append(step)
            case _:
                pass

    def begin(self, kind: TextKind | None) -> None:
        """End what is open, unless it is text of this kind; ``None`` begins something other than text."""
        if not self._is_begun:
            self._is_begun = True
            self.actions.append(StartStep())
        if self._text_end is not None and self._text_end.kind != kind:
            self.actions.append(self._text_end)
            self._text_end = None

    def _add_text(self, kind: TextKind, text: str, metadata: Metadata | None) -> None:
        self.begin(kind)
        if self._text_end is None:
            self._text_end = TextEnd(f"{kind}-{self._texts}", None, kind)
            self._texts += 1
            self.actions.append(TextStart(self._text_end.id, None, kind))
        for chunk in _chunks(text, self._size):
            if self._drip_seconds:
                self.actions.append(Wait(self._drip_seconds))
            self.actions.append(TextDelta(self._text_end.id, chunk, kind))
        if metadata is not None:
            self.actions.append(TextEnd(self._text_end.id, metadata, kind))
            self._text_end = None

    def _add_call(self, step: CallTool, metadata: Metadata | None) -> None:
        self.begin(None)
        call_id = step.id or f"call_{self._id_prefix}_{self.calls}"
        self.calls += 1
        self.actions.append(ToolInputStart(call_id, step.name))
        chunks = step.fragments or _chunks(step.arguments, self._size if isinstance(self._size, int) else None)
        for chunk in chunks:
            if self._drip_seconds:
                self.actions.append(Wait(self._drip_seconds))
            if chunk:
                self.actions.append(ToolInputDelta(call_id, chunk))
        self.actions.append(tool_call(call_id, step.name, "".join(chunks), metadata))


def _chunks(text: str, size: int | str | None) -> list[str]:
    if size is None:
        return [text]
    if isinstance(size, str):
        return re.findall(r"\S+\s*|\s+", text)
    return [text[start : start + size] for start in range(0, len(text), size)]


def is_title(request: Request) -> bool:
    """Return whether ``request`` asks for a title: no tools, and a system prompt that begins with "title"."""
    if request.tools:
        return False
    opening = next((message.text for message in request.messages if isinstance(message, System)), "")
    return "title" in opening[:200].lower()


def chat_usage(request: Request) -> Usage:
    """Return usage by the size of the request: a token is four characters of its messages in OpenAI's chat format."""
    return prompt_usage(len(json.dumps(chat_messages(structs.replace(request, model=_PLAIN_MODEL)))) // 4)


def request_tail(request: Request) -> str:
    """Return the end of the last three messages, for error messages."""
    shown = [f"  [{role_of(message)}] {text_of(message)[-400:]}" for message in request.messages[-3:]]
    return "\n".join(shown) or "  (no messages)"


def role_of(message: ModelMessage) -> str:
    """Return the role of a message: ``system``, ``user``, ``assistant`` or ``tool``."""
    return str(message.__struct_config__.tag)


def text_of(message: ModelMessage) -> str:
    """Return everything in a message as text."""
    if isinstance(message, System):
        return message.text
    return "\n".join(map(_part_text, message.content))


def _part_text(part: Text | File | Reasoning | ToolUse | ToolUseResult) -> str:
    match part:
        case Text() | Reasoning():
            return part.text
        case File():
            return f"({part.mime} {part.filename or ''})"
        case ToolUse():
            return f"{part.name} {encode_json(part.input).decode()}"
        case ToolUseResult():
            return "\n".join(map(_part_text, part.output))
