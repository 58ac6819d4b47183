from __future__ import annotations

from typing import Any

import pytest

from opensesh.models.anthropic_request import request_body
from opensesh.models.model import Limit, Model
from opensesh.models.request import (
    Assistant,
    File,
    ModelMessage,
    Reasoning,
    Request,
    System,
    Text,
    ToolResults,
    ToolSpec,
    ToolUse,
    ToolUseResult,
    User,
)

MODEL = Model(id="claude-sonnet-4-5", provider_id="anthropic", limit=Limit(context=200_000, output=64_000))
PNG = "iVBORw0KGgo="


def ask(*turns: ModelMessage, model: Model = MODEL, **fields: Any) -> Request:
    return Request(model=model, messages=turns or (user("Hello"),), **fields)


def user(text: str, *, cache: bool = False) -> User:
    return User(content=(Text(text=text),), cache=cache)


def blocks_of(*turns: ModelMessage, **fields: Any) -> list[Any]:
    return request_body(ask(*turns, **fields))["messages"]


def conversation() -> Request:
    return ask(
        System(text="You are terse.", cache=True),
        System(text="   "),
        System(text="The date is today.", cache=True),
        User(
            content=(
                Text(text="Look"),
                Text(text=" \n"),
                File(mime="image/jpg", url=f"data:image/jpg;base64,{PNG}"),
                File(mime="image/png", url="https://a.test/a.png"),
                File(mime="application/pdf", url="data:application/pdf;base64,JVBERg==", filename="a.pdf"),
                File(mime="application/pdf", url="https://a.test/a.pdf"),
                File(mime="text/markdown", url="data:text/markdown;base64,IyBIaQ==", filename="a.md"),
                File(mime="audio/wav", url="data:audio/wav;base64,AAAA", filename="a.wav"),
            )
        ),
        Assistant(
            content=(
                Reasoning(text="hm", metadata={"anthropic": {"signature": "s1"}}),
                Reasoning(text="", metadata={"anthropic": {"redactedData": "r1"}}),
                Reasoning(text="unproven"),
                Reasoning(text="another's", metadata={"bedrock": {"signature": "s2"}}),
                Text(text=""),
                Text(text="Reading.  "),
                ToolUse(id="call:1|x", name="read", input={"path": "a"}),
                ToolUse(id="toolu_2", name="list", input={}),
            )
        ),
        ToolResults(
            content=(
                ToolUseResult(
                    id="call:1|x",
                    name="read",
                    output=(Text(text="content"), File(mime="image/png", url=f"data:image/png;base64,{PNG}")),
                ),
                ToolUseResult(id="toolu_2", name="list", output=(Text(text=""),), failed=True),
            ),
            cache=True,
        ),
        user("And now?", cache=True),
        tools=(ToolSpec(name="read", description="Reads", parameters={"properties": {"path": {"type": "string"}}}),),
        temperature=0.3,
        top_p=0.9,
        top_k=40,
        max_output_tokens=1000,
    )


def test_a_conversation_is_written_as_the_messages_api_wants_it() -> None:
    cached = {"cache_control": {"type": "ephemeral"}}
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    written = request_body(conversation())
    messages = written.pop("messages")
    assert written == {
        "model": "claude-sonnet-4-5",
        "max_tokens": 1000,
        "stream": True,
        "system": [
            {"type": "text", "text": "You are terse.", **cached},
            {"type": "text", "text": "The date is today.", **cached},
        ],
        "tools": [
            {
                "name": "read",
                "description": "Reads",
                "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
            }
        ],
        "tool_choice": {"type": "auto"},
        "temperature": 0.3,
        "top_k": 40,
    }
    asked, answered, results = messages
    assert [asked["role"], answered["role"], results["role"]] == ["user", "assistant", "user"]
    assert asked["content"][:-1] == [
        {"type": "text", "text": "Look"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": PNG}},
        {"type": "image", "source": {"type": "url", "url": "https://a.test/a.png"}},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="},
            "title": "a.pdf",
        },
        {"type": "document", "source": {"type": "url", "url": "https://a.test/a.pdf"}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "# Hi"}, "title": "a.md"},
    ]
    assert asked["content"][-1]["type"] == "text"
    assert "a.wav" in asked["content"][-1]["text"]
    assert answered["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "s1"},
        {"type": "redacted_thinking", "data": "r1"},
        {"type": "text", "text": "Reading.  "},
        {"type": "tool_use", "id": "call_1_x", "name": "read", "input": {"path": "a"}},
        {"type": "tool_use", "id": "toolu_2", "name": "list", "input": {}},
    ]
    first, second, words = results["content"]
    assert first == {
        "type": "tool_result",
        "tool_use_id": "call_1_x",
        "content": [{"type": "text", "text": "content"}, picture],
    }
    assert (second["is_error"], second["cache_control"]) == (True, {"type": "ephemeral"})
    assert second["content"][0]["text"].strip()
    assert words == {"type": "text", "text": "And now?", **cached}


def test_a_result_without_a_word_has_no_content() -> None:
    result = ToolUseResult(id="a", name="x", output=(Text(text="\n"),))
    (_, results) = blocks_of(Assistant(content=(ToolUse(id="a", name="x", input={}),)), ToolResults(content=(result,)))
    assert results["content"] == [{"type": "tool_result", "tool_use_id": "a"}]


