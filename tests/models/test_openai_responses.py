from __future__ import annotations

from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensesh.errors import AuthFailedError, ContextExceededError, ModelConnectionError, ModelError, RateLimitedError
from opensesh.models.model import Capabilities, Model
from opensesh.models.openai_responses import OpenAIResponses
from opensesh.models.openai_responses_request import request_body
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
from opensesh.models.stream_events import (
    StreamEvent,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    Usage,
)

from .wire_responses import ALL, PLAIN, TOOLS, call, completed, event, item, message, response, stream, thought
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
    refusal,
)

URL = "https://api.openai.test/v1"
GPT5 = Model(id="gpt-5", provider_id="openai", npm="@ai-sdk/openai", capabilities=Capabilities(reasoning=True))
GPT4 = Model(id="gpt-4.1", provider_id="openai", npm="@ai-sdk/openai")
HI = User(content=(Text(text="hi"),))
PNG = File(mime="image/png", url="data:image/png;base64,iVBORw0K", filename="p.png")
PDF = File(mime="application/pdf", url="data:application/pdf;base64,JVBERi0=", filename="d.pdf")


def provider(server: Server) -> OpenAIResponses:
    return OpenAIResponses("sk-test", URL, transport=server.transport)


async def answer(*events: dict[str, Any]) -> list[StreamEvent]:
    got = await collect(provider(Server(stream(*events))))
    assert_well_formed(got)
    return got


def failed(code: str, text: str) -> dict[str, Any]:
    return event("response.failed", response=response("failed", error={"code": code, "message": text}))


def items(*turns: ModelMessage, model: Model = GPT5, **options: Any) -> list[dict[str, Any]]:
    return request_body(ask(model, messages=turns, options=options))["input"]


async def test_reasoning_text_and_parallel_calls() -> None:
    events = await collect(provider(Server(TOOLS)))
    assert_well_formed(events)
    text, reasoning, calls, reason, usage = answer_in(events)
    assert text == "I will read 漢字 🐍."
    assert reasoning == "**Looking** at it.Then the second — ✓."
    assert calls == [("call_a", "read", {"path": "a.py"}), ("call_b", "read", {"path": "b.py"})]
    assert arguments_shown(events) == {"call_a": '{"path":"a.py"}', "call_b": '{"path":"b.py"}'}
    assert reason == "tool-calls"
    assert usage == Usage(input=388, output=56, reasoning=64, cache_read=512, total=1020)


async def test_each_summary_is_a_piece_and_the_last_carries_the_proof() -> None:
    events = await answer(*thought("rs_1", 0, "one", "two", "three"), completed())
    starts = [event for event in events if isinstance(event, TextStart) and event.kind == "reasoning"]
    ends = [event for event in events if isinstance(event, TextEnd) and event.kind == "reasoning"]
    assert [start.id for start in starts] == ["rs_1:0", "rs_1:1", "rs_1:2"]
    assert starts[0].metadata == {"openai": {"itemId": "rs_1", "reasoningEncryptedContent": "gAAAAearly"}}
    assert [end.metadata for end in ends] == [
        {"openai": {"itemId": "rs_1"}},
        {"openai": {"itemId": "rs_1"}},
        {"openai": {"itemId": "rs_1", "reasoningEncryptedContent": "gAAAAproof"}},
    ]


async def test_reasoning_without_a_word_still_carries_its_proof() -> None:
    events = await collect(provider(Server(PLAIN)))
    assert_well_formed(events)
    assert endings(events)[0].metadata == {"openai": {"itemId": "rs_1", "reasoningEncryptedContent": "gAAAAproof"}}
    assert answer_in(events)[:2] == ("Done.", "")


async def test_ids_of_items_are_kept_as_opencode_keeps_them() -> None:
    events = await answer(
        *message("msg_1", 0, "x", phase="commentary"), *call("fc_1", 1, "call_a", "read", "{}"), completed()
    )
    text = next(event for event in events if isinstance(event, TextEnd) and event.kind == "text")
    made = next(event for event in events if isinstance(event, ToolCall))
    assert text.metadata == {"openai": {"itemId": "msg_1", "phase": "commentary"}}
    assert made.metadata == {"openai": {"itemId": "fc_1"}}


async def test_items_with_changing_ids_are_identified_by_position() -> None:
    events = [
        *thought("rs_1", 0, "one", "two"),
        *message("msg_1", 1, "Hello."),
        *call("fc_1", 2, "call_a", "read", '{"path":"a.py"}'),
        *call("fc_2", 3, "call_b", "read", '{"path":"b.py"}'),
    ]
    for number, entry in enumerate(events):
        if "item" in entry:
            entry["item"] = {**entry["item"], "id": f"{entry['item']['id']}-{number}"}
        else:
            entry["item_id"] = f"{entry['item_id']}-{number}"
    text, reasoning, calls, reason, _ = answer_in(await answer(*events, completed()))
    assert (text, reasoning, reason) == ("Hello.", "onetwo", "tool-calls")
    assert calls == [("call_a", "read", {"path": "a.py"}), ("call_b", "read", {"path": "b.py"})]


