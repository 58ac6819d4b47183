from __future__ import annotations

from itertools import count
from typing import Any

from .wires import lines

USAGE = {
    "input_tokens": 900,
    "input_tokens_details": {"cached_tokens": 512, "cache_write_tokens": 0},
    "output_tokens": 120,
    "output_tokens_details": {"reasoning_tokens": 64},
    "total_tokens": 1020,
}


def response(status: str = "in_progress", **more: Any) -> dict[str, Any]:
    return {
        "id": "resp_67c9",
        "object": "response",
        "created_at": 1763240000,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "metadata": {},
        "model": "gpt-5-2025-08-07",
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": None,
        "user": None,
        **more,
    }


def stream(*events: dict[str, Any]) -> bytes:
    """``events`` in the frame that every answer has, numbered as they come."""
    numbers = count()
    framed = [
        event("response.created", response=response()),
        event("response.in_progress", response=response()),
        *events,
    ]
    return lines(*({**entry, "sequence_number": next(numbers)} for entry in framed), named=True)


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields}


def item(kind: str, index: int, **fields: Any) -> dict[str, Any]:
    return event(f"response.output_item.{kind}", output_index=index, item=fields)


def completed(status: str = "completed", **more: Any) -> dict[str, Any]:
    return event(f"response.{status}", response=response(status, **{"usage": USAGE, **more}))


def thought(item_id: str, index: int, *summaries: str, proof: str | None = "gAAAAproof") -> list[dict[str, Any]]:
    at = {"item_id": item_id, "output_index": index}
    events = [item("added", index, id=item_id, type="reasoning", encrypted_content="gAAAAearly", summary=[])]
    for number, text in enumerate(summaries):
        part = {**at, "summary_index": number}
        half = len(text) // 2
        events += [
            event("response.reasoning_summary_part.added", **part, part={"type": "summary_text", "text": ""}),
            event("response.reasoning_summary_text.delta", **part, delta=text[:half]),
            event("response.reasoning_summary_text.delta", **part, delta=text[half:]),
            event("response.reasoning_summary_text.done", **part, text=text),
            event("response.reasoning_summary_part.done", **part, part={"type": "summary_text", "text": text}),
        ]
    whole = [{"type": "summary_text", "text": text} for text in summaries]
    return [*events, item("done", index, id=item_id, type="reasoning", encrypted_content=proof, summary=whole)]


def message(item_id: str, index: int, *texts: str, **more: Any) -> list[dict[str, Any]]:
    at = {"item_id": item_id, "output_index": index, "content_index": 0}
    frame = {"id": item_id, "type": "message", "role": "assistant", **more}
    whole: dict[str, Any] = {"type": "output_text", "text": "".join(texts), "annotations": [], "logprobs": []}
    return [
        item("added", index, **frame, status="in_progress", content=[]),
        event("response.content_part.added", **at, part={**whole, "text": ""}),
        *(event("response.output_text.delta", **at, delta=text, logprobs=[], obfuscation="x7") for text in texts),
        event("response.output_text.done", **at, text="".join(texts), logprobs=[]),
        event("response.content_part.done", **at, part=whole),
        item("done", index, **frame, status="completed", content=[whole]),
    ]


def call(item_id: str, index: int, call_id: str, name: str, *fragments: str) -> list[dict[str, Any]]:
    at = {"item_id": item_id, "output_index": index}
    frame = {"id": item_id, "type": "function_call", "call_id": call_id, "name": name}
    return [
        item("added", index, **frame, status="in_progress", arguments=""),
        *(event("response.function_call_arguments.delta", **at, delta=text) for text in fragments),
        event("response.function_call_arguments.done", **at, name=name, arguments="".join(fragments)),
        item("done", index, **frame, status="completed", arguments="".join(fragments)),
    ]


_ONE = call("fc_1", 2, "call_a", "read", '{"pa', 'th":"a.py"}')
_TWO = call("fc_2", 3, "call_b", "read", '{"path":', '"b.py"}')

TOOLS = stream(
    *thought("rs_1", 0, "**Looking** at it.", "Then the second — ✓."),
    *message("msg_1", 1, "I will ", "read 漢字 🐍."),
    *(entry for pair in zip(_ONE, _TWO, strict=True) for entry in pair),
    completed(),
)
PLAIN = stream(*thought("rs_1", 0), *message("msg_1", 1, "Done", "."), completed(service_tier="default"))
ALL = {"tools": TOOLS, "plain": PLAIN}
