"""A request in OpenAI's chat-completions dialect, for any server that speaks it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from . import openai_family
from .anthropic_prompt import tool_id
from .google_schema import simplified
from .request import Assistant, File, Reasoning, System, Text, ToolResults, ToolUse, User
from .wire_helpers import inline_data, joined_text, nested, unsupported_file_note, write_arguments

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .model import Model
    from .request import ModelMessage, Request, ToolSpec

Message = dict[str, Any]
Details = list[dict[str, Any]]

OPENROUTER = "@openrouter/ai-sdk-provider"

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
_NOT_FOR_THIS_WIRE = frozenset({"include", "reasoningSummary", "strictJsonSchema", "structuredOutputs"})
"""Options that only ``/responses`` knows, or only OpenCode's own client."""
_OURS = frozenset({"messages", "model", "stream", "tools"})

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
"""Where earlier reasoning goes, for servers that refuse a message with ``reasoning_content`` in it."""

_AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_BETWEEN: Message = {"role": "assistant", "content": "Done."}
"""What stands between a tool and a user, where Mistral lets none follow the other."""
_MISTRAL_ID = re.compile(r"[A-Za-z0-9]{9}")
_GROWING = {"reasoning.text": "text", "reasoning.summary": "summary"}
_EPHEMERAL = {"type": "ephemeral"}


def body(request: Request, *, include_usage: bool = True) -> dict[str, Any]:
    """The body to POST to ``/chat/completions``."""
    out: dict[str, Any] = {"model": request.model.wire_id, **_settings(request), **_options(request.options)}
    out["messages"] = _messages(request)
    if request.tools:
        out["tools"] = [_tool(tool, request.model) for tool in request.tools]
        out["tool_choice"] = request.tool_choice
    out["stream"] = True
    if include_usage:
        out["stream_options"] = {"include_usage": True}
    return out


def merged(details: Iterable[dict[str, Any]]) -> Details:
    """OpenRouter's ``reasoning_details`` with the pieces of one text, which come one by one, in one."""
    runs: list[Details] = []
    for detail in details:
        if runs and detail.get("type") in _GROWING and _continues(runs[-1], detail):
            runs[-1].append(detail)
        else:
            runs.append([detail])
    return [_joined(run) for run in runs]


def _continues(run: Details, detail: dict[str, Any]) -> bool:
    last = run[-1]
    same = last.get("type") == detail.get("type") and last.get("index") == detail.get("index")
    return same and not last.get("signature")


def _joined(run: Details) -> dict[str, Any]:
    if len(run) == 1:
        return run[0]
    field = _GROWING[run[0]["type"]]
    whole = {key: value for detail in run for key, value in detail.items() if value is not None}
    return {**whole, field: "".join(detail.get(field) or "" for detail in run)}


def _settings(request: Request) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    model = request.model
    if request.max_output_tokens is not None and "maxCompletionTokens" not in request.options:
        reasoner = model.npm in openai_family.NPM and openai_family.reasons(model)
        settings["max_completion_tokens" if reasoner else "max_tokens"] = request.max_output_tokens
    settings |= openai_family.sampling(request)
    if request.top_k is not None and model.npm == OPENROUTER:
        settings["top_k"] = request.top_k
    return settings


def _options(options: dict[str, Any]) -> dict[str, Any]:
    passed = {name: value for name, value in options.items() if name not in _NOT_FOR_THIS_WIRE | _OURS}
    return {_WIRE_NAMES.get(name, name): value for name, value in passed.items()}


def _tool(tool: ToolSpec, model: Model) -> dict[str, Any]:
    parameters = tool.parameters
    if "gemini" in model.wire_id.lower():
        parameters = simplified(parameters) or {"type": "object", "properties": {}}
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def _messages(request: Request) -> list[Message]:
    model = request.model
    told = _wants_cache_points(model)
    messages: list[Message] = []
    for turn in request.messages:
        if _is_mistral(model) and isinstance(turn, User) and messages and messages[-1]["role"] == "tool":
            messages.append(_BETWEEN)
        written = _turn(turn, model)
        if told and turn.cache and written:
            _mark(written[-1], model)
        messages += written
    return messages


def _turn(turn: ModelMessage, model: Model) -> list[Message]:
    match turn:
        case System():
            return [{"role": openai_family.system_role(model), "content": turn.text}]
        case User():
            return _user(turn.content)
        case Assistant():
            return [_assistant(turn, model)]
        case ToolResults():
            return _tool_results(turn, model)


def _user(content: tuple[Text | File, ...]) -> list[Message]:
    match content:
        case ():
            return []
        case (Text(text=text),):
            return [{"role": "user", "content": text}]
        case _:
            return [{"role": "user", "content": [_part(part) for part in content]}]


