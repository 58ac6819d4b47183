from __future__ import annotations

from base64 import b64decode
from typing import Any, cast

import pytest

from opensesh.models.bedrock_request import request_body
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

from . import wire_bedrock as wire
from .amazon import converse_stream

CLAUDE = Model(id="anthropic.claude-sonnet-4-5", provider_id="amazon-bedrock", limit=Limit(output=64_000))
NOVA = Model(id="amazon.nova-2-lite-v1:0", provider_id="amazon-bedrock")
OSS = Model(id="openai.gpt-oss-120b-1:0", provider_id="amazon-bedrock")
LLAMA = Model(id="meta.llama3-3-70b-instruct-v1:0", provider_id="amazon-bedrock")
PNG = "iVBORw0KGgo="
PDF = "data:application/pdf;base64,JVBERg=="
READ = ToolSpec(name="read", description="Reads", parameters={"properties": {"path": {"type": "string"}}})


def ask(*turns: ModelMessage, model: Model = CLAUDE, **fields: Any) -> Request:
    return Request(model=model, messages=turns or (user("Hello"),), **fields)


def user(text: str, *, cache: bool = False) -> User:
    return User(content=(Text(text=text),), cache=cache)


def conversation() -> Request:
    picture = File(mime="image/png", url=f"data:image/png;base64,{PNG}")
    return ask(
        System(text="You are terse.", cache=True),
        System(text=" "),
        User(
            content=(
                Text(text="Look"),
                Text(text=""),
                File(mime="image/jpg", url=f"data:image/jpg;base64,{PNG}"),
                File(mime="application/pdf", url=PDF, filename="docs/my report_v1.2.pdf"),
                File(mime="application/pdf", url=PDF, filename="my report_v1.2.pdf"),
                File(mime="image/png", url="https://a.test/a.png"),
            )
        ),
        Assistant(
            content=(
                Reasoning(text="hm", metadata={"bedrock": {"signature": "s1"}}),
                Reasoning(text="", metadata={"bedrock": {"redactedData": "c2VhbGVk"}}),
                Reasoning(text="unproven"),
                Text(text="Reading."),
                ToolUse(id="call/1", name="read", input={"path": "a"}),
                ToolUse(id="call-2", name="list", input={}),
            )
        ),
        ToolResults(
            content=(
                ToolUseResult(id="call/1", name="read", output=(Text(text="content"), picture)),
                ToolUseResult(id="call-2", name="list", output=(), failed=True),
            ),
            cache=True,
        ),
        user("And now?", cache=True),
        tools=(READ,),
        tool_choice="auto",
        temperature=0.3,
        top_p=0.9,
        top_k=40,
        max_output_tokens=1000,
        options={"guardrailConfig": {"guardrailIdentifier": "g1", "guardrailVersion": "1"}},
    )


def test_a_conversation_is_written_as_converse_wants_it() -> None:
    point = {"cachePoint": {"type": "default"}}
    written = request_body(conversation())
    messages = written.pop("messages")
    assert written == {
        "system": [{"text": "You are terse."}, point],
        "inferenceConfig": {"maxTokens": 1000, "temperature": 0.3},
        "toolConfig": {
            "tools": [
                {
                    "toolSpec": {
                        "name": "read",
                        "description": "Reads",
                        "inputSchema": {"json": {"type": "object", "properties": {"path": {"type": "string"}}}},
                    }
                }
            ],
            "toolChoice": {"auto": {}},
        },
        "additionalModelRequestFields": {"top_k": 40},
        "guardrailConfig": {"guardrailIdentifier": "g1", "guardrailVersion": "1"},
    }
    asked, answered, results = messages
    assert [asked["role"], answered["role"], results["role"]] == ["user", "assistant", "user"]
    document = {"format": "pdf", "source": {"bytes": "JVBERg=="}}
    assert asked["content"][:-1] == [
        {"text": "Look"},
        {"image": {"format": "jpeg", "source": {"bytes": PNG}}},
        {"document": {**document, "name": "my-report-v1-2"}},
        {"document": {**document, "name": "my-report-v1-2-2"}},
    ]
    assert set(asked["content"][-1]) == {"text"}
    assert answered["content"] == [
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s1"}}},
        {"reasoningContent": {"redactedContent": "c2VhbGVk"}},
        {"text": "Reading."},
        {"toolUse": {"toolUseId": "call_1", "name": "read", "input": {"path": "a"}}},
        {"toolUse": {"toolUseId": "call-2", "name": "list", "input": {}}},
    ]
    first, second, *rest = results["content"]
    content = [{"text": "content"}, {"image": {"format": "png", "source": {"bytes": PNG}}}]
    assert first == {"toolResult": {"toolUseId": "call_1", "content": content}}
    assert second["toolResult"]["status"] == "error"
    assert second["toolResult"]["content"][0]["text"].strip()
    assert rest == [point, {"text": "And now?"}, point]


def unpacked(value: Any) -> Any:
    """``value`` as a caller of botocore would pass it: bytes where the wire has base64."""
    match value:
        case {"bytes": str(data)}:
            return {"bytes": b64decode(data)}
        case {"redactedContent": str(data)}:
            return {"redactedContent": b64decode(data)}
        case dict():
            return {key: unpacked(item) for key, item in cast("dict[str, Any]", value).items()}
        case list():
            return [unpacked(item) for item in cast("list[Any]", value)]
        case _:
            return value


