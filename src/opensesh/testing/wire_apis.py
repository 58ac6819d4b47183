"""Server side of OpenAI's chat completions API and of Anthropic's Messages API, for scripted models."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

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
    StartStep,
    StreamEvent,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    ToolInputDelta,
    ToolInputStart,
    Usage,
)
from .scripted import prompt_usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .scripted import ScriptedCall
    from .scripted.playback import ErrorResponse


_CHAT_REASONS = {
    "stop": "stop",
    "length": "length",
    "content-filter": "content_filter",
    "tool-calls": "tool_calls",
    "other": "other",
    "error": "error",
}
_STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "content-filter": "refusal",
    "tool-calls": "tool_use",
    "other": "pause_turn",
}


class ChatCompletion:
    """One answer of OpenAI's API."""

    path = "/chat/completions"

    def __init__(self, body: dict[str, Any], call: ScriptedCall) -> None:
        self._model = str(body.get("model", ""))
        self._id = f"chatcmpl-{call.id_prefix}"
        self._calls: dict[str, int] = {}
        options: dict[str, Any] = body.get("stream_options") or {}
        self._include_usage: bool = options.get("include_usage", True)

    @staticmethod
    def read(body: dict[str, Any]) -> Request:
        """Return the request in ``body``."""
        names: dict[str, str] = {}
        messages: list[ModelMessage] = []
        for message in body.get("messages", []):
            converted = _read_chat_message(message, names)
            previous = messages[-1] if messages else None
            if isinstance(converted, ToolResults) and isinstance(previous, ToolResults):
                messages[-1] = ToolResults(content=previous.content + converted.content)
            else:
                messages.append(converted)
        return Request(
            model=Model(id=str(body.get("model", "")), provider_id="wire"),
            messages=tuple(messages),
            tools=tuple(
                ToolSpec(
                    name=tool["function"]["name"],
                    description=tool["function"].get("description", ""),
                    parameters=tool["function"].get("parameters", {}),
                )
                for tool in body.get("tools") or ()
            ),
            max_output_tokens=body.get("max_tokens") or body.get("max_completion_tokens"),
            temperature=body.get("temperature"),
            top_p=body.get("top_p"),
        )

    @staticmethod
    def usage(body: dict[str, Any]) -> Usage | None:
        """Return the usage for the size of ``body``."""
        return prompt_usage(len(json.dumps(body.get("messages", []))) // 4)

    @staticmethod
    def error_body(error: ErrorResponse) -> dict[str, Any]:
        """Return the body of an error response or error event."""
        return error.body

    def frames(self, event: StreamEvent) -> Iterator[str]:
        """Yield the stream frames for ``event``."""
        delta = self._delta(event)
        if delta is not None:
            yield self._chunk([{"index": 0, "delta": delta, "finish_reason": None}])
        if isinstance(event, FinishStep):
            if event.reason in _CHAT_REASONS:
                yield self._chunk([{"index": 0, "delta": {}, "finish_reason": _CHAT_REASONS[event.reason]}])
            if self._include_usage:
                yield self._chunk([], usage=_chat_usage(event.usage))
            yield "data: [DONE]\n\n"

    def error_frame(self, error: ErrorResponse) -> str:
        """Return the frame of an error inside a stream."""
        return _chat_frame(self.error_body(error))

    def text_frame(self, text: str) -> str:
        """Return the frame of more text."""
        return self._chunk([{"index": 0, "delta": {"content": text}, "finish_reason": None}])

    def complete(self, events: Iterable[StreamEvent]) -> dict[str, Any]:
        """Return the answer without streaming."""
        message: dict[str, Any] = {"role": "assistant", "content": None}
        answer: dict[str, Any] = {"id": self._id, "object": "chat.completion", "created": 0, "model": self._model}
        for event in events:
            match event:
                case TextDelta(kind="text"):
                    message["content"] = (message["content"] or "") + event.text
                case TextDelta():
                    message["reasoning_content"] = message.get("reasoning_content", "") + event.text
                case ToolCall():
                    function = {"name": event.name, "arguments": event.raw}
                    call = {"id": event.id, "type": "function", "function": function}
                    message.setdefault("tool_calls", []).append(call)
                case FinishStep():
                    reason = _CHAT_REASONS.get(event.reason)
                    answer["choices"] = [{"index": 0, "message": message, "finish_reason": reason}]
                    answer["usage"] = _chat_usage(event.usage)
                case _:
                    pass
        return answer

    def _delta(self, event: StreamEvent) -> dict[str, Any] | None:
        match event:
            case StartStep():
                return {"role": "assistant", "content": ""}
            case TextDelta(kind="text"):
                return {"content": event.text}
            case TextDelta():
                return {"reasoning_content": event.text}
            case ToolInputStart():
                index = self._calls.setdefault(event.id, len(self._calls))
                function = {"name": event.name, "arguments": ""}
                return {"tool_calls": [{"index": index, "id": event.id, "type": "function", "function": function}]}
            case ToolInputDelta():
                return {"tool_calls": [{"index": self._calls[event.id], "function": {"arguments": event.text}}]}
            case _:
                return None

    def _chunk(self, choices: list[dict[str, Any]], **more: Any) -> str:
        head = {"id": self._id, "object": "chat.completion.chunk", "created": 0, "model": self._model}
        return _chat_frame({**head, "choices": choices, **more})


def _chat_frame(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n"


def _chat_usage(usage: Usage) -> dict[str, Any]:
    prompt = usage.input + usage.cache_read + usage.cache_write
    completion = usage.output + usage.reasoning
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion if usage.total is None else usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def _read_chat_message(message: dict[str, Any], names: dict[str, str]) -> ModelMessage:
    match message["role"]:
        case "system" | "developer":
            return System(text=_joined(message["content"]))
        case "assistant":
            return Assistant(content=tuple(_read_chat_answer(message, names)))
        case "tool":
            call = message["tool_call_id"]
            output = Text(text=_joined(message["content"]))
            return ToolResults(content=(ToolUseResult(id=call, name=names.get(call, ""), output=(output,)),))
        case _:
            return User(content=tuple(_read_content(message["content"])))


def _read_chat_answer(message: dict[str, Any], names: dict[str, str]) -> Iterator[Text | Reasoning | ToolUse]:
    if message.get("reasoning_content"):
        yield Reasoning(text=message["reasoning_content"])
    if message.get("content"):
        yield Text(text=_joined(message["content"]))
    for call in message.get("tool_calls") or ():
        function = call["function"]
        names[call["id"]] = function["name"]
        try:
            value: object = json.loads(function["arguments"])
        except ValueError:
            value = None
        is_object = isinstance(value, dict)
        arguments = cast("dict[str, Any]", value) if is_object else {"arguments": function["arguments"]}
        yield ToolUse(id=call["id"], name=function["name"], input=arguments)


def _read_content(content: Any) -> Iterator[Text | File]:
    if isinstance(content, str):
        yield Text(text=content)
        return
    for part in content:
        match part["type"]:
            case "text":
                yield Text(text=part["text"])
            case "image_url":
                url = part["image_url"]["url"]
                yield File(mime=url[5:].partition(";")[0] if url.startswith("data:") else "image/*", url=url)
            case kind:
                yield File(mime=kind, url="")


def _joined(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content or ())


class AnthropicMessage:
    """One answer of Anthropic's API. Metadata under ``anthropic.signature`` becomes the signature of the reasoning."""

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
            case TextStart(kind="text"):
                yield self._open({"type": "text", "text": ""})
            case TextDelta(kind="text"):
                yield self.text_frame(event.text)
            case TextStart():
                yield self._open({"type": "thinking", "thinking": "", "signature": ""})
            case TextDelta():
                yield self._delta("thinking_delta", thinking=event.text)
            case ToolInputStart():
                yield self._open({"type": "tool_use", "id": event.id, "name": event.name, "input": {}})
            case ToolInputDelta():
                yield self._delta("input_json_delta", partial_json=event.text)
            case TextEnd() | ToolCall():
                signature = _signature(event) if isinstance(event, TextEnd) and event.kind == "reasoning" else ""
                yield from [self._delta("signature_delta", signature=signature)] if signature else []
                yield _frame("content_block_stop", index=self._index)
            case FinishStep():
                reason = {"stop_reason": _STOP_REASONS.get(event.reason), "stop_sequence": None}
                yield _frame("message_delta", delta=reason, usage=_usage_fields(event.usage))
                yield _frame("message_stop")
            case _:
                pass

    def error_frame(self, error: ErrorResponse) -> str:
        """Return the frame of an error inside a stream."""
        return f"event: error\ndata: {json.dumps(self.error_body(error), ensure_ascii=False)}\n\n"

    def text_frame(self, text: str) -> str:
        """Return the frame of more text."""
        return self._delta("text_delta", text=text)

    def complete(self, events: Iterable[StreamEvent]) -> dict[str, Any]:
        """Return the answer without streaming."""
        blocks: list[dict[str, Any]] = []
        answer = {**self._message, "content": blocks}
        for event in events:
            match event:
                case TextStart(kind="text"):
                    blocks.append({"type": "text", "text": ""})
                case TextDelta(kind="text"):
                    blocks[-1]["text"] += event.text
                case TextStart():
                    blocks.append({"type": "thinking", "thinking": "", "signature": ""})
                case TextDelta():
                    blocks[-1]["thinking"] += event.text
                case TextEnd(kind="reasoning"):
                    blocks[-1]["signature"] = _signature(event)
                case ToolCall():
                    blocks.append({"type": "tool_use", "id": event.id, "name": event.name, "input": event.input})
                case FinishStep():
                    answer |= {"stop_reason": _STOP_REASONS.get(event.reason), "usage": _usage_fields(event.usage)}
                case _:
                    pass
        return answer

    def _open(self, block: dict[str, Any]) -> str:
        self._index += 1
        return _frame("content_block_start", index=self._index, content_block=block)

    def _delta(self, kind: str, **delta: str) -> str:
        return _frame("content_block_delta", index=self._index, delta={"type": kind, **delta})


def _frame(kind: str, **data: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data}, ensure_ascii=False)}\n\n"


def _signature(event: TextEnd) -> str:
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
