from __future__ import annotations

from contextlib import aclosing
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensesh.errors import (
    AuthFailedError,
    ContextExceededError,
    ModelConnectionError,
    ModelError,
    OverloadedError,
    RateLimitedError,
)
from opensesh.models.openai_chat import OpenAIChat, token_usage
from opensesh.models.request import Assistant, File, Text, ToolResults, ToolUse, ToolUseResult, User
from opensesh.models.stream_events import StreamEvent, TextDelta, ToolCall, Usage

from .loopback import breaking_after
from .wire_chat import ALL, DEEPSEEK, OLLAMA, OPENAI, OPENROUTER, ROLE, call, chunk, said
from .wires import (
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

URL = "http://127.0.0.1:11434/v1"


def provider(server: Server, **settings: Any) -> OpenAIChat:
    return OpenAIChat("sk-test", URL, transport=server.transport, new_call_id=numbered(), **settings)


async def answer(*payloads: dict[str, Any] | str) -> list[StreamEvent]:
    events = await collect(provider(Server(lines(*payloads))))
    assert_well_formed(events)
    return events


def calls_of(events: list[StreamEvent]) -> list[ToolCall]:
    return [event for event in events if isinstance(event, ToolCall)]


async def test_text_and_parallel_calls_whose_fragments_interleave() -> None:
    events = await collect(provider(Server(OPENAI)))
    assert_well_formed(events)
    text, reasoning, calls, reason, usage = answer_in(events)
    assert text == "I will look — ✓ 漢字 🐍."
    assert reasoning == ""
    assert calls == [("call_a", "read", {"path": "a.py"}), ("call_b", "read", {"path": "b.py"})]
    assert arguments_shown(events) == {"call_a": '{"path":"a.py"}', "call_b": '{"path":"b.py"}'}
    assert reason == "tool-calls"
    assert usage == Usage(input=176, output=26, reasoning=64, cache_read=1024, total=1290)


async def test_reasoning_content_and_the_cache_hits_of_deepseek() -> None:
    text, reasoning, _, reason, usage = answer_in(await collect(provider(Server(DEEPSEEK))))
    assert (reasoning, text, reason) == ("Let me think.", "Forty-two.", "stop")
    assert usage == Usage(input=44, output=10, reasoning=40, cache_read=256, total=350)


async def test_reasoning_details_are_joined_and_kept_with_the_thought() -> None:
    events = await collect(provider(Server(OPENROUTER)))
    assert_well_formed(events)
    text, reasoning, calls, _, usage = answer_in(events)
    assert (reasoning, text) == ("First, look.", "Looking.")
    assert calls == [("toolu_01", "read", {"path": "a.py"})]
    assert usage == Usage(input=100, output=40, reasoning=20, cache_read=300, cache_write=100, total=560)
    detail = {
        "type": "reasoning.text",
        "text": "First, look.",
        "format": "anthropic-claude-v1",
        "index": 0,
        "signature": "EqQBCk==",
    }
    assert endings(events)[0].metadata == {"openrouter": {"reasoning_details": [detail]}}


async def test_encrypted_details_that_come_with_the_calls_are_kept_too() -> None:
    secret = {"type": "reasoning.encrypted", "data": "xyz", "id": "call_1", "index": 0}
    events = await answer(
        chunk({"reasoning": "Hm.", "reasoning_details": [{"type": "reasoning.summary", "summary": "Hm.", "index": 0}]}),
        *said("Right."),
        chunk({**ROLE, "reasoning_details": [secret]}),
        call(0, id="call_1", name="read", arguments="{}"),
        chunk({}, "tool_calls"),
    )
    kept = [end.metadata for end in endings(events)]
    assert kept[0] == {
        "openrouter": {"reasoning_details": [{"type": "reasoning.summary", "summary": "Hm.", "index": 0}]}
    }
    assert kept[2] == {"openrouter": {"reasoning_details": [secret]}}


async def test_details_that_are_signed_are_not_joined_with_the_next() -> None:
    signed = [{"type": "reasoning.text", "text": name, "signature": name * 3} for name in "ab"]
    events = await answer(chunk({"reasoning_details": signed}), chunk({"content": "c"}, "stop"))
    assert endings(events)[0].metadata == {"openrouter": {"reasoning_details": signed}}


async def test_details_without_a_plain_copy_are_shown_as_well() -> None:
    events = await answer(
        chunk({"reasoning_details": [{"type": "reasoning.text", "text": "a"}]}),
        chunk({"reasoning_details": [{"type": "reasoning.text", "text": "b"}]}),
        chunk({"content": "c"}, "stop"),
    )
    assert answer_in(events)[:2] == ("c", "ab")


async def test_whole_calls_that_are_all_numbered_zero_and_end_with_stop() -> None:
    events = await collect(provider(Server(OLLAMA)))
    assert_well_formed(events)
    _, reasoning, calls, reason, usage = answer_in(events)
    assert reasoning == "Hm."
    assert calls == [("call_1", "read", {"path": "a"}), ("call_2", "read", {"path": "b"})]
    assert (reason, usage) == ("tool-calls", Usage())


async def test_calls_without_ids_get_some() -> None:
    events = await answer(
        call(0, name="read", arguments='{"path":'),
        call(0, arguments='"a"}'),
        call(1, name="read", arguments='{"path":"b"}'),
        chunk({}, "tool_calls"),
    )
    assert answer_in(events).calls == [("minted_0", "read", {"path": "a"}), ("minted_1", "read", {"path": "b"})]


async def test_calls_without_ids_and_indexes_end_with_complete_arguments() -> None:
    events = await answer(
        call(None, name="read", arguments='{"path":"a"}'),
        call(None, name="read", arguments='{"path":"b"'),
        call(None, arguments="}"),
        call(None, name="list", arguments=""),
        chunk({}, "stop"),
    )
    assert [(name, value) for _, name, value in answer_in(events).calls] == [
        ("read", {"path": "a"}),
        ("read", {"path": "b"}),
        ("list", {}),
    ]


async def test_several_whole_calls_in_one_chunk_without_indexes() -> None:
    functions = [{"id": f"c{n}", "function": {"name": "read", "arguments": {"path": str(n)}}} for n in range(3)]
    events = await answer(chunk({"tool_calls": functions}), chunk({}, "tool_calls"))
    assert answer_in(events).calls == [(f"c{n}", "read", {"path": str(n)}) for n in range(3)]


async def test_a_name_that_is_repeated_does_not_begin_another_call() -> None:
    events = await answer(
        call(0, id="x", name="read", arguments='{"path"'),
        call(0, id="x", name="read", arguments=':"a"}'),
        call(0, id="x", name="read", arguments=""),
        chunk({}, "tool_calls"),
    )
    assert answer_in(events).calls == [("x", "read", {"path": "a"})]


async def test_a_fresh_id_on_every_fragment_does_not_begin_another_call() -> None:
    events = await answer(
        call(0, id="x1", name="read", arguments='{"path"'),
        call(0, id="x2", arguments=':"a"}'),
        chunk({}, "tool_calls"),
    )
    assert answer_in(events).calls == [("x1", "read", {"path": "a"})]


async def test_text_and_reasoning_end_where_something_else_begins() -> None:
    events = await answer(
        chunk({"reasoning": "r"}), *said("t"), call(0, id="x", name="read", arguments="{}"), chunk({}, "tool_calls")
    )
    assert [(type(event).__name__, getattr(event, "kind", "")) for event in events[1:-1]] == [
        *(("TextStart", "reasoning"), ("TextDelta", "reasoning")),
        *(("TextStart", "text"), ("TextDelta", "text"), ("TextEnd", "reasoning"), ("TextEnd", "text")),
        *(("ToolInputStart", ""), ("ToolInputDelta", ""), ("ToolCall", "")),
    ]


async def test_the_same_id_on_different_calls_is_made_different() -> None:
    events = await answer(
        call(0, id="x", name="read", arguments="{}"), call(1, id="x", name="list", arguments="{}"), chunk({}, "stop")
    )
    assert answer_in(events).calls == [("x", "read", {}), ("minted_0", "list", {})]


async def test_a_name_that_comes_after_its_arguments_is_waited_for() -> None:
    events = await answer(
        call(0, id="x", arguments='{"path"'), call(0, name="read", arguments=':"a"}'), chunk({}, "tool_calls")
    )
    assert answer_in(events).calls == [("x", "read", {"path": "a"})]
    assert arguments_shown(events) == {"x": '{"path":"a"}'}


async def test_a_call_is_complete_as_soon_as_the_next_begins() -> None:
    events = await answer(
        call(0, id="a", name="read", arguments="{}"),
        call(1, id="b", name="read", arguments='{"path":"b"}'),
        chunk({}, "tool_calls"),
    )
    names = [(type(event).__name__, getattr(event, "id", "")) for event in events[1:-1]]
    assert names.index(("ToolCall", "a")) < names.index(("ToolInputStart", "b"))


async def test_what_comes_after_a_complete_call_does_not_reopen_it() -> None:
    events = await answer(
        call(0, id="a", name="read", arguments="{}"),
        chunk({}, "tool_calls"),
        call(0, arguments=" "),
        chunk({"content": "after"}, "tool_calls"),
        "[DONE]",
    )
    assert answer_in(events)[:3] == ("after", "", [("a", "read", {})])


@pytest.mark.parametrize(
    ("raw", "value", "problem"),
    [
        ("", {}, None),
        ("  ", {}, None),
        ("null", {}, None),
        ("{}", {}, None),
        ('{"a": "\\ud83d"}', {"a": "\ud83d"}, None),
        ('{"a": 1', {}, "not valid JSON"),
        ("[1]", {}, "not an object"),
        ('"text"', {}, "not an object"),
    ],
)
async def test_arguments(raw: str, value: dict[str, Any], problem: str | None) -> None:
    events = await answer(call(0, id="x", name="read", arguments=raw), chunk({}, "tool_calls"))
    [got] = calls_of(events)
    assert (got.input, got.raw) == (value, raw)
    assert (problem in (got.problem or "")) if problem else got.problem is None


async def test_arguments_cut_off_by_the_limit_are_a_problem_and_the_reason_stays() -> None:
    events = await answer(call(0, id="x", name="write", arguments='{"content":"abc'), chunk({}, "length"))
    assert calls_of(events)[0].problem
    assert answer_in(events).reason == "length"


async def test_the_signature_of_gemini_behind_this_wire_is_kept_with_the_call() -> None:
    fragment = {
        "index": 0,
        "id": "x",
        "type": "function",
        "function": {"name": "read", "arguments": "{}"},
        "extra_content": {"google": {"thought_signature": "c2ln"}},
    }
    events = await answer(chunk({"tool_calls": [fragment]}), chunk({}, "tool_calls"))
    assert calls_of(events)[0].metadata == {"google": {"thoughtSignature": "c2ln"}}


@pytest.mark.parametrize(
    ("wire", "reason"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "content-filter"),
        ("function_call", "tool-calls"),
        ("model_length", "length"),
        ("eos", "stop"),
        ("whatever", "unknown"),
    ],
)
async def test_finish_reasons(wire: str, reason: str) -> None:
    assert answer_in(await answer(chunk({"content": "x"}, wire), "[DONE]")).reason == reason


