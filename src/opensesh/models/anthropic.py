"""Anthropic's Messages API, and servers that speak it."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal, cast

from . import failures
from .anthropic_prompt import body
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
    ToolCall,
    ToolError,
    ToolInputDelta,
    ToolInputEnd,
    ToolInputStart,
    ToolResult,
    Usage,
)
from .transport import Transport, encode, ignore_break_after_finish, read_to_end
from .wire_helpers import nested, new_call_id, read_arguments, token_count, write_arguments

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from .request import Request
    from .stream_events import FinishReason, Metadata, StreamEvent

VERSION = "2023-06-01"

_REASONS: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool-calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content-filter",
}
_BETA = "anthropic-beta"


class Anthropic:
    """Claude, or whatever answers at ``base_url``.

    ``auth_header`` says how the key travels; an empty key is not sent, for servers that want none. ``headers`` go with
    every request, and those of a request on top of them, save that the beta features of both are asked for.
    """

    def __init__(
        self,
        api_key: str,
        base_url: str = "https://api.anthropic.com/v1",
        *,
        headers: Mapping[str, str] | None = None,
        auth_header: Literal["x-api-key", "bearer"] = "x-api-key",
        transport: Transport | None = None,
    ) -> None:
        self._url = f"{base_url.rstrip('/')}/messages"
        self._headers = {"anthropic-version": VERSION}
        if api_key:
            name, value = ("authorization", f"Bearer {api_key}") if auth_header == "bearer" else ("x-api-key", api_key)
            self._headers[name] = value
        self._own = {name.lower(): value for name, value in (headers or {}).items()}
        self._transport = transport or Transport()

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        """See :class:`~opensesh.models.request.Provider`."""
        provider_id = request.model.provider_id
        reader = Reader(provider_id, self._url)
        headers = self._request_headers(request)
        async with aclosing(
            self._transport.sse(self._url, headers=headers, body=body(request), provider_id=provider_id)
        ) as events:
            with ignore_break_after_finish(lambda: reader.has_reason):
                async for event in events:
                    for item in reader.read(json_payload(event.data, self._url)):
                        yield item
                    if reader.finished:
                        break
            await read_to_end(events)
        for item in reader.close():
            yield item

    async def aclose(self) -> None:
        """Close the connections this adapter keeps."""
        await self._transport.aclose()

    def _request_headers(self, request: Request) -> dict[str, str]:
        asked = {name.lower(): value for name, value in request.headers.items()}
        betas = [self._own.get(_BETA, ""), asked.get(_BETA, ""), *request.options.get("anthropicBeta", ())]
        features = dict.fromkeys(beta.strip() for group in betas for beta in group.split(",") if beta.strip())
        headers = {**self._headers, **self._own, **asked}
        return {**headers, _BETA: ",".join(features)} if features else headers


class _Block:
    """A content block while it grows."""

    __slots__ = ("given", "id", "kind", "metadata", "name", "pieces")

    def __init__(self, kind: str, block_id: str, name: str = "") -> None:
        self.kind = kind
        self.id = block_id
        self.name = name
        self.pieces: list[str] = []
        self.given: dict[str, Any] = {}
        self.metadata: Metadata | None = None


class Reader:
    """Turns the events of one answer into the common vocabulary, one by one."""

    def __init__(self, provider_id: str = "", url: str = "") -> None:
        self._provider_id = provider_id
        self._url = url
        self._blocks: dict[int, _Block] = {}
        self._usage: dict[str, Any] = {}
        self._stop: dict[str, Any] = {}
        self._begun = False
        self.finished = False
        """Whether the last event has come."""

    @property
    def has_reason(self) -> bool:
        """Whether it is known why the answer ended."""
        return bool(self._stop.get("stop_reason"))

    def read(self, wire: dict[str, Any]) -> Sequence[StreamEvent]:
        """What ``wire`` means; kinds of events and blocks that are not known here mean nothing."""
        try:
            if wire.get("type") == "content_block_delta":
                return self._delta(wire["index"], wire["delta"])
            return self._other(wire)
        except (KeyError, TypeError, AttributeError) as error:
            raise failures.unreadable(encode(wire).decode(), self._url) from error

    def close(self) -> Sequence[StreamEvent]:
        """What is left when the stream has ended: nothing, unless the server forgot to say so."""
        if self.finished:
            return ()
        if self.has_reason:
            return self._finish()
        raise failures.broken_off(self._url)

    def _other(self, wire: dict[str, Any]) -> Sequence[StreamEvent]:
        kind = wire.get("type")
        if kind == "error" or (kind is None and "error" in wire):
            raise failures.from_stream_error(wire, self._provider_id, self._url)
        begin: list[StreamEvent] = [] if self._begun else [Start(), StartStep()]
        self._begun = True
        match kind:
            case "message_start":
                self._count(wire["message"].get("usage"))
            case "content_block_start":
                begin += self._open(wire["index"], wire["content_block"])
            case "content_block_stop":
                begin += self._close(wire["index"])
            case "message_delta":
                self._stop.update(wire["delta"])
                self._count(wire.get("usage"))
            case "message_stop":
                begin += self._finish()
            case _:
                pass
        return begin

    def _count(self, usage: object) -> None:
        """Counts are running totals; what a later event leaves out stands."""
        if isinstance(usage, dict):
            counts = cast("dict[str, Any]", usage)
            self._usage.update({name: number for name, number in counts.items() if number is not None})

    def _open(self, index: int, wire: dict[str, Any]) -> list[StreamEvent]:
        kind: str = wire["type"]
        block = self._blocks[index] = _Block(kind, str(index), wire.get("name", ""))
        match kind:
            case "text":
                said = wire.get("text")
                return [TextStart(block.id), *([TextDelta(block.id, said)] if said else [])]
            case "thinking":
                if wire.get("signature"):
                    block.metadata = {"anthropic": {"signature": wire["signature"]}}
                said = wire.get("thinking")
                return [ReasoningStart(block.id), *([ReasoningDelta(block.id, said)] if said else [])]
            case "redacted_thinking":
                block.metadata = {"anthropic": {"redactedData": wire["data"]}}
                return [ReasoningStart(block.id, block.metadata)]
            case "tool_use" | "server_tool_use" | "mcp_tool_use":
                block.id = wire.get("id") or new_call_id()
                block.given = wire.get("input") or {}
                return [ToolInputStart(block.id, block.name)]
            case _:
                return [_server_result(wire)] if kind.endswith("_tool_result") else []

    def _delta(self, index: int, delta: dict[str, Any]) -> Sequence[StreamEvent]:
        block = self._blocks[index]
        match delta["type"]:
            case "text_delta":
                return (TextDelta(block.id, delta["text"]),)
            case "thinking_delta":
                return (ReasoningDelta(block.id, delta["thinking"]),)
            case "input_json_delta":
                text: str = delta["partial_json"]
                block.pieces.append(text)
                return (ToolInputDelta(block.id, text),) if text else ()
            case "signature_delta":
                block.metadata = {"anthropic": {"signature": delta["signature"]}}
                return ()
            case _:
                return ()

    def _close(self, index: int) -> list[StreamEvent]:
        block = self._blocks.pop(index, None)
        match block and block.kind:
            case "text":
                return [TextEnd(str(index))]
            case "thinking" | "redacted_thinking":
                return [ReasoningEnd(str(index), block and block.metadata)]
            case "tool_use" | "server_tool_use" | "mcp_tool_use" if block:
                return [ToolInputEnd(block.id), _call(block)]
            case _:
                return []

    def _finish(self) -> list[StreamEvent]:
        self.finished = True
        left = [event for index in list(self._blocks) for event in self._close(index)]
        reason = _REASONS.get(self._stop.get("stop_reason") or "", "unknown")
        usage = _usage(self._usage)
        facts: dict[str, Any] = {"usage": self._usage}
        if self._stop.get("stop_sequence"):
            facts["stopSequence"] = self._stop["stop_sequence"]
        return [*left, FinishStep(reason, usage, {"anthropic": facts}), Finish(reason, usage)]


def _usage(counts: dict[str, Any]) -> Usage:
    """Anthropic counts cached input apart already; thinking is part of its output. The total is left to the reader."""
    thinking = token_count(nested(counts, "output_tokens_details").get("thinking_tokens"))
    fresh, output = token_count(counts.get("input_tokens")), token_count(counts.get("output_tokens"))
    read, written = (
        token_count(counts.get("cache_read_input_tokens")),
        token_count(counts.get("cache_creation_input_tokens")),
    )
    return Usage(
        input=fresh,
        output=max(0, output - thinking),
        reasoning=thinking,
        cache_read=read,
        cache_write=written,
        total=fresh + output + read + written,
    )


def _call(block: _Block) -> ToolCall:
    raw = "".join(block.pieces) or (write_arguments(block.given) if block.given else "")
    arguments, problem = read_arguments(raw)
    return ToolCall(block.id, block.name, arguments, raw, problem, executed=block.kind != "tool_use")


def _server_result(wire: dict[str, Any]) -> ToolResult | ToolError:
    """What a tool that ran at the provider answered."""
    call_id: str = wire["tool_use_id"]
    content = wire.get("content")
    said = encode(content).decode()
    kind = cast("dict[str, Any]", content).get("type") if isinstance(content, dict) else None
    if wire.get("is_error") or str(kind).endswith("_error"):
        return ToolError(call_id, said)
    return ToolResult(call_id, said)
