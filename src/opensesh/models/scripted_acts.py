"""From a turn of a script to what happens: events, pauses, and the error a failure stands for."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..errors import ModelConnectionError, ModelError
from . import failures
from .events import (
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
from .pieces import tool_call
from .script import Call, Drip, Fail, Hang, Meta, Say, Split, Step, Think, Title, Tokens, Turn, Wait
from .script import Finish as FinishReasonStep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .script import Kind

Act: TypeAlias = StreamEvent | Wait | Hang | Fail

_BROKEN: dict[Kind, str] = {
    "reset": "The connection was reset",
    "malformed": "The stream held something that is no JSON object",
    "torn": "The stream ended in the middle of a character",
}


class Refusal(NamedTuple):
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


_REFUSALS: dict[Kind, tuple[int, str, str, str]] = {
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


def refusal(fail: Fail, now: float) -> Refusal | None:
    """What the provider says, for failures that it puts into words; ``None`` for those of the wire."""
    if fail.kind in _BROKEN:
        return None
    headers = _retry_headers(fail, now)
    if fail.kind == "status":
        # Every status has this type in recorded sessions, and the error's body is stored with them.
        status = fail.status or 500
        return Refusal(status, "rate_limit_error", status, fail.message or "scripted failure", headers)
    status, kind, code, message = _REFUSALS[fail.kind]
    return Refusal(fail.status or status, kind, code, fail.message or message, headers)


def failure(fail: Fail, now: float, *, begun: bool) -> ModelError:
    """The error an adapter raises for ``fail``, before the answer began or in the middle of it."""
    said = refusal(fail, now)
    if said is None:
        return ModelConnectionError(fail.message or _BROKEN[fail.kind], url="scripted:")
    if begun:
        return failures.from_stream_error(said.body, url="scripted:")
    return failures.from_response(said.status, said.headers, json.dumps(said.body), "scripted:")


def acts_of(turn: Turn, usage: Usage, mark: str) -> list[Act]:
    """What happens in ``turn``. Ids of calls begin with ``call_`` and ``mark``; the rest are unique within the turn."""
    score = _Score(mark)
    for step, metadata in _with_metadata(turn.steps):
        score.add(step, metadata)
    if not isinstance(turn.steps[-1], Fail | Hang):
        score.close()
        score.finish(turn, usage)
    return score.acts


class _Score:
    """Writes down acts, step by step."""

    def __init__(self, mark: str) -> None:
        self.acts: list[Act] = []
        self._mark = mark
        self._begun = False
        self._piece: tuple[type[TextEnd] | type[ReasoningEnd], str] | None = None
        self._pieces = 0
        self._calls = 0
        self._size: int | str | None = None
        self._drip = 0.0
        self._metadata: Metadata = {}

    def add(self, step: Step, metadata: Metadata | None) -> None:
        match step:
            case Say() | Title():
                self._words(step.text, metadata, TextStart, TextDelta, TextEnd)
            case Think():
                self._words(step.text, metadata, ReasoningStart, ReasoningDelta, ReasoningEnd)
            case Call():
                self._call(step, metadata)
            case Meta():
                self._metadata = self._metadata | step.data
            case Split():
                self._size = step.size
            case Drip():
                self._drip = step.seconds
            case Wait() | Hang() | Fail():
                self.acts.append(step)
            case _:
                pass

    def close(self, metadata: Metadata | None = None) -> None:
        if self._piece is not None:
            end, piece_id = self._piece
            self.acts.append(end(id=piece_id, metadata=metadata))
            self._piece = None

    def finish(self, turn: Turn, usage: Usage) -> None:
        self._begin()
        usage = next((step.usage for step in turn.steps if isinstance(step, Tokens)), usage)
        reason: FinishReason = "tool-calls" if self._calls else "stop"
        for step in turn.steps:
            reason = step.reason if isinstance(step, FinishReasonStep) else reason
        self.acts.append(FinishStep(reason=reason, usage=usage, metadata=self._metadata or None))
        self.acts.append(Finish(reason=reason, usage=usage))

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self.acts += (Start(), StartStep())

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
            self.acts.append(start(id=piece_id))
        for chunk in _chunks(text, self._size):
            self._delta(delta(id=self._piece[1], text=chunk))
        if metadata is not None:
            self.close(metadata)

    def _call(self, step: Call, metadata: Metadata | None) -> None:
        self._begin()
        self.close()
        call_id = step.id or f"call_{self._mark}_{self._calls}"
        self._calls += 1
        self.acts.append(ToolInputStart(id=call_id, name=step.name))
        size = self._size if isinstance(self._size, int) else None
        for chunk in step.fragments or _chunks(step.arguments, size):
            self._delta(ToolInputDelta(id=call_id, text=chunk))
        self.acts.append(ToolInputEnd(id=call_id))
        self.acts.append(tool_call(call_id, step.name, step.arguments, metadata))

    def _delta(self, delta: TextDelta | ReasoningDelta | ToolInputDelta) -> None:
        if self._drip:
            self.acts.append(Wait(self._drip))
        self.acts.append(delta)


def _with_metadata(steps: tuple[Step, ...]) -> Iterator[tuple[Step, Metadata | None]]:
    """Each step with the metadata that belongs to it; metadata of the whole answer stays a step of its own."""
    previous: Step | None = None
    for step, following in zip(steps, (*steps[1:], None), strict=True):
        content = isinstance(step, Say | Think | Call | Title)
        if not (isinstance(step, Meta) and isinstance(previous, Say | Think | Call | Title)):
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
