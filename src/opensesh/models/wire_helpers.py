"""What the provider adapters share: reading an answer, tool call arguments, files, token counts."""

from __future__ import annotations

import json
import os
from asyncio import timeout
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from ..errors import ModelConnectionError, ModelError, RecordError
from ..records.codec import dumps_compact, loads, object_at
from . import failures
from .request import Text
from .sse import ServerSentEvent, json_payload, replace_surrogates
from .stream_events import StartStep, TextDelta, TextEnd, TextStart, ToolCall

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping

    from .request import File
    from .stream_events import Metadata, StreamEvent, TextKind

_DRAIN_TIMEOUT_SECONDS = 0.25

_encoder = msgspec.json.Encoder()


class AnswerReader:
    """Turns the events of one response into stream events. Every adapter has a subclass."""

    def __init__(self, provider_id: str, url: str) -> None:
        self.provider_id = provider_id
        self.url = url
        self.complete = False
        """Whether the provider has announced the end of the answer; only counts can follow."""
        self.finished = False
        """Whether the final events have been returned."""
        self._started = False

    def read(self, event: ServerSentEvent) -> list[StreamEvent]:
        """Return what ``event`` brings; unknown kinds bring nothing."""
        wire = json_payload(event.data, self.url)
        try:
            return self.after_start(self.convert(wire, event.event))
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise failures.unreadable(event.data, self.url) from error

    def close(self) -> list[StreamEvent]:
        """Return the final events once; a stream that ended before its answer raises ``ModelConnectionError``."""
        if self.finished:
            return []
        if not self.complete:
            raise failures.broken_off(self.url)
        self.finished = True
        return self.final_events()

    def convert(self, wire: dict[str, Any], name: str) -> list[StreamEvent]:
        """Return the events for the JSON object of one wire event."""
        raise NotImplementedError

    def final_events(self) -> list[StreamEvent]:
        """Close what is open, and report reason and usage."""
        raise NotImplementedError

    def after_start(self, events: list[StreamEvent]) -> list[StreamEvent]:
        """Put the start of the step before the first ``events``."""
        if self._started:
            return events
        self._started = True
        return [StartStep(), *events]


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


class ContentBlock:
    """A content block while it streams in."""

    __slots__ = ("chunks", "executed", "id", "input", "kind", "metadata", "name")

    def __init__(self, kind: Literal["text", "reasoning", "tool", "other"], block_id: str, name: str = "") -> None:
        self.kind = kind
        self.id = block_id
        self.name = name
        self.executed = False
        """Whether the provider runs the tool itself."""
        self.chunks: list[str] = []
        self.input: dict[str, Any] = {}
        """The arguments of a call, where they did not stream in."""
        self.metadata: Metadata | None = None

    def end(self) -> list[StreamEvent]:
        """Return the events that complete the block."""
        match self.kind:
            case "text" | "reasoning":
                return [TextEnd(self.id, self.metadata, self.kind)]
            case "tool":
                raw = "".join(self.chunks) or (write_arguments(self.input) if self.input else "")
                return [tool_call(self.id, self.name, raw, executed=self.executed)]
            case _:
                return []


class TextPieces:
    """Numbers pieces of text and reasoning for providers that do not mark where one begins and ends."""

    def __init__(self) -> None:
        self.kind: TextKind | None = None
        """That of the open piece."""
        self.count = 0
        self._id = ""

    def begin(self, kind: TextKind) -> TextStart:
        """Open a piece; the one before must be closed."""
        self.kind, self._id = kind, f"{kind}-{self.count}"
        self.count += 1
        return TextStart(self._id, kind=kind)

    def delta(self, text: str) -> TextDelta:
        """Add to the open piece."""
        return TextDelta(self._id, text, self.kind or "text")

    def end(self, metadata: Metadata | None = None) -> list[TextEnd]:
        """Close the open piece, if there is one."""
        kind, self.kind = self.kind, None
        return [] if kind is None else [TextEnd(self._id, metadata, kind)]


def new_call_id() -> str:
    """Return an id for a tool call that came without one."""
    return f"call_{os.urandom(12).hex()}"


def read_arguments(raw: str) -> tuple[dict[str, Any], str | None]:
    """Parse the arguments of a tool call; also return what is wrong if they are not a JSON object.

    An empty string and ``null`` are no arguments.
    """
    if not raw or raw.isspace():
        return {}, None
    try:
        value = loads(raw.encode("utf-8", "surrogatepass"))
    except RecordError as error:
        at = f" at {error.place}" if error.place else ""
        return {}, f"The arguments are not valid JSON{at}: {error.reason}"
    if value is None:
        return {}, None
    if not isinstance(value, dict):
        return {}, "The arguments are JSON, but not an object"
    return cast("dict[str, Any]", value), None


def write_arguments(arguments: dict[str, Any]) -> str:
    """Return arguments as JSON text, formatted as JavaScript does."""
    return dumps_compact(arguments).decode()


def tool_call(
    call_id: str, name: str, raw: str, metadata: Metadata | None = None, *, executed: bool = False
) -> ToolCall:
    """Return the complete call, given the JSON text of its arguments."""
    arguments, problem = read_arguments(raw)
    return ToolCall(call_id, name, arguments, raw, problem, metadata, executed)


def inline_data(file: File) -> tuple[str, str] | None:
    """Return media type and base64 of a ``data:`` file; ``None`` for one that the provider fetches itself."""
    if not file.url.startswith("data:"):
        return None
    head, _, data = file.url.removeprefix("data:").partition(",")
    return (head.partition(";")[0] if "*" in file.mime else file.mime), data


def joined_text(content: Iterable[Text | File]) -> str:
    """Return the text in ``content``, without its files."""
    return "\n".join(part.text for part in content if isinstance(part, Text))


def unsupported_file_note(file: File) -> str:
    """Return the text that replaces a file which this API cannot carry."""
    name = f"{file.filename!r} ({file.mime})" if file.filename else f"A file of type {file.mime}"
    return f"[{name} belongs here, but it cannot be sent to this model. Tell the user so.]"


def nested(metadata: Metadata | None, *keys: str) -> dict[str, Any]:
    """Return a provider's section of ``metadata``: the first non-empty object under one of ``keys``."""
    for key in keys:
        section = object_at(metadata or {}, key)
        if section:
            return section
    return {}


def token_count(value: object) -> int:
    """Return a number of tokens; anything that is not a positive number is 0."""
    return max(0, int(value)) if isinstance(value, int | float) else 0


def encode_json(value: object) -> bytes:
    """Return ``value`` as JSON. Lone surrogates, which no provider accepts, become U+FFFD."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return replace_surrogates(json.dumps(msgspec.to_builtins(value), ensure_ascii=False)).encode()


def lower_names(headers: Mapping[str, str] | None) -> dict[str, str]:
    """Return ``headers`` with lower-case names, so that later ones replace earlier ones."""
    return {name.lower(): value for name, value in (headers or {}).items()}
