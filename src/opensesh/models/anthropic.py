"""Anthropic's Messages API, and servers compatible with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

from ..records import object_at
from . import failures
from .answers import AnswerReader, StreamedPiece
from .anthropic_request import request_body
from .stream_events import FinishStep, ToolError, ToolResult, Usage
from .transport import HTTPProvider
from .wire_helpers import encode_json, lower_names, nested, new_call_id, token_count, write_arguments

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .request import Request
    from .stream_events import FinishReason
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
        self._blocks: dict[int, StreamedPiece | None] = {}
        """The open content blocks; ``None`` for those of other kinds."""
        self._usage: dict[str, Any] = {}
        self._reason = ""

    def convert(self, wire: dict[str, Any], name: str) -> None:
        match wire.get("type"):
            case "content_block_delta":
                block = self._blocks[wire["index"]]
                if block is not None:
                    self._delta(block, wire["delta"])
            case "content_block_start":
                self._blocks[wire["index"]] = self._open(str(wire["index"]), wire["content_block"])
            case "content_block_stop":
                if (block := self._blocks.pop(wire["index"], None)) is not None:
                    block.end()
            case "message_start":
                self._count(wire["message"].get("usage"))
            case "message_delta":
                self._reason = wire["delta"].get("stop_reason") or self._reason
                self.complete = bool(self._reason)
                self._count(wire.get("usage"))
            case "message_stop":
                self.complete = True
                self.end()
            case kind if kind == "error" or (kind is None and "error" in wire):
                raise failures.from_stream_error(wire, self.provider_id, self.url)
            case _:
                pass

    def _count(self, usage: object) -> None:
        # Counts are running totals; one that a later event omits still stands.
        if isinstance(usage, dict):
            counts = cast("dict[str, Any]", usage)
            self._usage.update({name: number for name, number in counts.items() if number is not None})

    def _open(self, block_id: str, wire: dict[str, Any]) -> StreamedPiece | None:
        match kind := wire["type"]:
            case "text" | "thinking":
                block = self.answer.begin_text("text" if kind == "text" else "reasoning", block_id)
                if wire.get("signature"):
                    block.metadata = {"anthropic": {"signature": wire["signature"]}}
                block.add(wire.get(kind) or "")
            case "redacted_thinking":
                redacted = {"anthropic": {"redactedData": wire["data"]}}
                block = self.answer.begin_text("reasoning", block_id, redacted)
                block.metadata = redacted
            case "tool_use" | "server_tool_use" | "mcp_tool_use":
                call_id, name = wire.get("id") or new_call_id(), wire.get("name", "")
                block = self.answer.begin_call(call_id, name, executed=kind != "tool_use")
                block.arguments = write_arguments(wire["input"]) if wire.get("input") else ""
            case _:
                block = None
                if kind.endswith("_tool_result"):  # of a tool that ran at the provider
                    content, call_id = wire.get("content"), wire["tool_use_id"]
                    text = encode_json(content).decode()
                    failed = wire.get("is_error") or str(object_at(wire, "content").get("type")).endswith("_error")
                    self.answer.events.append(ToolError(call_id, text) if failed else ToolResult(call_id, text))
        return block

    def _delta(self, block: StreamedPiece, delta: dict[str, Any]) -> None:
        match delta["type"]:
            case "text_delta":
                block.add(delta["text"])
            case "thinking_delta":
                block.add(delta["thinking"])
            case "input_json_delta":
                block.add(delta["partial_json"])
            case "signature_delta":
                block.metadata = {"anthropic": {"signature": delta["signature"]}}
            case _:
                pass

    def finish(self) -> None:
        for block in self._blocks.values():
            if block is not None:
                block.end()
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
        self.answer.events.append(FinishStep(reason, usage))