async def test_items_with_the_same_position_are_distinguished_by_id() -> None:
    first, second = call("fc_1", 0, "call_a", "read", '{"p":1}'), call("fc_2", 0, "call_b", "read", '{"p":2}')
    mixed = [event for pair in zip(first, second, strict=True) for event in pair]
    for events in (mixed, [*first, *second[-1:]]):
        made = answer_in(await answer(*events, completed())).calls
        assert made == [("call_a", "read", {"p": 1}), ("call_b", "read", {"p": 2})]


@pytest.mark.parametrize(
    ("details", "reason"),
    [({"reason": "max_output_tokens"}, "length"), ({"reason": "content_filter"}, "content-filter"), (None, "stop")],
)
async def test_incomplete_answers(details: dict[str, Any] | None, reason: str) -> None:
    events = await answer(*message("msg_1", 0, "x"), completed("incomplete", incomplete_details=details))
    assert answer_in(events).reason == reason


async def test_pieces_left_open_by_an_incomplete_answer_are_closed() -> None:
    opened = [*thought("rs_1", 0, "abc")[:3], *message("msg_1", 1, "x")[:3], *call("fc_1", 2, "c", "read", '{"pa')[:2]]
    events = await answer(*opened, completed("incomplete", incomplete_details={"reason": "max_output_tokens"}))
    assert [bool(event.problem) for event in events if isinstance(event, ToolCall)] == [True]
    assert answer_in(events).reason == "length"


async def test_servers_that_skip_the_deltas_are_understood() -> None:
    whole = [message("msg_1", 0, "all of it")[-1], call("fc_1", 1, "c", "read", '{"path":"a"}')[-1]]
    events = await answer(*whole, completed())
    assert answer_in(events)[:3] == ("all of it", "", [("c", "read", {"path": "a"})])


async def test_plain_reasoning_and_refusals_are_read() -> None:
    at = {"item_id": "rs_1", "output_index": 0, "content_index": 0}
    refused = {"item_id": "msg_1", "output_index": 1, "content_index": 0}
    events = await answer(
        item("added", 0, id="rs_1", type="reasoning", summary=[]),
        event("response.reasoning_text.delta", **at, delta="raw "),
        event("response.reasoning_text.delta", **at, delta="thought"),
        item("done", 0, id="rs_1", type="reasoning", summary=[]),
        event("response.refusal.delta", **refused, delta="I won't."),
        completed(),
    )
    assert answer_in(events)[:2] == ("I won't.", "raw thought")


async def test_unknown_items_and_events_are_ignored() -> None:
    events = await answer(
        item("added", 0, id="ws_1", type="web_search_call", status="in_progress"),
        event("response.web_search_call.searching", item_id="ws_1", output_index=0),
        item("done", 0, id="ws_1", type="web_search_call", status="completed"),
        event("keepalive"),
        *message("msg_1", 1, "x"),
        completed(),
    )
    assert answer_in(events).text == "x"


@pytest.mark.parametrize(
    ("raw", "value", "problem"), [("", {}, False), ("{}", {}, False), ('{"a":', {}, True), ("[]", {}, True)]
)
async def test_arguments(raw: str, value: dict[str, Any], problem: bool) -> None:
    events = await answer(*call("fc_1", 0, "c", "read", raw), completed())
    [made] = [event for event in events if isinstance(event, ToolCall)]
    assert (made.input, bool(made.problem)) == (value, problem)


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (failed("rate_limit_exceeded", "Rate limit reached"), RateLimitedError),
        (failed("server_error", "The model produced an error"), ModelError),
        (event("error", code="context_length_exceeded", message="too much", param=None), ContextExceededError),
        (event("error", error={"type": "tokens", "code": "insufficient_quota", "message": "pay"}), ModelError),
    ],
)
async def test_failures_in_the_stream_are_raised(failure: dict[str, Any], kind: type[ModelError]) -> None:
    got: list[StreamEvent] = []
    with pytest.raises(kind):
        await collect_into(got, provider(Server(stream(*message("msg_1", 0, "x")[:3], failure))))
    assert got[-1] == TextDelta("msg_1", "x")


async def test_a_stream_that_merely_ends_is_broken() -> None:
    with pytest.raises(ModelConnectionError):
        await collect(provider(Server(stream(*message("msg_1", 0, "x")))))


