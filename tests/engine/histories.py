"""Histories of every kind, the impossible ones too."""

from __future__ import annotations

import base64
from typing import Any

from hypothesis import strategies as st

from opensesh.models.model import Capabilities, Limit, Modality, Model
from opensesh.storage.protocol import StoredMessage

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n tiny").decode()
PDF = base64.b64encode(b"%PDF-1.7 tiny").decode()

Document = dict[str, Any]

texts = st.one_of(
    st.sampled_from(["", " ", "\n\t", "Hello.", "half \ud800 a character", "\udc00", "trailing  ", "ünï", "\0"]),
    st.text(max_size=12),
)
call_ids = st.sampled_from(
    ["", "call_1", "call_1", "call_2", "call_1_2", "a.b:c", "a_b_c", "x" * 90, "x" * 91, "\ud800", "fn:0", "日本"]
)
tools = st.sampled_from(["read", "bash", "", "mcp.server/tool", "9lives", "t" * 80, "\udc00tool", "StructuredOutput"])
values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.floats(-1e9, 1e9), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(texts, inner, max_size=2)),
    max_leaves=4,
)
inputs = st.dictionaries(texts, values, max_size=3)
urls = st.sampled_from(
    (
        f"data:image/png;base64,{PNG}",
        f"data:application/pdf;base64,{PDF}",
        "data:image/png;base64,",
        "data:image/png;base64,%%%",
        f"data:image/png;base64,{PNG[:-1]}",
        "data:text/plain,hello%20there",
        "data:,",
        "data:image/png;base64,日本",
        "https://example.invalid/a.png",
        "https://example.invalid/\ud800.png",
        "file:///gone.png",
        "",
    )
)
mimes = st.sampled_from(
    (
        "image/png",
        "IMAGE/PNG",
        "image/jpg",
        "image/svg+xml",
        "image/heic",
        "application/pdf",
        "application/zip",
        "text/plain",
        "text/html",
        "application/x-directory",
        "audio/mpeg",
        "video/mp4",
        "",
        "nonsense",
        "image/png; x=\ud800",
    )
)
metadata: st.SearchStrategy[Document] = st.sampled_from(
    (
        {"anthropic": {"signature": "sig"}},
        {"anthropic": {"signature": ""}},
        {"anthropic": {"redactedData": "xx"}},
        {"bedrock": {"signature": "sig"}},
        {"openai": {"itemId": "rs_1", "reasoningEncryptedContent": "enc"}},
        {"openai": {"itemId": "rs_2", "reasoningEncryptedContent": None}},
        {"google": {"thoughtSignature": "ts"}},
        {"openrouter": {"reasoning_details": [{"type": "reasoning.text", "text": "t\ud800"}]}},
        {"opensesh": {"steering": True}},
        {"opensesh": "odd"},
    )
)
others: st.SearchStrategy[Document] = st.sampled_from(
    (
        {"type": "step-start"},
        {"type": "step-finish", "reason": "stop"},
        {"type": "compaction", "auto": True},
        {"type": "subtask", "prompt": "p", "description": "d", "agent": "general"},
        {"type": "agent", "name": "general"},
        {"type": "patch", "hash": "h", "files": []},
        {"type": "retry", "attempt": 1},
        {"type": "of the future", "text": "?"},
        {"type": 7},
        {"type": "text", "text": 7},
        {"type": "tool"},
    )
)
errors: st.SearchStrategy[Document | None] = st.sampled_from(
    (
        None,
        None,
        {"name": "MessageAbortedError", "data": {"message": "stop"}},
        {"name": "APIError", "data": {"message": "no"}},
        {"name": "Unknown", "message": "flat"},
        {"odd": 1},
        {"name": "APIError", "data": {"message": 7}},
    )
)
models = st.sampled_from((("anthropic", "claude-sonnet-5"), ("openai", "gpt-5"), ("google", "gemini-3-pro"), ("", "")))


@st.composite
def files(draw: st.DrawFn) -> Document:
    named = {"filename": draw(texts)} if draw(st.booleans()) else {}
    return {"type": "file", "mime": draw(mimes), "url": draw(urls)} | named


