"""OpenAI's responses API, on which reasoning is kept from one step to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..records import object_at
from . import failures
from .openai_responses_request import request_body
from .stream_events import (
    FinishStep,
    TextDelta,
    TextEnd,
    TextStart,
    ToolInputDelta,
    ToolInputStart,
    Usage,
)
from .transport import HTTPProvider
from .wire_helpers import AnswerReader, token_count, tool_call

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .request import Request
    from .sse import ServerSentEvent
    from .stream_events import FinishReason, Metadata, StreamEvent
    from .transport import Transport, WireAnswer

Document = dict[str, Any]

_INCOMPLETE: dict[str, FinishReason] = {"max_output_tokens": "length", "content_filter": "content-filter"}


class OpenAIResponses(HTTPProvider):
    """Provider for a server with ``/responses``."""

    def __init__(
        self,
        api_key: str,
        base_url: str = "https://api.openai.com/v1",
        *,
        headers: Mapping[str, str] | None = None,
        provider_id: str = "",
        transport: Transport | None = None,
    ) -> None:
        super().__init__(transport, provider_id)
        self._url = f"{base_url.rstrip('/')}/responses"
        self._headers = {**({"authorization": f"Bearer {api_key}"} if api_key else {}), **(headers or {})}

    async def send(self, request: Request, provider_id: str) -> WireAnswer:
        headers = {**self._headers, **request.headers}
        wire = self._transport.sse(self._url, headers=headers, body=request_body(request), provider_id=provider_id)
        return wire, OpenAIResponsesReader(provider_id, self._url)


class OpenAIResponsesReader(AnswerReader):
    """Reads one answer of the responses API."""

    def __init__(self, provider_id: str, url: str) -> None:
        super().__init__(provider_id, url)
        self._messages: _ItemIndex[_MessageItem] = _ItemIndex()
        self._calls: _ItemIndex[_FunctionCallItem] = _ItemIndex()
        self._reasoning: _ItemIndex[_ReasoningItem] = _ItemIndex()
        self._response: Document = {}

    def read(self, event: ServerSentEvent) -> list[StreamEvent]:
        """Return the events that ``event`` brings; ``[DONE]`` before the answer is complete is an error."""
        if event.data == "[DONE]":
            return self.close()
        return super().read(event)

    def convert(self, wire: Document, name: str) -> list[StreamEvent]:
        kind = wire.get("type") or name
        if kind in ("error", "response.failed") or wire.get("error"):
            raise failures.from_stream_error(wire, self.provider_id, self.url)
        out: list[StreamEvent] = []
        match kind:
            case "response.output_text.delta" | "response.refusal.delta":
                self._message(wire, wire["item_id"], out).add(wire["delta"], out)
            case "response.function_call_arguments.delta":
                call = self._calls.find(wire, wire["item_id"])
                if call is not None:
                    call.add(wire["delta"], out)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                # The latter is the reasoning itself, from servers that run open models; it has no index.
                index = wire["summary_index"] if "summary" in kind else 0
                self._reasoning_item(wire, wire["item_id"]).add(index, wire["delta"], out)
            case "response.reasoning_summary_part.added":
                self._reasoning_item(wire, wire["item_id"]).open(wire["summary_index"], out)
            case "response.output_item.added":
                self._item_added(wire, wire["item"], out)
            case "response.output_item.done":
                self._item_done(wire, wire["item"], out)
            case "response.completed" | "response.incomplete":
                self._response = wire["response"]
                self.complete = True
                return self.close()
            case _:
                pass
        return out

    def _item_added(self, wire: Document, item: Document, out: list[StreamEvent]) -> None:
        match item.get("type"):
            case "message":
                self._messages.add(wire, item["id"], _MessageItem(item["id"], item.get("phase"), out))
            case "function_call":
                self._calls.add(wire, item.get("id") or item["call_id"], _FunctionCallItem(item, out))
            case "reasoning":
                reasoning = self._reasoning.add(wire, item["id"], _ReasoningItem(item["id"]))
                reasoning.open(0, out, item.get("encrypted_content"))
            case _:
                pass

    def _item_done(self, wire: Document, item: Document, out: list[StreamEvent]) -> None:
        match item.get("type"):
            case "message":
                self._message(wire, item["id"], out).close(item, out)
            case "function_call":
                item_id = item.get("id") or item["call_id"]
                call = self._calls.find(wire, item_id)
                if call is None:
                    call = self._calls.add(wire, item_id, _FunctionCallItem(item, out))
                call.close(item, out)
            case "reasoning":
                self._reasoning_item(wire, item["id"]).close(item, out)
            case _:
                pass

    def _message(self, wire: Document, item_id: str, out: list[StreamEvent]) -> _MessageItem:
        message = self._messages.find(wire, item_id)
        return message or self._messages.add(wire, item_id, _MessageItem(item_id, None, out))

    def _reasoning_item(self, wire: Document, item_id: str) -> _ReasoningItem:
        return self._reasoning.find(wire, item_id) or self._reasoning.add(wire, item_id, _ReasoningItem(item_id))

    def final_events(self) -> list[StreamEvent]:
        out: list[StreamEvent] = []
        for item in (*self._reasoning.items, *self._messages.items, *self._calls.items):
            item.close({}, out)
        incomplete = object_at(self._response, "incomplete_details").get("reason")
        reason: FinishReason = "unknown" if incomplete else "stop"
        if incomplete in _INCOMPLETE:
            reason = _INCOMPLETE[incomplete]
        elif self._calls.items:
            reason = "tool-calls"
        # Cached tokens are part of the input's count, reasoning is part of the output's.
        counts = object_at(self._response, "usage")
        details = object_at(counts, "input_tokens_details")
        read, written = token_count(details.get("cached_tokens")), token_count(details.get("cache_write_tokens"))
        reasoning = token_count(object_at(counts, "output_tokens_details").get("reasoning_tokens"))
        total = counts.get("total_tokens")
        usage = Usage(
            input=max(0, token_count(counts.get("input_tokens")) - read - written),
            output=max(0, token_count(counts.get("output_tokens")) - reasoning),
            reasoning=reasoning,
            cache_read=read,
            cache_write=written,
            total=None if total is None else token_count(total),
        )
        return [*out, FinishStep(reason, usage)]


class _OutputItem:
    """An item of the answer while it streams in."""

    def __init__(self, item_id: str) -> None:
        self.id = item_id
        self.closed = False


ItemT = TypeVar("ItemT", bound=_OutputItem)


class _ItemIndex(Generic[ItemT]):
    """The items of one kind so far.

    Events name their item by an id. GitHub Copilot, and proxies before it, change that id with every event; then the
    item's position in the answer identifies it.
    """

    def __init__(self) -> None:
        self.items: list[ItemT] = []
        self._by_id: dict[str, ItemT] = {}
        self._by_position: dict[int, ItemT] = {}

    def add(self, wire: Document, item_id: str, item: ItemT) -> ItemT:
        self.items.append(item)
        self._by_id[item_id] = self._by_position[wire.get("output_index", -1)] = item
        return item

    def find(self, wire: Document, item_id: str) -> ItemT | None:
        if item_id in self._by_id:
            return self._by_id[item_id]
        item = self._by_position.get(wire.get("output_index", -1))
        return None if item is None or item.closed else item


class _MessageItem(_OutputItem):
    """Text of the model."""

    def __init__(self, item_id: str, phase: str | None, out: list[StreamEvent]) -> None:
        super().__init__(item_id)
        self._phase = phase
        self._has_text = False
        out.append(TextStart(item_id, self._metadata()))

    def add(self, text: str, out: list[StreamEvent]) -> None:
        if text:
            self._has_text = True
            out.append(TextDelta(self.id, text))

    def close(self, item: Document, out: list[StreamEvent]) -> None:
        if self.closed:
            return
        self.closed = True
        self._phase = item.get("phase") or self._phase
        if not self._has_text:
            content = item.get("content") or ()
            self.add("".join(part.get("text") or part.get("refusal") or "" for part in content), out)
        out.append(TextEnd(self.id, self._metadata()))

    def _metadata(self) -> Metadata:
        return {"openai": {"itemId": self.id, **({"phase": self._phase} if self._phase else {})}}


class _FunctionCallItem(_OutputItem):
    """A tool call."""

    def __init__(self, item: Document, out: list[StreamEvent]) -> None:
        super().__init__(item["call_id"])
        self._item_id = item.get("id")
        self._name = item["name"]
        self._chunks: list[str] = []
        out.append(ToolInputStart(self.id, self._name))

    def add(self, text: str, out: list[StreamEvent]) -> None:
        if text:
            self._chunks.append(text)
            out.append(ToolInputDelta(self.id, text))

    def close(self, item: Document, out: list[StreamEvent]) -> None:
        if self.closed:
            return
        self.closed = True
        if not self._chunks:
            self.add(item.get("arguments") or "", out)
        raw = item.get("arguments") or "".join(self._chunks)
        metadata: Metadata | None = {"openai": {"itemId": self._item_id}} if self._item_id else None
        out.append(tool_call(self.id, self._name, raw, metadata))


class _ReasoningItem(_OutputItem):
    """Reasoning: one or more summaries, each a piece of its own, that share an id and the encrypted content.

    The encrypted content is final only when the item is done, so the last summary carries it.
    """

    def __init__(self, item_id: str) -> None:
        super().__init__(item_id)
        self._encrypted: str | None = None
        self._index: int | None = None

    def open(self, index: int, out: list[StreamEvent], encrypted: str | None = None) -> None:
        if index == self._index or self.closed:
            return
        self._encrypted = encrypted or self._encrypted
        if self._index is not None:
            out.append(TextEnd(self._piece_id(), {"openai": {"itemId": self.id}}, kind="reasoning"))
        self._index = index
        out.append(TextStart(self._piece_id(), self._metadata(), kind="reasoning"))

    def add(self, index: int, text: str, out: list[StreamEvent]) -> None:
        self.open(index, out)
        out.append(TextDelta(self._piece_id(), text, kind="reasoning"))

    def close(self, item: Document, out: list[StreamEvent]) -> None:
        if self.closed:
            return
        self.open(self._index or 0, out)
        self.closed = True
        self._encrypted = item.get("encrypted_content") or self._encrypted
        out.append(TextEnd(self._piece_id(), self._metadata(), kind="reasoning"))

    def _piece_id(self) -> str:
        return f"{self.id}:{self._index}"

    def _metadata(self) -> Metadata:
        return {"openai": {"itemId": self.id, "reasoningEncryptedContent": self._encrypted}}
