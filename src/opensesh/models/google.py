"""Gemini: whole calls, signed thoughts, and answers that may go on in a second request."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ..errors import ContentFilteredError
from . import failures
from .google_prompt import body
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
from .transport import Transport, ignore_break_after_finish
from .wire_helpers import new_call_id, object_field, token_count, tool_call, write_arguments

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from .request import Request
    from .stream_events import FinishReason, Metadata, StreamEvent

Document = dict[str, Any]

_CONTINUES = "CONTINUATION"

_REASONS: dict[str, FinishReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    _CONTINUES: "length",
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


class Google:
    """Gemini's own API. The key travels in a header, never in the address."""

    def __init__(
        self,
        api_key: str,
        base_url: str = "https://generativelanguage.googleapis.com/v1beta",
        *,
        headers: Mapping[str, str] | None = None,
        provider_id: str = "",
        transport: Transport | None = None,
        mint_id: Callable[[], str] = new_call_id,
    ) -> None:
        """``mint_id`` names the calls that come without an id: all of those before Gemini 3."""
        self._base_url = base_url.rstrip("/")
        self._headers = {**({"x-goog-api-key": api_key} if api_key else {}), **(headers or {})}
        self._provider_id = provider_id
        self._transport = transport or Transport()
        self._mint_id = mint_id

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        """Ask, and yield what comes. An answer longer than Gemini gives at once is asked for to its end."""
        url = self._url(request.model.wire_id)
        provider_id = self._provider_id or request.model.provider_id
        headers = {**self._headers, **request.headers}
        asked = body(request)
        answer = _Answer(self._mint_id)
        while not answer.finish_reason:
            async with aclosing(self._transport.sse(url, headers=headers, body=asked, provider_id=provider_id)) as wire:
                with ignore_break_after_finish(lambda: answer.finish_reason):
                    async for _, data in wire:
                        for event in _read(answer, data, url, provider_id):
                            yield event
            _check(answer, url)
            if token := answer.proceed():
                asked["continuationToken"] = token
        for event in answer.close():
            yield event

    async def aclose(self) -> None:
        """Close the connections this adapter keeps."""
        await self._transport.aclose()

    def _url(self, model: str) -> str:
        path = model if "/" in model else f"models/{model}"
        return f"{self._base_url}/{quote(path)}:streamGenerateContent?alt=sse"


def _read(answer: _Answer, data: str, url: str, provider_id: str) -> list[StreamEvent]:
    chunk = json_payload(data, url)
    if chunk.get("error"):
        raise failures.from_stream_error(chunk, provider_id, url)
    try:
        return answer.read(chunk)
    except (AttributeError, LookupError, TypeError, ValueError) as cause:
        raise failures.unreadable(data, url) from cause


def _check(answer: _Answer, url: str) -> None:
    """Raise if the stream ended as none should."""
    if answer.blocked:
        raise ContentFilteredError(f"Gemini refused the prompt: {answer.blocked}", url=failures.public_url(url))
    if not answer.finish_reason:
        raise failures.broken_off(url)


