"""A request in the words of Anthropic's Messages API."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from .request import Assistant, File, Reasoning, Request, System, Text, ToolResults, ToolUse, ToolUseResult, User
from .wire_helpers import inline_data, nested, unsupported_file_note

if TYPE_CHECKING:
    from .request import ModelMessage, ToolSpec

Block: TypeAlias = dict[str, Any]

CACHE_POINTS = 4
"""How many cache points one request may hold."""

LEAST_BUDGET = 1024
"""The fewest tokens that Claude thinks with."""

_DEFAULT_OUTPUT = 4096
_THINKS = ("enabled", "adaptive", "between_tools")
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")


def body(request: Request) -> dict[str, Any]:
    """What to POST. Whatever can be known to be refused (empty blocks, a budget above the limit) is left out."""
    thinking, max_tokens = _thinking(request)
    system, messages = _conversation(request.messages)
    out: dict[str, Any] = {"model": request.model.wire_id, "max_tokens": max_tokens, "stream": True}
    if system:
        out["system"] = system
    out["messages"] = messages
    if request.tools:
        out["tools"] = [_tool(tool) for tool in request.tools]
        out["tool_choice"] = _tool_choice(request)
    if thinking:
        out["thinking"] = thinking
    if not thinking or thinking["type"] not in _THINKS:
        out.update(_sampling(request))
    out.update(_extras(request.options))
    return out


def _thinking(request: Request) -> tuple[Block | None, int]:
    """How to think, if at all, and how many tokens that and the answer may take together."""
    limit = request.model.limit.output
    answer = request.max_output_tokens or limit or _DEFAULT_OUTPUT
    option = request.options.get("thinking")
    if not isinstance(option, dict) or request.tool_choice == "required":  # a forced call leaves no room for thought
        return None, answer
    wanted = cast("Block", option)
    config: Block = {"type": wanted.get("type", "enabled")}
    if wanted.get("display"):
        config["display"] = wanted["display"]
    if config["type"] != "enabled":
        return config, answer
    given = thinking_budget(wanted, answer, limit, otherwise=LEAST_BUDGET)
    return ({**config, "budget_tokens": given[0]}, given[1]) if given else (None, answer)


def thinking_budget(wanted: Block, answer: int, limit: int, *, otherwise: int = 0) -> tuple[int, int] | None:
    """How many tokens Claude may think for, and how many that and the answer may take together: no more than the model
    gives. ``None`` if they are fewer than Claude thinks with. ``otherwise`` is for who names no number."""
    budget = int(wanted.get("budgetTokens") or wanted.get("budget_tokens") or otherwise)
    both = min(answer + budget, limit or answer + budget)
    budget = min(budget, both - 1)
    return (budget, both) if budget >= LEAST_BUDGET else None


def _sampling(request: Request) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if request.temperature is not None:
        out["temperature"] = min(max(request.temperature, 0.0), 1.0)
    elif request.top_p is not None:  # recent models refuse both at once
        out["top_p"] = request.top_p
    if request.top_k is not None:
        out["top_k"] = request.top_k
    return out


def _extras(options: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if options.get("effort"):
        out["output_config"] = {"effort": options["effort"]}
    if options.get("speed"):
        out["speed"] = options["speed"]
    metadata = options.get("metadata")
    if isinstance(metadata, dict) and (user := cast("Block", metadata).get("userId")):
        out["metadata"] = {"user_id": user}
    return out


def _tool(tool: ToolSpec) -> Block:
    described = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **described, "input_schema": {**tool.parameters, "type": "object"}}


def _tool_choice(request: Request) -> Block:
    names = {"auto": "auto", "required": "any", "none": "none"}
    choice: Block = {"type": names[request.tool_choice]}
    if request.options.get("disableParallelToolUse") and request.tool_choice != "none":
        choice["disable_parallel_tool_use"] = True
    return choice


def _conversation(turns: tuple[ModelMessage, ...]) -> tuple[list[Block], list[Block]]:
    """System blocks, and messages in which user and assistant alternate."""
    system: list[Block] = []
    messages: list[Block] = []
    points: list[Block] = []
    for turn in turns:
        role, blocks = _blocks(turn)
        if turn.cache:
            points += [block for block in blocks if "thinking" not in block["type"]][-1:]
        if role == "system":
            system += blocks
        elif messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        elif blocks:
            messages.append({"role": role, "content": blocks})
    # Too many points: those at both ends are worth the most, the prompt that never changes and the latest turns.
    for block in points if len(points) <= CACHE_POINTS else points[:2] + points[-2:]:
        block["cache_control"] = {"type": "ephemeral"}
    _trim_end(messages)
    return system, messages


def _trim_end(messages: list[Block]) -> None:
    """An answer to be continued must not end in white space."""
    if messages and messages[-1]["role"] == "assistant" and messages[-1]["content"][-1]["type"] == "text":
        last = messages[-1]["content"][-1]
        last["text"] = last["text"].rstrip()


def _blocks(turn: ModelMessage) -> tuple[str, list[Block]]:
    match turn:
        case System():
            return "system", _text(turn.text)
        case User():
            return "user", [block for piece in turn.content for block in _shown(piece)]
        case Assistant():
            return "assistant", [block for piece in turn.content for block in _said(piece)]
        case ToolResults():
            return "user", [_result(result) for result in turn.content]


def _text(text: str) -> list[Block]:
    """A block, or none: one without a visible character is refused."""
    return [{"type": "text", "text": text}] if text.strip() else []


def _shown(piece: Text | File) -> list[Block]:
    return _text(piece.text) if isinstance(piece, Text) else [_file(piece)]


def _said(piece: Text | Reasoning | ToolUse) -> list[Block]:
    match piece:
        case Text():
            return _text(piece.text)
        case Reasoning():
            return _thought(piece)
        case ToolUse():
            return [{"type": "tool_use", "id": tool_id(piece.id), "name": piece.name, "input": piece.input}]


def _thought(piece: Reasoning) -> list[Block]:
    """Thought that cannot be proved to be the model's own is refused, so it is left out."""
    match nested(piece.metadata, "anthropic"):
        case {"redactedData": str(data)}:
            return [{"type": "redacted_thinking", "data": data}]
        case {"signature": str(signature)} if signature:
            return [{"type": "thinking", "thinking": piece.text, "signature": signature}]
        case _:
            return []


