"""Chat completions: OpenAI's older wire, and the one that Ollama, vLLM, LM Studio, OpenRouter, Groq, DeepSeek, xAI,
Together and most others speak, each with an accent."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from . import failures
from .openai_chat_calls import Calls
from .openai_chat_prompt import body, merged
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
    Usage,
)
from .transport import Transport, ignore_break_after_finish, read_to_end
from .wire_helpers import new_call_id, object_field, token_count

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from .request import Request
    from .stream_events import FinishReason, Metadata, StreamEvent

_DONE = "[DONE]"

_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "end_turn": "stop",
    "eos": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "content-filter",
    "tool_calls": "tool-calls",
    "function_call": "tool-calls",
    "error": "error",
}


class OpenAIChat:
    """A server that answers ``/chat/completions``. Without a key, none is sent: local servers want none."""

    def __init__(
        self,
        api_key: str,
        base_url: str,
        *,
        headers: Mapping[str, str] | None = None,
        provider_id: str = "",
        transport: Transport | None = None,
        include_usage: bool = True,
        mint_id: Callable[[], str] = new_call_id,
    ) -> None:
        """``mint_id`` names the calls of servers that do not name them."""
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        self._headers = {**({"authorization": f"Bearer {api_key}"} if api_key else {}), **(headers or {})}
        self._provider_id = provider_id
        self._transport = transport or Transport()
        self._include_usage = include_usage
        self._mint_id = mint_id

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        """Ask once, and yield what comes."""
        provider_id = self._provider_id or request.model.provider_id
        asked = body(request, include_usage=self._include_usage)
        headers = {**self._headers, **request.headers}
        answer = _Answer(self._mint_id)
        async with aclosing(
            self._transport.sse(self._url, headers=headers, body=asked, provider_id=provider_id)
        ) as wire:
            with ignore_break_after_finish(lambda: answer.finish_reason):
                async for name, data in wire:
                    if data.startswith(_DONE):
                        answer.done = True
                        break
                    for event in self._read(answer, name, data, provider_id):
                        yield event
            if not answer.done and not answer.finish_reason:
                raise failures.broken_off(self._url)
            for event in answer.close():
                yield event
            await read_to_end(wire)

    async def aclose(self) -> None:
        """Close the connections this adapter keeps."""
        await self._transport.aclose()

    def _read(self, answer: _Answer, name: str, data: str, provider_id: str) -> list[StreamEvent]:
        chunk = json_payload(data, self._url)
        try:
            error = _error_in(name, chunk)
            events = [] if error else answer.read(chunk)
        except (AttributeError, LookupError, TypeError, ValueError) as cause:
            raise failures.unreadable(data, self._url) from cause
        if error:
            raise failures.from_stream_error(error, provider_id, self._url)
        return events


def _error_in(name: str, chunk: dict[str, Any]) -> dict[str, Any] | None:
    """The error a chunk reports: in its own right, in place of a choice, or as a chunk that is nothing else."""
    if chunk.get("error") or name == "error" or chunk.get("object") == "error":
        return chunk
    choices = chunk.get("choices")
    return choices[0] if choices and choices[0].get("error") else None


class _Answer:
    """One answer as it arrives: chunks in, events out."""

    def __init__(self, mint_id: Callable[[], str]) -> None:
        self.done = False
        self.finish_reason = ""
        self._begun = False
        self._usage: dict[str, Any] = {}
        self._calls = Calls(mint_id)
        self._details: list[dict[str, Any]] = []
        self._kind = ""
        self._id = ""
        self._pieces = 0

    def read(self, chunk: dict[str, Any]) -> list[StreamEvent]:
        """The events in ``chunk``."""
        out = self._begin()
        self._usage = (
            object_field(chunk, "usage") or object_field(object_field(chunk, "x_groq"), "usage") or self._usage
        )
        choices = chunk.get("choices")
        if choices:
            self._read_choice(choices[0], out)
        return out

    def close(self) -> list[StreamEvent]:
        """The events that end the answer."""
        out = self._begin()
        self._end(out)
        self._calls.finish(out)
        reason = self._reason()
        usage = read_usage(self._usage)
        return [*out, FinishStep(reason, usage), Finish(reason, usage)]

    def _begin(self) -> list[StreamEvent]:
        if self._begun:
            return []
        self._begun = True
        return [Start(), StartStep()]

    def _read_choice(self, choice: dict[str, Any], out: list[StreamEvent]) -> None:
        delta = choice.get("delta") or choice.get("message")
        if delta:
            self._read_delta(delta, out)
        if choice.get("usage") and not self._usage:
            self._usage = object_field(choice, "usage")
        if reason := choice.get("finish_reason"):
            self.finish_reason = str(reason)
            self._end(out)
            self._calls.finish(out)

    def _read_delta(self, delta: dict[str, Any], out: list[StreamEvent]) -> None:
        thought = delta.get("reasoning_content") or delta.get("reasoning") or ""
        if details := delta.get("reasoning_details"):
            self._read_details(details, thought, out)
        elif thought:
            self._think(thought, out)
        if content := delta.get("content") or delta.get("refusal"):
            if isinstance(content, str):
                self._say(content, out)
            else:
                self._read_parts(content, out)
        if calls := delta.get("tool_calls"):
            self._end(out)
            for call in calls:
                self._calls.read(call, out)

    def _read_details(self, details: list[dict[str, Any]], thought: str, out: list[StreamEvent]) -> None:
        self._think(thought or "".join(map(_shown, details)), out)
        self._details += details

    def _read_parts(self, parts: list[dict[str, Any]], out: list[StreamEvent]) -> None:
        """Content in parts, as Mistral sends it once a model thinks."""
        for part in parts:
            match part:
                case {"type": "text", "text": str(text)}:
                    self._say(text, out)
                case {"type": "thinking"}:
                    self._think("".join(map(_shown, part["thinking"])), out)
                case _:
                    pass

    def _think(self, text: str, out: list[StreamEvent]) -> None:
        if self._kind != "reasoning":
            out.append(ReasoningStart(self._open("reasoning", out)))
        if text:
            out.append(ReasoningDelta(self._id, text))

    def _say(self, text: str, out: list[StreamEvent]) -> None:
        if self._kind != "text":
            out.append(TextStart(self._open("text", out)))
        out.append(TextDelta(self._id, text))

    def _open(self, kind: str, out: list[StreamEvent]) -> str:
        self._end(out)
        self._kind = kind
        self._id = f"{kind}-{self._pieces}"
        self._pieces += 1
        return self._id

    def _end(self, out: list[StreamEvent]) -> None:
        if self._kind == "text":
            out.append(TextEnd(self._id))
        elif self._kind == "reasoning":
            out.append(ReasoningEnd(self._id, self._proof()))
        self._kind = ""

    def _proof(self) -> Metadata | None:
        details, self._details = merged(self._details), []
        return {"openrouter": {"reasoning_details": details}} if details else None

    def _reason(self) -> FinishReason:
        reason = _REASONS.get(self.finish_reason.lower(), "unknown")
        if self._calls and reason in ("stop", "unknown"):
            return "tool-calls"
        if not self.finish_reason and self._pieces:
            return "stop"
        return reason


def _shown(detail: dict[str, Any]) -> str:
    text = detail.get("text") or detail.get("summary")
    return text if isinstance(text, str) else ""


def read_usage(counted: dict[str, Any]) -> Usage:
    """Usage in buckets that do not overlap.

    Most servers count cached tokens among the prompt's and reasoning among the completion's. Some (xAI, some of
    DeepInfra's) count them apart, which shows in a total or a part larger than the whole.
    """
    prompt, completion = token_count(counted.get("prompt_tokens")), token_count(counted.get("completion_tokens"))
    given = object_field(counted, "prompt_tokens_details")
    read = token_count(
        given.get("cached_tokens") or counted.get("prompt_cache_hit_tokens") or counted.get("cached_tokens")
    )
    written = token_count(given.get("cache_write_tokens") or counted.get("cache_creation_input_tokens"))
    spent = object_field(counted, "completion_tokens_details")
    reasoning = token_count(spent.get("reasoning_tokens") or counted.get("reasoning_tokens"))
    total = counted.get("total_tokens")
    beyond = token_count(total) - prompt - completion
    cached = read + written
    if not (cached > prompt and beyond >= cached):
        prompt -= cached
    if not (reasoning > completion or (reasoning and beyond in (reasoning, reasoning + cached))):
        completion -= reasoning
    return Usage(
        input=max(0, prompt),
        output=completion,
        reasoning=reasoning,
        cache_read=read,
        cache_write=written,
        total=None if total is None else token_count(total),
    )
