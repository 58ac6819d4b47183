"""Server side of Anthropic's Messages API, for scripted models."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..models.model import Model
from ..models.request import (
    Assistant,
    File,
    ModelMessage,
    Reasoning,
    Request,
    System,
    Text,
    ToolResults,
    ToolSpec,
    ToolUse,
    ToolUseResult,
    User,
)
from ..models.stream_events import (
    FinishStep,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    StartStep,
    StreamEvent,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    ToolInputDelta,
    ToolInputEnd,
    ToolInputStart,
    Usage,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .scripted import ErrorResponse, ScriptedCall

_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "content-filter": "refusal",
    "tool-calls": "tool_use",
    "other": "pause_turn",
}


class AnthropicMessage:
    """One answer. Metadata under ``anthropic.signature`` becomes the signature of the reasoning."""

    path = "/messages"

    def __init__(self, body: dict[str, Any], call: ScriptedCall) -> None:
        usage = next((action.usage for action in call.actions if isinstance(action, FinishStep)), call.usage)
        self._message: dict[str, Any] = {
            "id": f"msg_{call.id_prefix}",
            "type": "message",
            "role": "assistant",
            "model": str(body.get("model", "")),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {**_usage_fields(usage), "output_tokens": 1},
        }
        self._index = -1

    @staticmethod
    def read(body: dict[str, Any]) -> Request:
        """Return the request in ``body``."""
        system = body.get("system") or ()
        blocks: list[Any] = [{"text": system}] if isinstance(system, str) else list(system)
        names: dict[str, str] = {}
        messages: list[ModelMessage] = [System(text=block["text"], cache="cache_control" in block) for block in blocks]
        for message in body.get("messages", []):
            messages += _read_message(message, names)
        return Request(
            model=Model(id=str(body.get("model", "")), provider_id="wire", npm="@ai-sdk/anthropic"),
            messages=tuple(messages),
            tools=tuple(
                ToolSpec(
                    name=tool["name"],
                    description=tool.get("description", ""),
                    parameters=tool.get("input_schema", {}),
                )
                for tool in body.get("tools") or ()
            ),
            max_output_tokens=body.get("max_tokens"),
            temperature=body.get("temperature"),
            top_p=body.get("top_p"),
            top_k=body.get("top_k"),
        )

    @staticmethod
    def usage(body: dict[str, Any]) -> Usage | None:
        """Return ``None``: the model computes the usage."""
        return None

    @staticmethod
    def error_body(error: ErrorResponse) -> dict[str, Any]:
        """Return the body of an error response or error event."""
        return {"type": "error", "error": {"type": error.type, "message": error.message}}

    def frames(self, event: StreamEvent) -> Iterator[str]:
        """Yield the stream frames for ``event``."""
        match event:
            case StartStep():
                yield _frame("message_start", message=self._message)
            case TextStart():
                yield self._open({"type": "text", "text": ""})
            case TextDelta():
                yield self._delta("text_delta", text=event.text)
            case ReasoningStart():
                yield self._open({"type": "thinking", "thinking": "", "signature": ""})
            case ReasoningDelta():
                yield self._delta("thinking_delta", thinking=event.text)
            case ToolInputStart():
                yield self._open({"type": "tool_use", "id": event.id, "name": event.name, "input": {}})
            case ToolInputDelta():
                yield self._delta("input_json_delta", partial_json=event.text)
            case ReasoningEnd() | TextEnd() | ToolInputEnd():
                yield from self._close(event)
            case FinishStep():
                reason = {"stop_reason": _REASONS.get(event.reason), "stop_sequence": None}
                yield _frame("message_delta", delta=reason, usage=_usage_fields(event.usage))
                yield _frame("message_stop")
            case _:
                pass

    def error_frame(self, error: ErrorResponse) -> str:
        """Return the frame of an error inside a stream."""
        return f"event: error\ndata: {json.dumps(self.error_body(error), ensure_ascii=False)}\n\n"

    def torn_frame(self, text: str) -> bytes:
        """Return a frame that ends within the last character of ``text``."""
        frame = self._delta("text_delta", text=text).encode()
        return frame[: frame.index(text.encode()) + len(text.encode()) - 1]

    def complete(self, events: Iterable[StreamEvent]) -> dict[str, Any]:
        """Return the answer without streaming."""
        blocks: list[dict[str, Any]] = []
        answer = {**self._message, "content": blocks}
        for event in events:
            match event:
                case TextStart():
                    blocks.append({"type": "text", "text": ""})
                case TextDelta():
                    blocks[-1]["text"] += event.text
                case ReasoningStart():
                    blocks.append({"type": "thinking", "thinking": "", "signature": ""})
                case ReasoningDelta():
                    blocks[-1]["thinking"] += event.text
                case ReasoningEnd():
                    blocks[-1]["signature"] = _signature(event)
                case ToolCall():
                    blocks.append({"type": "tool_use", "id": event.id, "name": event.name, "input": event.input})
                case FinishStep():
                    answer |= {"stop_reason": _REASONS.get(event.reason), "usage": _usage_fields(event.usage)}
                case _:
                    pass
        return answer

    def _open(self, block: dict[str, Any]) -> str:
        self._index += 1
        return _frame("content_block_start", index=self._index, content_block=block)

    def _delta(self, kind: str, **delta: str) -> str:
        return _frame("content_block_delta", index=self._index, delta={"type": kind, **delta})

    def _close(self, event: ReasoningEnd | TextEnd | ToolInputEnd) -> Iterator[str]:
        if isinstance(event, ReasoningEnd) and _signature(event):
            yield self._delta("signature_delta", signature=_signature(event))
        yield _frame("content_block_stop", index=self._index)


def _frame(kind: str, **data: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data}, ensure_ascii=False)}\n\n"


def _signature(event: ReasoningEnd) -> str:
    return str((event.metadata or {}).get("anthropic", {}).get("signature", ""))


def _usage_fields(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": usage.output + usage.reasoning,
    }


def _read_message(message: dict[str, Any], names: dict[str, str]) -> Iterator[ModelMessage]:
    content = message["content"]
    blocks: list[dict[str, Any]] = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if message["role"] == "assistant":
        names.update((block["id"], block["name"]) for block in blocks if block["type"] == "tool_use")
        yield Assistant(content=tuple(_read_answer(block) for block in blocks))
        return
    results = tuple(_read_result(block, names) for block in blocks if block["type"] == "tool_result")
    content = tuple(_read_block(block) for block in blocks if block["type"] != "tool_result")
    if results:
        yield ToolResults(content=results)
    if content:
        yield User(content=content)


def _read_answer(block: dict[str, Any]) -> Text | Reasoning | ToolUse:
    match block["type"]:
        case "tool_use":
            return ToolUse(id=block["id"], name=block["name"], input=block["input"])
        case "thinking":
            metadata = {"anthropic": {"signature": block.get("signature", "")}}
            return Reasoning(text=block["thinking"], metadata=metadata)
        case "redacted_thinking":
            return Reasoning(text="", metadata={"anthropic": {"redactedData": block["data"]}})
        case _:
            return Text(text=block["text"])


def _read_result(block: dict[str, Any], names: dict[str, str]) -> ToolUseResult:
    content = block.get("content") or ""
    output = (Text(text=content),) if isinstance(content, str) else tuple(map(_read_block, content))
    call_id = block["tool_use_id"]
    return ToolUseResult(id=call_id, name=names.get(call_id, ""), output=output, failed=block.get("is_error", False))


def _read_block(block: dict[str, Any]) -> Text | File:
    if block["type"] == "text":
        return Text(text=block["text"])
    source: dict[str, str] = block.get("source", {})
    mime: str = source.get("media_type") or block["type"]
    url = source.get("url") or f"data:{mime};base64,{source.get('data', '')}"
    return File(mime=mime, url=url, filename=block.get("title"))
