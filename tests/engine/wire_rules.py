"""What each provider refuses, as far as it is known: one function a wire, which fails on a body that would be."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from typing import Any

Body = dict[str, Any]

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")


def sent(body: Body) -> None:
    """It can be put on a wire at all."""
    json.dumps(body, ensure_ascii=False, allow_nan=False).encode("utf-8")


def anthropic(body: Body) -> None:
    sent(body)
    messages = body["messages"]
    _alternate([message["role"] for message in messages], "assistant")
    used: set[str] = set()
    asked: list[str] = []
    points = [block for block in body.get("system", []) if "cache_control" in block]
    for message in messages:
        blocks = message["content"]
        assert blocks, "a message without content"
        points += [block for block in blocks if "cache_control" in block]
        results = [block for block in blocks if block["type"] == "tool_result"]
        assert blocks[: len(results)] == results, "results come before anything else"
        _paired(asked, [block["tool_use_id"] for block in results])
        asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
        _fresh(asked, used)
        for block in blocks:
            _anthropic_block(block, message["role"])
        assert message["role"] == "user" or "thinking" not in blocks[-1]["type"], "thought that nothing follows"
    assert not asked, "calls without results"
    assert len(points) <= 4, "too many cache points"
    assert all("thinking" not in block["type"] for block in points), "a cache point on a thought"


def _anthropic_block(block: Body, role: str) -> None:
    match block["type"]:
        case "text":
            assert block["text"].strip(), "an empty text"
        case "thinking":
            assert role == "assistant"
            assert block["signature"]
        case "redacted_thinking":
            assert role == "assistant"
            assert block["data"]
        case "tool_use":
            assert role == "assistant"
            assert _NAME.fullmatch(block["name"])
            assert isinstance(block["input"], dict)
        case "tool_result":
            assert role == "user"
            for inner in block.get("content", []):
                assert inner["type"] in ("text", "image", "document")
                _anthropic_block(inner, role)
            assert block.get("content") or not block.get("is_error"), "an error that says nothing"
        case "image":
            _source(block["source"], _IMAGES, most=5 * 1024 * 1024)
        case "document":
            if block["source"]["type"] != "text":
                _source(block["source"], ("application/pdf",))
        case other:
            raise AssertionError(f"a block of type {other}")


def _source(source: Body, types: Sequence[str], most: int = 32 * 1024 * 1024) -> None:
    if source["type"] == "url":
        assert source["url"].startswith("http")
        return
    assert source["media_type"] in types
    assert 0 < len(base64.b64decode(source["data"], validate=True)) <= most


def bedrock(body: Body) -> None:
    sent(body)
    messages = body["messages"]
    _alternate([message["role"] for message in messages], "assistant")
    used: set[str] = set()
    asked: list[str] = []
    names: list[str] = []
    for message in messages:
        blocks = message["content"]
        assert blocks
        assert "cachePoint" not in blocks[0]
        _paired(asked, [block["toolResult"]["toolUseId"] for block in blocks if "toolResult" in block])
        asked = [block["toolUse"]["toolUseId"] for block in blocks if "toolUse" in block]
        _fresh(asked, used)
        assert not used or body["toolConfig"]["tools"], "calls in a history without tools"
        for block in blocks:
            _bedrock_block(block, message["role"], names)
        if any("document" in block for block in blocks):
            assert any("text" in block for block in blocks), "a document without words"
    assert not asked
    assert len(names) == len(set(names)), "two documents of one name"


def _bedrock_block(block: Body, role: str, names: list[str]) -> None:
    (kind,) = block
    match kind:
        case "text":
            assert block["text"].strip()
        case "toolUse":
            assert role == "assistant"
            assert _NAME.fullmatch(block["toolUse"]["name"])
        case "toolResult":
            assert block["toolResult"]["content"]
            for inner in block["toolResult"]["content"]:
                _bedrock_block(inner, role, names)
        case "image":
            assert block["image"]["format"] in ("png", "jpeg", "gif", "webp")
            assert base64.b64decode(block["image"]["source"]["bytes"], validate=True)
        case "document":
            assert re.fullmatch(r"[A-Za-z0-9()\[\]-]{1,200}", block["document"]["name"])
            names.append(block["document"]["name"])
        case "reasoningContent":
            assert role == "assistant"
            text = block["reasoningContent"].get("reasoningText")
            assert text is None or text["signature"]
        case "cachePoint":
            pass
        case other:
            raise AssertionError(f"a block of type {other}")


def chat(body: Body, *, mistral: bool = False) -> None:
    sent(body)
    roles = [message["role"] for message in body["messages"]]
    spoken = [role for role in roles if role != "system"]
    assert roles == ["system"] * (len(roles) - len(spoken)) + spoken
    assert spoken[0] == "user"
    used: set[str] = set()
    asked: list[str] = []
    answered: list[str] = []
    before = ""
    for message in body["messages"]:
        role = message["role"]
        if role != "tool":
            _paired(asked, answered)
            asked, answered = [], []
        match role:
            case "tool":
                assert isinstance(message["content"], str)
                answered.append(message["tool_call_id"])
            case "assistant":
                asked = [_chat_call(call, mistral=mistral) for call in message.get("tool_calls", [])]
                _fresh(asked, used)
                assert message["content"].strip() or asked, "an answer that says and does nothing"
                assert before != "assistant", "two answers in a row"
            case _:
                assert not (mistral and before == "tool" and role == "user")
                _chat_content(message["content"])
        before = role
    _paired(asked, answered)


def _chat_call(call: Body, *, mistral: bool) -> str:
    assert _NAME.fullmatch(call["function"]["name"])
    assert isinstance(json.loads(call["function"]["arguments"]), dict)
    assert re.fullmatch("[A-Za-z0-9]{9}", call["id"]) or not mistral
    assert len(call["id"]) <= 40
    return call["id"]


def _chat_content(content: str | list[Body]) -> None:
    if isinstance(content, str):
        assert content.strip()
        return
    assert content
    for part in content:
        match part["type"]:
            case "text":
                assert part["text"].strip()
            case "image_url":
                _data_url(part["image_url"]["url"], _IMAGES)
            case "file":
                _data_url(part["file"]["file_data"], ("application/pdf",))
            case other:
                assert other == "input_audio"


def _data_url(url: str, types: Sequence[str]) -> None:
    if url.startswith("http"):
        return
    head, _, data = url.partition(",")
    assert head in [f"data:{kind};base64" for kind in types]
    assert base64.b64decode(data, validate=True)


def responses(body: Body) -> None:
    sent(body)
    items = body["input"]
    used: set[str] = set()
    open_calls: list[str] = []
    assert next(item["role"] for item in items if item.get("role") not in ("system", "developer")) == "user"
    nothing: Body = {}
    for item, following in zip(items, [*items[1:], nothing], strict=True):
        match item.get("type", "message"):
            case "message":
                assert not open_calls or item.get("role") == "assistant", "words between a call and its result"
                _responses_content(item)
            case "function_call":
                assert _NAME.fullmatch(item["name"])
                assert isinstance(json.loads(item["arguments"]), dict)
                _fresh([item["call_id"]], used)
                open_calls.append(item["call_id"])
            case "function_call_output":
                open_calls.remove(item["call_id"])
                if not isinstance(item["output"], str):
                    _responses_content({"content": item["output"]})
            case "reasoning":
                assert item["encrypted_content"]
                assert following.get("type") in ("function_call", "reasoning") or following.get("role") == "assistant"
            case other:
                raise AssertionError(f"an item of type {other}")
    assert not open_calls


def _responses_content(item: Body) -> None:
    content = item["content"]
    if isinstance(content, str):
        assert content.strip()
        return
    assert content
    for part in content:
        match part["type"]:
            case "input_text" | "output_text":
                assert part["text"].strip()
            case "input_image":
                _data_url(part["image_url"], _IMAGES)
            case other:
                assert other == "input_file"


def gemini(body: Body) -> None:
    sent(body)
    contents = body["contents"]
    assert contents[0]["role"] == "user"
    used: set[str] = set()
    asked: list[str] = []
    before = ""
    for content in contents:
        parts = content["parts"]
        assert parts
        _paired(asked, [part["functionResponse"]["id"] for part in parts if "functionResponse" in part])
        asked = [part["functionCall"]["id"] for part in parts if "functionCall" in part]
        _fresh(asked, used)
        assert content["role"] == "user" or before == "user", "a call that does not follow the user"
        before = content["role"]
        for part in parts:
            _gemini_part(part, content["role"])
    assert not asked


def _gemini_part(part: Body, role: str) -> None:
    assert role == "model" or "thoughtSignature" not in part
    if "functionCall" in part:
        assert _NAME.fullmatch(part["functionCall"]["name"])
        assert isinstance(part["functionCall"]["args"], dict)
    elif "functionResponse" in part:
        assert isinstance(part["functionResponse"]["response"], dict)
        assert _NAME.fullmatch(part["functionResponse"]["name"])
    elif "inlineData" in part:
        data = part["inlineData"]
        assert data["mimeType"].startswith(("image/", "audio/", "video/", "text/", "application/pdf"))
        assert base64.b64decode(data["data"], validate=True)
    elif "fileData" in part:
        assert part["fileData"]["fileUri"].startswith("http")
    else:
        assert part["text"] or "thoughtSignature" in part, "an empty part"


def _alternate(roles: Sequence[str], answering: str) -> None:
    assert roles, "no messages"
    assert list(roles) == ["user" if at % 2 == 0 else answering for at in range(len(roles))]


def _paired(asked: Sequence[str], answered: Sequence[str]) -> None:
    assert sorted(asked) == sorted(answered), f"calls {asked} and results {answered}"


def _fresh(names: Sequence[str], used: set[str]) -> None:
    for name in names:
        assert _ID.fullmatch(name), f"the id {name!r}"
        assert name not in used, f"{name} is used twice"
        used.add(name)
