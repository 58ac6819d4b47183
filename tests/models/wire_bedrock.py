"""Answers of Amazon Bedrock's ConverseStream as they travel, after the published framing and shapes."""

from __future__ import annotations

import json
from base64 import b64encode
from struct import pack
from typing import Any
from zlib import crc32

SIGNATURE = "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pkiMOYds"
REDACTED = b64encode(b"sealed thought").decode()


def frame(headers: dict[str, str], payload: bytes) -> bytes:
    named = b"".join(
        pack("!B", len(name)) + name.encode() + b"\x07" + pack("!H", len(value.encode())) + value.encode()
        for name, value in headers.items()
    )
    prelude = pack("!II", 16 + len(named) + len(payload), len(named))
    body = prelude + pack("!I", crc32(prelude)) + named + payload
    return body + pack("!I", crc32(body))


def event(kind: str, **content: Any) -> bytes:
    headers = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    return frame(headers, json.dumps({**content, "p": "abcdefghij"}, ensure_ascii=False).encode())


def exception(kind: str, **content: Any) -> bytes:
    headers = {":exception-type": kind, ":content-type": "application/json", ":message-type": "exception"}
    return frame(headers, json.dumps(content).encode())


def delta(index: int, **content: Any) -> bytes:
    return event("contentBlockDelta", contentBlockIndex=index, delta=content)


def stop(index: int) -> bytes:
    return event("contentBlockStop", contentBlockIndex=index)


def tool_start(index: int, call_id: str, name: str) -> bytes:
    return event("contentBlockStart", contentBlockIndex=index, start={"toolUse": {"toolUseId": call_id, "name": name}})


START = event("messageStart", role="assistant")


def end(reason: str = "end_turn", **usage: int) -> list[bytes]:
    counts = {"inputTokens": 30, "outputTokens": 80, "totalTokens": 110, **usage}
    return [event("messageStop", stopReason=reason), event("metadata", usage=counts, metrics={"latencyMs": 1275})]


FULL = [
    START,
    delta(0, reasoningContent={"text": "Let me see: 東京 "}),
    delta(0, reasoningContent={"text": "and Zürich 🗻."}),
    delta(0, reasoningContent={"signature": SIGNATURE}),
    stop(0),
    delta(1, reasoningContent={"redactedContent": REDACTED}),
    stop(1),
    delta(2, text="Okay, let's check "),
    delta(2, text="the weather — ☀️"),
    stop(2),
    tool_start(3, "tooluse_Zt1", "get_weather"),
    delta(3, toolUse={"input": ""}),
    delta(3, toolUse={"input": '{"location": "Zür'}),
    delta(3, toolUse={"input": 'ich", "days": 3}'}),
    stop(3),
    tool_start(4, "tooluse_Zt2", "get_time"),
    stop(4),
    *end("tool_use", cacheReadInputTokens=2000, cacheWriteInputTokens=100, totalTokens=2210),
]
"""Thinking, redacted thinking, words, and two calls of which one has no arguments."""
