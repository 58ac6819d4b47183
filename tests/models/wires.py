from __future__ import annotations

import json
from collections import defaultdict
from contextlib import aclosing
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx2

from opensesh.models.model import Model
from opensesh.models.request import Request, Text, ToolSpec, User
from opensesh.models.stream_events import (
    FinishStep,
    StreamEvent,
    TextDelta,
    TextEnd,
    ToolCall,
    ToolInputDelta,
    Usage,
)
from opensesh.models.transport import Transport

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
    from typing import Protocol

    class Streams(Protocol):
        def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]: ...


READ = ToolSpec(
    name="read",
    description="Read a file.",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)


def lines(*payloads: dict[str, Any] | str, named: bool = False) -> bytes:
    """Events as they go over the wire; ``named`` ones carry their type as OpenAI's newer wire does."""
    texts = [payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False) for payload in payloads]
    names = [f"event: {payload['type']}\n" if named and isinstance(payload, dict) else "" for payload in payloads]
    return "".join(f"{name}data: {text}\n\n" for name, text in zip(names, texts, strict=True)).encode()


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    """Split ``data`` at these positions, as a network might deliver it."""
    edges = sorted({0, len(data), *(path % (len(data) + 1) for path in places)})
    return [data[start:end] for start, end in pairwise(edges)]


class Server:
    """A provider that gives prepared answers, one a request, and records the requests."""

    def __init__(self, *answers: bytes | list[bytes] | httpx2.Response) -> None:
        self._answers = list(answers)
        self.requests: list[httpx2.Request] = []
        self.closed = 0
        self.exhausted = 0
        """How many answers were read to their last byte."""

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(request.content) for request in self.requests]

    @property
    def client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=httpx2.MockTransport(self._answer))

    @property
    def transport(self) -> Transport:
        return Transport(client=self.client)

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        answer = self._answers.pop(0)
        if isinstance(answer, httpx2.Response):
            return answer
        pieces = [answer] if isinstance(answer, bytes) else answer
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=_Delivery(pieces, self))


class _Delivery(httpx2.AsyncByteStream):
    """A response body in pieces, which counts on the server how often it was read to its end and closed."""

    def __init__(self, pieces: list[bytes], server: Server) -> None:
        self._pieces = pieces
        self._server = server

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        for piece in self._pieces:
            yield piece
        self._server.exhausted += 1

    async def aclose(self) -> None:
        self._server.closed += 1


def refusal(status: int, error: dict[str, Any]) -> httpx2.Response:
    return httpx2.Response(status, headers={"content-type": "application/json"}, content=json.dumps(error))


def numbered() -> Callable[[], str]:
    """Return a function that makes ids for calls without one, the same in every run."""
    names: Iterator[str] = (f"minted_{number}" for number in range(1000))
    return lambda: next(names)


def ask(model: Model | None = None, **fields: Any) -> Request:
    """Return a minimal request with these fields."""
    fields.setdefault("messages", (User(content=(Text(text="hi"),)),))
    return Request(model=model or Model(id="m", provider_id="p"), **fields)


async def collect(provider: Streams, request: Request | None = None) -> list[StreamEvent]:
    async with aclosing(provider.stream(request or ask())) as events:
        return [event async for event in events]


async def collect_into(got: list[StreamEvent], provider: Streams, request: Request | None = None) -> None:
    """Append the events of a stream to ``got``: like :func:`collect`, for streams that end with an error."""
    async with aclosing(provider.stream(request or ask())) as events:
        async for event in events:
            got += (event,)


class Answer(NamedTuple):
    """The content of an answer, independent of how it was split into events."""

    text: str
    reasoning: str
    calls: list[tuple[str, str, dict[str, Any]]]
    reason: str
    usage: Usage


def answer_in(events: list[StreamEvent]) -> Answer:
    deltas = [event for event in events if isinstance(event, TextDelta)]
    text, reasoning = ("".join(delta.text for delta in deltas if delta.kind == kind) for kind in ("text", "reasoning"))
    calls = [(event.id, event.name, event.input) for event in events if isinstance(event, ToolCall)]
    last = next(event for event in events if isinstance(event, FinishStep))
    return Answer(text, reasoning, calls, last.reason, last.usage)


def arguments_shown(events: list[StreamEvent]) -> dict[str, str]:
    """Return the arguments of each call, joined from its deltas."""
    shown: defaultdict[str, str] = defaultdict(str)
    for event in events:
        if isinstance(event, ToolInputDelta):
            shown[event.id] += event.text
    return dict(shown)


def endings(events: list[StreamEvent]) -> list[TextEnd]:
    return [event for event in events if isinstance(event, TextEnd)]


def assert_well_formed(events: list[StreamEvent]) -> None:
    """Check that every part of the answer starts once, gets deltas only until it ends, and ends once."""
    names = [type(event).__name__ for event in events]
    assert (names[0], names[-1]) == ("StartStep", "FinishStep")
    state: dict[str, str] = {}
    for event, name in zip(events[1:-1], names[1:-1], strict=True):
        key = getattr(event, "id", "")
        assert key
        if name.endswith("Start"):
            assert key not in state
            state[key] = "open"
        elif name == "ToolCall":
            assert state[key] == "open"
            state[key] = "called"
        else:
            assert state[key] == "open"
            if name.endswith("End"):
                state[key] = "closed"
    assert "open" not in state.values()