async def test_content_in_parts_as_mistral_sends_it() -> None:
    events = await answer(
        chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]}),
        chunk({"content": [{"type": "text", "text": "So."}, {"type": "reference", "reference_ids": [1]}]}),
        *said(" Yes."),
        chunk({"content": ""}, "stop"),
    )
    assert answer_in(events)[:2] == ("So. Yes.", "Hm.")


async def test_a_refusal_is_text() -> None:
    assert answer_in(await answer(chunk({"refusal": "I won't."}), chunk({}, "stop"))).text == "I won't."


async def test_a_stream_without_done_is_complete_once_it_has_a_reason() -> None:
    assert answer_in(await answer(*said("x"), chunk({}, "stop"))).reason == "stop"


async def test_a_stream_with_done_is_complete_without_a_reason() -> None:
    assert answer_in(await answer(*said("x"), "[DONE]")).reason == "stop"
    assert answer_in(await answer(call(0, id="x", name="read", arguments="{}"), "[DONE]")).reason == "tool-calls"
    assert answer_in(await answer("[DONE]")).reason == "unknown"


async def test_a_connection_that_breaks_after_the_reason_takes_nothing_back() -> None:
    async with breaking_after(lines(*said("x"), chunk({}, "stop"))) as server:
        adapter = OpenAIChat("", server.url)
        assert answer_in(await collect(adapter)) == ("x", "", [], "stop", Usage())
        await adapter.aclose()
    async with breaking_after(lines(*said("x"))) as server:
        with pytest.raises(ModelConnectionError):
            await collect(adapter := OpenAIChat("", server.url))
        await adapter.aclose()