@pytest.mark.parametrize(
    ("mime", "url"),
    [
        ("video/mp4", "https://a.test/a.mp4"),
        ("text/plain", "data:text/plain;base64,%%%"),
        ("text/plain", "data:text/plain;base64,"),
        ("image/png", "data:image/png;base64,"),
        ("image/tiff", f"data:image/tiff;base64,{PNG}"),
    ],
)
def test_a_file_that_cannot_be_sent_is_replaced_by_a_note(mime: str, url: str) -> None:
    (message,) = blocks_of(User(content=(File(mime=mime, url=url, filename="a.file"),)))
    (block,) = message["content"]
    assert block["type"] == "text"
    assert "a.file" in block["text"]


def test_turns_left_empty_vanish_and_their_neighbours_are_joined() -> None:
    messages = blocks_of(user("a"), Assistant(content=(Text(text=" "), Reasoning(text="unproven"))), user("b"))
    assert messages == [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]


def test_an_answer_to_be_continued_does_not_end_in_white_space() -> None:
    *_, last = blocks_of(user("a"), Assistant(content=(Text(text="I said \n"),)))
    assert last["content"] == [{"type": "text", "text": "I said"}]


def test_cache_points_are_limited() -> None:
    turns = [System(text=f"s{number}", cache=True) for number in range(3)]
    turns += [user(f"u{number}", cache=True) for number in range(3)]
    written = request_body(ask(*turns))
    blocks = [*written["system"], *written["messages"][0]["content"]]
    assert [block["text"] for block in blocks if "cache_control" in block] == ["s0", "s1", "u1", "u2"]


def test_a_cache_point_is_never_put_on_reasoning() -> None:
    proven = Reasoning(text="hm", metadata={"anthropic": {"signature": "s"}})
    (_, output) = blocks_of(user("a"), Assistant(content=(Text(text="b"), proven), cache=True))
    assert ["cache_control" in block for block in output["content"]] == [True, False]


def test_thinking_has_its_budget_on_top_of_the_answer_and_no_sampling() -> None:
    thinking = {"type": "enabled", "budgetTokens": 16_000}
    written = request_body(
        ask(options={"thinking": thinking}, max_output_tokens=32_000, temperature=1.0, top_p=0.5, top_k=3)
    )
    assert written["thinking"] == {"type": "enabled", "budget_tokens": 16_000}
    assert written["max_tokens"] == 48_000
    assert not {"temperature", "top_p", "top_k"} & set(written)


@pytest.mark.parametrize(
    ("limit", "budget", "expected"), [(20_000, 31_999, (20_000, 19_999)), (900, 4000, (900, None))]
)
def test_a_budget_larger_than_the_model_allows_shrinks_or_goes(
    limit: int, budget: int, expected: tuple[int, int | None]
) -> None:
    model = Model(id="claude", provider_id="anthropic", limit=Limit(output=limit))
    written = request_body(ask(model=model, options={"thinking": {"type": "enabled", "budgetTokens": budget}}))
    assert (written["max_tokens"], written.get("thinking", {}).get("budget_tokens")) == expected


def test_thinking_without_a_budget_is_passed_on() -> None:
    shown = {"type": "adaptive", "display": "summarized"}
    assert request_body(ask(options={"thinking": shown}))["thinking"] == shown
    for kind in ("adaptive", "disabled"):
        assert request_body(ask(options={"thinking": {"type": kind}}))["thinking"] == {"type": kind}
    assert request_body(ask(options={"thinking": {"type": "disabled"}}, temperature=0.5))["temperature"] == 0.5


def test_a_forced_call_leaves_thinking_out() -> None:
    tool = ToolSpec(name="x", description="", parameters={"type": "object"})
    written = request_body(ask(tools=(tool,), tool_choice="required", options={"thinking": {"type": "adaptive"}}))
    assert written["tool_choice"] == {"type": "any"}
    assert "thinking" not in written
    assert "description" not in written["tools"][0]


def test_the_other_options_go_where_the_api_has_them() -> None:
    options = {"effort": "low", "speed": "fast", "metadata": {"userId": "u"}, "disableParallelToolUse": True}
    tool = ToolSpec(name="x", description="X", parameters={})
    written = request_body(ask(options=options, tools=(tool,), temperature=1.7))
    assert written["output_config"] == {"effort": "low"}
    assert (written["speed"], written["metadata"], written["temperature"]) == ("fast", {"user_id": "u"}, 1.0)
    assert written["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert request_body(ask(tools=(tool,), tool_choice="none"))["tool_choice"] == {"type": "none"}
    assert request_body(ask(top_p=0.5))["top_p"] == 0.5
    assert request_body(ask(model=Model(id="claude", provider_id="x")))["max_tokens"] == 4096


def test_every_block_we_write_has_the_fields_that_anthropics_types_name() -> None:
    types = pytest.importorskip("anthropic.types")
    written = request_body(conversation())
    shapes = {
        "text": types.TextBlockParam,
        "image": types.ImageBlockParam,
        "document": types.DocumentBlockParam,
        "thinking": types.ThinkingBlockParam,
        "redacted_thinking": types.RedactedThinkingBlockParam,
        "tool_use": types.ToolUseBlockParam,
        "tool_result": types.ToolResultBlockParam,
    }
    seen: set[str] = set()
    blocks = [*written["system"], *(block for message in written["messages"] for block in message["content"])]
    nested = [inner for block in blocks for inner in block.get("content", ())]
    for block in (*blocks, *nested):
        shape = shapes[block["type"]]
        seen.add(block["type"])
        assert shape.__required_keys__ <= set(block) <= set(shape.__annotations__), block
    assert seen == set(shapes)
    allowed = types.message_create_params.MessageCreateParamsBase.__annotations__
    sampling = {"temperature", "top_k"}  # which models of today refuse, so that the client no longer names them
    assert set(written) - {"stream"} - sampling <= set(allowed)
    assert set(written["tools"][0]) <= set(types.ToolParam.__annotations__)
