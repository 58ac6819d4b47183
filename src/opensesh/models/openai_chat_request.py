"""Requests to OpenAI's chat completions API and compatible servers, and what OpenAI's own models require."""

from __future__ import annotations

import re
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from .anthropic_request import tool_id
from .google_request import simplify_schema
from .request import Assistant, File, Reasoning, System, Text, ToolResults, ToolUse, User
from .wire_helpers import inline_data, joined_text, nested, unsupported_file_note, write_arguments

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .model import Model
    from .request import ModelMessage, Request

ChatMessage = dict[str, Any]
Details = list[dict[str, Any]]

OPENROUTER = "@openrouter/ai-sdk-provider"

OPENAI_SDKS = frozenset({"@ai-sdk/openai", "@ai-sdk/azure"})
"""The SDKs that reach OpenAI's models directly."""

_OPENAI_REASONING_MODEL = re.compile(r"o\d|codex-|computer-use|gpt-(?:[5-9]|\d\d)(?!-chat)")

_WIRE_NAMES = {
    "frequencyPenalty": "frequency_penalty",
    "logitBias": "logit_bias",
    "maxCompletionTokens": "max_completion_tokens",
    "parallelToolCalls": "parallel_tool_calls",
    "presencePenalty": "presence_penalty",
    "promptCacheKey": "prompt_cache_key",
    "promptCacheOptions": "prompt_cache_options",
    "promptCacheRetention": "prompt_cache_retention",
    "reasoningEffort": "reasoning_effort",
    "reasoningFormat": "reasoning_format",
    "safetyIdentifier": "safety_identifier",
    "searchParameters": "search_parameters",
    "serviceTier": "service_tier",
    "stopSequences": "stop",
    "textVerbosity": "verbosity",
}
_OTHER_OPTIONS = frozenset({"include", "reasoningSummary", "strictJsonSchema", "structuredOutputs"})
"""Options that only ``/responses`` or OpenCode's own client knows."""
_OWN_FIELDS = frozenset({"messages", "model", "stream", "tools"})

_REASONING_FIELD = {
    OPENROUTER: "reasoning",
    "@ai-sdk/groq": "reasoning",
    "@ai-sdk/azure": None,
    "@ai-sdk/cohere": None,
    "@ai-sdk/mistral": None,
    "@ai-sdk/openai": None,
    "@ai-sdk/perplexity": None,
    "@ai-sdk/xai": None,
}
"""The field for earlier reasoning, for servers that reject ``reasoning_content``."""

_AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_SEPARATOR: ChatMessage = {"role": "assistant", "content": "Done."}
"""Mistral rejects a user message right after a tool message, so this goes between them."""
_MISTRAL_ID = re.compile(r"[A-Za-z0-9]{9}")
_STREAMED_FIELDS = {"reasoning.text": "text", "reasoning.summary": "summary"}
_EPHEMERAL = {"type": "ephemeral"}


def request_body(request: Request, *, include_usage: bool = True) -> dict[str, Any]:
    """Return the body to POST to ``/chat/completions``."""
    model = request.model
    out: dict[str, Any] = {"model": model.wire_id}
    if request.max_output_tokens is not None and "maxCompletionTokens" not in request.options:
        limit = "max_completion_tokens" if model.npm in OPENAI_SDKS and is_reasoning_model(model) else "max_tokens"
        out[limit] = request.max_output_tokens
    out |= sampling_settings(request)
    if request.top_k is not None and model.npm == OPENROUTER:
        out["top_k"] = request.top_k
    for name, value in request.options.items():
        if name not in _OTHER_OPTIONS | _OWN_FIELDS:
            out[_WIRE_NAMES.get(name, name)] = value
    out["messages"] = chat_messages(request)
    if request.tools:
        tools: list[dict[str, Any]] = []
        for tool in request.tools:
            parameters = tool.parameters
            if "gemini" in model.wire_id.lower():
                parameters = simplify_schema(parameters) or {"type": "object", "properties": {}}
            function = {"name": tool.name, "description": tool.description, "parameters": parameters}
            tools.append({"type": "function", "function": function})
        out["tools"] = tools
        out["tool_choice"] = request.tool_choice
    out["stream"] = True
    if include_usage:
        out["stream_options"] = {"include_usage": True}
    return out


def is_reasoning_model(model: Model) -> bool:
    """Return whether the model reasons, by the catalogue or by its name."""
    name = model.wire_id.rpartition("/")[2]
    return model.capabilities.reasoning or _OPENAI_REASONING_MODEL.match(name) is not None


def system_role(model: Model) -> str:
    """Return the role of the system prompt; OpenAI's reasoning models call it ``developer``."""
    return "developer" if model.npm in OPENAI_SDKS and is_reasoning_model(model) else "system"


def sampling_settings(request: Request) -> dict[str, Any]:
    """Return temperature and top_p, except where OpenAI's reasoning models reject them."""
    model = request.model
    reasoning = request.options.get("reasoningEffort") != "none"
    if reasoning and model.npm in OPENAI_SDKS and is_reasoning_model(model):
        return {}
    settings = {"temperature": request.temperature, "top_p": request.top_p}
    return {name: value for name, value in settings.items() if value is not None}


