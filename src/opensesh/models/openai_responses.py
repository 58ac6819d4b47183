"""Responses: the wire of OpenAI's own models, on which reasoning survives from one step to the next."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from . import failures
from .openai_responses_prompt import body
from .sse import json_payload
from .stream_events import (
    Finish,
    FinishStep,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    Start,
    StartStep,
    TextDelta,
    TextEnd,
    TextStart,
    ToolInputDelta,
    ToolInputEnd,
    ToolInputStart,
    Usage,
)
from .transport import Transport, read_to_end
from .wire_helpers import object_field, token_count, tool_call

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from .request import Request
    from .stream_events import FinishReason, Metadata, StreamEvent

Document = dict[str, Any]

_INCOMPLETE: dict[str, FinishReason] = {"max_output_tokens": "length", "content_filter": "content-filter"}


class OpenAIResponses:
    """A server that answers ``/responses``."""

    def __init__(
        self,
        api_key: str,
        base_url: str = "https://api.openai.com/v1",
        *,
        headers: Mapping[str, str] | None = None,
        provider_id: str = "",
        transport: Transport | None = None,
    ) -> None:
        self._url = f"{base_url.rstrip('/')}/responses"
        self._headers = {**({"authorization": f"Bearer {api_key}"} if api_key else {}), **(headers or {})}
        self._provider_id = provider_id
        self._transport = transport or Transport()

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        """Ask once, and yield what comes."""
        provider_id = self._provider_id or request.model.provider_id
        headers = {**self._headers, **request.headers}
        answer = _Answer()
        async with aclosing(
            self._transport.sse(self._url, headers=headers, body=body(request), provider_id=provider_id)
        ) as wire:
            async for name, data in wire:
                if data == "[DONE]":
                    break
                chunk = json_payload(data, self._url)
                kind = chunk.get("type") or name
                if kind in ("error", "response.failed") or chunk.get("error"):
                    raise failures.from_stream_error(chunk, provider_id, self._url)
                try:
                    events = answer.read(kind, chunk)
                except (AttributeError, LookupError, TypeError, ValueError) as cause:
                    raise failures.unreadable(data, self._url) from cause
                for event in events:
                    yield event
                if answer.done:
                    break
            if not answer.done:
                raise failures.broken_off(self._url)
            await read_to_end(wire)

    async def aclose(self) -> None:
        """Close the connections this adapter keeps."""
        await self._transport.aclose()


class _Answer:
    """One answer as it arrives: events of the wire in, events of ours out."""

    def __init__(self) -> None:
        self.done = False
        self._begun = False
        self._texts: _Items[_Text] = _Items()
        self._calls: _Items[_Call] = _Items()
        self._thoughts: _Items[_Thought] = _Items()
        self._readers: dict[str, Callable[[Document, list[StreamEvent]], None]] = {
            "response.output_item.added": self._item_added,
            "response.output_item.done": self._item_done,
            "response.output_text.delta": self._text_delta,
            "response.refusal.delta": self._text_delta,
            "response.function_call_arguments.delta": self._arguments_delta,
            "response.reasoning_summary_part.added": self._summary_added,
            "response.reasoning_summary_text.delta": self._summary_delta,
            "response.reasoning_text.delta": self._reasoning_delta,
            "response.completed": self._finish,
            "response.incomplete": self._finish,
        }

    def read(self, kind: str, chunk: Document) -> list[StreamEvent]:
        """The events that ``chunk`` stands for; kinds nobody asked for stand for none."""
        out: list[StreamEvent] = [] if self._begun else [Start(), StartStep()]
        self._begun = True
        reader = self._readers.get(kind)
        if reader is not None:
            reader(chunk, out)
        return out

    def _item_added(self, chunk: Document, out: list[StreamEvent]) -> None:
        item = chunk["item"]
        match item.get("type"):
            case "message":
                self._texts.add(chunk, item["id"], _Text(item["id"], item.get("phase"), out))
            case "function_call":
                self._calls.add(chunk, _name(item), _Call(item, out))
            case "reasoning":
                thought = self._thoughts.add(chunk, item["id"], _Thought(item["id"]))
                thought.open(0, out, item.get("encrypted_content"))
            case _:
                pass

    def _item_done(self, chunk: Document, out: list[StreamEvent]) -> None:
        item = chunk["item"]
        match item.get("type"):
            case "message":
                self._text(chunk, item["id"], out).close(item, out)
            case "function_call":
                name = _name(item)
                call = self._calls.find(chunk, name) or self._calls.add(chunk, name, _Call(item, out))
                call.close(item, out)
            case "reasoning":
                self._thought(chunk, item["id"]).close(item, out)
            case _:
                pass

    def _text_delta(self, chunk: Document, out: list[StreamEvent]) -> None:
        self._text(chunk, chunk["item_id"], out).grow(chunk["delta"], out)

    def _arguments_delta(self, chunk: Document, out: list[StreamEvent]) -> None:
        call = self._calls.find(chunk, chunk["item_id"])
        if call is not None:
            call.grow(chunk["delta"], out)

    def _summary_added(self, chunk: Document, out: list[StreamEvent]) -> None:
        self._thought(chunk, chunk["item_id"]).open(chunk["summary_index"], out)

    def _summary_delta(self, chunk: Document, out: list[StreamEvent]) -> None:
        self._thought(chunk, chunk["item_id"]).grow(chunk["summary_index"], chunk["delta"], out)

    def _reasoning_delta(self, chunk: Document, out: list[StreamEvent]) -> None:
        """The thought itself rather than a summary, from servers that run open models."""
        self._thought(chunk, chunk["item_id"]).grow(0, chunk["delta"], out)

    def _text(self, chunk: Document, item_id: str, out: list[StreamEvent]) -> _Text:
        return self._texts.find(chunk, item_id) or self._texts.add(chunk, item_id, _Text(item_id, None, out))

    def _thought(self, chunk: Document, item_id: str) -> _Thought:
        return self._thoughts.find(chunk, item_id) or self._thoughts.add(chunk, item_id, _Thought(item_id))

    def _finish(self, chunk: Document, out: list[StreamEvent]) -> None:
        response = chunk["response"]
        self.done = True
        for piece in (*self._thoughts.all, *self._texts.all, *self._calls.all):
            piece.close({}, out)
        reason = self._reason(object_field(response, "incomplete_details").get("reason"))
        usage = read_usage(object_field(response, "usage"))
        about = {"responseId": response.get("id"), "serviceTier": response.get("service_tier")}
        metadata: Metadata = {"openai": {name: value for name, value in about.items() if value is not None}}
        out += (FinishStep(reason, usage, metadata), Finish(reason, usage))

    def _reason(self, incomplete: str | None) -> FinishReason:
        if incomplete in _INCOMPLETE:
            return _INCOMPLETE[incomplete]
        if self._calls.all:
            return "tool-calls"
        return "unknown" if incomplete else "stop"


def _name(call: Document) -> str:
    return call.get("id") or call["call_id"]


class _Piece(Protocol):
    closed: bool


P = TypeVar("P", bound=_Piece)


class _Items(Generic[P]):
    """Items of one kind, as far as they have come.

    An event names its item by an id. GitHub Copilot, and proxies before it, give the same item another id with every
    event; then its place in the answer tells which one is meant.
    """

    def __init__(self) -> None:
        self.all: list[P] = []
        self._by_id: dict[str, P] = {}
        self._by_place: dict[int, P] = {}

    def add(self, chunk: Document, item_id: str, piece: P) -> P:
        self.all.append(piece)
        self._by_id[item_id] = self._by_place[chunk.get("output_index", -1)] = piece
        return piece

    def find(self, chunk: Document, item_id: str) -> P | None:
        if item_id in self._by_id:
            return self._by_id[item_id]
        at = self._by_place.get(chunk.get("output_index", -1))
        return None if at is None or at.closed else at


class _Text:
    """A message of the model's."""

    def __init__(self, item_id: str, phase: str | None, out: list[StreamEvent]) -> None:
        self._id = item_id
        self._phase = phase
        self._grown = False
        self.closed = False
        out.append(TextStart(item_id, self._metadata()))

    def grow(self, text: str, out: list[StreamEvent]) -> None:
        if text:
            self._grown = True
            out.append(TextDelta(self._id, text))

    def close(self, item: Document, out: list[StreamEvent]) -> None:
        if self.closed:
            return
        self.closed = True
        self._phase = item.get("phase") or self._phase
        if not self._grown:
            content = item.get("content") or ()
            self.grow("".join(part.get("text") or part.get("refusal") or "" for part in content), out)
        out.append(TextEnd(self._id, self._metadata()))

    def _metadata(self) -> Metadata:
        return {"openai": {"itemId": self._id, **({"phase": self._phase} if self._phase else {})}}


