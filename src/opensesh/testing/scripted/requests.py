"""Reading a request: its words, whether it asks for a title, and its size as OpenAI's chat would have it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...models.request import (
    Assistant,
    File,
    Reasoning,
    Request,
    System,
    Text,
    ToolResults,
    ToolUse,
    ToolUseResult,
    User,
)
from ...models.request import ModelMessage as Message
from ...models.wire_helpers import encode_json
from .steps import prompt_usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...models.stream_events import Usage


def is_title(request: Request) -> bool:
    """Whether ``request`` is for a title: it offers no tools, and its system prompt opens with talk of a title."""
    if request.tools:
        return False
    opening = next((message.text for message in request.messages if isinstance(message, System)), "")
    return "title" in opening[:200].lower()


def chat_usage(request: Request) -> Usage:
    """Usage by the size of the request: a token is four characters of its messages in the form of OpenAI's chat."""
    import json

    return prompt_usage(len(json.dumps(chat_form(request))) // 4)


def chat_form(request: Request) -> list[dict[str, Any]]:
    """The messages of ``request`` as OpenAI's chat completions spell them."""
    return [spelt for message in request.messages for spelt in _spell(message)]


def ending(request: Request) -> str:
    shown = [f"  [{role_of(message)}] {text_of(message)[-400:]}" for message in request.messages[-3:]]
    return "\n".join(shown) or "  (no messages)"


def role_of(message: Message) -> str:
    return str(message.__struct_config__.tag)


def text_of(message: Message) -> str:
    if isinstance(message, System):
        return message.text
    return "\n".join(map(_readable, message.content))


def _readable(part: Text | File | Reasoning | ToolUse | ToolUseResult) -> str:
    match part:
        case Text() | Reasoning():
            return part.text
        case File():
            return f"({part.mime} {part.filename or ''})"
        case ToolUse():
            return f"{part.name} {encode_json(part.input).decode()}"
        case ToolUseResult():
            return "\n".join(map(_readable, part.output))


def _spell(message: Message) -> list[dict[str, Any]]:
    match message:
        case System():
            return [{"role": "system", "content": message.text}]
        case User():
            return [{"role": "user", "content": _spell_content(message.content)}]
        case Assistant():
            return [_spell_answer(message)]
        case ToolResults():
            return [
                {"role": "tool", "tool_call_id": result.id, "content": _readable(result)} for result in message.content
            ]


def _spell_content(content: Sequence[Text | File]) -> str | list[dict[str, Any]]:
    if len(content) == 1 and isinstance(content[0], Text):
        return content[0].text
    return [
        {"type": "text", "text": part.text}
        if isinstance(part, Text)
        else {"type": "image_url", "image_url": {"url": part.url}}
        for part in content
    ]


def _spell_answer(message: Assistant) -> dict[str, Any]:
    parts = message.content
    spelt: dict[str, Any] = {
        "role": "assistant",
        "content": "".join(part.text for part in parts if isinstance(part, Text)),
    }
    thought = "".join(part.text for part in parts if isinstance(part, Reasoning))
    if thought:
        spelt["reasoning_content"] = thought
    calls = [part for part in parts if isinstance(part, ToolUse)]
    if calls:
        spelt["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": encode_json(call.input).decode()},
            }
            for call in calls
        ]
    return spelt
