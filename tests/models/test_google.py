from __future__ import annotations

from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensesh.errors import AuthFailedError, ContentFilteredError, ModelConnectionError, ModelError, OverloadedError
from opensesh.models.google import Google
from opensesh.models.google_request import NO_SIGNATURE, request_body
from opensesh.models.model import Model
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
from opensesh.models.stream_events import StreamEvent, TextDelta, ToolCall, Usage

from .loopback import breaking_after
from .wire_gemini import ALL, PLAIN, SIGNATURE, TOOLS, call, chunk, thought
from .wires import (
    READ,
    Server,
    answer_in,
    arguments_shown,
    ask,
    assert_well_formed,
    collect,
    collect_into,
    cut,
    endings,
    lines,
    numbered,
    refusal,
)

URL = "https://generativelanguage.test/v1beta"
PRO = Model(id="gemini-2.5-pro", provider_id="google", npm="@ai-sdk/google")
PRO3 = Model(id="gemini-3-pro-preview", provider_id="google", npm="@ai-sdk/google")
SIGNED = {"google": {"thoughtSignature": SIGNATURE}}
HI = User(content=(Text(text="hi"),))
PNG = File(mime="image/png", url="data:image/png;base64,iVBORw0K", filename="p.png")


def provider(server: Server) -> Google:
    return Google("AIzaSecret", URL, transport=server.transport, new_call_id=numbered())


async def answer(*payloads: dict[str, Any]) -> list[StreamEvent]:
    events = await collect(provider(Server(lines(*payloads))), ask(PRO))
    assert_well_formed(events)
    return events


def contents(*turns: ModelMessage, model: Model = PRO) -> list[dict[str, Any]]:
    return request_body(ask(model, messages=turns))["contents"]


async def test_thoughts_text_and_whole_calls() -> None:
    events = await collect(provider(Server(TOOLS)), ask(PRO))
    assert_well_formed(events)
    text, reasoning, calls, reason, usage = answer_in(events)
    assert (text, reasoning) == ("I will read 漢字 🐍.", "**Planning** it. Both files — ✓.")
    assert calls == [("minted_0", "read", {"path": "a.py"}), ("minted_1", "read", {"path": "b.py"})]
    assert arguments_shown(events) == {"minted_0": '{"path":"a.py"}', "minted_1": '{"path":"b.py"}'}
    assert reason == "tool-calls"
    assert usage == Usage(input=188, output=40, reasoning=120, cache_read=512, total=860)


async def test_signatures_are_kept_with_the_part_they_came_on() -> None:
    tools = await collect(provider(Server(TOOLS)), ask(PRO))
    assert [event.metadata for event in tools if isinstance(event, ToolCall)] == [SIGNED, None]
    assert [end.metadata for end in endings(tools)] == [None, None]
    plain = await collect(provider(Server(PLAIN)), ask(PRO))
    assert [end.metadata for end in endings(plain)] == [SIGNED]


async def test_a_signature_on_an_empty_part_belongs_to_the_text_before() -> None:
    events = await answer(chunk({"text": "x"}), chunk({"text": "", "thoughtSignature": SIGNATURE}, finish="STOP"))
    assert [end.metadata for end in endings(events)] == [SIGNED]


async def test_what_is_signed_is_not_joined_with_what_follows() -> None:
    events = await answer(
        chunk(thought("a", thoughtSignature="one")), chunk(thought("b", thoughtSignature="two")), chunk(finish="STOP")
    )
    assert [(end.id, end.metadata) for end in endings(events)] == [
        ("reasoning-0", {"google": {"thoughtSignature": "one"}}),
        ("reasoning-1", {"google": {"thoughtSignature": "two"}}),
    ]


async def test_ids_that_gemini_gives_are_kept_and_made_unique() -> None:
    events = await answer(chunk(call("read", {}, id="x"), call("list", None, id="x")), chunk(finish="STOP"))
    assert answer_in(events).calls == [("x", "read", {}), ("minted_0", "list", {})]


