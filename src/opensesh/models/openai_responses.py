"""OpenAI's responses API, on which reasoning is kept from one step to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..records import object_at
from . import failures
from .answers import AnswerBuilder, AnswerReader, StreamedPiece
from .openai_responses_request import request_body
from .stream_events import FinishStep, Usage
from .transport import HTTPProvider
from .wire_helpers import token_count

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

    def convert(self, wire: Document, name: str) -> None:
        kind = wire.get("type") or name
        if kind in ("error", "response.failed") or wire.get("error"):
            raise failures.from_stream_error(wire, self.provider_id, self.url)
        match kind:
            case "response.output_text.delta" | "response.refusal.delta":
                self._message(wire, wire["item_id"]).add(wire["delta"])
            case "response.function_call_arguments.delta":
                call = self._calls.find(wire, wire["item_id"])
                if call is not None:
                    call.add(wire["delta"])
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                # The latter is the reasoning itself, from servers that run open models; it has no index.
                index = wire["summary_index"] if "summary" in kind else 0
                self._reasoning_item(wire, wire["item_id"]).add(index, wire["delta"])
            case "response.reasoning_summary_part.added":
                self._reasoning_item(wire, wire["item_id"]).open(wire["summary_index"])
            case "response.output_item.added":
                self._item_added(wire, wire["item"])
            case "response.output_item.done":
                self._item_done(wire, wire["item"])
            case "response.completed" | "response.incomplete":
                self._response = wire["response"]
                self.complete = True
                self.end()
            case _:
                pass

    def _item_added(self, wire: Document, item: Document) -> None:
        match item.get("type"):
            case "message":
                self._messages.add(wire, item["id"], _MessageItem(self.answer, item["id"], item.get("phase")))
            case "function_call":
                self._calls.add(wire, item.get("id") or item["call_id"], _FunctionCallItem(self.answer, item))
            case "reasoning":
                reasoning = self._reasoning.add(wire, item["id"], _ReasoningItem(self.answer, item["id"]))
                reasoning.open(0, item.get("encrypted_content"))
            case _:
                pass

    def _item_done(self, wire: Document, item: Document) -> None:
        match item.get("type"):
            case "message":
                self._message(wire, item["id"]).close(item)
            case "function_call":
                item_id = item.get("id") or item["call_id"]
                call = self._calls.find(wire, item_id)
                if call is None:
                    call = self._calls.add(wire, item_id, _FunctionCallItem(self.answer, item))
                call.close(item)
            case "reasoning":
                self._reasoning_item(wire, item["id"]).close(item)
            case _:
                pass

    def _message(self, wire: Document, item_id: str) -> _MessageItem:
        message = self._messages.find(wire, item_id)
        return message or self._messages.add(wire, item_id, _MessageItem(self.answer, item_id))

    def _reasoning_item(self, wire: Document, item_id: str) -> _ReasoningItem:
        reasoning = self._reasoning.find(wire, item_id)
        return reasoning or self._reasoning.add(wire, item_id, _ReasoningItem(self.answer, item_id))

    def finish(self) -> None:
        for item in (*self._reasoning.items, *self._messages.items, *self._calls.items):
            item.close({})
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
        self.answer.events.append(FinishStep(reason, usage))


class _OutputItem:
    """An item of the answer while it streams in."""

    closed = False


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

    def __init__(self, answer: AnswerBuilder, item_id: str, phase: str | None = None) -> None:
        self._id = item_id
        self._phase = phase
        self._piece = answer.begin_text("text", item_id, self._metadata())

    def add(self, text: str) -> None:
        self._piece.add(text)

    def close(self, item: Document) -> None:
        if self.closed:
            return
        self.closed = True
        self._phase = item.get("phase") or self._phase
        if not self._piece.text:
            content = item.get("content") or ()
            self.add("".join(part.get("text") or part.get("refusal") or "" for part in content))
        self._piece.end(self._metadata())

    def _metadata(self) -> Metadata:
        return {"openai": {"itemId": self._id, **({"phase": self._phase} if self._phase else {})}}


class _FunctionCallItem(_OutputItem):
    """A tool call."""

    def __init__(self, answer: AnswerBuilder, item: Document) -> None:
        self._piece = answer.begin_call(item["call_id"], item["name"])
        self._item_id = item.get("id")

    def add(self, text: str) -> None:
        if not self.closed:
            self._piece.add(text)

    def close(self, item: Document) -> None:
        if self.closed:
            return
        self.closed = True
        arguments = item.get("arguments") or ""
        if not self._piece.text:
            self._piece.add(arguments)
        self._piece.arguments = arguments
        self._piece.end({"openai": {"itemId": self._item_id}} if self._item_id else None)


class _ReasoningItem(_OutputItem):
    """Reasoning: one or more summaries, each a piece of its own, that share an id and the encrypted content.

    The encrypted content is final only when the item is done, so the last summary carries it.
    """

    def __init__(self, answer: AnswerBuilder, item_id: str) -> None:
        self._answer = answer
        self._id = item_id
        self._encrypted: str | None = None
        self._index: int | None = None
        self._piece: StreamedPiece | None = None

    def open(self, index: int, encrypted: str | None = None) -> None:
        if index == self._index or self.closed:
            return
        self._encrypted = encrypted or self._encrypted
        if self._piece is not None:
            self._piece.end({"openai": {"itemId": self._id}})
        self._index = index
        self._piece = self._answer.begin_text("reasoning", f"{self._id}:{index}", self._metadata())

    def add(self, index: int, text: str) -> None:
        self.open(index)
        if self._piece is not None:
            self._piece.add(text)

    def close(self, item: Document) -> None:
        if self.closed:
            return
        self.open(self._index or 0)
        self.closed = True
        self._encrypted = item.get("encrypted_content") or self._encrypted
        if self._piece is not None:
            self._piece.end(self._metadata())

    def _metadata(self) -> Metadata:
        return {"openai": {"itemId": self._id, "reasoningEncryptedContent": self._encrypted}}
