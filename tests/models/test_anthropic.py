from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import Any

import httpx2
import pytest

from opensesh.errors import (
    AuthFailedError,
    ContextExceededError,
    ModelConnectionError,
    ModelError,
    OverloadedError,
    RateLimitedError,
)
from opensesh.models.anthropic import Anthropic
from opensesh.models.request import Provider
from opensesh.models.stream_events import (
    FinishStep,
    StartStep,
    StreamEvent,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    ToolError,
    ToolInputDelta,
    ToolInputStart,
    ToolResult,
    Usage,
)

from . import wire_anthropic as wire
from .loopback import END, HEAD, Exchange, breaking_after, chunk, serving
from .wires import Server, ask, collect, collect_into

FULL_USAGE = Usage(input=472, output=89, cache_read=2000, cache_write=100, total=2661)
FULL_EVENTS: list[StreamEvent] = [
    StartStep(),
    TextStart("0", kind="reasoning"),
    TextDelta("0", "Let me see: 東京 ", kind="reasoning"),
    TextDelta("0", "and Zürich 🗻.", kind="reasoning"),
    TextEnd("0", {"anthropic": {"signature": wire.SIGNATURE}}, kind="reasoning"),
    TextStart("1", {"anthropic": {"redactedData": wire.REDACTED}}, kind="reasoning"),
    TextEnd("1", {"anthropic": {"redactedData": wire.REDACTED}}, kind="reasoning"),
    TextStart("2"),
    TextDelta("2", "Okay, let's check "),
    TextDelta("2", "the weather — ☀️ or "),
    TextDelta("2", "🌧?"),
    TextEnd("2"),
    ToolInputStart("toolu_01T1x1fJ34qAmk2tNTrN7Up6", "get_weather"),
    ToolInputDelta("toolu_01T1x1fJ34qAmk2tNTrN7Up6", '{"location": "Zür'),
    ToolInputDelta("toolu_01T1x1fJ34qAmk2tNTrN7Up6", 'ich", "days": 3}'),
    ToolCall(
        "toolu_01T1x1fJ34qAmk2tNTrN7Up6",
        "get_weather",
        {"location": "Zürich", "days": 3},
        raw='{"location": "Zürich", "days": 3}',
    ),
    ToolInputStart("toolu_01A09q90qw90lq917835lq9", "get_time"),
    ToolCall("toolu_01A09q90qw90lq917835lq9", "get_time", {}),
    FinishStep("tool-calls", FULL_USAGE),
]


def adapter(server: Server, **settings: Any) -> Anthropic:
    return Anthropic("key-of-the-test", transport=server.transport, **settings)


async def events_of(*wires: wire.Wire) -> list[StreamEvent]:
    return await collect(adapter(Server(wire.stream(*wires))))


async def failure_of(server: Server, **settings: Any) -> ModelError:
    with pytest.raises(ModelError) as raised:
        await collect(adapter(server, **settings))
    return raised.value


async def test_an_answer_with_everything_becomes_the_common_events() -> None:
    assert await events_of(*wire.FULL) == FULL_EVENTS


async def test_an_answer_cut_at_any_byte_means_the_same() -> None:
    data = wire.stream(*wire.FULL)
    for at in range(len(data)):
        assert await collect(adapter(Server([data[:at], data[at:]]))) == FULL_EVENTS, at


async def test_an_answer_byte_by_byte_means_the_same() -> None:
    data = wire.stream(*wire.FULL)
    assert await collect(adapter(Server([data[at : at + 1] for at in range(len(data))]))) == FULL_EVENTS


async def test_blocks_that_overlap_keep_their_own_arguments() -> None:
    interleaved = wire.answer(
        wire.start(0, type="tool_use", id="a", name="read", input={}),
        wire.start(1, type="tool_use", id="b", name="read", input={}),
        wire.delta(1, "input_json_delta", partial_json='{"path":'),
        wire.delta(0, "input_json_delta", partial_json='{"path":"one"}'),
        wire.stop(0),
        wire.delta(1, "input_json_delta", partial_json='"two"}'),
        wire.stop(1),
        reason="tool_use",
    )
    calls = {event.id: event.input for event in await events_of(*interleaved) if isinstance(event, ToolCall)}
    assert calls == {"a": {"path": "one"}, "b": {"path": "two"}}