@st.composite
def states(draw: st.DrawFn) -> Document:
    arguments = draw(inputs)
    match draw(st.sampled_from(("pending", "running", "completed", "error", "nobody knows"))):
        case "pending":
            return {"status": "pending", "input": {}, "raw": ""}
        case "running":
            return {"status": "running", "input": arguments, "time": {"start": 1}}
        case "completed":
            time = {"start": 1, "end": 2} | ({"compacted": 3} if draw(st.booleans()) else {})
            done = {"output": draw(texts), "title": "", "metadata": {}, "time": time}
            attached = draw(st.lists(files(), max_size=2))
            return {"status": "completed", "input": arguments} | done | {"attachments": attached}
        case "error":
            return {"status": "error", "input": arguments, "error": draw(texts), "time": {}}
        case other:
            return {"status": other}


@st.composite
def parts(draw: st.DrawFn) -> Document:
    about = {"metadata": draw(metadata)} if draw(st.booleans()) else {}
    match draw(st.sampled_from(("text", "reasoning", "tool", "tool", "file", "other"))):
        case "text":
            flags = draw(st.dictionaries(st.sampled_from(("synthetic", "ignored")), st.booleans(), max_size=2))
            return {"type": "text", "text": draw(texts)} | flags | about
        case "reasoning":
            return {"type": "reasoning", "text": draw(texts)} | about
        case "tool":
            return {"type": "tool", "callID": draw(call_ids), "tool": draw(tools), "state": draw(states())} | about
        case "file":
            return draw(files())
        case _:
            return draw(others)


@st.composite
def histories(draw: st.DrawFn) -> list[StoredMessage]:
    history: list[StoredMessage] = []
    for number in range(draw(st.integers(0, 5))):
        role = draw(st.sampled_from(("user", "assistant", "assistant", "nobody")))
        info: Document = {"id": f"msg_{number}", "role": role, "time": {"created": number}}
        if role == "assistant":
            provider, name = draw(models)
            error = draw(errors)
            info |= {"providerID": provider, "modelID": name} | ({"error": error} if error else {})
        result = draw(st.lists(parts(), max_size=6))
        own: list[Document] = [{"id": f"prt_{number}_{at}"} | part for at, part in enumerate(result)]
        if draw(st.integers(0, 20)) == 0:
            own.append({"type": "text", "text": "a part without a name"})
        history.append(StoredMessage(info, own))
    return history


# -- particular ones, a message at a time ------------------------------------------------------------------------------

ALL: frozenset[Modality] = frozenset(("text", "image", "pdf", "audio"))


def model(provider: str, name: str, npm: str, inputs: frozenset[Modality] = ALL) -> Model:
    capable = Capabilities(reasoning=True, attachment=True, input=inputs)
    return Model(
        id=name, provider_id=provider, npm=npm, capabilities=capable, limit=Limit(context=200_000, output=8000)
    )


CLAUDE = model("anthropic", "claude-sonnet-5", "@ai-sdk/anthropic")


def user(number: int, *own: dict[str, Any]) -> StoredMessage:
    return StoredMessage(
        {"id": f"msg_{number}", "role": "user", "time": {"created": number}},
        [{"id": f"prt_{number}_{at}"} | part for at, part in enumerate(own)],
    )


def answer(number: int, *own: dict[str, Any], by: str = "anthropic/claude-sonnet-5", **more: Any) -> StoredMessage:
    provider, _, name = by.partition("/")
    info = {"id": f"msg_{number}", "role": "assistant", "time": {"created": number}, "providerID": provider}
    own = tuple({"id": f"prt_{number}_{at}"} | part for at, part in enumerate(own))
    return StoredMessage(info | {"modelID": name} | more, list(own))


def say(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": text} | more


def called(call: str = "call_1", tool: str = "read", **state: Any) -> dict[str, Any]:
    done = {"status": "completed", "input": {"a": 1}, "output": "ok", "title": "", "metadata": {}, "time": {"start": 1}}
    return {"type": "tool", "callID": call, "tool": tool, "state": done | state}