async def test_nonsense_is_an_error_of_the_model() -> None:
    with pytest.raises(ModelError):
        await collect(provider(Server(stream(event("response.output_item.added", item=None)))))


async def test_a_rejected_request_has_the_reason() -> None:
    with pytest.raises(AuthFailedError, match="Incorrect"):
        await collect(
            provider(Server(refusal(401, {"error": {"message": "Incorrect API key", "code": "invalid_api_key"}})))
        )


async def test_closing_the_stream_closes_the_connection() -> None:
    server = Server([stream(*message("msg_1", 0, "a", "b")[:3]), stream(completed())])
    async with aclosing(provider(server).stream(ask(GPT5))) as events:
        async for entry in events:
            if isinstance(entry, TextDelta) and entry.kind == "text":
                break
        assert server.closed == 0
    assert server.closed == 1


async def test_the_answer_is_read_to_its_end_so_that_the_connection_can_be_used_again() -> None:
    server = Server([PLAIN, b"\n"])
    await collect(provider(server))
    assert server.exhausted == 1


def test_the_whole_body() -> None:
    request = ask(
        GPT5,
        messages=(System(text="Be brief."), HI),
        tools=(READ,),
        tool_choice="required",
        max_output_tokens=500,
        temperature=0.3,
        options={
            "reasoningEffort": "low",
            "reasoningSummary": "auto",
            "textVerbosity": "low",
            "promptCacheKey": "ses_1",
            "parallelToolCalls": True,
            "custom": 1,
        },
    )
    function = {"type": "function", "name": "read", "description": "Read a file.", "parameters": READ.parameters}
    assert request_body(request) == {
        "model": "gpt-5",
        "input": [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        ],
        "max_output_tokens": 500,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "low", "summary": "auto"},
        "prompt_cache_key": "ses_1",
        "parallel_tool_calls": True,
        "custom": 1,
        "text": {"verbosity": "low"},
        "tools": [{**function, "strict": False}],
        "tool_choice": "required",
        "stream": True,
    }


def test_a_model_without_reasoning_gets_no_reasoning_options() -> None:
    sent = request_body(ask(GPT4, messages=(System(text="s"), HI), temperature=0.3))
    assert sent["input"][0]["role"] == "system"
    assert sent["temperature"] == 0.3
    assert "include" not in sent


def test_instructions_and_what_else_the_options_hold_are_passed_on() -> None:
    sent = request_body(ask(GPT5, options={"instructions": "You are.", "include": ["x"], "store": False}))
    assert sent["instructions"] == "You are."
    assert sent["include"] == ["x", "reasoning.encrypted_content"]


def test_images_and_pdfs_go_along() -> None:
    remote = File(mime="application/pdf", url="https://example.test/d.pdf")
    video = File(mime="video/mp4", url="data:video/mp4;base64,AAAA", filename="v.mp4")
    empty = File(mime="image/png", url="data:image/png;base64,", filename="e.png")
    [sent] = items(User(content=(Text(text="see"), PNG, PDF, remote, video, empty)))
    assert sent["content"][:4] == [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": PNG.url, "detail": "auto"},
        {"type": "input_file", "filename": "d.pdf", "file_data": PDF.url},
        {"type": "input_file", "file_url": "https://example.test/d.pdf"},
    ]
    assert "v.mp4" in sent["content"][4]["text"]
    assert "e.png" in sent["content"][5]["text"]


def thoughts(proof: str | None = "gAAAA") -> tuple[Reasoning, ...]:
    return (
        Reasoning(text="one", metadata={"openai": {"itemId": "rs_1"}}),
        Reasoning(text="two", metadata={"openai": {"itemId": "rs_1", "reasoningEncryptedContent": proof}}),
    )


def test_a_step_goes_back_item_by_item() -> None:
    step = Assistant(
        content=(
            *thoughts(),
            Text(text="Looking.", metadata={"openai": {"itemId": "msg_1", "phase": "commentary"}}),
            ToolUse(id="call_a", name="read", input={"path": "a"}, metadata={"openai": {"itemId": "fc_1"}}),
        )
    )
    results = ToolResults(
        content=(
            ToolUseResult(id="call_a", name="read", output=(Text(text="1: x"),)),
            ToolUseResult(id="call_b", name="read", output=(Text(text="Image read."), PNG)),
        )
    )
    summary = [{"type": "summary_text", "text": "one"}, {"type": "summary_text", "text": "two"}]
    assert items(HI, step, results)[1:] == [
        {"type": "reasoning", "encrypted_content": "gAAAA", "summary": summary},
        {"role": "assistant", "content": "Looking.", "phase": "commentary"},
        {"type": "function_call", "call_id": "call_a", "name": "read", "arguments": '{"path":"a"}'},
        {"type": "function_call_output", "call_id": "call_a", "output": "1: x"},
        {
            "type": "function_call_output",
            "call_id": "call_b",
            "output": [
                {"type": "input_text", "text": "Image read."},
                {"type": "input_image", "image_url": PNG.url, "detail": "auto"},
            ],
        },
    ]