@pytest.mark.parametrize(
    ("raw", "problem"), [('{"path": "a', "not valid JSON"), ("[1]", "not an object"), ('"x"', "not an object")]
)
async def test_arguments_that_are_not_an_object_are_a_problem_of_the_call(raw: str, problem: str) -> None:
    events = await events_of(*wire.answer(*wire.tool(0, "a", "read", raw), reason="tool_use"))
    (call,) = [event for event in events if isinstance(event, ToolCall)]
    assert (call.input, call.raw) == ({}, raw)
    assert problem in (call.problem or "")


async def test_arguments_given_whole_at_the_start_are_taken() -> None:
    whole = [wire.start(0, type="tool_use", id="a", name="read", input={"path": "x"}), wire.stop(0)]
    (call,) = [event for event in await events_of(*wire.answer(*whole)) if isinstance(event, ToolCall)]
    assert (call.input, call.raw) == ({"path": "x"}, '{"path":"x"}')


async def test_thought_and_proof_given_whole_at_the_start_are_taken() -> None:
    whole = [wire.start(0, type="thinking", thinking="hm", signature="s"), wire.stop(0)]
    assert (await events_of(*wire.answer(*whole)))[1:4] == [
        TextStart("0", kind="reasoning"),
        TextDelta("0", "hm", kind="reasoning"),
        TextEnd("0", {"anthropic": {"signature": "s"}}, kind="reasoning"),
    ]


@pytest.mark.parametrize(
    ("stop_reason", "expected"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("tool_use", "tool-calls"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content-filter"),
        ("something_new", "unknown"),
    ],
)
async def test_the_reason_to_stop_is_translated(stop_reason: str, expected: str) -> None:
    events = await events_of(*wire.answer(*wire.text(0, "Hi"), reason=stop_reason))
    assert isinstance(events[-1], FinishStep)
    assert events[-1].reason == expected


async def test_later_counts_replace_earlier_ones_and_thinking_is_taken_out_of_the_output() -> None:
    events = await events_of(
        wire.message_start(cache_read_input_tokens=5, cache_creation_input_tokens=None),
        wire.message_delta(
            "end_turn",
            output_tokens=1000,
            input_tokens=480,
            cache_read_input_tokens=None,
            output_tokens_details={"thinking_tokens": 600},
        ),
        wire.MESSAGE_STOP,
    )
    assert isinstance(events[-1], FinishStep)
    assert events[-1].usage == Usage(input=480, output=400, reasoning=600, cache_read=5, total=1485)


async def test_a_tool_that_runs_at_the_provider_is_marked_and_answered() -> None:
    result = [{"type": "web_search_result", "url": "https://a.test", "title": "A", "encrypted_content": "x"}]
    events = await events_of(
        *wire.answer(
            wire.start(0, type="server_tool_use", id="srvtoolu_1", name="web_search", input={}),
            wire.delta(0, "input_json_delta", partial_json='{"query":"a"}'),
            wire.stop(0),
            wire.start(1, type="web_search_tool_result", tool_use_id="srvtoolu_1", content=result),
            wire.stop(1),
            wire.start(
                2,
                type="web_fetch_tool_result",
                tool_use_id="srvtoolu_2",
                content={"type": "web_fetch_tool_result_error", "error_code": "url_not_accessible"},
            ),
            wire.stop(2),
            wire.start(3, type="text", text="So", citations=[]),
            wire.delta(3, "citations_delta", citation={"type": "web_search_result_location"}),
            wire.stop(3),
            wire.start(4, type="container_upload", file_id="file_1"),
            wire.stop(4),
        )
    )
    calls_and_results = [event for event in events if isinstance(event, ToolCall | ToolResult | ToolError | TextDelta)]
    failed = '{"type":"web_fetch_tool_result_error","error_code":"url_not_accessible"}'
    assert calls_and_results == [
        ToolCall("srvtoolu_1", "web_search", {"query": "a"}, raw='{"query":"a"}', executed=True),
        ToolResult("srvtoolu_1", json.dumps(result, separators=(",", ":"))),
        ToolError("srvtoolu_2", failed),
        TextDelta("3", "So"),
    ]


async def test_unknown_kinds_of_events_are_ignored() -> None:
    events = await events_of(wire.message_start(), {"type": "brand_new", "x": 1}, *wire.answer(*wire.text(0, "Hi"))[2:])
    assert [type(event) for event in events] == [StartStep, TextStart, TextDelta, TextEnd, FinishStep]


async def test_what_the_server_forgot_to_close_is_closed() -> None:
    events = await events_of(
        wire.message_start(),
        wire.start(0, type="text", text=""),
        wire.delta(0, "text_delta", text="Hi"),
        wire.message_delta("end_turn"),
    )
    assert [type(event) for event in events] == [StartStep, TextStart, TextDelta, TextEnd, FinishStep]


async def test_an_answer_that_merely_ends_is_broken() -> None:
    data = wire.stream(*wire.FULL)
    for at in range(1, data.index(b"event: message_delta") + 20, 97):
        error = await failure_of(Server(data[:at]))
        assert isinstance(error, ModelConnectionError), at
        assert error.retryable


async def test_a_connection_that_breaks_after_the_reason_takes_nothing_back() -> None:
    async with breaking_after(wire.stream(*wire.FULL[:-1])) as server:
        client = Anthropic("k", server.url)
        assert await collect(client) == FULL_EVENTS
        await client.aclose()


async def test_an_error_inside_the_stream_is_raised_after_what_came_before() -> None:
    failing = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    seen: list[StreamEvent] = []
    with pytest.raises(OverloadedError, match="Overloaded"):
        await collect_into(seen, adapter(Server(wire.stream(*wire.FULL[:4], failing))))
    assert seen == FULL_EVENTS[:3]


async def test_an_error_as_first_event_comes_before_any_start() -> None:
    long = {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}}
    assert isinstance(await failure_of(Server(wire.stream(long))), ContextExceededError)


