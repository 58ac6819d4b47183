from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from opensesh.models.model import Capabilities, Model
from opensesh.models.openai_chat import OpenAIChat
from opensesh.models.openai_chat_request import request_body
from opensesh.models.request import (
    Assistant,
    File,
    ModelMessage,
    Reasoning,
    System,
    Text,
    ToolResults,
    ToolUse,
    ToolUseResult,
    User,
)
from opensesh.models.stream_events import TextEnd

from .wire_chat import OPENAI, OPENROUTER
from .wires import READ, Server, ask, collect

if TYPE_CHECKING:
    from pathlib import Path

LOCAL = Model(id="scripted", provider_id="fake")
CLAUDE = Model(id="anthropic/claude-sonnet-4.5", provider_id="openrouter", npm="@openrouter/ai-sdk-provider")
GPT5 = Model(id="gpt-5", provider_id="openai", npm="@ai-sdk/openai", capabilities=Capabilities(reasoning=True))
PNG = File(mime="image/png", url="data:image/png;base64,iVBORw0K", filename="p.png")
PDF = File(mime="application/pdf", url="data:application/pdf;base64,JVBERi0=", filename="d.pdf")
HI = User(content=(Text(text="hi"),))


def messages(model: Model, *turns: ModelMessage) -> list[dict[str, Any]]:
    return request_body(ask(model, messages=turns))["messages"]


def exchange(*reasoning: Reasoning, call: str = "call_1") -> tuple[ModelMessage, ...]:
    sentence = Assistant(
        content=(*reasoning, Text(text="Looking."), ToolUse(id=call, name="read", input={"path": "a"}))
    )
    return HI, sentence, ToolResults(content=(ToolUseResult(id=call, name="read", output=(Text(text="1: x"),)),))


def neutral(recorded: list[dict[str, Any]]) -> tuple[ModelMessage, ...]:
    """The conversation that led to recorded messages."""
    turns: list[ModelMessage] = []
    names: dict[str, str] = {}
    for message in recorded:
        match message["role"]:
            case "user":
                content = message["content"]
                texts = [content] if isinstance(content, str) else [part["text"] for part in content]
                turns.append(User(content=tuple(Text(text=text) for text in texts)))
            case "assistant":
                turns.append(_assistant(message, names))
            case _:
                result = ToolUseResult(
                    id=message["tool_call_id"],
                    name=names[message["tool_call_id"]],
                    output=(Text(text=message["content"]),),
                    failed=message["content"].startswith("Error"),
                )
                before = turns.pop() if isinstance(turns[-1], ToolResults) else ToolResults(content=())
                assert isinstance(before, ToolResults)
                turns.append(ToolResults(content=(*before.content, result)))
    return tuple(turns)


def _assistant(message: dict[str, Any], names: dict[str, str]) -> Assistant:
    calls = message.get("tool_calls", ())
    names |= {call["id"]: call["function"]["name"] for call in calls}
    thought = message.get("reasoning_content")
    return Assistant(
        content=(
            *([Reasoning(text=thought)] if thought else ()),
            *([Text(text=message["content"])] if message["content"] else ()),
            *(
                ToolUse(id=call["id"], name=call["function"]["name"], input=json.loads(call["function"]["arguments"]))
                for call in calls
            ),
        )
    )


def test_messages_are_to_the_byte_what_opencode_put_on_this_wire(corpus: Path) -> None:
    recorded = [json.loads(line) for line in (corpus / "requests.jsonl").read_bytes().splitlines()]
    assert len(recorded) > 20
    for request in recorded:
        ours = request_body(ask(LOCAL, messages=neutral(request["messages"])))
        assert ours["model"] == request["model"]
        assert msgspec.json.encode(ours["messages"]) == msgspec.json.encode(request["messages"])