def test_reasoning_that_cannot_be_proved_is_left_out() -> None:
    foreign = Reasoning(text="hm", metadata={"anthropic": {"signature": "x"}})
    assert items(Assistant(content=(foreign, *thoughts(None), Text(text="x")))) == [
        {"role": "assistant", "content": "x"}
    ]


def test_items_are_named_only_where_openai_stores_them() -> None:
    call_made = ToolUse(id="c", name="read", input={}, metadata={"openai": {"itemId": "fc_1"}})
    sent = items(Assistant(content=(*thoughts(None), call_made)), store=True)
    assert [entry.get("id") for entry in sent] == ["rs_1", "fc_1"]
    assert "encrypted_content" not in sent[0]


async def test_received_content_is_sent_back_unchanged() -> None:
    events = await collect(provider(Server(TOOLS)))
    words = [(ending.id, ending.metadata) for ending in endings(events)]
    spoken = {"rs_1:0": "**Looking** at it.", "rs_1:1": "Then the second — ✓.", "msg_1": "I will read 漢字 🐍."}
    parts = [
        Text(text=spoken[name], metadata=metadata)
        if name == "msg_1"
        else Reasoning(text=spoken[name], metadata=metadata)
        for name, metadata in words
    ]
    made = [
        ToolUse(id=element.id, name=element.name, input=element.input, metadata=element.metadata)
        for element in events
        if isinstance(element, ToolCall)
    ]
    sent = items(Assistant(content=(*parts, *made)))
    assert [entry.get("type", "message") for entry in sent] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
    ]
    assert sent[0]["encrypted_content"] == "gAAAAproof"
    assert [part["text"] for part in sent[0]["summary"]] == [spoken["rs_1:0"], spoken["rs_1:1"]]


@given(name=st.sampled_from(sorted(ALL)), places=st.lists(st.integers(0, 100_000), max_size=40))
async def test_the_events_do_not_depend_on_how_the_bytes_were_cut(name: str, places: list[int]) -> None:
    pieces = await collect(provider(Server(cut(ALL[name], places))))
    assert pieces == await collect(provider(Server(ALL[name])))


@pytest.mark.parametrize("name", sorted(ALL))
async def test_openais_own_client_receives_the_same(name: str) -> None:
    openai = pytest.importorskip("openai")
    client = openai.AsyncOpenAI(api_key="x", base_url=URL, http_client=Server(ALL[name]).client, max_retries=0)
    text, reasoning, calls, usage = "", "", list[tuple[str, str, str]](), None
    async for entry in await client.responses.create(model="gpt-5", input="hi", stream=True):
        match entry.type:
            case "response.output_text.delta":
                text += entry.delta
            case "response.reasoning_summary_text.delta":
                reasoning += entry.delta
            case "response.output_item.done" if entry.item.type == "function_call":
                calls.append((entry.item.call_id, entry.item.name, entry.item.arguments))
            case "response.completed":
                usage = entry.response.usage
            case _:
                pass
    events = await collect(provider(Server(ALL[name])))
    ours = answer_in(events)
    assert (text, reasoning) == ours[:2]
    assert calls == [(entry.id, entry.name, entry.raw) for entry in events if isinstance(entry, ToolCall)]
    assert usage is not None
    assert ours.usage.input + ours.usage.cache_read == usage.input_tokens
    assert ours.usage.output + ours.usage.reasoning == usage.output_tokens
    assert ours.usage.total == usage.total_tokens


def test_openais_own_types_accept_what_is_sent() -> None:
    pytest.importorskip("openai")
    from openai.types.responses import ResponseInputParam
    from pydantic import TypeAdapter

    sentence = Text(text="x", metadata={"openai": {"itemId": "msg_1"}})
    step = Assistant(content=(*thoughts(), sentence, ToolUse(id="c", name="read", input={})))
    results = ToolResults(content=(ToolUseResult(id="c", name="read", output=(Text(text="a"), PNG)),))
    turns = (System(text="s"), User(content=(Text(text="hi"), PNG, PDF)), step, results)
    types = TypeAdapter[Any](ResponseInputParam)
    types.validate_python(items(*turns, store=True))
    # The one liberty taken: reasoning goes back without its id, which OpenAI would look for in its store.
    types.validate_python([entry for entry in items(*turns) if entry.get("type") != "reasoning"])