async def test_calls_without_an_id_get_one_that_no_other_call_has() -> None:
    nameless = wire.answer(*wire.tool(0, "", "read", "{}"), *wire.tool(1, "", "read", "{}"), reason="tool_use")
    events = [*await events_of(*nameless), *await events_of(*nameless)]
    made = [event.id for event in events if isinstance(event, ToolCall)]
    assert len(set(made)) == 4
    assert [event.id for event in events if isinstance(event, ToolInputStart)] == made


async def test_a_block_that_is_closed_twice_costs_no_answer() -> None:
    output = wire.text(0, "x")
    assert await events_of(*wire.answer(*output, output[-1])) == await events_of(*wire.answer(*output))


@pytest.mark.parametrize(
    "broken",
    [
        b"data: {not json\n\n",
        b'data: {"type":"content_block_delta","index":0}\n\n',
        b'data: {"type":"content_block_delta","index":7,"delta":{"type":"text_delta","text":"x"}}\n\n',
        b'data: {"type":"content_block_start","index":0,"content_block":null}\n\n',
        b'data: {"type":"message_start"}\n\n',
    ],
)
async def test_an_event_that_makes_no_sense_is_a_broken_stream(broken: bytes) -> None:
    error = await failure_of(Server([wire.stream(wire.message_start()), broken]))
    assert isinstance(error, ModelConnectionError)


@pytest.mark.parametrize(
    "retry_after", [{"retry-after-ms": "1500"}, {"retry-after": "2"}, {"retry-after": "Sun, 15 Nov 2026 21:00:00 GMT"}]
)
async def test_an_error_keeps_the_retry_headers(retry_after: dict[str, str]) -> None:
    text = b'{"type":"error","error":{"type":"rate_limit_error","message":"Slow down"},"request_id":"req_1"}'
    error = await failure_of(Server(httpx2.Response(429, content=text, headers={**retry_after, "request-id": "req_1"})))
    assert isinstance(error, RateLimitedError)
    assert error.headers.items() >= {**retry_after, "request-id": "req_1"}.items()