async def test_a_stream_with_neither_is_broken() -> None:
    server = Server(lines(*said("half an ans")))
    with pytest.raises(ModelConnectionError) as caught:
        await collect(provider(server))
    assert caught.value.retryable


async def test_events_before_a_broken_connection_arrive() -> None:
    got: list[StreamEvent] = []
    with pytest.raises(ModelConnectionError):
        await collect_into(got, provider(Server(lines(*said("half")))))
    assert got[-1] == TextDelta("text-0", "half")


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        ({"error": {"message": "Rate limit reached", "type": "rate_limit_error", "code": 429}}, RateLimitedError),
        ({"error": {"message": "x", "code": "context_length_exceeded"}}, ContextExceededError),
        (chunk({**ROLE}, "error", error={"code": 503, "message": "Provider overloaded"}), OverloadedError),
        (
            {
                **chunk(),
                "choices": [{"index": 0, "error": {"code": 503, "message": "overloaded"}, "finish_reason": "error"}],
            },
            OverloadedError,
        ),
        ({"object": "error", "message": "out of memory", "type": "InternalServerError", "code": 500}, ModelError),
        ({"error": "CUDA error"}, ModelError),
    ],
)
async def test_an_error_inside_the_stream_is_raised(payload: dict[str, Any], kind: type[ModelError]) -> None:
    with pytest.raises(kind):
        await collect(provider(Server(lines(*said("so far"), payload, "[DONE]"))))