def _result(result: ToolUseResult) -> Block:
    content = [block for piece in result.output for block in _shown(piece)]
    if result.failed and not content:  # an error must say something
        content = _text("The tool failed without a word.")
    out: Block = {"type": "tool_result", "tool_use_id": tool_id(result.id)}
    if content:
        out["content"] = content
    if result.failed:
        out["is_error"] = True
    return out


def _file(file: File) -> Block:
    content = inline_data(file)
    if content is None:
        return _remote(file)
    mime, data = content
    mime = "image/jpeg" if mime == "image/jpg" else mime
    source: Block = {"type": "base64", "media_type": mime, "data": data}
    if mime in _IMAGES and data:
        return {"type": "image", "source": source}
    if mime == "application/pdf" and data:
        return _document(file, source)
    if mime.startswith("text/") and (words := _words(data)).strip():
        return _document(file, {"type": "text", "media_type": "text/plain", "data": words})
    return {"type": "text", "text": unsupported_file_note(file)}


def _remote(file: File) -> Block:
    source = {"type": "url", "url": file.url}
    if file.mime.startswith("image/"):
        return {"type": "image", "source": source}
    if file.mime == "application/pdf":
        return _document(file, source)
    return {"type": "text", "text": unsupported_file_note(file)}


def _document(file: File, source: Block) -> Block:
    titled = {"title": file.filename} if file.filename else {}
    return {"type": "document", "source": source, **titled}


def _words(data: str) -> str:
    from base64 import b64decode

    try:
        return b64decode(data).decode("utf-8", "replace")
    except ValueError:
        return ""


def tool_id(call_id: str) -> str:
    """``call_id`` in the characters that are allowed; ids made by other providers hold others."""
    return _FOREIGN.sub("_", call_id)