def merge_reasoning_details(details: Iterable[dict[str, Any]]) -> Details:
    """Join the chunks of each text in OpenRouter's ``reasoning_details``, which stream in one by one."""
    runs: list[Details] = []
    for detail in details:
        last = runs[-1][-1] if runs else {}
        same = last.get("type") == detail.get("type") and last.get("index") == detail.get("index")
        if runs and detail.get("type") in _STREAMED_FIELDS and same and not last.get("signature"):
            runs[-1].append(detail)
        else:
            runs.append([detail])
    joined: Details = []
    for run in runs:
        if len(run) > 1:
            field = _STREAMED_FIELDS[run[0]["type"]]
            whole = {key: value for detail in run for key, value in detail.items() if value is not None}
            joined.append({**whole, field: "".join(detail.get(field) or "" for detail in run)})
        else:
            joined.append(run[0])
    return joined


def chat_messages(request: Request) -> list[ChatMessage]:
    """Return the messages of the body."""
    model = request.model
    names = f"{model.provider_id} {model.id} {model.api_id}".lower()
    cached = "anthropic" in names or "claude" in names
    messages: list[ChatMessage] = []
    for message in request.messages:
        if _is_mistral(model) and isinstance(message, User) and messages and messages[-1]["role"] == "tool":
            messages.append(_SEPARATOR)
        converted = _convert(message, model)
        if cached and message.cache and converted:
            # The last part is marked, as in Anthropic's own API.
            last, content = converted[-1], converted[-1]["content"]
            if model.provider_id.startswith("github-copilot"):
                last["copilot_cache_control"] = _EPHEMERAL
            elif isinstance(content, list):
                content[-1]["cache_control"] = _EPHEMERAL
            elif content:
                last["content"] = [{"type": "text", "text": content, "cache_control": _EPHEMERAL}]
            elif calls := last.get("tool_calls"):
                calls[-1]["cache_control"] = _EPHEMERAL
        messages += converted
    return messages


def _convert(message: ModelMessage, model: Model) -> list[ChatMessage]:
    match message:
        case System():
            return [{"role": system_role(model), "content": message.text}]
        case User(content=()):
            return []
        case User(content=(Text(text=text),)):
            return [{"role": "user", "content": text}]
        case User():
            return [{"role": "user", "content": [_part(part) for part in message.content]}]
        case Assistant():
            return [_assistant(message, model)]
        case ToolResults():
            return _tool_results(message, model)


def _part(part: Text | File) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    inline = inline_data(part)
    mime, data = inline or (part.mime, "")
    if inline and not data:
        return {"type": "text", "text": unsupported_file_note(part)}
    url = f"data:{mime};base64,{data}" if inline else part.url
    if mime.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    if mime == "application/pdf":
        return {"type": "file", "file": {"filename": part.filename or "file.pdf", "file_data": url}}
    if mime in _AUDIO_FORMATS and inline:
        return {"type": "input_audio", "input_audio": {"data": data, "format": _AUDIO_FORMATS[mime]}}
    return {"type": "text", "text": unsupported_file_note(part)}


def _assistant(message: Assistant, model: Model) -> ChatMessage:
    text, reasoning = (
        "".join(part.text for part in message.content if isinstance(part, kind)) for kind in (Text, Reasoning)
    )
    out: ChatMessage = {"role": "assistant", "content": text}
    field = model.capabilities.interleaved or _REASONING_FIELD.get(model.npm, "reasoning_content")
    details = _reasoning_details(message)
    if reasoning and not details and field == "reasoning_details":
        details = [{"type": "reasoning.text", "text": reasoning}]
    if reasoning and field and field != "reasoning_details":
        out[field] = reasoning
    if details and field:
        out["reasoning_details"] = details
    calls: list[dict[str, Any]] = []
    for part in message.content:
        if isinstance(part, ToolUse):
            function = {"name": part.name, "arguments": write_arguments(part.input)}
            call: dict[str, Any] = {"id": _call_id(part.id, model), "type": "function", "function": function}
            if signature := nested(part.metadata, "google").get("thoughtSignature"):
                call["extra_content"] = {"google": {"thought_signature": signature}}
            calls.append(call)
    return {**out, "tool_calls": calls} if calls else out


def _reasoning_details(message: Assistant) -> Details:
    """Return the details stored with the reasoning; or with a call, where OpenCode stores the whole list."""
    lists: list[Details] = []
    for part in message.content:
        details = nested(part.metadata, "openrouter").get("reasoning_details")
        if details and not isinstance(part, Reasoning):
            lists = [cast("Details", details)] if isinstance(details, list) else []
            break
        if isinstance(details, list):
            lists.append(cast("Details", details))
    return merge_reasoning_details(chain.from_iterable(lists))


def _tool_results(message: ToolResults, model: Model) -> list[ChatMessage]:
    """Return one message for each result. It holds only text, so files follow as if the user had sent them."""
    messages: list[ChatMessage] = []
    files: list[dict[str, Any]] = []
    for result in message.content:
        attached = [part for part in result.output if isinstance(part, File)]
        if attached:
            files.append({"type": "text", "text": f"Files returned by the {result.name} tool:"})
            files += [_part(file) for file in attached]
        call_id = _call_id(result.id, model)
        messages.append({"role": "tool", "tool_call_id": call_id, "content": joined_text(result.output)})
    if files and _is_mistral(model):
        messages.append(_SEPARATOR)
    return [*messages, {"role": "user", "content": files}] if files else messages


def _call_id(call_id: str, model: Model) -> str:
    """Return the id of a call in the form that the model's vendor requires."""
    if "claude" in model.wire_id.lower():
        return tool_id(call_id)
    if _is_mistral(model) and not _MISTRAL_ID.fullmatch(call_id):
        return sha256(call_id.encode()).hexdigest()[:9]
    return call_id


def _is_mistral(model: Model) -> bool:
    name = model.wire_id.lower()
    return model.provider_id == "mistral" or "mistral" in name or "devstral" in name