def test_the_whole_body() -> None:
    request = ask(
        LOCAL,
        messages=(System(text="Be brief."), HI),
        tools=(READ,),
        max_output_tokens=8192,
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        options={"reasoningEffort": "low", "custom_flag": {"a": 1}},
    )
    function = {"name": "read", "description": "Read a file.", "parameters": READ.parameters}
    assert request_body(request) == {
        "model": "scripted",
        "max_tokens": 8192,
        "temperature": 0.5,
        "top_p": 0.9,
        "reasoning_effort": "low",
        "custom_flag": {"a": 1},
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        "tools": [{"type": "function", "function": function}],
        "tool_choice": "auto",
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_unset_options_are_not_sent() -> None:
    bare = request_body(ask(LOCAL, messages=(HI,)), include_usage=False)
    assert bare == {"model": "scripted", "messages": [{"role": "user", "content": "hi"}], "stream": True}


def test_options_go_under_their_names_on_the_wire_and_cannot_replace_the_conversation() -> None:
    options = {
        "textVerbosity": "low",
        "promptCacheKey": "ses_1",
        "parallelToolCalls": False,
        "serviceTier": "flex",
        "store": False,
        "reasoning": {"effort": "high"},
        "usage": {"include": True},
        "reasoningSummary": "auto",
        "include": ["reasoning.encrypted_content"],
        "messages": [],
        "stream": False,
    }
    sent = request_body(ask(LOCAL, messages=(HI,), options=options))
    assert {key: sent[key] for key in sent if key not in ("model", "stream_options")} == {
        "verbosity": "low",
        "prompt_cache_key": "ses_1",
        "parallel_tool_calls": False,
        "service_tier": "flex",
        "store": False,
        "reasoning": {"effort": "high"},
        "usage": {"include": True},
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
    }


def test_openais_reasoning_models_get_their_own_parameters() -> None:
    sent = request_body(ask(GPT5, messages=(System(text="s"), HI), max_output_tokens=100, temperature=1.0, top_p=0.5))
    assert sent["max_completion_tokens"] == 100
    assert sent["messages"][0]["role"] == "developer"
    assert {"max_tokens", "temperature", "top_p"}.isdisjoint(sent)


@pytest.mark.parametrize(
    ("model", "field"),
    [
        (Model(id="gpt-5", provider_id="x"), "max_tokens"),
        (Model(id="gpt-4.1", provider_id="openai", npm="@ai-sdk/openai"), "max_tokens"),
        (Model(id="gpt-5-chat-latest", provider_id="openai", npm="@ai-sdk/openai"), "max_tokens"),
        (Model(id="o4-mini", provider_id="openai", npm="@ai-sdk/openai"), "max_completion_tokens"),
        (Model(id="gpt-5.2-codex", provider_id="openai", npm="@ai-sdk/openai"), "max_completion_tokens"),
        (Model(id="mine", api_id="gpt-10-pro", provider_id="azure", npm="@ai-sdk/azure"), "max_completion_tokens"),
    ],
)
def test_the_limit_has_the_name_the_model_knows(model: Model, field: str) -> None:
    sent = request_body(ask(model, max_output_tokens=7))
    assert {name for name in sent if name.startswith("max_")} == {field}


def test_images_pdfs_and_audio_go_along_and_other_files_are_owned_up_to() -> None:
    wav = File(mime="audio/wav", url="data:audio/wav;base64,UklGRg==")
    zipped = File(mime="application/zip", url="data:application/zip;base64,UEs=", filename="z.zip")
    remote = File(mime="image/png", url="https://example.test/p.png")
    [sent] = messages(LOCAL, User(content=(Text(text="see"), PNG, PDF, wav, remote, zipped)))
    assert sent["content"][:5] == [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": PNG.url}},
        {"type": "file", "file": {"filename": "d.pdf", "file_data": PDF.url}},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        {"type": "image_url", "image_url": {"url": "https://example.test/p.png"}},
    ]
    assert "z.zip" in sent["content"][5]["text"]


def test_a_file_with_nothing_in_it_is_owned_up_to() -> None:
    [sent] = messages(LOCAL, User(content=(File(mime="image/png", url="data:image/png;base64,", filename="e.png"),)))
    assert "e.png" in sent["content"][0]["text"]


def test_files_in_a_tool_result_follow_as_the_users() -> None:
    results = (
        ToolUseResult(id="a", name="read", output=(Text(text="Image read."), PNG)),
        ToolUseResult(id="b", name="bash", output=(Text(text="ok"), Text(text="more"))),
    )
    calls = Assistant(content=(ToolUse(id="a", name="read", input={}), ToolUse(id="b", name="bash", input={})))
    sent = messages(LOCAL, HI, calls, ToolResults(content=results))
    assert sent[2:4] == [
        {"role": "tool", "tool_call_id": "a", "content": "Image read."},
        {"role": "tool", "tool_call_id": "b", "content": "ok\nmore"},
    ]
    assert sent[4]["role"] == "user"
    assert sent[4]["content"][1] == {"type": "image_url", "image_url": {"url": PNG.url}}


@pytest.mark.parametrize(
    ("model", "sent"),
    [
        (LOCAL, {"reasoning_content": "Hm."}),
        (Model(id="m", provider_id="openrouter", npm="@openrouter/ai-sdk-provider"), {"reasoning": "Hm."}),
        (Model(id="m", provider_id="groq", npm="@ai-sdk/groq"), {"reasoning": "Hm."}),
        (Model(id="gpt-4.1", provider_id="openai", npm="@ai-sdk/openai"), {}),
        (
            Model(
                id="m", provider_id="x", npm="@ai-sdk/xai", capabilities=Capabilities(interleaved="reasoning_content")
            ),
            {"reasoning_content": "Hm."},
        ),
        (
            Model(id="m", provider_id="x", capabilities=Capabilities(interleaved="reasoning_details")),
            {"reasoning_details": [{"type": "reasoning.text", "text": "Hm."}]},
        ),
    ],
)
def test_earlier_reasoning_goes_where_the_server_wants_it(model: Model, sent: dict[str, Any]) -> None:
    message = messages(model, *exchange(Reasoning(text="H"), Reasoning(text="m.")))[1]
    assert {key: value for key, value in message.items() if key.startswith("reasoning")} == sent


async def test_reasoning_details_go_back_as_they_came() -> None:
    events = await collect(OpenAIChat("", "http://127.0.0.1/v1", transport=Server(OPENROUTER).transport))
    thought = next(event.metadata for event in events if isinstance(event, TextEnd) and event.kind == "reasoning")
    message = messages(CLAUDE, *exchange(Reasoning(text="First, look.", metadata=thought)))[1]
    assert message["reasoning"] == "First, look."
    assert message["reasoning_details"] == [
        {
            "type": "reasoning.text",
            "text": "First, look.",
            "format": "anthropic-claude-v1",
            "index": 0,
            "signature": "EqQBCk==",
        }
    ]


def test_reasoning_details_that_opencode_kept_with_the_call_are_found() -> None:
    details = [{"type": "reasoning.encrypted", "data": "x", "index": 0}]
    partial = Reasoning(text="Hm.", metadata={"openrouter": {"reasoning_details": [{"type": "reasoning.text"}]}})
    call = ToolUse(id="c", name="read", input={}, metadata={"openrouter": {"reasoning_details": details}})
    [message] = messages(CLAUDE, Assistant(content=(partial, call)))
    assert message["reasoning_details"] == details


def test_the_signature_of_a_gemini_call_goes_back_with_it() -> None:
    call = ToolUse(id="c", name="read", input={}, metadata={"google": {"thoughtSignature": "c2ln"}})
    [message] = messages(LOCAL, Assistant(content=(call,)))
    assert message["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "c2ln"}}


def test_cache_points_are_set_on_the_last_part_for_anthropics_models() -> None:
    point = {"cache_control": {"type": "ephemeral"}}
    call = ToolUse(id="c", name="read", input={})
    sent = messages(
        CLAUDE,
        System(text="one", cache=True),
        System(text="two"),
        User(content=(Text(text="a"), PNG), cache=True),
        Assistant(content=(call,), cache=True),
        ToolResults(content=(ToolUseResult(id="c", name="read", output=(Text(text="r"),)),), cache=True),
    )
    assert sent[0]["content"] == [{"type": "text", "text": "one", **point}]
    assert sent[1]["content"] == "two"
    assert sent[2]["content"][1] == {"type": "image_url", "image_url": {"url": PNG.url}, **point}
    assert sent[3]["tool_calls"][0]["cache_control"] == {"type": "ephemeral"}
    assert sent[4]["content"] == [{"type": "text", "text": "r", **point}]


def test_cache_points_are_not_set_for_others() -> None:
    assert "cache_control" not in json.dumps(messages(LOCAL, User(content=(Text(text="a"),), cache=True)))


def test_copilot_has_its_own_word_for_them() -> None:
    copilot = Model(id="claude-sonnet-4", provider_id="github-copilot", npm="@ai-sdk/github-copilot")
    [sent] = messages(copilot, User(content=(Text(text="a"),), cache=True))
    assert sent == {"role": "user", "content": "a", "copilot_cache_control": {"type": "ephemeral"}}


def test_call_ids_have_the_form_that_claude_and_mistral_insist_on() -> None:
    claude = messages(CLAUDE, *exchange(call="functions.read:0"))
    assert claude[1]["tool_calls"][0]["id"] == claude[2]["tool_call_id"] == "functions_read_0"
    mistral = Model(id="devstral-small", provider_id="mistral")
    ids = [messages(mistral, *exchange(call=f"call_770970225_{n}"))[1]["tool_calls"][0]["id"] for n in range(3)]
    assert len(set(ids)) == 3
    assert all(len(name) == 9 and name.isalnum() for name in ids)
    own = messages(mistral, *exchange(call="D681PevKs"))
    assert own[1]["tool_calls"][0]["id"] == own[2]["tool_call_id"] == "D681PevKs"


def test_mistral_sees_no_user_right_after_a_tool() -> None:
    sent = messages(Model(id="m", provider_id="mistral"), *exchange(), HI)
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "assistant", "user"]
    assert [message["role"] for message in messages(LOCAL, *exchange(), HI)][-2:] == ["tool", "user"]


def test_gemini_behind_this_wire_gets_schemas_it_understands() -> None:
    tool = msgspec.structs.replace(READ, parameters={"type": "object", "properties": {"n": {"enum": [1, 2]}}})
    gemini = Model(id="google/gemini-3-pro", provider_id="openrouter")
    [sent] = request_body(ask(gemini, tools=(tool,)))["tools"]
    assert sent["function"]["parameters"]["properties"] == {"n": {"type": "string", "enum": ["1", "2"]}}
    assert request_body(ask(LOCAL, tools=(tool,)))["tools"][0]["function"]["parameters"] == tool.parameters


async def test_openais_own_client_would_send_the_same_conversation() -> None:
    openai = pytest.importorskip("openai")
    ours, theirs = Server(OPENAI), Server(OPENAI)
    request = ask(LOCAL, messages=(System(text="s"), *exchange()), tools=(READ,), max_output_tokens=5)
    await collect(OpenAIChat("x", "http://127.0.0.1/v1", transport=ours.transport), request)
    client = openai.AsyncOpenAI(api_key="x", base_url="http://127.0.0.1/v1", http_client=theirs.client)
    stream = await client.chat.completions.create(**request_body(request))
    assert [piece async for piece in stream]
    assert ours.bodies == theirs.bodies
    assert ours.requests[0].url == theirs.requests[0].url
    assert ours.requests[0].headers["authorization"] == theirs.requests[0].headers["authorization"]


def test_openais_own_types_accept_what_is_sent() -> None:
    pytest.importorskip("openai")
    from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolUnionParam
    from pydantic import TypeAdapter

    turns = (System(text="s"), *exchange(), User(content=(Text(text="see"), PNG, PDF)))
    for model in (LOCAL, CLAUDE, GPT5):
        sent = request_body(ask(model, messages=turns, tools=(READ,)))
        TypeAdapter[Any](list[ChatCompletionMessageParam]).validate_python(sent["messages"])
        TypeAdapter[Any](list[ChatCompletionToolUnionParam]).validate_python(sent["tools"])
