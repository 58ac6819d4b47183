"""Server side of OpenAI's chat completions API, for scripted models."""

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
    ReasoningDelta,
    StartStep,
    StreamEvent,
    TextDelta,
    ToolCall,
    ToolInputDelta,
    ToolInputStart,
    Usage,
)
from .scripted import prompt_usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .scripted import ErrorResponse, ScriptedCall

_REASONS = {
    "stop": "stop",
    "length": "length",
    "content-filter": "content_filter",
    "tool-calls": "tool_calls",
    "other": "other",
    "error": "error",
}


class ChatCompletion:
    """One answer."""

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
            converted = _read_message(message, names)
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
            if event.reason in _REASONS:
                yield self._chunk([{"index": 0, "delta": {}, "finish_reason": _REASONS[event.reason]}])
            if self._include_usage:
                yield self._chunk([], usage=_usage_fields(event.usage))
            yield "data: [DONE]\n\n"

    def error_frame(self, error: ErrorResponse) -> str:
        """Return the frame of an error inside a stream."""
        return _frame(self.error_body(error))

    def torn_frame(self, text: str) -> bytes:
        """Return a frame that ends within the last character of ``text``."""
        frame = self._chunk([{"index": 0, "delta": {"content": text}, "finish_reason": None}])
        return frame.encode()[: frame.encode().index(text.encode()) + len(text.encode()) - 1]

    def complete(self, events: Iterable[StreamEvent]) -> dict[str, Any]:
        """Return the answer without streaming."""
        message: dict[str, Any] = {"role": "assistant", "content": None}
        answer: dict[str, Any] = {"id": self._id, "object": "chat.completion", "created": 0, "model": self._model}
        for event in events:
            match event:
                case TextDelta():
                    message["content"] = (message["content"] or "") + event.text
                case ReasoningDelta():
                    message["reasoning_content"] = message.get("reasoning_content", "") + event.text
                case ToolCall():
                    function = {"name": event.name, "arguments": event.raw}
                    call = {"id": event.id, "type": "function", "function": function}
                    message.setdefault("tool_calls", []).append(call)
                case FinishStep():
                    reason = _REASONS.get(event.reason)
                    answer["choices"] = [{"index": 0, "message": message, "finish_reason": reason}]
                    answer["usage"] = _usage_fields(event.usage)
                case _:
                    pass
        return answer

    def _delta(self, event: StreamEvent) -> dict[str, Any] | None:
        match event:
            case StartStep():
                return {"role": "assistant", "content": ""}
            case TextDelta():
                return {"content": event.text}
            case ReasoningDelta():
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
        return _frame({**head, "choices": choices, **more})


def _frame(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n"


def _usage_fields(usage: Usage) -> dict[str, Any]:
    prompt = usage.input + usage.cache_read + usage.cache_write
    completion = usage.output + usage.reasoning
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion if usage.total is None else usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def _read_message(message: dict[str, Any], names: dict[str, str]) -> ModelMessage:
    match message["role"]:
        case "system" | "developer":
            return System(text=_joined(message["content"]))
        case "assistant":
            return Assistant(content=tuple(_read_answer(message, names)))
        case "tool":
            call = message["tool_call_id"]
            output = Text(text=_joined(message["content"]))
            return ToolResults(content=(ToolUseResult(id=call, name=names.get(call, ""), output=(output,)),))
        case _:
            return User(content=tuple(_read_content(message["content"])))


def _read_answer(message: dict[str, Any], names: dict[str, str]) -> Iterator[Text | Reasoning | ToolUse]:
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
