"""A request in the dialect of OpenAI's ``/responses``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import openai_family
from .request import Assistant, File, Reasoning, System, Text, ToolResults, ToolUse, User
from .wire_helpers import inline_data, joined_text, nested, unsupported_file_note, write_arguments

if TYPE_CHECKING:
    from .request import ModelMessage, Request, ToolUseResult

Item = dict[str, Any]

ENCRYPTED = "reasoning.encrypted_content"

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
_ELSEWHERE = frozenset({"include", "store", "strictJsonSchema", "structuredOutputs", "textVerbosity"})
_OURS = frozenset({"input", "model", "stream", "tools"})


def body(request: Request) -> dict[str, Any]:
    """The body to POST to ``/responses``. Nothing is stored at OpenAI unless the option ``store`` says so."""
    options = request.options
    store = bool(options.get("store", False))
    out: dict[str, Any] = {"model": request.model.wire_id, "input": _items(request, store=store)}
    out |= openai_family.sampling(request)
    if request.max_output_tokens is not None:
        out["max_output_tokens"] = request.max_output_tokens
    out["store"] = store
    out |= _include(request, store=store) | _reasoning_settings(options) | _others(options)
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


def _include(request: Request, *, store: bool) -> dict[str, Any]:
    """Without a store at OpenAI, reasoning must travel with the conversation, so it is asked for."""
    asked: list[str] = list(request.options.get("include", ()))
    if not store and openai_family.reasons(request.model) and ENCRYPTED not in asked:
        asked.append(ENCRYPTED)
    return {"include": asked} if asked else {}


def _reasoning_settings(options: dict[str, Any]) -> dict[str, Any]:
    settings = {wire: options[name] for name, wire in _REASONING_NAMES.items() if name in options}
    return {"reasoning": settings} if settings else {}


def _others(options: dict[str, Any]) -> dict[str, Any]:
    handled = _ELSEWHERE | _OURS | _REASONING_NAMES.keys()
    body = {_WIRE_NAMES.get(name, name): value for name, value in options.items() if name not in handled}
    if "textVerbosity" in options:
        body["text"] = {**body.get("text", {}), "verbosity": options["textVerbosity"]}
    return body


def _items(request: Request, *, store: bool) -> list[Item]:
    role = openai_family.system_role(request.model)
    items: list[Item] = []
    for turn in request.messages:
        items += _turn(turn, role, store=store)
    return items


def _turn(turn: ModelMessage, system_role: str, *, store: bool) -> list[Item]:
    match turn:
        case System():
            return [{"role": system_role, "content": turn.text}]
        case User():
            return [{"role": "user", "content": [_part(part) for part in turn.content]}] if turn.content else []
        case Assistant():
            return _assistant(turn, store=store)
        case ToolResults():
            return [_result(result) for result in turn.content]


def _part(part: Text | File) -> Item:
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    carried = inline_data(part)
    mime, data = carried or (part.mime, "")
    url = f"data:{mime};base64,{data}" if carried else part.url
    if mime.startswith("image/") and (data or not carried):
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    if mime != "application/pdf" or (carried and not data):
        return {"type": "input_text", "text": unsupported_file_note(part)}
    if not carried:
        return {"type": "input_file", "file_url": url}
    return {"type": "input_file", "filename": part.filename or "file.pdf", "file_data": url}


def _result(result: ToolUseResult) -> Item:
    plain = all(isinstance(part, Text) for part in result.output)
    output = joined_text(result.output) if plain else [_part(part) for part in result.output]
    return {"type": "function_call_output", "call_id": result.id, "output": output}


def _assistant(turn: Assistant, *, store: bool) -> list[Item]:
    items: list[Item] = []
    thoughts: dict[str, Item] = {}
    for part in turn.content:
        about = nested(part.metadata, "openai", "azure")
        # Ids name what OpenAI has stored; where nothing is, it does not know them.
        named: Item = {"id": about["itemId"]} if store and about.get("itemId") else {}
        match part:
            case Text():
                phase = {"phase": about["phase"]} if about.get("phase") else {}
                items.append({"role": "assistant", **_said(part.text, named), **phase})
            case ToolUse():
                arguments = write_arguments(part.input)
                call = {"call_id": part.id, "name": part.name, "arguments": arguments}
                items.append({"type": "function_call", **call, **named})
            case Reasoning():
                _think(part, about, thoughts, items)
    return [_sent(item, store=store) for item in items if store or item.get("encrypted_content") != ""]


def _said(text: str, named: Item) -> Item:
    """Words of the model's; an item of OpenAI's own has them in parts."""
    if not named:
        return {"content": text}
    content: list[Item] = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", **named, "status": "completed", "content": content}


def _think(part: Reasoning, about: Item, thoughts: dict[str, Item], items: list[Item]) -> None:
    """Gather the summaries of one reasoning item, which are stored as parts of their own."""
    item_id = about.get("itemId")
    if not item_id:
        return  # the thought of another provider: OpenAI could not verify it
    if item_id not in thoughts:
        thoughts[item_id] = {"type": "reasoning", "id": item_id, "encrypted_content": "", "summary": []}
        items.append(thoughts[item_id])
    item = thoughts[item_id]
    if part.text:
        item["summary"].append({"type": "summary_text", "text": part.text})
    item["encrypted_content"] = about.get("reasoningEncryptedContent") or item["encrypted_content"]


def _sent(item: Item, *, store: bool) -> Item:
    if item.get("type") != "reasoning":
        return item
    dropped = () if store else ("id",)
    return {key: value for key, value in item.items() if key not in dropped and value != ""}