class _Answer:
    """One answer as it arrives: chunks in, events out."""

    def __init__(self, mint_id: Callable[[], str]) -> None:
        self.blocked = ""
        self.finish_reason = ""
        self._begun = False
        self._continuation = ""
        self._message = ""
        self._mint_id = mint_id
        self._usage: Document = {}
        self._spent = Usage()
        self._calls: set[str] = set()
        self._kind = ""
        self._id = ""
        self._signature: str | None = None
        self._pieces = 0

    def read(self, chunk: Document) -> list[StreamEvent]:
        """The events in ``chunk``."""
        out: list[StreamEvent] = [] if self._begun else [Start(), StartStep()]
        self._begun = True
        self._usage = object_field(chunk, "usageMetadata") or self._usage
        candidates = chunk.get("candidates")
        if not candidates:
            feedback = object_field(chunk, "promptFeedback")
            self.blocked = feedback.get("blockReasonMessage") or feedback.get("blockReason") or self.blocked
            return out
        candidate = candidates[0]
        for part in object_field(candidate, "content").get("parts") or ():
            self._read_part(part, out)
        if reason := candidate.get("finishReason"):
            self.finish_reason = reason
            self._message = candidate.get("finishMessage") or ""
            self._continuation = candidate.get("continuationToken") or ""
        return out

    def proceed(self) -> str:
        """The token with which to ask for the rest of the answer, if there is more; the answer is then open again."""
        if self.finish_reason != _CONTINUES or not self._continuation:
            return ""
        self.finish_reason = ""
        self._spent, self._usage = self._total(), {}
        return self._continuation

    def close(self) -> list[StreamEvent]:
        """The events that end the answer."""
        out: list[StreamEvent] = []
        self._end(out)
        reason = _REASONS.get(self.finish_reason, "unknown")
        if self._calls and reason == "stop":
            reason = "tool-calls"
        about: Metadata = {"finishReason": self.finish_reason}
        if self._message:
            about["finishMessage"] = self._message
        usage = self._total()
        return [*out, FinishStep(reason, usage, {"google": about}), Finish(reason, usage)]

    def _read_part(self, part: Document, out: list[StreamEvent]) -> None:
        signature = part.get("thoughtSignature")
        if call := part.get("functionCall"):
            self._call(call, signature, out)
        elif isinstance(text := part.get("text"), str):
            self._grow("reasoning" if part.get("thought") else "text", text, signature, out)

    def _call(self, call: Document, signature: str | None, out: list[StreamEvent]) -> None:
        self._end(out)
        given = call.get("id") or ""
        call_id = given if given and given not in self._calls else self._mint_id()
        self._calls.add(call_id)
        name, raw = call["name"], write_arguments(call.get("args") or {})
        out += (ToolInputStart(call_id, name), ToolInputDelta(call_id, raw), ToolInputEnd(call_id))
        out.append(tool_call(call_id, name, raw, _signed(signature)))

    def _grow(self, kind: str, text: str, signature: str | None, out: list[StreamEvent]) -> None:
        """Add to the open piece. A signature ends it: what is signed goes back exactly as it came."""
        if text and (kind != self._kind or self._signature):
            self._end(out)
            self._kind, self._id = kind, f"{kind}-{self._pieces}"
            self._pieces += 1
            out.append(TextStart(self._id) if kind == "text" else ReasoningStart(self._id))
        if text:
            out.append(TextDelta(self._id, text) if kind == "text" else ReasoningDelta(self._id, text))
        if kind == self._kind:
            self._signature = signature or self._signature

    def _end(self, out: list[StreamEvent]) -> None:
        if self._kind:
            ended = TextEnd if self._kind == "text" else ReasoningEnd
            out.append(ended(self._id, _signed(self._signature)))
        self._kind, self._signature = "", None

    def _total(self) -> Usage:
        return _sum(self._spent, read_usage(self._usage)) if self._spent != Usage() else read_usage(self._usage)


def _signed(signature: str | None) -> Metadata | None:
    return {"google": {"thoughtSignature": signature}} if signature else None


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(
        input=one.input + other.input,
        output=one.output + other.output,
        reasoning=one.reasoning + other.reasoning,
        cache_read=one.cache_read + other.cache_read,
        total=(one.total or 0) + (other.total or 0),
    )


def read_usage(counted: Document) -> Usage:
    """Usage in buckets that do not overlap; Gemini counts cached tokens as prompt, and thoughts apart."""
    cached = token_count(counted.get("cachedContentTokenCount"))
    prompt = token_count(counted.get("promptTokenCount")) + token_count(counted.get("toolUsePromptTokenCount"))
    total = counted.get("totalTokenCount")
    return Usage(
        input=max(0, prompt - cached),
        output=token_count(counted.get("candidatesTokenCount")),
        reasoning=token_count(counted.get("thoughtsTokenCount")),
        cache_read=cached,
        total=None if total is None else token_count(total),
    )
