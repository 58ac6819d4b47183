"""Answers of Anthropic's Messages API as they travel, after its published description of streaming."""

from __future__ import annotations

import json
from typing import Any

Wire = dict[str, Any]

SIGNATURE = "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pkiMOYds"
REDACTED = "EmwKAhgBEgy3va3pzix/LafPsn4aDFIT2Xlxh0L5L8rLVyIwxtE3rAFBa8cr3qpP"


def event(wire: Wire) -> bytes:
    data = json.dumps(wire, ensure_ascii=False, separators=(",", ":"))
    return f"event: {wire['type']}\ndata: {data}\n\n".encode()


def stream(*wires: Wire) -> bytes:
    return b"".join(event(wire) for wire in wires)


def message_start(**usage: Any) -> Wire:
    counts = {"input_tokens": 472, "output_tokens": 2, **usage}
    message: Wire = {
        "id": "msg_014p7gG3wDgGV9EUtLvnow3U",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5-20250929",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": counts,
    }
    return {"type": "message_start", "message": message}


def start(index: int, **block: Any) -> Wire:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **content: Any) -> Wire:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **content}}


def stop(index: int) -> Wire:
    return {"type": "content_block_stop", "index": index}


def message_delta(reason: str, **usage: Any) -> Wire:
    counts = {"output_tokens": 89, **usage}
    return {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": counts}


PING: Wire = {"type": "ping"}
MESSAGE_STOP: Wire = {"type": "message_stop"}


def text(index: int, *pieces: str) -> list[Wire]:
    deltas = [delta(index, "text_delta", text=piece) for piece in pieces]
    return [start(index, type="text", text=""), *deltas, stop(index)]


def tool(index: int, call_id: str, name: str, *pieces: str) -> list[Wire]:
    deltas = [delta(index, "input_json_delta", partial_json=piece) for piece in pieces]
    return [start(index, type="tool_use", id=call_id, name=name, input={}), *deltas, stop(index)]


def answer(*blocks: Wire, reason: str = "end_turn", **usage: Any) -> list[Wire]:
    return [message_start(**usage), PING, *blocks, message_delta(reason), MESSAGE_STOP]


FULL = answer(
    start(0, type="thinking", thinking="", signature=""),
    delta(0, "thinking_delta", thinking="Let me see: 東京 "),
    delta(0, "thinking_delta", thinking="and Zürich 🗻."),
    delta(0, "signature_delta", signature=SIGNATURE),
    stop(0),
    start(1, type="redacted_thinking", data=REDACTED),
    stop(1),
    *text(2, "Okay, let's check ", "the weather — ☀️ or ", "🌧?"),
    start(3, type="tool_use", id="toolu_01T1x1fJ34qAmk2tNTrN7Up6", name="get_weather", input={}),
    delta(3, "input_json_delta", partial_json=""),
    delta(3, "input_json_delta", partial_json='{"location": "Zür'),
    PING,
    delta(3, "input_json_delta", partial_json='ich", "days": 3}'),
    stop(3),
    *tool(4, "toolu_01A09q90qw90lq917835lq9", "get_time"),
    reason="tool_use",
    cache_creation_input_tokens=100,
    cache_read_input_tokens=2000,
    service_tier="standard",
)
"""Thinking, redacted thinking, words, and two calls of which one has no arguments."""