def _part(part: Text | File) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    carried = inline_data(part)
    mime, data = carried or (part.mime, "")
    if carried and not data:
        return {"type": "text", "text": unsupported_file_note(part)}
    url = f"data:{mime};base64,{data}" if carried else part.url
    if mime.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    if mime == "application/pdf":
        return {"type": "file", "file": {"filename": part.filename or "file.pdf", "file_data": url}}
    if mime in _AUDIO and carried:
        return {"type": "input_audio", "input_audio": {"data": data, "format": _AUDIO[mime]}}
    return {"type": "text", "text": unsupported_file_note(part)}


def _assistant(turn: Assistant, model: Model) -> Message:
    text = "".join(part.text for part in turn.content if isinstance(part, Text))
    message: Message = {"role": "assistant", "content": text, **_reasoning(turn, model)}
    calls = [_call(part, model) for part in turn.content if isinstance(part, ToolUse)]
    if calls:
        message["tool_calls"] = calls
    return message


def _call(call: ToolUse, model: Model) -> dict[str, Any]:
    function = {"name": call.name, "arguments": write_arguments(call.input)}
    written: dict[str, Any] = {"id": _call_id(call.id, model), "type": "function", "function": function}
    if signature := nested(call.metadata, "google").get("thoughtSignature"):
        written["extra_content"] = {"google": {"thought_signature": signature}}
    return written


def _reasoning(turn: Assistant, model: Model) -> dict[str, Any]:
    field = model.capabilities.interleaved or _REASONING_FIELD.get(model.npm, "reasoning_content")
    text = "".join(part.text for part in turn.content if isinstance(part, Reasoning))
    details = _details(turn)
    if text and not details and field == "reasoning_details":
        details = [{"type": "reasoning.text", "text": text}]
    written: dict[str, Any] = {}
    if text and field and field != "reasoning_details":
        written[field] = text
    if details and field:
        written["reasoning_details"] = details
    return written


def _details(turn: Assistant) -> Details:
    """The details kept with the thoughts; or with a call, where OpenCode keeps the whole list."""
    sources = [nested(part.metadata, "openrouter").get("reasoning_details") for part in turn.content]
    thoughts = [isinstance(part, Reasoning) for part in turn.content]
    whole = next((found for found, thought in zip(sources, thoughts, strict=True) if found and not thought), None)
    lists = [cast("Details", found) for found in ([whole] if whole else sources) if isinstance(found, list)]
    return merged(detail for found in lists for detail in found)


def _tool_results(turn: ToolResults, model: Model) -> list[Message]:
    """One message a result. A tool message holds words alone, so files follow as if the user had sent them."""
    messages: list[Message] = []
    files: list[dict[str, Any]] = []
    for result in turn.content:
        attached = [part for part in result.output if isinstance(part, File)]
        if attached:
            files.append({"type": "text", "text": f"Files returned by the {result.name} tool:"})
            files += [_part(file) for file in attached]
        call_id = _call_id(result.id, model)
        messages.append({"role": "tool", "tool_call_id": call_id, "content": joined_text(result.output)})
    if files and _is_mistral(model):
        messages.append(_BETWEEN)
    return [*messages, {"role": "user", "content": files}] if files else messages


def _call_id(call_id: str, model: Model) -> str:
    """The id of a call, in the form this model's maker insists on."""
    if "claude" in model.wire_id.lower():
        return tool_id(call_id)
    if _is_mistral(model) and not _MISTRAL_ID.fullmatch(call_id):
        from hashlib import sha256

        return sha256(call_id.encode()).hexdigest()[:9]
    return call_id


def _is_mistral(model: Model) -> bool:
    name = model.wire_id.lower()
    return model.provider_id == "mistral" or "mistral" in name or "devstral" in name


def _wants_cache_points(model: Model) -> bool:
    names = f"{model.provider_id} {model.id} {model.api_id}".lower()
    return "anthropic" in names or "claude" in names


def _mark(message: Message, model: Model) -> None:
    """A cache point after ``message``: on its last part, since that is where Anthropic's own wire has it."""
    content = message["content"]
    if model.provider_id.startswith("github-copilot"):
        message["copilot_cache_control"] = _EPHEMERAL
    elif isinstance(content, list):
        content[-1]["cache_control"] = _EPHEMERAL
    elif content:
        message["content"] = [{"type": "text", "text": content, "cache_control": _EPHEMERAL}]
    elif calls := message.get("tool_calls"):
        calls[-1]["cache_control"] = _EPHEMERAL
