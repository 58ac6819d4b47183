"""Requests to Anthropic's Messages API."""

from __future__ import annotations

import re
from base64 import b64decode
from typing import TYPE_CHECKING, Any, cast

from ..records import object_at
from .request import Assistant, File, Reasoning, Request, System, Text, ToolResults, ToolUse, User
from .wire_helpers import inline_data, nested, unsupported_file_note

if TYPE_CHECKING:
    from ..records import Document
    from .request import ModelMessage

MAX_CACHE_POINTS = 4
"""How many cache points one request may have."""

MIN_THINKING_TOKENS = 1024
"""The smallest thinking budget that Claude accepts."""

_DEFAULT_OUTPUT_TOKENS = 4096
_THINKING_TYPES = ("enabled", "adaptive", "between_tools")
_IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_NOT_IN_ID = re.compile(r"[^A-Za-z0-9_-]")


def request_body(request: Request) -> dict[str, Any]:
    """Return the body to POST, without what is known to be rejected (empty blocks, a budget above the limit)."""
    thinking, max_tokens = _thinking(request)
    system, messages = _conversation(request.messages)
    out: dict[str, Any] = {"model": request.model.wire_id, "max_tokens": max_tokens, "stream": True}
    if system:
        out["system"] = system
    out["messages"] = messages
    if request.tools:
        out["tools"] = [
            {
                "name": tool.name,
                **({"description": tool.description} if tool.description else {}),
                "input_schema": {**tool.parameters, "type": "object"},
            }
            for tool in request.tools
        ]
        choice: Document = {"type": {"auto": "auto", "required": "any", "none": "none"}[request.tool_choice]}
        if request.options.get("disableParallelToolUse") and request.tool_choice != "none":
            choice["disable_parallel_tool_use"] = True
        out["tool_choice"] = choice
    if thinking:
        out["thinking"] = thinking
    if not thinking or thinking["type"] not in _THINKING_TYPES:
        out |= _sampling(request)
    if request.options.get("effort"):
        out["output_config"] = {"effort": request.options["effort"]}
    if request.options.get("speed"):
        out["speed"] = request.options["speed"]
    if user := object_at(request.options, "metadata").get("userId"):
        out["metadata"] = {"user_id": user}
    return out


def _sampling(request: Request) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if request.temperature is not None:
        out["temperature"] = min(max(request.temperature, 0.0), 1.0)
    elif request.top_p is not None:  # recent models reject both at once
        out["top_p"] = request.top_p
    if request.top_k is not None:
        out["top_k"] = request.top_k
    return out


def _thinking(request: Request) -> tuple[Document | None, int]:
    """Return the thinking setting, and the limit for thinking and answer together."""
    limit = request.model.limit.output
    answer = request.max_output_tokens or limit or _DEFAULT_OUTPUT_TOKENS
    option = request.options.get("thinking")
    if not isinstance(option, dict) or request.tool_choice == "required":  # a forced call excludes thinking
        return None, answer
    option = cast("Document", option)
    config: Document = {"type": option.get("type", "enabled")}
    if option.get("display"):
        config["display"] = option["display"]
    if config["type"] != "enabled":
        return config, answer
    tokens = thinking_budget(option, answer, limit, default=MIN_THINKING_TOKENS)
    return ({**config, "budget_tokens": tokens[0]}, tokens[1]) if tokens else (None, answer)


def thinking_budget(option: Document, answer: int, limit: int, *, default: int = 0) -> tuple[int, int] | None:
    """Return the thinking budget, and the limit for thinking and answer together, within the model's ``limit``.

    ``None`` if the budget would be smaller than Claude accepts. ``default`` is used where ``option`` has no number.
    """
    budget = int(option.get("budgetTokens") or option.get("budget_tokens") or default)
    both = min(answer + budget, limit or answer + budget)
    budget = min(budget, both - 1)
    return (budget, both) if budget >= MIN_THINKING_TOKENS else None


def _conversation(history: tuple[ModelMessage, ...]) -> tuple[list[Document], list[Document]]:
    """Return system blocks, and messages in which user and assistant alternate."""
    system: list[Document] = []
    messages: list[Document] = []
    points: list[Document] = []
    for message in history:
        role, blocks = _blocks(message)
        if message.cache:
            points += [block for block in blocks if "thinking" not in block["type"]][-1:]
        if role == "system":
            system += blocks
        elif messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        elif blocks:
            messages.append({"role": role, "content": blocks})
    # Of too many cache points, the first and the last are worth most: the fixed prompt, and the latest messages.
    for block in points if len(points) <= MAX_CACHE_POINTS else points[:2] + points[-2:]:
        block["cache_control"] = {"type": "ephemeral"}
    if messages and messages[-1]["role"] == "assistant" and messages[-1]["content"][-1]["type"] == "text":
        last = messages[-1]["content"][-1]
        last["text"] = last["text"].rstrip()  # an answer to be continued must not end in white space
    return system, messages


def _blocks(message: ModelMessage) -> tuple[str, list[Document]]:
    match message:
        case System():
            return "system", _text(message.text)
        case User():
            return "user", [block for part in message.content for block in _input(part)]
        case Assistant():
            return "assistant", [block for part in message.content for block in _output(part)]
        case ToolResults():
            results: list[Document] = []
            for result in message.content:
                content = [block for part in result.output for block in _input(part)]
                if result.failed and not content:  # an error needs content
                    content = _text("The tool failed without a word.")
                out: Document = {"type": "tool_result", "tool_use_id": tool_id(result.id)}
                if content:
                    out["content"] = content
                if result.failed:
                    out["is_error"] = True
                results.append(out)
            return "user", results


def _text(text: str) -> list[Document]:
    # The API rejects text blocks without a visible character.
    return [{"type": "text", "text": text}] if text.strip() else []


def _input(part: Text | File) -> list[Document]:
    if isinstance(part, Text):
        return _text(part.text)
    title = {"title": part.filename} if part.filename else {}
    content = inline_data(part)
    mime, data = content or (part.mime, "")
    mime = "image/jpeg" if mime == "image/jpg" and content else mime
    source: Document = (
        {"type": "base64", "media_type": mime, "data": data} if content else {"type": "url", "url": part.url}
    )
    if (mime in _IMAGE_TYPES and data) or (content is None and mime.startswith("image/")):
        return [{"type": "image", "source": source}]
    if mime == "application/pdf" and (data or content is None):
        return [{"type": "document", "source": source, **title}]
    if mime.startswith("text/") and (text := _decoded(data)).strip():
        source = {"type": "text", "media_type": "text/plain", "data": text}
        return [{"type": "document", "source": source, **title}]
    return [{"type": "text", "text": unsupported_file_note(part)}]


def _output(part: Text | Reasoning | ToolUse) -> list[Document]:
    match part:
        case Text():
            return _text(part.text)
        case ToolUse():
            return [{"type": "tool_use", "id": tool_id(part.id), "name": part.name, "input": part.input}]
        case Reasoning():
            # Reasoning without a signature is rejected, so it is left out.
            match nested(part.metadata, "anthropic"):
                case {"redactedData": str(data)}:
                    return [{"type": "redacted_thinking", "data": data}]
                case {"signature": str(signature)} if signature:
                    return [{"type": "thinking", "thinking": part.text, "signature": signature}]
                case _:
                    return []


def _decoded(data: str) -> str:
    try:
        return b64decode(data).decode("utf-8", "replace")
    except ValueError:
        return ""


def tool_id(call_id: str) -> str:
    """Replace characters that Anthropic does not allow in ids; other providers use them."""
    return _NOT_IN_ID.sub("_", call_id)