@pytest.mark.parametrize(
    ("wire", "reason"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content-filter"),
        ("RECITATION", "content-filter"),
        ("PROHIBITED_CONTENT", "content-filter"),
        ("OTHER", "other"),
        ("MALFORMED_FUNCTION_CALL", "error"),
        ("SOMETHING_NEW", "unknown"),
    ],
)
async def test_finish_reasons(wire: str, reason: str) -> None:
    assert answer_in(await answer(chunk({"text": "x"}), chunk(finish=wire))).reason == reason


async def test_a_blocked_prompt_is_an_error() -> None:
    blocked = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 7}}
    with pytest.raises(ContentFilteredError, match="PROHIBITED_CONTENT"):
        await collect(provider(Server(lines(blocked))), ask(PRO))


async def test_a_candidate_without_content_is_understood() -> None:
    empty = {"candidates": [{"finishReason": "MAX_TOKENS", "index": 0}], "usageMetadata": {"promptTokenCount": 7}}
    assert answer_in(await answer(empty))[3:] == ("length", Usage(input=7))


async def test_a_continued_answer_is_requested_to_its_end() -> None:
    first = chunk({"text": "one "}, finish="CONTINUATION", candidatesTokenCount=10, totalTokenCount=710)
    first["candidates"][0]["continuationToken"] = "dG9rZW4="
    server = Server(
        lines(first), lines(chunk({"text": "two"}, finish="STOP", candidatesTokenCount=5, totalTokenCount=705))
    )
    events = await collect(provider(server), ask(PRO))
    assert_well_formed(events)
    assert answer_in(events) == ("one two", "", [], "stop", Usage(input=1400, output=15, total=1415))
    assert [sent.get("continuationToken") for sent in server.bodies] == [None, "dG9rZW4="]


async def test_errors_in_the_stream_are_raised() -> None:
    error = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}
    got: list[StreamEvent] = []
    with pytest.raises(OverloadedError):
        await collect_into(got, provider(Server(lines(chunk({"text": "x"}), error))), ask(PRO))
    assert got[-1] == TextDelta("text-0", "x")


async def test_a_connection_that_breaks_after_the_reason_takes_nothing_back() -> None:
    async with breaking_after(lines(chunk({"text": "x"}, finish="STOP"))) as server:
        adapter = Google("", server.url)
        assert answer_in(await collect(adapter, ask(PRO)))[:4] == ("x", "", [], "stop")
        await adapter.aclose()


async def test_a_stream_that_merely_ends_is_broken() -> None:
    with pytest.raises(ModelConnectionError):
        await collect(provider(Server(lines(chunk({"text": "x"})))), ask(PRO))


async def test_nonsense_is_an_error_of_the_model() -> None:
    with pytest.raises(ModelError):
        await collect(provider(Server(lines({"candidates": [7]}))), ask(PRO))


async def test_a_rejected_request_has_the_reason() -> None:
    text = [{"error": {"code": 403, "message": "API key not valid.", "status": "PERMISSION_DENIED"}}]
    with pytest.raises(AuthFailedError, match="API key not valid"):
        await collect(provider(Server(refusal(403, text[0]))), ask(PRO))


async def test_the_key_travels_in_a_header_and_not_in_the_address() -> None:
    server = Server(PLAIN, PLAIN)
    await collect(provider(server), ask(PRO, headers={"x-extra": "1"}))
    tuned = Model(id="mine", api_id="tunedModels/mine-1", provider_id="google")
    await collect(provider(server), ask(tuned))
    assert [str(request.url) for request in server.requests] == [
        f"{URL}/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
        f"{URL}/tunedModels/mine-1:streamGenerateContent?alt=sse",
    ]
    assert server.requests[0].headers["x-goog-api-key"] == "AIzaSecret"
    assert server.requests[0].headers["x-extra"] == "1"


