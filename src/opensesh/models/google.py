"""Google's Gemini API (``streamGenerateContent``)."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ..errors import ContentFilteredError
from ..records import object_at
from . import failures
from .answers import AnswerReader, StreamedPiece, read_answer
from .google_request import request_body
from .stream_events import FinishStep, Usage
from .transport import HTTPProvider
from .wire_helpers import new_call_id, token_count, write_arguments

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from .request import Request
    from .stream_events import FinishReason, Metadata, StreamEvent, TextKind
    from .transport import Transport

_CONTINUATION = "CONTINUATION"

_REASONS: dict[str, FinishReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    _CONTINUATION: "length",
    "SAFETY": "content-filter",
    "RECITATION": "content-filter",
    "BLOCKLIST": "content-filter",
    "PROHIBITED_CONTENT": "content-filter",
    "SPII": "content-filter",
    "IMAGE_SAFETY": "content-filter",
    "IMAGE_PROHIBITED_CONTENT": "content-filter",
    "IMAGE_RECITATION": "content-filter",
    "LANGUAGE": "other",
    "OTHER": "other",
    "FINISH_REASON_UNSPECIFIED": "other",
    "MALFORMED_FUNCTION_CALL": "error",
    "MALFORMED_RESPONSE": "error",
    "UNEXPECTED_TOOL_CALL": "error",
    "TOO_MANY_TOOL_CALLS": "error",
}


class Google(HTTPProvider):
    """Provider for Gemini. The key is sent in a header, never in the URL."""

    def __init__(
        self,
        api_key: str,
        base_url: str = "https://generativelanguage.googleapis.com/v1beta",
        *,
        headers: Mapping[str, str] | None = None,
        provider_id: str = "",
        transport: Transport | None = None,
        new_call_id: Callable[[], str] = new_call_id,
    ) -> None:
        """``new_call_id`` makes ids for calls that come without one: all of them before Gemini 3."""
        super().__init__(transport, provider_id)
        self._base_url = base_url.rstrip("/")
        self._headers = {**({"x-goog-api-key": api_key} if api_key else {}), **(headers or {})}
        self._new_call_id = new_call_id

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        """See :class:`~opensesh.models.request.Provider`. An answer that Gemini splits takes several requests."""
        model_id = request.model.wire_id
        path = model_id if "/" in model_id else f"models/{model_id}"
        url = f"{self._base_url}/{quote(path)}:streamGenerateContent?alt=sse"
        provider_id = self._provider_id or request.model.provider_id
        headers = {**self._headers, **request.headers}
        body = request_body(request)
        reader = GoogleReader(provider_id, url, self._new_call_id)
        while not reader.finished:
            wire = self._transport.sse(url, headers=headers, body=body, provider_id=provider_id)
            async with aclosing(read_answer(wire, reader)) as events:
                async for event in events:
                    yield event
            body["continuationToken"] = reader.continuation_token


class GoogleReader(AnswerReader):
    """Reads one answer, which may come in several responses."""

    def __init__(self, provider_id: str, url: str, new_call_id: Callable[[], str]) -> None:
        super().__init__(provider_id, url)
        self.continuation_token = ""
        self._finish_reason = ""
        self._block_reason = ""
        self._new_call_id = new_call_id
        self._usage: dict[str, Any] = {}
        self._earlier_usage = Usage()
        """Usage of the responses before this one."""
        self._call_ids: set[str] = set()
        self._piece: StreamedPiece | None = None
        """The open text or reasoning."""

    def close(self) -> list[StreamEvent]:
        """Return the final events, or none if the answer continues in another response."""
        if self._block_reason:
            url = failures.public_url(self.url)
            raise ContentFilteredError(f"Gemini refused the prompt: {self._block_reason}", url=url)
        if self._finish_reason == _CONTINUATION and self.continuation_token:
            self._earlier_usage, self._usage = self._total_usage(), {}
            self._finish_reason = ""
            self.complete = False
            return []
        return super().close()

    def convert(self, wire: dict[str, Any], name: str) -> None:
        if wire.get("error"):
            raise failures.from_stream_error(wire, self.provider_id, self.url)
        self._usage = object_at(wire, "usageMetadata") or self._usage
        candidates = wire.get("candidates")
        if not candidates:
            feedback = object_at(wire, "promptFeedback")
            reason = feedback.get("blockReasonMessage") or feedback.get("blockReason")
            self._block_reason = reason or self._block_reason
            return
        candidate = candidates[0]
        for part in object_at(candidate, "content").get("parts") or ():
            signature = part.get("thoughtSignature")
            if call := part.get("functionCall"):
                self._end_piece()
                call_id = call.get("id") or ""
                if not call_id or call_id in self._call_ids:
                    call_id = self._new_call_id()
                self._call_ids.add(call_id)
                piece = self.answer.begin_call(call_id, call["name"])
                piece.add(write_arguments(call.get("args") or {}))
                piece.end(_signed(signature))
            elif isinstance(text := part.get("text"), str):
                self._add_text("reasoning" if part.get("thought") else "text", text, signature)
        if reason := candidate.get("finishReason"):
            self.complete = True
            self._finish_reason = reason
            self.continuation_token = candidate.get("continuationToken") or ""

    def _add_text(self, kind: TextKind, text: str, signature: str | None) -> None:
        piece = self._piece
        # A signature ends its piece: signed text must be sent back exactly as it came.
        if text and (piece is None or piece.kind != kind or piece.metadata):
            self._end_piece()
            piece = self._piece = self.answer.begin_text(kind)
        if piece is not None and piece.kind == kind:
            piece.add(text)
            piece.metadata = _signed(signature) or piece.metadata

    def _end_piece(self) -> None:
        if self._piece is not None:
            self._piece.end()
            self._piece = None

    def finish(self) -> None:
        self._end_piece()
        reason = _REASONS.get(self._finish_reason, "unknown")
        if self._call_ids and reason == "stop":
            reason = "tool-calls"
        self.answer.events.append(FinishStep(reason, self._total_usage()))

    def _total_usage(self) -> Usage:
        # Cached tokens are part of the prompt's count; thoughts are counted apart from the answer.
        counts, earlier = self._usage, self._earlier_usage
        cached = token_count(counts.get("cachedContentTokenCount"))
        prompt = token_count(counts.get("promptTokenCount")) + token_count(counts.get("toolUsePromptTokenCount"))
        total = counts.get("totalTokenCount")
        if total is not None or earlier != Usage():
            total = (earlier.total or 0) + token_count(total)
        return Usage(
            input=earlier.input + max(0, prompt - cached),
            output=earlier.output + token_count(counts.get("candidatesTokenCount")),
            reasoning=earlier.reasoning + token_count(counts.get("thoughtsTokenCount")),
            cache_read=earlier.cache_read + cached,
            total=total,
        )


def _signed(signature: str | None) -> Metadata | None:
    return {"google": {"thoughtSignature": signature}} if signature else None