class _Call:
    """A function call."""

    def __init__(self, item: Document, out: list[StreamEvent]) -> None:
        self._id = item["call_id"]
        self._item_id = item.get("id")
        self._name = item["name"]
        self._text: list[str] = []
        self.closed = False
        out.append(ToolInputStart(self._id, self._name))

    def grow(self, text: str, out: list[StreamEvent]) -> None:
        if text:
            self._text.append(text)
            out.append(ToolInputDelta(self._id, text))

    def close(self, item: Document, out: list[StreamEvent]) -> None:
        if self.closed:
            return
        self.closed = True
        if not self._text:
            self.grow(item.get("arguments") or "", out)
        raw = item.get("arguments") or "".join(self._text)
        metadata: Metadata | None = {"openai": {"itemId": self._item_id}} if self._item_id else None
        out += (ToolInputEnd(self._id), tool_call(self._id, self._name, raw, metadata))


class _Thought:
    """A reasoning item: one or more summaries, each a piece of its own, that share an id and a proof.

    The proof (``encrypted_content``) is final only when the item is, so the last summary carries it.
    """

    def __init__(self, item_id: str) -> None:
        self._id = item_id
        self._proof: str | None = None
        self._index: int | None = None
        self.closed = False

    def open(self, index: int, out: list[StreamEvent], proof: str | None = None) -> None:
        if index == self._index or self.closed:
            return
        self._proof = proof or self._proof
        if self._index is not None:
            out.append(ReasoningEnd(self._piece(), {"openai": {"itemId": self._id}}))
        self._index = index
        out.append(ReasoningStart(self._piece(), self._metadata()))

    def grow(self, index: int, text: str, out: list[StreamEvent]) -> None:
        self.open(index, out)
        out.append(ReasoningDelta(self._piece(), text))

    def close(self, item: Document, out: list[StreamEvent]) -> None:
        if self.closed:
            return
        self.open(self._index or 0, out)
        self.closed = True
        self._proof = item.get("encrypted_content") or self._proof
        out.append(ReasoningEnd(self._piece(), self._metadata()))

    def _piece(self) -> str:
        return f"{self._id}:{self._index}"

    def _metadata(self) -> Metadata:
        return {"openai": {"itemId": self._id, "reasoningEncryptedContent": self._proof}}


def read_usage(counted: Document) -> Usage:
    """Usage in buckets that do not overlap; OpenAI counts cached tokens as input and reasoning as output."""
    given, spent = object_field(counted, "input_tokens_details"), object_field(counted, "output_tokens_details")
    read, written = token_count(given.get("cached_tokens")), token_count(given.get("cache_write_tokens"))
    reasoning = token_count(spent.get("reasoning_tokens"))
    total = counted.get("total_tokens")
    return Usage(
        input=max(0, token_count(counted.get("input_tokens")) - read - written),
        output=max(0, token_count(counted.get("output_tokens")) - reasoning),
        reasoning=reasoning,
        cache_read=read,
        cache_write=written,
        total=None if total is None else token_count(total),
    )