def test_amazons_own_client_accepts_what_we_write_and_sends_the_same() -> None:
    written = request_body(conversation())
    _, sent, _ = converse_stream(b"".join(wire.FULL), CLAUDE.wire_id, unpacked(written))
    assert sent == written


def test_only_some_models_get_the_failure_status() -> None:
    turns = (
        user("a"),
        Assistant(content=(ToolUse(id="1", name="x", input={}),)),
        ToolResults(content=(ToolUseResult(id="1", name="x", output=(Text(text="no"),), failed=True),)),
    )
    results = {
        model.id: request_body(ask(*turns, model=model))["messages"][-1]["content"][0] for model in (NOVA, LLAMA)
    }
    assert results[NOVA.id]["toolResult"]["status"] == "error"
    assert "status" not in results[LLAMA.id]["toolResult"]


def test_a_document_alone_gets_a_text_block() -> None:
    (message,) = request_body(ask(User(content=(File(mime="application/pdf", url=PDF),))))["messages"]
    assert [set(block) for block in message["content"]] == [{"text"}, {"document"}]
    assert message["content"][1]["document"]["name"] == "document"


def test_an_answer_to_be_continued_does_not_end_in_white_space() -> None:
    *_, last = request_body(ask(user("a"), Assistant(content=(Text(text="I said \n"),))))["messages"]
    assert last["content"] == [{"text": "I said"}]


def test_no_more_cache_points_are_set_than_there_may_be_and_none_after_thought() -> None:
    turns = [System(text=f"s{number}", cache=True) for number in range(3)]
    turns += [user(f"u{number}", cache=True) for number in range(3)]
    written = request_body(ask(*turns))
    assert [*map(len, (written["system"], written["messages"][0]["content"]))] == [5, 5]
    proven = Reasoning(text="hm", metadata={"bedrock": {"signature": "s"}})
    *_, last = request_body(ask(user("a"), Assistant(content=(proven,), cache=True)))["messages"]
    assert [set(block) for block in last["content"]] == [{"reasoningContent"}]


def test_a_history_with_calls_offers_tools_even_when_none_are_wanted() -> None:
    turns = (
        user("a"),
        Assistant(content=(ToolUse(id="1", name="read", input={}), ToolUse(id="2", name="read", input={}))),
        ToolResults(content=tuple(ToolUseResult(id=item, name="read", output=()) for item in "12")),
    )
    stand_in = {"toolSpec": {"name": "read", "inputSchema": {"json": {"type": "object"}}}}
    assert request_body(ask(*turns))["toolConfig"] == {"tools": [stand_in]}
    assert "toolChoice" not in request_body(ask(*turns, tools=(READ,), tool_choice="none"))["toolConfig"]
    assert "toolConfig" not in request_body(ask(tools=(READ,), tool_choice="none"))
    assert request_body(ask(tools=(READ,), tool_choice="required"))["toolConfig"]["toolChoice"] == {"any": {}}


@pytest.mark.parametrize(
    ("expected", "fields", "inference"),
    [
        (
            {"type": "enabled", "budgetTokens": 16_000},
            {"thinking": {"type": "enabled", "budget_tokens": 16_000}},
            {"maxTokens": 48_000},
        ),
        (
            {"type": "enabled", "budgetTokens": 70_000},
            {"thinking": {"type": "enabled", "budget_tokens": 63_999}},
            {"maxTokens": 64_000},
        ),
        (
            {"type": "adaptive", "maxReasoningEffort": "high"},
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
            {"maxTokens": 32_000},
        ),
        ({"type": "disabled"}, {}, {"maxTokens": 32_000, "temperature": 0.5}),
    ],
)
def test_claude_gets_the_thinking_settings(
    expected: dict[str, Any], fields: dict[str, Any], inference: dict[str, Any]
) -> None:
    for name in ("reasoningConfig", "thinking"):
        written = request_body(ask(options={name: expected}, max_output_tokens=32_000, temperature=0.5, top_p=0.5))
        assert written.get("additionalModelRequestFields", {}) == fields
        assert written["inferenceConfig"] == inference


def test_a_forced_call_leaves_thinking_out() -> None:
    options = {"reasoningConfig": {"type": "adaptive"}}
    written = request_body(ask(tools=(READ,), tool_choice="required", options=options))
    assert "additionalModelRequestFields" not in written


def test_other_models_have_their_own_effort_field() -> None:
    def asked(model: Model, effort: str) -> dict[str, Any]:
        options = {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": effort}}
        return request_body(ask(model=model, options=options, max_output_tokens=100, temperature=0.5))

    assert asked(OSS, "low")["additionalModelRequestFields"] == {"reasoning_effort": "low"}
    low, high = asked(NOVA, "low"), asked(NOVA, "high")
    config = {"type": "enabled", "maxReasoningEffort": "low"}
    assert low["additionalModelRequestFields"] == {"reasoningConfig": config}
    assert low["inferenceConfig"] == {"maxTokens": 100, "temperature": 0.5}
    assert "inferenceConfig" not in high


def test_fields_for_the_model_and_its_beta_features_are_passed_on() -> None:
    options = {"additionalModelRequestFields": {"x": 1}, "anthropicBeta": ["context-1m-2025-08-07"]}
    fields = request_body(ask(options=options))["additionalModelRequestFields"]
    assert fields == {"x": 1, "anthropic_beta": ["context-1m-2025-08-07"]}
    assert options["additionalModelRequestFields"] == {"x": 1}