async def test_an_error_does_not_complete_the_calls_before_it() -> None:
    wire = lines(call(0, id="x", name="bash", arguments="{}"), {"error": {"message": "boom"}})
    got: list[StreamEvent] = []
    with pytest.raises(ModelError, match="boom"):
        await collect_into(got, provider(Server(wire)))
    assert not calls_of(got)


@pytest.mark.parametrize("data", ["not json", "[1, 2]", '{"choices": 7}', '{"choices": [{"delta": "x"}]}'])
async def test_nonsense_is_an_error_of_the_model(data: str) -> None:
    with pytest.raises(ModelConnectionError):
        await collect(provider(Server(lines(data, "[DONE]"))))


async def test_an_event_that_cannot_be_read_is_quoted_without_keys_and_in_part() -> None:
    odd: dict[str, Any] = {"choices": 7, "key": "sk-" + "a" * 40, "more": "x" * 100_000}
    with pytest.raises(ModelConnectionError, match="unreadable event") as caught:
        await collect(provider(Server(lines(odd))))
    kept = f"{caught.value} {caught.value.body}"
    assert "sk-a" not in kept
    assert len(kept) < 70_000


async def test_a_rejected_request_has_the_reason() -> None:
    with pytest.raises(AuthFailedError, match="Incorrect API key"):
        await collect(provider(Server(refusal(401, {"error": {"message": "Incorrect API key provided"}}))))
    with pytest.raises(RateLimitedError) as caught:
        await collect(
            provider(
                Server(httpx2.Response(429, headers={"retry-after-ms": "7"}, content=b'{"error":{"message":"slow"}}'))
            )
        )
    assert caught.value.headers["retry-after-ms"] == "7"


async def test_address_key_and_headers() -> None:
    server = Server(OPENAI)
    settings = {"headers": {"X-Title": "a", "User-Agent": "one"}}
    await collect(provider(server, **settings), ask(headers={"user-agent": "two"}))
    [request] = server.requests
    assert str(request.url) == f"{URL}/chat/completions"
    assert request.headers["authorization"] == "Bearer sk-test"
    assert request.headers["x-title"] == "a"
    assert request.headers.get_list("user-agent") == ["two"]


async def test_copilot_gets_the_initiator_of_a_request_and_a_mark_for_pictures() -> None:
    server = Server(OPENAI, OPENAI)
    picture = User(content=(Text(text="hi"), File(mime="image/png", url="data:image/png;base64,AA==")))
    called = Assistant(content=(ToolUse(id="c", name="t", input={}),))
    result = ToolResults(content=(ToolUseResult(id="c", name="t", output=(Text(text="x"),)),))
    for messages in ((picture,), (User(content=(Text(text="hi"),)), called, result)):
        await collect(provider(server, provider_id="github-copilot"), ask(messages=messages))
    first, second = (request.headers for request in server.requests)
    assert (first["x-initiator"], first["copilot-vision-request"]) == ("user", "true")
    assert (second["x-initiator"], second["openai-intent"]) == ("agent", "conversation-edits")
    assert "copilot-vision-request" not in second


async def test_a_server_without_a_key_is_sent_none() -> None:
    server = Server(OPENAI)
    await collect(OpenAIChat("", URL + "/", transport=server.transport))
    assert "authorization" not in server.requests[0].headers
    assert str(server.requests[0].url) == f"{URL}/chat/completions"


async def test_closing_the_stream_closes_the_connection() -> None:
    server = Server([lines(chunk(ROLE), *said("a")), lines(*said("b")), lines(chunk({}, "stop"), "[DONE]")])
    async with aclosing(provider(server).stream(ask())) as events:
        async for event in events:
            if isinstance(event, TextDelta) and event.kind == "text":
                break
        assert server.closed == 0
    assert server.closed == 1