async def test_closing_the_stream_closes_the_connection() -> None:
    server = Server([lines(chunk({"text": "a"})), lines(chunk(finish="STOP"))])
    async with aclosing(provider(server).stream(ask(PRO))) as events:
        async for event in events:
            if isinstance(event, TextDelta) and event.kind == "text":
                break
        assert server.closed == 0
    assert server.closed == 1


def test_the_whole_body() -> None:
    request = ask(
        PRO,
        messages=(System(text="Be brief."), System(text="In English."), HI),
        tools=(READ,),
        tool_choice="required",
        max_output_tokens=500,
        temperature=0.3,
        top_p=0.9,
        top_k=64,
        options={
            "thinkingConfig": {"includeThoughts": True, "thinkingBudget": 16000},
            "threshold": "BLOCK_NONE",
            "cachedContent": "cachedContents/1",
            "structuredOutputs": False,
        },
    )
    assert request_body(request) == {
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "generationConfig": {
            "maxOutputTokens": 500,
            "temperature": 0.3,
            "topP": 0.9,
            "topK": 64,
            "thinkingConfig": {"includeThoughts": True, "thinkingBudget": 16000},
        },
        "systemInstruction": {"parts": [{"text": "Be brief."}, {"text": "In English."}]},
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "read",
                        "description": "Read a file.",
                        "parameters": {
                            "type": "object",
                            "properties": {"path": {"type": "string"}},
                            "required": ["path"],
                        },
                    }
                ]
            }
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
        "cachedContent": "cachedContents/1",
        "safetySettings": [
            {"category": "HARM_CATEGORY_HATE_SPEECH", "threshold": "BLOCK_NONE"},
            {"category": "HARM_CATEGORY_DANGEROUS_CONTENT", "threshold": "BLOCK_NONE"},
            {"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"},
            {"category": "HARM_CATEGORY_SEXUALLY_EXPLICIT", "threshold": "BLOCK_NONE"},
        ],
    }


def test_a_gemma_gets_the_system_prompt_from_the_user() -> None:
    sent = request_body(ask(Model(id="gemma-3-27b-it", provider_id="google"), messages=(System(text="s"), HI)))
    assert sent["contents"] == [{"role": "user", "parts": [{"text": "s"}, {"text": "hi"}]}]
    assert "systemInstruction" not in sent


def test_files_go_along() -> None:
    wav = File(mime="audio/wav", url="data:audio/wav;base64,UklGRg==")
    remote = File(mime="application/pdf", url="https://generativelanguage.test/files/1")
    empty = File(mime="image/png", url="data:image/png;base64,", filename="e.png")
    [sent] = contents(User(content=(PNG, wav, remote, empty)))
    assert "e.png" in sent["parts"][3]["text"]
    assert sent["parts"][:3] == [
        {"inlineData": {"mimeType": "image/png", "data": "iVBORw0K"}},
        {"inlineData": {"mimeType": "audio/wav", "data": "UklGRg=="}},
        {"fileData": {"mimeType": "application/pdf", "fileUri": remote.url}},
    ]


def step(signed: bool = True) -> Assistant:
    metadata = SIGNED if signed else None
    return Assistant(
        content=(
            Reasoning(text="Hm.", metadata=metadata),
            Text(text="Looking.", metadata=metadata),
            Text(text=""),
            ToolUse(id="a", name="read", input={"path": "a"}, metadata=metadata),
            ToolUse(id="b", name="read", input={"path": "b"}),
        )
    )


RESULTS = ToolResults(
    content=(
        ToolUseResult(id="a", name="read", output=(Text(text="Image read."), PNG)),
        ToolUseResult(id="b", name="read", output=(Text(text="no such file"),), failed=True),
    )
)


def test_a_step_goes_back_with_its_signatures_on_the_same_parts() -> None:
    assert contents(step()) == [
        {
            "role": "model",
            "parts": [
                {"text": "Hm.", "thought": True, "thoughtSignature": SIGNATURE},
                {"text": "Looking.", "thoughtSignature": SIGNATURE},
                {
                    "functionCall": {"id": "a", "name": "read", "args": {"path": "a"}},
                    "thoughtSignature": SIGNATURE,
                },
                {"functionCall": {"id": "b", "name": "read", "args": {"path": "b"}}},
            ],
        }
    ]


