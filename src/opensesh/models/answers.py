"""Reading an answer: from the events of a response to stream events, built from texts, reasoning and tool calls."""

from __future__ import annotations

from asyncio import timeout
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal

from ..errors import ModelConnectionError, ModelError
from ..records import without_surrogates
from . import failures
from .sse import json_payload
from .stream_events import StartStep, TextDelta, TextEnd, TextStart, ToolInputDelta, ToolInputStart
from .wire_helpers import tool_call

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from .sse import ServerSentEvent
    from .stream_events import Metadata, StreamEvent, TextKind

_DRAIN_TIMEOUT_SECONDS = 0.25


class AnswerBuilder:
    """The stream events of one answer. Pieces of it begin here; what arrives is added to them."""

    def __init__(self, *events: StreamEvent) -> None:
        self.events = list(events)
        """Those that were not taken yet."""
        self.text_count = 0
        """How many texts and pieces of reasoning there were."""

    def begin_text(
        self, kind: TextKind, piece_id: str | None = None, metadata: Metadata | None = None
    ) -> StreamedPiece:
        """Begin a text or reasoning. It gets a number where the provider sends no id."""
        piece = StreamedPiece(self.events, kind, f"{kind}-{self.text_count}" if piece_id is None else piece_id)
        self.text_count += 1
        self.events.append(TextStart(piece.id, metadata, kind))
        return piece

    def begin_call(self, call_id: str, name: str, *, executed: bool = False) -> StreamedPiece:
        """Begin a tool call; ``executed`` if the provider runs it."""
        self.events.append(ToolInputStart(call_id, name))
        return StreamedPiece(self.events, "tool", call_id, name, executed=executed)

    def take(self) -> list[StreamEvent]:
        """Return the events since the last call."""
        taken = self.events.copy()
        self.events.clear()
        return taken


class StreamedPiece:
    """A text, reasoning or tool call while it streams in."""

    __slots__ = ("_chunks", "_events", "_executed", "_half", "_name", "arguments", "id", "is_open", "kind", "metadata")

    def __init__(
        self,
        events: list[StreamEvent],
        kind: Literal["text", "reasoning", "tool"],
        piece_id: str,
        name: str = "",
        *,
        executed: bool = False,
    ) -> None:
        self.kind: Literal["text", "reasoning", "tool"] = kind
        self.id = piece_id
        self.metadata: Metadata | None = None
        """What is reported at its end, unless :meth:`end` gets something else."""
        self.arguments = ""
        """The arguments of a call, where they do not stream in."""
        self.is_open = True
        self._events = events
        self._chunks: list[str] = []
        self._half = ""
        """The first surrogate of a character whose second one has not arrived."""
        self._name = name
        self._executed = executed

    @property
    def text(self) -> str:
        """What was added so far."""
        return "".join(self._chunks)

    def add(self, text: str) -> None:
        """Add text, or a part of the arguments as JSON text. A server may split a character into two surrogates: the
        first waits for the second, and one that stays alone becomes U+FFFD."""
        if self._half or not text.isascii():
            text = self._half + text
            self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
            text = without_surrogates(text[: len(text) - len(self._half)])
        if text:
            self._append(text)

    def _append(self, text: str) -> None:
        self._chunks.append(text)
        if self.kind == "tool":
            self._events.append(ToolInputDelta(self.id, text))
        else:
            self._events.append(TextDelta(self.id, text, self.kind))

    def end(self, metadata: Metadata | None = None) -> None:
        """End it, once."""
        if not self.is_open:
            return
        if self._half:
            self._append(without_surrogates(self._half))
        self.is_open = False
        metadata = metadata or self.metadata
        if self.kind == "tool":
            raw = self.arguments or self.text
            self._events.append(tool_call(self.id, self._name, raw, metadata, executed=self._executed))
        else:
            self._events.append(TextEnd(self.id, metadata, self.kind))


class AnswerReader:
    """Turns the events of one response into stream events. Every adapter has a subclass."""

    def __init__(self, provider_id: str, url: str) -> None:
        self.provider_id = provider_id
        self.url = url
        self.answer = AnswerBuilder(StartStep())
        self.complete = False
        """Whether the provider has announced the end of the answer; only counts can follow."""
        self.finished = False
        """Whether the final events have been returned."""

    def read(self, event: ServerSentEvent) -> list[StreamEvent]:
        """Return what ``event`` brings; unknown kinds bring nothing."""
        wire = json_payload(event.data, self.url)
        try:
            self.convert(wire, event.event)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise failures.unreadable(event.data, self.url) from error
        return self.answer.take()

    def close(self) -> list[StreamEvent]:
        """Return the final events once; a stream that ended before its answer raises ``ModelConnectionError``."""
        self.end()
        return self.answer.take()

    def end(self) -> None:
        """End the answer, once."""
        if self.finished:
            return
        if not self.complete:
            raise failures.broken_off(self.url)
        self.finished = True
        self.finish()

    def convert(self, wire: dict[str, Any], name: str) -> None:
        """Add what the JSON object of one wire event brings to the answer."""
        raise NotImplementedError

    def finish(self) -> None:
        """End what is open, and report reason and usage."""
        raise NotImplementedError


async def read_answer(
    stream: AsyncGenerator[ServerSentEvent, None], reader: AnswerReader
) -> AsyncGenerator[StreamEvent, None]:
    """Yield the events of one answer, and close ``stream``."""
    async with aclosing(stream):
        try:
            async for wire_event in stream:
                for event in reader.read(wire_event):
                    yield event
                if reader.finished:
                    break
        except ModelConnectionError:
            # A connection that breaks after the announced end takes nothing away from the answer.
            if not reader.complete:
                raise
        for event in reader.close():
            yield event
        await drain(stream)


async def drain(stream: AsyncGenerator[Any, None]) -> None:
    """Read what is left after the last event, usually nothing, so that the connection can be reused."""
    try:
        async with timeout(_DRAIN_TIMEOUT_SECONDS):
            async for _ in stream:
                pass
    except (TimeoutError, ModelError):
        pass  # the answer is complete: how the connection ends does not matter