async def test_the_answer_is_read_to_its_end_so_that_the_connection_can_be_used_again() -> None:
    server = Server([OPENAI, b"\n"])
    events = await collect(provider(server))
    assert type(events[-1]).__name__ == "FinishStep"
    assert server.exhausted == 1


@pytest.mark.parametrize(
    ("counted", "usage"),
    [
        ({}, Usage()),
        ({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}, Usage(input=10, output=5, total=15)),
        ({"prompt_tokens": 10, "completion_tokens": None, "total_tokens": None}, Usage(input=10)),
        (  # Moonshot
            {"prompt_tokens": 10, "completion_tokens": 5, "cached_tokens": 8},
            Usage(input=2, output=5, cache_read=8),
        ),
        (  # LiteLLM, in front of Claude
            {
                "prompt_tokens": 2006,
                "completion_tokens": 300,
                "total_tokens": 2306,
                "prompt_tokens_details": {"cached_tokens": 1000},
                "cache_creation_input_tokens": 900,
            },
            Usage(input=106, output=300, cache_read=1000, cache_write=900, total=2306),
        ),
        (  # xAI counts reasoning apart from the completion
            {
                "prompt_tokens": 32,
                "completion_tokens": 9,
                "total_tokens": 135,
                "prompt_tokens_details": {"cached_tokens": 6},
                "completion_tokens_details": {"reasoning_tokens": 94},
            },
            Usage(input=26, output=9, reasoning=94, cache_read=6, total=135),
        ),
        (  # ... and more so when the reasoning is the shorter part
            {
                "prompt_tokens": 32,
                "completion_tokens": 90,
                "total_tokens": 135,
                "completion_tokens_details": {"reasoning_tokens": 13},
            },
            Usage(input=32, output=90, reasoning=13, total=135),
        ),
        (  # a server that counts badly yields no negative tokens
            {"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 9}},
            Usage(input=0, output=1, cache_read=9),
        ),
    ],
)
def test_usage_is_counted_in_buckets_that_do_not_overlap(counted: dict[str, Any], usage: Usage) -> None:
    assert token_usage(counted) == usage


async def test_usage_where_groq_and_moonshot_put_it() -> None:
    counted = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    groq = await answer(*said("x"), {**chunk({}, "stop"), "x_groq": {"id": "req_1", "usage": counted}}, "[DONE]")
    final = chunk({}, "stop")
    final["choices"][0]["usage"] = counted
    moonshot = await answer(*said("x"), final, "[DONE]")
    assert answer_in(groq).usage == answer_in(moonshot).usage == Usage(input=3, output=2, total=5)


@given(name=st.sampled_from(sorted(ALL)), places=st.lists(st.integers(0, 100_000), max_size=40))
async def test_the_events_do_not_depend_on_how_the_bytes_were_cut(name: str, places: list[int]) -> None:
    whole = await collect(provider(Server(ALL[name])))
    pieces = await collect(provider(Server(cut(ALL[name], places))))
    assert pieces == whole


async def test_every_byte_on_its_own_gives_the_same_events() -> None:
    for wire in ALL.values():
        assert await collect(provider(Server(cut(wire, range(len(wire)))))) == await collect(provider(Server(wire)))


@pytest.mark.parametrize("name", sorted(ALL))
async def test_openais_own_client_receives_the_same(name: str) -> None:
    openai = pytest.importorskip("openai")
    client = openai.AsyncOpenAI(api_key="x", base_url=URL, http_client=Server(ALL[name]).client, max_retries=0)
    text, reasoning, fragments, reason, usage = "", "", list[tuple[str | None, str | None, str]](), "", None
    stream = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}], stream=True)
    async for piece in stream:
        usage = piece.usage or usage
        for choice in piece.choices:
            text += choice.delta.content or ""
            reasoning += getattr(choice.delta, "reasoning_content", "") or getattr(choice.delta, "reasoning", "") or ""
            fragments += [(c.id, c.function.name, c.function.arguments) for c in choice.delta.tool_calls or ()]
            reason = choice.finish_reason or reason
    ours = answer_in(await collect(provider(Server(ALL[name]))))
    assert (text, reasoning) == ours[:2]
    assert {id_: name for id_, name, _ in fragments if id_} == {id_: name for id_, name, _ in ours.calls}
    assert reason.replace("_", "-") in (ours.reason, "stop")
    if usage is not None:
        buckets = ours.usage
        assert buckets.input + buckets.cache_read + buckets.cache_write == usage.prompt_tokens
        assert buckets.output + buckets.reasoning == usage.completion_tokens
        assert buckets.total == usage.total_tokens