def test_gemini_3_gets_a_placeholder_for_missing_signatures() -> None:
    [older], [newer] = contents(step(signed=False)), contents(step(signed=False), model=PRO3)
    assert [part.get("thoughtSignature") for part in older["parts"]] == [None] * 4
    assert [part.get("thoughtSignature") for part in newer["parts"]] == [None, None, NO_SIGNATURE, None]
    [signed] = contents(step(), model=PRO3)
    assert NO_SIGNATURE not in [part.get("thoughtSignature") for part in signed["parts"]]


def test_files_in_a_tool_result_go_inside_it_from_gemini_3_on() -> None:
    image = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0K"}}
    failed = {"functionResponse": {"id": "b", "name": "read", "response": {"error": "no such file"}}}
    read = {"id": "a", "name": "read", "response": {"output": "Image read."}}
    [newer] = contents(RESULTS, model=PRO3)
    assert newer == {"role": "user", "parts": [{"functionResponse": {**read, "parts": [image]}}, failed]}
    older = contents(RESULTS)
    assert older[0] == {"role": "user", "parts": [{"functionResponse": read}, failed]}
    assert older[1]["parts"][1] == image


@given(name=st.sampled_from(sorted(ALL)), places=st.lists(st.integers(0, 100_000), max_size=40))
async def test_the_events_do_not_depend_on_how_the_bytes_were_cut(name: str, places: list[int]) -> None:
    pieces = await collect(provider(Server(cut(ALL[name], places))), ask(PRO))
    assert pieces == await collect(provider(Server(ALL[name])), ask(PRO))


@pytest.mark.parametrize("name", sorted(ALL))
async def test_googles_own_client_receives_the_same(name: str) -> None:
    genai = pytest.importorskip("google.genai")
    options = genai.types.HttpOptions(base_url=URL.removesuffix("/v1beta"), httpx_async_client=Server(ALL[name]).client)
    client = genai.Client(api_key="x", http_options=options)
    text, reasoning, calls, usage = "", "", list[tuple[str, dict[str, Any], bytes | None]](), None
    async for piece in await client.aio.models.generate_content_stream(model=PRO.id, contents="hi"):
        usage = piece.usage_metadata or usage
        for part in piece.candidates[0].content.parts or ():
            if part.function_call:
                calls.append((part.function_call.name, part.function_call.args, part.thought_signature))
            elif part.thought:
                reasoning += part.text
            else:
                text += part.text or ""
    events = await collect(provider(Server(ALL[name])), ask(PRO))
    ours = answer_in(events)
    assert (text, reasoning) == ours[:2]
    made = [event for event in events if isinstance(event, ToolCall)]
    assert [call[:2] for call in calls] == [(event.name, event.input) for event in made]
    assert [bool(call[2]) for call in calls] == [bool(event.metadata) for event in made]
    assert usage is not None
    assert ours.usage.input + ours.usage.cache_read == usage.prompt_token_count
    assert (ours.usage.output, ours.usage.reasoning) == (usage.candidates_token_count, usage.thoughts_token_count or 0)
    assert ours.usage.total == usage.total_token_count


def test_googles_own_types_accept_what_is_sent() -> None:
    types = pytest.importorskip("google.genai.types")
    for model in (PRO, PRO3):
        sent = request_body(
            ask(model, messages=(System(text="s"), HI, step(), RESULTS), tools=(READ,), max_output_tokens=5)
        )
        for content in (*sent["contents"], sent["systemInstruction"]):
            types.Content.model_validate(content)
        for tool in sent["tools"]:
            types.Tool.model_validate(tool)
        types.ToolConfig.model_validate(sent["toolConfig"])
        types.GenerationConfig.model_validate(sent["generationConfig"])
