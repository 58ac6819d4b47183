from __future__ import annotations

from typing import Any

from .wires import lines

ROLE: dict[str, Any] = {"role": "assistant", "content": ""}


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
    frame = {"id": "chatcmpl-Bz1", "object": "chat.completion.chunk", "created": 1763240000, "model": "gpt-4.1"}
    return {**frame, "service_tier": "default", "system_fingerprint": "fp_51", "choices": choices, **more}


def said(*texts: str) -> list[dict[str, Any]]:
    return [chunk({"content": text}) for text in texts]


def call(index: int | None, **function: Any) -> dict[str, Any]:
    """Return one fragment of a call. ``id`` is put beside the function; only the fields that are passed are sent."""
    fragment: dict[str, Any] = {} if index is None else {"index": index}
    if "id" in function:
        fragment |= {"id": function.pop("id"), "type": "function"}
    return chunk({"tool_calls": [{**fragment, "function": function}]})


OPENAI_USAGE = {
    "prompt_tokens": 1200,
    "completion_tokens": 90,
    "total_tokens": 1290,
    "prompt_tokens_details": {"cached_tokens": 1024, "audio_tokens": 0},
    "completion_tokens_details": {
        "reasoning_tokens": 64,
        "audio_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
}

OPENAI = lines(
    chunk({**ROLE, "refusal": None}),
    *said("I will ", "look — ", "✓ 漢字 🐍."),
    chunk(
        {
            "tool_calls": [
                {"index": 0, "id": "call_a", "type": "function", "function": {"name": "read", "arguments": ""}}
            ]
        }
    ),
    call(0, arguments='{"path":"a'),
    chunk(
        {
            "tool_calls": [
                {"index": 1, "id": "call_b", "type": "function", "function": {"name": "read", "arguments": ""}}
            ]
        }
    ),
    call(1, arguments='{"path":'),
    call(0, arguments='.py"}'),
    call(1, arguments='"b.py"}'),
    chunk({}, "tool_calls"),
    chunk(None, usage=OPENAI_USAGE),
    "[DONE]",
)

DEEPSEEK = lines(
    chunk({"role": "assistant", "content": None, "reasoning_content": ""}),
    chunk({"content": None, "reasoning_content": "Let me "}),
    chunk({"content": None, "reasoning_content": "think."}),
    chunk({"content": "Forty", "reasoning_content": None}),
    chunk({"content": "-two.", "reasoning_content": None}),
    chunk(
        {"content": "", "reasoning_content": None},
        "stop",
        usage={
            "prompt_tokens": 300,
            "completion_tokens": 50,
            "total_tokens": 350,
            "prompt_cache_hit_tokens": 256,
            "prompt_cache_miss_tokens": 44,
            "completion_tokens_details": {"reasoning_tokens": 40},
        },
    ),
    "[DONE]",
)

OPENROUTER = b": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\n" + lines(
    chunk(
        {
            **ROLE,
            "reasoning": "First, ",
            "reasoning_details": [
                {"type": "reasoning.text", "text": "First, ", "format": "anthropic-claude-v1", "index": 0}
            ],
        },
        provider="Anthropic",
    ),
    chunk(
        {
            **ROLE,
            "reasoning": "look.",
            "reasoning_details": [
                {"type": "reasoning.text", "text": "look.", "format": "anthropic-claude-v1", "index": 0}
            ],
        }
    ),
    chunk(
        {
            **ROLE,
            "reasoning": None,
            "reasoning_details": [
                {"type": "reasoning.text", "signature": "EqQBCk==", "format": "anthropic-claude-v1", "index": 0}
            ],
        }
    ),
    chunk({"role": "assistant", "content": "Looking."}),
    call(0, id="toolu_01", name="read", arguments=""),
    call(0, arguments='{"path": "a.py"}'),
    chunk({**ROLE}, "tool_calls", native_finish_reason="tool_use"),
    chunk(
        None,
        usage={
            "prompt_tokens": 500,
            "completion_tokens": 60,
            "total_tokens": 560,
            "cost": 0.0021,
            "prompt_tokens_details": {"cached_tokens": 300, "cache_write_tokens": 100},
            "completion_tokens_details": {"reasoning_tokens": 20},
        },
    ),
    "[DONE]",
)

OLLAMA = lines(
    chunk({"role": "assistant", "content": "", "reasoning": "Hm."}),
    chunk(
        {
            **ROLE,
            "tool_calls": [
                {
                    "id": "call_1",
                    "index": 0,
                    "type": "function",
                    "function": {"name": "read", "arguments": '{"path":"a"}'},
                }
            ],
        }
    ),
    chunk(
        {
            **ROLE,
            "tool_calls": [
                {
                    "id": "call_2",
                    "index": 0,
                    "type": "function",
                    "function": {"name": "read", "arguments": '{"path":"b"}'},
                }
            ],
        }
    ),
    chunk({**ROLE}, "stop"),
    "[DONE]",
)

ALL = {"openai": OPENAI, "deepseek": DEEPSEEK, "openrouter": OPENROUTER, "ollama": OLLAMA}
