from __future__ import annotations

from typing import Any

from .wires import lines

SIGNATURE = "CiIBVKhc7nVrNh3jSQ=="


def chunk(*parts: dict[str, Any], finish: str | None = None, **usage: int) -> dict[str, Any]:
    """One event as Gemini sends it; ``usage`` is running totals."""
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    counted = {"promptTokenCount": 700, "totalTokenCount": 700, **usage}
    details = [{"modality": "TEXT", "tokenCount": 700}]
    return {
        "candidates": [candidate],
        "usageMetadata": {**counted, "promptTokensDetails": details},
        "modelVersion": "gemini-2.5-pro",
        "responseId": "6P0iaZ2rNu",
    }


def thought(text: str, **more: Any) -> dict[str, Any]:
    return {"text": text, "thought": True, **more}


def call(name: str, args: dict[str, Any] | None = None, signature: str | None = None, **more: Any) -> dict[str, Any]:
    made = {"functionCall": {"name": name, **({"args": args} if args is not None else {}), **more}}
    return {**made, "thoughtSignature": signature} if signature else made


USED = {"candidatesTokenCount": 40, "thoughtsTokenCount": 120, "totalTokenCount": 860, "cachedContentTokenCount": 512}

TOOLS = lines(
    chunk(thought("**Planning** it. ")),
    chunk(thought("Both files — ✓.")),
    chunk({"text": "I will "}),
    chunk({"text": "read 漢字 🐍."}),
    chunk(call("read", {"path": "a.py"}, SIGNATURE), call("read", {"path": "b.py"})),
    chunk({"text": ""}, finish="STOP", **USED),
)
PLAIN = lines(
    chunk({"text": "Done"}),
    chunk({"text": ".", "thoughtSignature": SIGNATURE}, finish="STOP", candidatesTokenCount=2, totalTokenCount=702),
)
ALL = {"tools": TOOLS, "plain": PLAIN}
