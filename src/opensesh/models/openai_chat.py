"""OpenAI's chat completions API.

Ollama, vLLM, LM Studio, OpenRouter, Groq, DeepSeek, xAI, Together and most others offer it too, each with deviations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..records import object_at
from . import failures
from .answers import AnswerBuilder, AnswerReader, StreamedPiece
from .openai_chat_request import merge_reasoning_details, request_body
from .stream_events import FinishStep, Usage
from .transport import HTTPProvider
from .wire_helpers import new_call_id, read_arguments, token_count, write_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .request import Request
    from .sse import ServerSentEvent
    from .stream_events import FinishReason, StreamEvent, TextKind
    from .transport import Transport, WireAnswer

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


class OpenAIChat(HTTPProvider):
    """Provider for a server with ``/chat/completions``. An empty key is not sent: local servers need none."""

    def __init__(
        self,
        api_key: str,
        base_url: str,
        *,
        headers: Mapping[str, str] | None = None,
        provider_id: str = "",
        transport: Transport | None = None,
        include_usage: bool = True,
        new_call_id: Callable[[], str] = new_call_id,
    ) -> None:
        """``new_call_id`` makes ids for calls that come without one."""
        super().__init__(transport, provider_id)
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        self._headers = {**({"authorization": f"Bearer {api_key}"} if api_key else {}), **(headers or {})}
        self._include_usage = include_usage
        self._new_call_id = new_call_id

    async def send(self, request: Request, provider_id: str) -> WireAnswer:
        body = request_body(request, include_usage=self._include_usage)
        copilot = _copilot_headers(body["messages"]) if provider_id.startswith("github-copilot") else {}
        headers = {**copilot, **self._headers, **request.headers}
        wire = self._transport.sse(self._url, headers=headers, body=body, provider_id=provider_id)
        return wire, OpenAIChatReader(provider_id, self._url, self._new_call_id)


def _copilot_headers(messages: list[dict[str, Any]]) -> dict[str, str]:
    """Return what GitHub Copilot bills by: only a request that ends with the user's words counts as the user's."""
    contents = [message["content"] for message in messages if isinstance(message.get("content"), list)]
    headers = {"openai-intent": "conversation-edits"}
    headers["x-initiator"] = "user" if messages and messages[-1]["role"] == "user" else "agent"
    if any(piece["type"] == "image_url" for pieces in contents for piece in pieces):
        headers["copilot-vision-request"] = "true"
    return headers


class OpenAIChatReader(AnswerReader):
    """Reads one answer of a chat completion."""

    def __init__(self, provider_id: str, url: str, new_call_id: Callable[[], str]) -> None:
        super().__init__(provider_id, url)
        self._finish_reason = ""
        self._usage: dict[str, Any] = {}
        self._calls = _CallAssembler(self.answer, new_call_id)
        self._piece: StreamedPiece | None = None
        """The open text or reasoning."""
        self._reasoning_details: list[dict[str, Any]] = []

    def read(self, event: ServerSentEvent) -> list[StreamEvent]:
        """Return the events that ``event`` brings; ``[DONE]`` ends the answer, with or without a reason."""
        if event.data.startswith("[DONE]"):
            self.complete = True
            return self.close()
        return super().read(event)

    def convert(self, wire: dict[str, Any], name: str) -> None:
        choices = wire.get("choices")
        choice: dict[str, Any] = choices[0] if choices else {}
        # An error comes as a chunk of its own, or in place of a choice.
        if wire.get("error") or name == "error" or wire.get("object") == "error":
            raise failures.from_stream_error(wire, self.provider_id, self.url)
        if choice.get("error"):
            raise failures.from_stream_error(choice, self.provider_id, self.url)
        usage = object_at(wire, "usage") or object_at(wire, "x_groq", "usage")
        self._usage = usage or self._usage
        if delta := choice.get("delta") or choice.get("message"):
            self._read_delta(delta)
        if choice.get("usage") and not self._usage:
            self._usage = object_at(choice, "usage")
        if reason := choice.get("finish_reason"):
            self.complete = True
            self._finish_reason = str(reason)
            self._end_piece()
            self._calls.finish()

    def _read_delta(self, delta: dict[str, Any]) -> None:
        reasoning = delta.get("reasoning_content") or delta.get("reasoning") or ""
        if details := delta.get("reasoning_details"):
            self._add_text("reasoning", reasoning or "".join(map(_detail_text, details)))
            self._reasoning_details += details
        elif reasoning:
            self._add_text("reasoning", reasoning)
        content: str | list[dict[str, Any]] = delta.get("content") or delta.get("refusal") or []
        # Mistral sends content in parts once a model reasons.
        for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            match part:
                case {"type": "text", "text": str(text)}:
                    self._add_text("text", text)
                case {"type": "thinking", "thinking": [*details]}:
                    self._add_text("reasoning", "".join(map(_detail_text, details)))
                case _:
                    pass
        if calls := delta.get("tool_calls"):
            self._end_piece()
            for call in calls:
                self._calls.read(call)

    def _add_text(self, kind: TextKind, text: str) -> None:
        before = self._piece
        if before is None or before.kind != kind:
            self._piece = self.answer.begin_text(kind)
        if self._piece is not None:
            self._piece.add(text)
        if before is not self._piece:  # only now, as in OpenCode: a piece is over by the beginning of another
            self._end_text(before)

    def _end_piece(self) -> None:
        before, self._piece = self._piece, None
        self._end_text(before)

    def _end_text(self, piece: StreamedPiece | None) -> None:
        if piece is not None and piece.kind == "reasoning":
            details, self._reasoning_details = merge_reasoning_details(self._reasoning_details), []
            piece.metadata = {"openrouter": {"reasoning_details": details}} if details else None
        if piece is not None:
            piece.end()

    def finish(self) -> None:
        self._end_piece()
        self._calls.finish()
        reason = _REASONS.get(self._finish_reason.lower(), "unknown")
        if self._calls.calls and reason in ("stop", "unknown"):
            reason = "tool-calls"
        elif not self._finish_reason and self.answer.text_count:
            reason = "stop"
        self.answer.events.append(FinishStep(reason, token_usage(self._usage)))


def _detail_text(detail: dict[str, Any]) -> str:
    text = detail.get("text") or detail.get("summary")
    return text if isinstance(text, str) else ""


class _CallAssembler:
    """Puts tool calls together from fragments.

    OpenAI sends a call's index with every fragment, its id and name with the first. Other servers send whole calls,
    leave out ids or indexes, repeat the name, or number every call 0. So a fragment with a name begins another call if
    its id differs; or if it has no id, and its name differs or the call before already has all its arguments.
    """

    def __init__(self, answer: AnswerBuilder, new_call_id: Callable[[], str]) -> None:
        self.calls: list[_StreamedCall] = []
        """In the order they began."""
        self._answer = answer
        self._new_call_id = new_call_id
        self._by_key: dict[Any, _StreamedCall] = {}

    def read(self, fragment: dict[str, Any]) -> None:
        """Add one entry of ``delta.tool_calls``."""
        function: dict[str, Any] = fragment.get("function") or {}
        name, wire_id, index = function.get("name") or "", fragment.get("id") or "", fragment.get("index")
        text = function.get("arguments") or ""
        if not isinstance(text, str):
            text = write_arguments(text)
        key = wire_id if index is None else index
        call = self._by_key.get(key)
        if index is None and not wire_id:
            call = self.calls[-1] if self.calls else None
        if call is None or (name and call.is_followed_by(wire_id, name, text)):
            for earlier in self.calls:
                if earlier.has_all_arguments():
                    earlier.finish()
            used_ids = {call.id for call in self.calls}
            new_id = wire_id if wire_id and wire_id not in used_ids else self._new_call_id()
            call = _StreamedCall(self._answer, new_id)
            self.calls.append(call)
        self._by_key[key] = call
        call.wire_id = call.wire_id or wire_id
        call.name = call.name or name
        if extra := fragment.get("extra_content"):
            call.signature = object_at(extra, "google").get("thought_signature") or call.signature
        call.add(text)

    def finish(self) -> None:
        """Complete every open call, even if its arguments are broken."""
        for call in self.calls:
            call.finish()


class _StreamedCall:
    """A tool call while it streams in: announced once its name is known, complete at the latest with the answer."""

    def __init__(self, answer: AnswerBuilder, call_id: str) -> None:
        self.id = call_id
        self.wire_id = ""
        self.name = ""
        self.signature: str | None = None
        self._answer = answer
        self._piece: StreamedPiece | None = None
        self._unannounced = ""

    def is_followed_by(self, wire_id: str, name: str, text: str) -> bool:
        """Return whether a fragment with a name, under the same key, begins another call."""
        if wire_id:
            return bool(self.wire_id) and wire_id != self.wire_id
        return name != (self.name or name) or (bool(text) and self.has_all_arguments())

    def has_all_arguments(self) -> bool:
        text = self._unannounced if self._piece is None else self._piece.text
        return bool(text) and read_arguments(text)[1] is None

    def add(self, text: str) -> None:
        if self._piece is None:
            self._unannounced += text
            if self.name:
                self._announce()
        elif self._piece.is_open:
            self._piece.add(text)

    def finish(self) -> None:
        piece = self._piece or self._announce()
        piece.end({"google": {"thoughtSignature": self.signature}} if self.signature else None)

    def _announce(self) -> StreamedPiece:
        piece = self._piece = self._answer.begin_call(self.id, self.name)
        piece.add(self._unannounced)
        return piece


def token_usage(counts: dict[str, Any]) -> Usage:
    """Return usage in buckets that do not overlap.

    Most servers include cached tokens in the prompt's count and reasoning in the completion's. Some (xAI, some models
    of DeepInfra) count them apart, which shows in a total or a part that is larger than the whole.
    """
    prompt, completion = token_count(counts.get("prompt_tokens")), token_count(counts.get("completion_tokens"))
    input_details = object_at(counts, "prompt_tokens_details")
    read = token_count(
        input_details.get("cached_tokens") or counts.get("prompt_cache_hit_tokens") or counts.get("cached_tokens")
    )
    written = token_count(input_details.get("cache_write_tokens") or counts.get("cache_creation_input_tokens"))
    output_details = object_at(counts, "completion_tokens_details")
    reasoning = token_count(output_details.get("reasoning_tokens") or counts.get("reasoning_tokens"))
    total = counts.get("total_tokens")
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
