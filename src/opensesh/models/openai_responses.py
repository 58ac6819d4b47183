"""Responses: the wire of OpenAI's own models, on which reasoning survives from one step to the next."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from . import failures
from .events import (
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
from .openai_responses_prompt import body
from .pieces import count, section, tool_call
from .sse import payload
from .transport import Transport, drain

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from .events import FinishReason, Metadata, StreamEvent
    from .request import Request

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
                chunk = payload(data, self._url)
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
            await drain(wire)

    async def aclose(self) -> None:
        """Close the connections this adapter keeps."""
        await self._transport.aclose()


class _Answer:
    """One answer as it arrives: events of the wire in, events of ours out."""

    def __init__(self) -> None:
        self.done = False
        self._begun = False
        self._texts: dict[str, _Text] = {}
        self._calls: dict[str, _Call] = {}
        self._thoughts: dict[str, _Thought] = {}
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
                self._text(item["id"], out, item.get("phase"))
            case "function_call":
                self._call(item, out)
            case "reasoning":
                self._thought(item["id"]).open(0, out, item.get("encrypted_content"))
            case _:
                pass

    def _item_done(self, chunk: Document, out: list[StreamEvent]) -> None:
        item = chunk["item"]
        match item.get("type"):
            case "message":
                self._text(item["id"], out, item.get("phase")).close(item, out)
            case "function_call":
                self._call(item, out).close(item, out)
            case "reasoning":
                self._thought(item["id"]).close(item, out)
            case _:
                pass

    def _text_delta(self, chunk: Document, out: list[StreamEvent]) -> None:
        self._text(chunk["item_id"], out).grow(chunk["delta"], out)

    def _arguments_delta(self, chunk: Document, out: list[StreamEvent]) -> None:
        call = self._calls.get(chunk["item_id"])
        if call is not None:
            call.grow(chunk["delta"], out)

    def _summary_added(self, chunk: Document, out: list[StreamEvent]) -> None:
        self._thought(chunk["item_id"]).open(chunk["summary_index"], out)

    def _summary_delta(self, chunk: Document, out: list[StreamEvent]) -> None:
        self._thought(chunk["item_id"]).grow(chunk["summary_index"], chunk["delta"], out)

    def _reasoning_delta(self, chunk: Document, out: list[StreamEvent]) -> None:
        """The thought itself rather than a summary, from servers that run open models."""
        self._thought(chunk["item_id"]).grow(0, chunk["delta"], out)

    def _text(self, item_id: str, out: list[StreamEvent], phase: str | None = None) -> _Text:
        if item_id not in self._texts:
            self._texts[item_id] = _Text(item_id, phase, out)
        return self._texts[item_id]

    def _call(self, item: Document, out: list[StreamEvent]) -> _Call:
        key = item.get("id") or item["call_id"]
        if key not in self._calls:
            self._calls[key] = _Call(item, out)
        return self._calls[key]

    def _thought(self, item_id: str) -> _Thought:
        if item_id not in self._thoughts:
            self._thoughts[item_id] = _Thought(item_id)
        return self._thoughts[item_id]

    def _finish(self, chunk: Document, out: list[StreamEvent]) -> None:
        response = chunk["response"]
        self.done = True
        for piece in (*self._thoughts.values(), *self._texts.values(), *self._calls.values()):
            piece.close({}, out)
        reason = self._reason(section(response, "incomplete_details").get("reason"))
        usage = read_usage(section(response, "usage"))
        about = {"responseId": response.get("id"), "serviceTier": response.get("service_tier")}
        metadata: Metadata = {"openai": {name: value for name, value in about.items() if value is not None}}
        out += (FinishStep(reason, usage, metadata), Finish(reason, usage))

    def _reason(self, incomplete: str | None) -> FinishReason:
        if incomplete in _INCOMPLETE:
            return _INCOMPLETE[incomplete]
        if self._calls:
            return "tool-calls"
        return "unknown" if incomplete else "stop"


class _Text:
    """A message of the model's."""

    def __init__(self, item_id: str, phase: str | None, out: list[StreamEvent]) -> None:
        self._id = item_id
        self._phase = phase
        self._grown = False
        self._closed = False
        out.append(TextStart(item_id, self._metadata()))

    def grow(self, text: str, out: list[StreamEvent]) -> None:
        if text:
            self._grown = True
            out.append(TextDelta(self._id, text))

    def close(self, item: Document, out: list[StreamEvent]) -> None:
        if self._closed:
            return
        self._closed = True
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
        self._closed = False
        out.append(ToolInputStart(self._id, self._name))

    def grow(self, text: str, out: list[StreamEvent]) -> None:
        if text:
            self._text.append(text)
            out.append(ToolInputDelta(self._id, text))

    def close(self, item: Document, out: list[StreamEvent]) -> None:
        if self._closed:
            return
        self._closed = True
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
        self._closed = False

    def open(self, index: int, out: list[StreamEvent], proof: str | None = None) -> None:
        if index == self._index or self._closed:
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
        if self._closed:
            return
        self.open(self._index or 0, out)
        self._closed = True
        self._proof = item.get("encrypted_content") or self._proof
        out.append(ReasoningEnd(self._piece(), self._metadata()))

    def _piece(self) -> str:
        return f"{self._id}:{self._index}"

    def _metadata(self) -> Metadata:
        return {"openai": {"itemId": self._id, "reasoningEncryptedContent": self._proof}}


def read_usage(counted: Document) -> Usage:
    """Usage in buckets that do not overlap; OpenAI counts cached tokens as input and reasoning as output."""
    given, spent = section(counted, "input_tokens_details"), section(counted, "output_tokens_details")
    read, written = count(given.get("cached_tokens")), count(given.get("cache_write_tokens"))
    reasoning = count(spent.get("reasoning_tokens"))
    total = counted.get("total_tokens")
    return Usage(
        input=max(0, count(counted.get("input_tokens")) - read - written),
        output=max(0, count(counted.get("output_tokens")) - reasoning),
        reasoning=reasoning,
        cache_read=read,
        cache_write=written,
        total=None if total is None else count(total),
    )
