"""Anthropic's Messages API, and servers compatible with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

from ..records import object_at
from . import failures
from .anthropic_request import request_body
from .stream_events import (
    FinishStep,
    TextDelta,
    TextStart,
    ToolError,
    ToolInputDelta,
    ToolInputStart,
    ToolResult,
    Usage,
)
from .transport import HTTPProvider
from .wire_helpers import (
    AnswerReader,
    ContentBlock,
    encode_json,
    lower_names,
    nested,
    new_call_id,
    token_count,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .request import Request
    from .stream_events import FinishReason, StreamEvent, TextKind
    from .transport import Transport, WireAnswer

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
_KINDS: dict[str, Literal["text", "reasoning", "tool"]] = {
    "text": "text",
    "thinking": "reasoning",
    "redacted_thinking": "reasoning",
    "tool_use": "tool",
    "server_tool_use": "tool",
    "mcp_tool_use": "tool",
}
_BETA = "anthropic-beta"


class Anthropic(HTTPProvider):
    """Provider for Claude, or a compatible server at ``base_url``.

    ``auth_header`` is how the key is sent; an empty key is not sent. ``headers`` go with every request, then those of
    the request; the beta features of both are joined.
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
        super().__init__(transport)
        self._url = f"{base_url.rstrip('/')}/messages"
        self._headers = {"anthropic-version": VERSION}
        if api_key:
            name, value = ("authorization", f"Bearer {api_key}") if auth_header == "bearer" else ("x-api-key", api_key)
            self._headers[name] = value
        self._headers |= lower_names(headers)

    async def send(self, request: Request, provider_id: str) -> WireAnswer:
        own = lower_names(request.headers)
        headers = {**self._headers, **own}
        betas = [self._headers.get(_BETA, ""), own.get(_BETA, ""), *request.options.get("anthropicBeta", ())]
        features = dict.fromkeys(beta.strip() for group in betas for beta in group.split(",") if beta.strip())
        if features:
            headers[_BETA] = ",".join(features)
        wire = self._transport.sse(self._url, headers=headers, body=request_body(request), provider_id=provider_id)
        return wire, AnthropicReader(provider_id, self._url)


class AnthropicReader(AnswerReader):
    """Reads one answer of the Messages API."""

    def __init__(self, provider_id: str, url: str) -> None:
        super().__init__(provider_id, url)
        self._blocks: dict[int, ContentBlock] = {}
        self._usage: dict[str, Any] = {}
        self._reason = ""

    def convert(self, wire: dict[str, Any], name: str) -> list[StreamEvent]:
        match wire.get("type"):
            case "content_block_delta":
                return self._delta(self._blocks[wire["index"]], wire["delta"])
            case "content_block_start":
                return self._open(wire["index"], wire["content_block"])
            case "content_block_stop":
                block = self._blocks.pop(wire["index"], None)
                return block.end() if block else []
            case "message_start":
                self._count(wire["message"].get("usage"))
            case "message_delta":
                self._reason = wire["delta"].get("stop_reason") or self._reason
                self.complete = bool(self._reason)
                self._count(wire.get("usage"))
            case "message_stop":
                self.complete = True
                return self.close()
            case kind if kind == "error" or (kind is None and "error" in wire):
                raise failures.from_stream_error(wire, self.provider_id, self.url)
            case _:
                pass
        return []

    def _count(self, usage: object) -> None:
        # Counts are running totals; one that a later event omits still stands.
        if isinstance(usage, dict):
            counts = cast("dict[str, Any]", usage)
            self._usage.update({name: number for name, number in counts.items() if number is not None})

    def _open(self, index: int, wire: dict[str, Any]) -> list[StreamEvent]:
        kind: str = wire["type"]
        block = self._blocks[index] = ContentBlock(_KINDS.get(kind, "other"), str(index), wire.get("name", ""))
        match kind:
            case "text" | "thinking":
                if wire.get("signature"):
                    block.metadata = {"anthropic": {"signature": wire["signature"]}}
                piece: TextKind = "text" if kind == "text" else "reasoning"
                start, text = TextStart(block.id, kind=piece), wire.get(kind)
                return [start, TextDelta(block.id, text, piece)] if text else [start]
            case "redacted_thinking":
                block.metadata = {"anthropic": {"redactedData": wire["data"]}}
                return [TextStart(block.id, block.metadata, kind="reasoning")]
            case "tool_use" | "server_tool_use" | "mcp_tool_use":
                block.id = wire.get("id") or new_call_id()
                block.input = wire.get("input") or {}
                block.executed = kind != "tool_use"
                return [ToolInputStart(block.id, block.name)]
            case _:
                if not kind.endswith("_tool_result"):
                    return []
                # The result of a tool that ran at the provider.
                content, call_id = wire.get("content"), wire["tool_use_id"]
                text = encode_json(content).decode()
                failed = wire.get("is_error") or str(object_at(wire, "content").get("type")).endswith("_error")
                return [ToolError(call_id, text) if failed else ToolResult(call_id, text)]

    def _delta(self, block: ContentBlock, delta: dict[str, Any]) -> list[StreamEvent]:
        match delta["type"]:
            case "text_delta":
                return [TextDelta(block.id, delta["text"])]
            case "thinking_delta":
                return [TextDelta(block.id, delta["thinking"], kind="reasoning")]
            case "input_json_delta":
                text: str = delta["partial_json"]
                block.chunks.append(text)
                return [ToolInputDelta(block.id, text)] if text else []
            case "signature_delta":
                block.metadata = {"anthropic": {"signature": delta["signature"]}}
                return []
            case _:
                return []

    def final_events(self) -> list[StreamEvent]:
        events = [event for block in self._blocks.values() for event in block.end()]
        reason = _REASONS.get(self._reason, "unknown")
        # Cached input is counted apart from the rest; thinking is part of the output. A total is not sent.
        counts = self._usage
        thinking = token_count(nested(counts, "output_tokens_details").get("thinking_tokens"))
        fresh, output, read, written = (
            token_count(counts.get(name))
            for name in ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        )
        usage = Usage(
            input=fresh,
            output=max(0, output - thinking),
            reasoning=thinking,
            cache_read=read,
            cache_write=written,
            total=fresh + output + read + written,
        )
        return [*events, FinishStep(reason, usage)]