async def test_an_error_about_a_wrong_key_does_not_contain_it() -> None:
    text = b'{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key: key-of-the-test"}}'
    error = await failure_of(Server(httpx2.Response(401, content=text)))
    assert isinstance(error, AuthFailedError)
    assert error.message == "invalid x-api-key: [redacted]"


async def test_closing_the_answer_hangs_up_at_once() -> None:
    gone = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        await exchange.send(HEAD, chunk(wire.stream(*wire.FULL[:4])))
        await exchange.hung_up()
        gone.set()

    async with serving(answer) as server:
        claude = Anthropic("key", server.url)
        async with aclosing(claude.stream(ask())) as events:
            assert await anext(events) == StartStep()
        await asyncio.wait_for(gone.wait(), 60)
        await claude.aclose()


async def test_steps_share_one_connection() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(HEAD, chunk(wire.stream(*wire.FULL)), END)

    async with serving(answer) as server:
        claude = Anthropic("key", f"{server.url}/v1/")
        for _ in range(3):
            assert await collect(claude) == FULL_EVENTS
        assert server.connections == 1
        assert server.exchanges[0].head.startswith("POST /v1/messages HTTP/1.1\r\n")
        await claude.aclose()


async def test_it_is_a_provider() -> None:
    provider: Provider = adapter(Server(wire.stream(*wire.FULL)))
    assert [event async for event in provider.stream(ask())] == FULL_EVENTS


async def test_the_headers_carry_key_version_and_all_beta_features() -> None:
    server = Server(wire.stream(*wire.FULL))
    claude = adapter(server, headers={"Anthropic-Beta": "one, two", "X-Mine": "1"})
    request = ask(headers={"anthropic-beta": "two,three", "x-mine": "2"}, options={"anthropicBeta": ["four"]})
    await collect(claude, request)
    headers = server.requests[0].headers
    assert headers["x-api-key"] == "key-of-the-test"
    assert headers["anthropic-version"] == "2023-06-01"
    assert headers["anthropic-beta"] == "one,two,three,four"
    assert headers["x-mine"] == "2"


async def test_a_bearer_token_travels_as_one_and_no_key_not_at_all() -> None:
    server = Server(wire.stream(*wire.FULL), wire.stream(*wire.FULL))
    await collect(adapter(server, auth_header="bearer"))
    await collect(Anthropic("", transport=server.transport))
    first, second = (request.headers for request in server.requests)
    assert first["authorization"] == "Bearer key-of-the-test"
    assert "x-api-key" not in first
    assert not {"authorization", "x-api-key", "anthropic-beta"} & set(second)


async def test_anthropics_own_client_reads_the_fake_the_same_way() -> None:
    anthropic = pytest.importorskip("anthropic")
    server = Server(wire.stream(*wire.FULL))
    asked = {"model": "c", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
    async with (
        anthropic.AsyncAnthropic(api_key="x", http_client=server.client, max_retries=0) as client,
        client.messages.stream(**asked) as answer,
    ):
        message = await answer.get_final_message()
    thinking, redacted, text, *tools = message.content
    ours = FULL_EVENTS
    assert thinking.thinking == "".join(
        event.text for event in ours if isinstance(event, TextDelta) and event.kind == "reasoning"
    )
    assert (thinking.signature, redacted.data) == (wire.SIGNATURE, wire.REDACTED)
    assert text.text == "".join(event.text for event in ours if isinstance(event, TextDelta) and event.kind == "text")
    calls = [(event.id, event.name, event.input) for event in ours if isinstance(event, ToolCall)]
    assert [(tool.id, tool.name, tool.input) for tool in tools] == calls
    usage = message.usage
    counted = Usage(
        input=usage.input_tokens,
        output=usage.output_tokens,
        cache_read=usage.cache_read_input_tokens,
        cache_write=usage.cache_creation_input_tokens,
        total=FULL_USAGE.total,
    )
    assert (counted, message.stop_reason) == (FULL_USAGE, "tool_use")
