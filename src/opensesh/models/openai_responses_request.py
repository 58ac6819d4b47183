"""Requests to OpenAI's responses API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .openai_chat_request import is_reasoning_model, sampling_settings, system_role
from .request import Assistant, File, Reasoning, System, Text, ToolResults, ToolUse, User
from .wire_helpers import inline_data, joined_text, nested, unsupported_file_note, write_arguments

if TYPE_CHECKING:
    from .request import ModelMessage, Request

InputItem = dict[str, Any]

ENCRYPTED_REASONING = "reasoning.encrypted_content"

_WIRE_NAMES = {
    "maxToolCalls": "max_tool_calls",
    "parallelToolCalls": "parallel_tool_calls",
    "previousResponseId": "previous_response_id",
    "promptCacheKey": "prompt_cache_key",
    "promptCacheOptions": "prompt_cache_options",
    "promptCacheRetention": "prompt_cache_retention",
    "safetyIdentifier": "safety_identifier",
    "serviceTier": "service_tier",
    "topLogprobs": "top_logprobs",
}
_REASONING_NAMES = {
    "reasoningEffort": "effort",
    "reasoningSummary": "summary",
    "reasoningMode": "mode",
    "reasoningContext": "context",
}
_CONVERTED_OPTIONS = frozenset({"include", "store", "strictJsonSchema", "structuredOutputs", "textVerbosity"})
_OWN_FIELDS = frozenset({"input", "model", "stream", "tools"})


def request_body(request: Request) -> dict[str, Any]:
    """Return the body to POST to ``/responses``. OpenAI stores nothing unless the option ``store`` says so."""
    options = request.options
    store = bool(options.get("store", False))
    role = system_role(request.model)
    items = [item for message in request.messages for item in _items(message, role, store=store)]
    out: dict[str, Any] = {"model": request.model.wire_id, "input": items}
    out |= sampling_settings(request)
    if request.max_output_tokens is not None:
        out["max_output_tokens"] = request.max_output_tokens
    out["store"] = store
    include: list[str] = list(options.get("include", ()))
    if not store and is_reasoning_model(request.model) and ENCRYPTED_REASONING not in include:
        include.append(ENCRYPTED_REASONING)  # what OpenAI does not store has to be sent back
    if include:
        out["include"] = include
    if reasoning := {wire: options[name] for name, wire in _REASONING_NAMES.items() if name in options}:
        out["reasoning"] = reasoning
    converted = _CONVERTED_OPTIONS | _OWN_FIELDS | _REASONING_NAMES.keys()
    out |= {_WIRE_NAMES.get(name, name): value for name, value in options.items() if name not in converted}
    if "textVerbosity" in options:
        out["text"] = {**out.get("text", {}), "verbosity": options["textVerbosity"]}
    if request.tools:
        strict = bool(options.get("strictJsonSchema", False))
        out["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                "strict": strict,
            }
            for tool in request.tools
        ]
        out["tool_choice"] = request.tool_choice
    out["stream"] = True
    return out


def _items(message: ModelMessage, role: str, *, store: bool) -> list[InputItem]:
    match message:
        case System():
            return [{"role": role, "content": message.text}]
        case User():
            return [{"role": "user", "content": [_part(part) for part in message.content]}] if message.content else []
        case Assistant():
            return _assistant(message, store=store)
        case ToolResults():
            return [
                {
                    "type": "function_call_output",
                    "call_id": result.id,
                    "output": joined_text(result.output)
                    if all(isinstance(part, Text) for part in result.output)
                    else [_part(part) for part in result.output],
                }
                for result in message.content
            ]


def _part(part: Text | File) -> InputItem:
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    inline = inline_data(part)
    mime, data = inline or (part.mime, "")
    url = f"data:{mime};base64,{data}" if inline else part.url
    if mime.startswith("image/") and (data or not inline):
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    if mime != "application/pdf" or (inline and not data):
        return {"type": "input_text", "text": unsupported_file_note(part)}
    if not inline:
        return {"type": "input_file", "file_url": url}
    return {"type": "input_file", "filename": part.filename or "file.pdf", "file_data": url}


def _assistant(message: Assistant, *, store: bool) -> list[InputItem]:
    items: list[InputItem] = []
    reasoning: dict[str, InputItem] = {}
    for part in message.content:
        metadata = nested(part.metadata, "openai", "azure")
        # Ids name what OpenAI has stored; where nothing is stored it does not know them.
        named: InputItem = {"id": metadata["itemId"]} if store and metadata.get("itemId") else {}
        match part:
            case Text():
                phase = {"phase": metadata["phase"]} if metadata.get("phase") else {}
                content: InputItem = {"content": part.text}
                if named:  # a stored item has its text in parts
                    parts: list[InputItem] = [{"type": "output_text", "text": part.text, "annotations": []}]
                    content = {"type": "message", **named, "status": "completed", "content": parts}
                items.append({"role": "assistant", **content, **phase})
            case ToolUse():
                arguments = write_arguments(part.input)
                call = {"call_id": part.id, "name": part.name, "arguments": arguments}
                items.append({"type": "function_call", **call, **named})
            case Reasoning():
                item_id = metadata.get("itemId")
                if not item_id:
                    continue  # reasoning of another provider: OpenAI could not verify it
                # The summaries of one reasoning item are stored as separate parts.
                if item_id not in reasoning:
                    reasoning[item_id] = {"type": "reasoning", "id": item_id, "encrypted_content": "", "summary": []}
                    items.append(reasoning[item_id])
                item = reasoning[item_id]
                if part.text:
                    item["summary"].append({"type": "summary_text", "text": part.text})
                item["encrypted_content"] = metadata.get("reasoningEncryptedContent") or item["encrypted_content"]
    # Without a store, reasoning is only of use encrypted, and its id names nothing.
    dropped = () if store else ("id",)
    return [
        {key: value for key, value in item.items() if key not in dropped and value != ""}
        if item.get("type") == "reasoning"
        else item
        for item in items
        if store or item.get("encrypted_content") != ""
    ]
