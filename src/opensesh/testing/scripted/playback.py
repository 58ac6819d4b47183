"""From a turn of a script to what happens: events, pauses, and the error a failure stands for."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ...errors import ModelConnectionError, ModelError
from ...models import failures
from ...models.stream_events import (
    Finish,
    FinishReason,
    FinishStep,
    Metadata,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    Start,
    StartStep,
    StreamEvent,
    TextDelta,
    TextEnd,
    TextStart,
    ToolInputDelta,
    ToolInputEnd,
    ToolInputStart,
    Usage,
)
from ...models.wire_helpers import tool_call
from .steps import CallTool, Drip, Fail, FinishWith, Hang, Meta, ReportUsage, Say, ScriptStep, Split, Think, Title, Wait

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .language import ScriptTurn
    from .steps import FailureKind

Action: TypeAlias = StreamEvent | Wait | Hang | Fail

_BROKEN: dict[FailureKind, str] = {
    "reset": "The connection was reset",
    "malformed": "The stream held something that is no JSON object",
    "torn": "The stream ended in the middle of a character",
}


class ErrorResponse(NamedTuple):
    """A failure as a provider would put it into words."""

    status: int
    type: str
    code: str | int
    message: str
    headers: dict[str, str]

    @property
    def body(self) -> dict[str, Any]:
        """The error as OpenAI spells it."""
        return {"error": {"message": self.message, "type": self.type, "code": self.code}}


_REFUSALS: dict[FailureKind, tuple[int, str, str, str]] = {
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
    """What the provider says, for failures that it puts into words; ``None`` for those of the wire."""
    if fail.kind in _BROKEN:
        return None
    headers = _retry_headers(fail, now)
    if fail.kind == "status":
        # Every status has this type in recorded sessions, and the error's body is stored with them.
        status = fail.status or 500
        return ErrorResponse(status, "rate_limit_error", status, fail.message or "scripted failure", headers)
    status, kind, code, message = _REFUSALS[fail.kind]
    return ErrorResponse(fail.status or status, kind, code, fail.message or message, headers)


def model_error(fail: Fail, now: float, *, begun: bool) -> ModelError:
    """The error an adapter raises for ``fail``, before the answer began or in the middle of it."""
    said = error_response(fail, now)
    if said is None:
        return ModelConnectionError(fail.message or _BROKEN[fail.kind], url="scripted:")
    if begun:
        return failures.from_stream_error(said.body, url="scripted:")
    return failures.from_response(said.status, said.headers, json.dumps(said.body), "scripted:")


def actions_of(turn: ScriptTurn, usage: Usage, mark: str) -> list[Action]:
    """What happens in ``turn``. Ids of calls begin with ``call_`` and ``mark``; the rest are unique within the turn."""
    score = _Score(mark)
    for step, metadata in _with_metadata(turn.steps):
        score.add(step, metadata)
    if not isinstance(turn.steps[-1], Fail | Hang):
        score.close()
        score.finish(turn, usage)
    return score.actions


class _Score:
    """Writes down actions, step by step."""

    def __init__(self, mark: str) -> None:
        self.actions: list[Action] = []
        self._mark = mark
        self._begun = False
        self._piece: tuple[type[TextEnd] | type[ReasoningEnd], str] | None = None
        self._pieces = 0
        self._calls = 0
        self._size: int | str | None = None
        self._drip = 0.0
        self._metadata: Metadata = {}

    def add(self, step: ScriptStep, metadata: Metadata | None) -> None:
        match step:
            case Say() | Title():
                self._words(step.text, metadata, TextStart, TextDelta, TextEnd)
            case Think():
                self._words(step.text, metadata, ReasoningStart, ReasoningDelta, ReasoningEnd)
            case CallTool():
                self._call(step, metadata)
            case Meta():
                self._metadata = self._metadata | step.data
            case Split():
                self._size = step.size
            case Drip():
                self._drip = step.seconds
            case Wait() | Hang() | Fail():
                self.actions.append(step)
            case _:
                pass

    def close(self, metadata: Metadata | None = None) -> None:
        if self._piece is not None:
            end, piece_id = self._piece
            self.actions.append(end(id=piece_id, metadata=metadata))
            self._piece = None

    def finish(self, turn: ScriptTurn, usage: Usage) -> None:
        self._begin()
        usage = next((step.usage for step in turn.steps if isinstance(step, ReportUsage)), usage)
        reason: FinishReason = "tool-calls" if self._calls else "stop"
        for step in turn.steps:
            reason = step.reason if isinstance(step, FinishWith) else reason
        self.actions.append(FinishStep(reason=reason, usage=usage, metadata=self._metadata or None))
        self.actions.append(Finish(reason=reason, usage=usage))

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self.actions += (Start(), StartStep())

    def _words(
        self,
        text: str,
        metadata: Metadata | None,
        start: type[TextStart] | type[ReasoningStart],
        delta: type[TextDelta] | type[ReasoningDelta],
        end: type[TextEnd] | type[ReasoningEnd],
    ) -> None:
        self._begin()
        if self._piece is None or self._piece[0] is not end:
            self.close()
            piece_id = f"{'text' if end is TextEnd else 'reasoning'}-{self._pieces}"
            self._pieces += 1
            self._piece = (end, piece_id)
            self.actions.append(start(id=piece_id))
        for chunk in _chunks(text, self._size):
            self._delta(delta(id=self._piece[1], text=chunk))
        if metadata is not None:
            self.close(metadata)

    def _call(self, step: CallTool, metadata: Metadata | None) -> None:
        self._begin()
        self.close()
        call_id = step.id or f"call_{self._mark}_{self._calls}"
        self._calls += 1
        self.actions.append(ToolInputStart(id=call_id, name=step.name))
        size = self._size if isinstance(self._size, int) else None
        for chunk in step.fragments or _chunks(step.arguments, size):
            self._delta(ToolInputDelta(id=call_id, text=chunk))
        self.actions.append(ToolInputEnd(id=call_id))
        self.actions.append(tool_call(call_id, step.name, step.arguments, metadata))

    def _delta(self, delta: TextDelta | ReasoningDelta | ToolInputDelta) -> None:
        if self._drip:
            self.actions.append(Wait(self._drip))
        self.actions.append(delta)


def _with_metadata(steps: tuple[ScriptStep, ...]) -> Iterator[tuple[ScriptStep, Metadata | None]]:
    """Each step with the metadata that belongs to it; metadata of the whole answer stays a step of its own."""
    previous: ScriptStep | None = None
    for step, following in zip(steps, (*steps[1:], None), strict=True):
        content = isinstance(step, Say | Think | CallTool | Title)
        if not (isinstance(step, Meta) and isinstance(previous, Say | Think | CallTool | Title)):
            yield step, following.data if content and isinstance(following, Meta) else None
        previous = step


def _chunks(text: str, size: int | str | None) -> list[str]:
    if size is None:
        return [text]
    if isinstance(size, str):
        return re.findall(r"\S+\s*|\s+", text)
    return [text[start : start + size] for start in range(0, len(text), size)]


def _retry_headers(fail: Fail, now: float) -> dict[str, str]:
    if fail.after is None:
        return {}
    match fail.form:
        case "seconds":
            return {"retry-after": f"{fail.after:g}"}
        case "ms":
            return {"retry-after-ms": f"{fail.after * 1000:g}"}
        case "date":
            from email.utils import formatdate

            return {"retry-after": formatdate(now + fail.after, usegmt=True)}
