"""OpenAI's chat completions, seen from the server: requests in, events of a scripted model out."""

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
    """One answer in this dialect."""

    path = "/chat/completions"

    def __init__(self, body: dict[str, Any], call: ScriptedCall) -> None:
        self._model = str(body.get("model", ""))
        self._id = f"chatcmpl-{call.id_prefix}"
        self._calls: dict[str, int] = {}
        options: dict[str, Any] = body.get("stream_options") or {}
        self._usage_wanted: bool = options.get("include_usage", True)

    @staticmethod
    def read(body: dict[str, Any]) -> Request:
        """The request that ``body`` spells."""
        names: dict[str, str] = {}
        messages: list[ModelMessage] = []
        for message in body.get("messages", []):
            turn = _read_message(message, names)
            previous = messages[-1] if messages else None
            if isinstance(turn, ToolResults) and isinstance(previous, ToolResults):
                messages[-1] = ToolResults(content=previous.content + turn.content)
            else:
                messages.append(turn)
        return Request(
            model=Model(id=str(body.get("model", "")), provider_id="wire"),
            messages=tuple(messages),
            tools=tuple(_read_tool(tool["function"]) for tool in body.get("tools") or ()),
            max_output_tokens=body.get("max_tokens") or body.get("max_completion_tokens"),
            temperature=body.get("temperature"),
            top_p=body.get("top_p"),
        )

    @staticmethod
    def usage(body: dict[str, Any]) -> Usage | None:
        """What the size of ``body`` comes to."""
        return prompt_usage(len(json.dumps(body.get("messages", []))) // 4)

    @staticmethod
    def refuse(refusal: ErrorResponse) -> dict[str, Any]:
        """An error, as the body of an answer or as an event."""
        return refusal.body

    def frames(self, event: StreamEvent) -> Iterator[str]:
        """The frames of the stream that ``event`` becomes."""
        delta = self._delta(event)
        if delta is not None:
            yield self._chunk([{"index": 0, "delta": delta, "finish_reason": None}])
        if isinstance(event, FinishStep):
            if event.reason in _REASONS:
                yield self._chunk([{"index": 0, "delta": {}, "finish_reason": _REASONS[event.reason]}])
            if self._usage_wanted:
                yield self._chunk([], usage=_spell_usage(event.usage))
            yield "data: [DONE]\n\n"

    def fault(self, refusal: ErrorResponse) -> str:
        """The frame of an error in the middle of a stream."""
        return _frame(self.refuse(refusal))

    def cut(self, text: str) -> bytes:
        """A frame that ends in the middle of the last character of ``text``."""
        frame = self._chunk([{"index": 0, "delta": {"content": text}, "finish_reason": None}])
        return frame.encode()[: frame.encode().index(text.encode()) + len(text.encode()) - 1]

    def whole(self, events: Iterable[StreamEvent]) -> dict[str, Any]:
        """The answer in one piece."""
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
                    answer["usage"] = _spell_usage(event.usage)
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


def _spell_usage(usage: Usage) -> dict[str, Any]:
    prompt = usage.input + usage.cache_read + usage.cache_write
    completion = usage.output + usage.reasoning
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion if usage.total is None else usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def _read_tool(function: dict[str, Any]) -> ToolSpec:
    return ToolSpec(
        name=function["name"],
        description=function.get("description", ""),
        parameters=function.get("parameters", {}),
    )


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
        yield ToolUse(id=call["id"], name=function["name"], input=_arguments(function["arguments"]))


def _arguments(text: str) -> dict[str, Any]:
    try:
        value: object = json.loads(text)
    except ValueError:
        value = None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {"arguments": text}


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
