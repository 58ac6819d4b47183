from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from opensesh.errors import (
    AuthFailedError,
    ContentFilteredError,
    ContextExceededError,
    ModelConnectionError,
    ModelError,
    OverloadedError,
    RateLimitedError,
)
from opensesh.models.model import Model
from opensesh.models.openai_chat_request import request_body
from opensesh.models.request import (
    Assistant,
    File,
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
from opensesh.models.request import ModelMessage as Message
from opensesh.models.stream_events import (
    FinishStep,
    StartStep,
    StreamEvent,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    ToolInputDelta,
    ToolInputStart,
    Usage,
)
from opensesh.testing.scripted import (
    SUMMARY,
    TITLE,
    Fail,
    Script,
    ScriptedModel,
    ScriptExhaustedError,
    UnmetExpectationError,
    prompt_usage,
    script,
)

if TYPE_CHECKING:
    from pathlib import Path

MODEL = Model(id="scripted", provider_id="test")
READ = ToolSpec(name="read", description="Read a file.", parameters={"type": "object"})


def said(text: str) -> User:
    return User(content=(Text(text=text),))


def request(*messages: Message | str, tools: tuple[ToolSpec, ...] = (READ,)) -> Request:
    made = tuple(said(message) if isinstance(message, str) else message for message in messages)
    return Request(model=MODEL, messages=made or (said("hi"),), tools=tools)


TITLE_REQUEST = request(System(text="You write a title for a conversation."), "hi", tools=())


async def play(model: ScriptedModel, asked: Request | None = None) -> list[StreamEvent]:
    return [event async for event in model.stream(asked or request())]


async def text_of(model: ScriptedModel, asked: Request | None = None) -> str:
    return "".join(
        event.text for event in await play(model, asked) if isinstance(event, TextDelta) and event.kind == "text"
    )


async def read_into(events: list[StreamEvent], model: ScriptedModel, asked: Request | None = None) -> None:
    stream = model.stream(asked or request())
    while event := await anext(stream, None):
        events.append(event)


async def error_of(model: ScriptedModel, asked: Request | None = None) -> tuple[list[StreamEvent], ModelError]:
    events: list[StreamEvent] = []
    with pytest.raises(ModelError) as caught:
        await read_into(events, model, asked)
    return events, caught.value


def finish(events: list[StreamEvent]) -> FinishStep:
    return next(event for event in events if isinstance(event, FinishStep))


async def test_a_turn_is_streamed_in_the_order_of_the_vocabulary() -> None:
    model = ScriptedModel("""
THINK hm
META {"anthropic": {"signature": "s"}}
SAY I read.
CALL read {"filePath": "a"}
META {"google": {"thoughtSignature": "t"}}
SAY Really.
USAGE input=9 output=4 reasoning=1
""")
    usage = Usage(input=9, output=4, reasoning=1)
    assert await play(model) == [
        StartStep(),
        TextStart(id="reasoning-0", kind="reasoning"),
        TextDelta(id="reasoning-0", text="hm", kind="reasoning"),
        TextEnd(id="reasoning-0", metadata={"anthropic": {"signature": "s"}}, kind="reasoning"),
        TextStart(id="text-1"),
        TextDelta(id="text-1", text="I read."),
        TextEnd(id="text-1"),
        ToolInputStart(id="call_1_0", name="read"),
        ToolInputDelta(id="call_1_0", text='{"filePath":"a"}'),
        ToolCall(
            id="call_1_0",
            name="read",
            input={"filePath": "a"},
            raw='{"filePath":"a"}',
            metadata={"google": {"thoughtSignature": "t"}},
        ),
        TextStart(id="text-2"),
        TextDelta(id="text-2", text="Really."),
        TextEnd(id="text-2"),
        FinishStep(reason="tool-calls", usage=usage),
    ]


async def test_text_in_several_steps_is_one_piece() -> None:
    events = await play(ScriptedModel(script(["Hel", "lo"])))
    assert [type(event).__name__ for event in events[1:5]] == ["TextStart", "TextDelta", "TextDelta", "TextEnd"]


async def test_deltas_are_split_by_size_or_by_word() -> None:
    model = ScriptedModel(
        'SPLIT 4\nSAY abcdefghij\nCALL read {"a":1}\nSPLIT word\nTHINK two  words\nCALL read {"b": "c d"}'
    )
    events = await play(model)
    texts = [event.text for event in events if isinstance(event, TextDelta | ToolInputDelta)]
    assert texts == ["abcd", "efgh", "ij", '{"a"', ":1}", "two  ", "words", '{"b":"c d"}']


async def test_broken_arguments_are_reported_with_the_call() -> None:
    model = ScriptedModel('CALL read\n  {"a\n  bc\n---\nCALL read\n  [1]')
    broken = next(event for event in await play(model) if isinstance(event, ToolCall))
    assert (broken.input, broken.raw) == ({}, '{"abc')
    assert broken.problem is not None
    listed = next(event for event in await play(model) if isinstance(event, ToolCall))
    assert listed.problem == "The arguments are JSON, but not an object"


async def test_an_answer_may_be_empty_and_say_why_it_ended() -> None:
    events = await play(ScriptedModel("FINISH length"))
    assert [type(event).__name__ for event in events] == ["StartStep", "FinishStep"]
    assert finish(events).reason == "length"


async def test_default_usage_is_the_same_for_every_call() -> None:
    model = ScriptedModel("SAY a\n---\nSAY b")
    assert finish(await play(model)).usage == prompt_usage(1000)
    counted = ScriptedModel("SAY a", usage=lambda asked: Usage(input=len(asked.messages)))
    assert finish(await play(counted, request("one", "two"))).usage == Usage(input=2)


@pytest.mark.parametrize(
    ("step", "kind", "status", "retryable"),
    [
        ("ERROR auth", AuthFailedError, 401, False),
        ("ERROR overflow", ContextExceededError, 400, False),
        ("ERROR rate-limit", RateLimitedError, 429, True),
        ("ERROR overloaded", OverloadedError, 529, True),
        ("ERROR overloaded status=503", OverloadedError, 503, True),
        ("ERROR content-filter", ContentFilteredError, 400, False),
        ("ERROR 400", ModelError, 400, False),
        ("ERROR 500", ModelError, 500, True),
        ("ERROR reset", ModelConnectionError, None, True),
        ("ERROR malformed", ModelConnectionError, None, True),
        ("ERROR torn", ModelConnectionError, None, True),
    ],
)
async def test_failures_are_those_of_the_error_tree(
    step: str, kind: type[ModelError], status: int | None, retryable: bool
) -> None:
    events, error = await error_of(ScriptedModel(step))
    assert events == []
    assert type(error) is kind
    assert error.status == status
    assert error.retryable is retryable

    events, error = await error_of(ScriptedModel(f"SAY half\n{step}"))
    assert [type(event).__name__ for event in events] == ["StartStep", "TextStart", "TextDelta"]
    assert type(error) is kind


async def test_a_failure_may_say_when_to_come_back_in_each_form() -> None:
    model = ScriptedModel(
        "ERROR rate-limit after=2\n---\nERROR rate-limit after=1.5 form=ms\n---\nERROR 503 after=60 form=date",
        clock=lambda: 1_000_000_000.0,
    )
    headers = [(await error_of(model))[1].headers for _ in range(3)]
    assert headers == [
        {"retry-after": "2"},
        {"retry-after-ms": "1500"},
        {"retry-after": "Sun, 09 Sep 2001 01:47:40 GMT"},
    ]


async def test_waiting_goes_through_the_sleep_that_was_passed_in() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    model = ScriptedModel("WAIT 5\nSAY a\nDRIP 0.25\nSPLIT 1\nSAY bcd", sleep=sleep)
    assert await text_of(model) == "abcd"
    assert slept == [5, 0.25, 0.25, 0.25]


async def test_a_hanging_answer_ends_when_its_reader_gives_up() -> None:
    model = ScriptedModel("SAY a\nHANG\n---\nSAY b")
    events: list[StreamEvent] = []
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(read_into(events, model), 0.05)
    assert isinstance(events[-1], TextDelta)
    assert await text_of(model) == "b"
    assert model.dropped == (0,)


async def test_running_out_of_script_names_the_call_and_shows_the_request() -> None:
    model = ScriptedModel("SAY a")
    await play(model)
    _, error = await error_of(model, request("first", "please go on"))
    assert isinstance(error, ScriptExhaustedError)
    assert error.number == 1
    assert not error.retryable
    assert "call 1: no turn of the script is left; it has 1 turn" in error.message
    assert "[user] please go on" in error.message
    with pytest.raises(AssertionError, match="call 1"):
        model.assert_complete()


async def test_leftover_turns_are_shown() -> None:
    model = ScriptedModel("SAY a\n---\nSAY b\n---\nTITLE c")
    await play(model)
    with pytest.raises(AssertionError, match=r"after 1 calls, 2 turns were not used:\nSAY b\n---\nTITLE c"):
        model.assert_complete()
    await play(model)
    await play(model, TITLE_REQUEST)
    model.assert_complete()


async def test_expectations_look_at_the_request() -> None:
    expecting = "EXPECT last two\nEXPECT system be brief\nEXPECT tools read\nSAY ok"
    brief = System(text="Please be brief.")
    model = ScriptedModel(f"{expecting}\n---\n{expecting}\n---\n{expecting}\n---\n{expecting}")
    assert await text_of(model, request(brief, "one", "two")) == "ok"
    for asked in (request(brief, "one"), request("two"), request(brief, "two", tools=())):
        events, error = await error_of(model, asked)
        assert isinstance(error, UnmetExpectationError)
        assert events == []
    with pytest.raises(AssertionError, match="call 1: the script expects last 'two'"):
        model.assert_complete()


async def test_titles_are_answered_apart() -> None:
    model = ScriptedModel("SAY a\n---\nTITLE One\n---\nTITLE Two\n---\nSAY b")
    assert await text_of(model, TITLE_REQUEST) == "One"
    assert await text_of(model) == "a"
    assert await text_of(model) == "b"
    assert [await text_of(model, TITLE_REQUEST) for _ in range(2)] == ["Two", "Two"]
    assert [len(model.calls), len(model.title_calls)] == [2, 3]
    model.assert_complete()


async def test_a_title_without_a_script_has_a_default() -> None:
    model = ScriptedModel("TITLE One\nERROR overloaded")
    events, error = await error_of(model, TITLE_REQUEST)
    assert isinstance(error, OverloadedError)
    assert events
    assert await text_of(model, TITLE_REQUEST) == TITLE


async def test_calls_are_recorded_without_copies() -> None:
    model = ScriptedModel("SAY a\n---\nSAY b")
    history = (
        System(text="Be brief."),
        User(content=(Text(text="look"), File(mime="image/png", url="data:,", filename="p.png"))),
        Assistant(
            content=(Reasoning(text="hm"), Text(text="I read."), ToolUse(id="c", name="read", input={"path": "a"}))
        ),
        ToolResults(content=(ToolUseResult(id="c", name="read", output=(Text(text="1: x"),)),)),
    )
    first, second = request(*history), request(*history, said("go on"))
    await play(model, first)
    await play(model, second)
    assert model.calls[0].request is first
    assert model.tools_offered(0) == ("read",)
    assert model.model_text(0) == (
        '[system] Be brief.\n[user] look\n(image/png p.png)\n[assistant] hm\nI read.\nread {"path":"a"}\n[tool] 1: x'
    )


async def test_a_digest_tells_whether_the_prefix_was_kept() -> None:
    model = ScriptedModel("SAY a\n---\nSAY b\n---\nSAY c\n---\nSAY d")
    cached = User(content=(Text(text="one"),), cache=True)
    await play(model, request(System(text="s"), cached))
    await play(model, request(System(text="s"), "one", "two"))
    await play(model, request(System(text="S"), "one", "two"))
    await play(model, request(System(text="s"), "one", tools=()))
    assert model.prefix_digest(0) == model.prefix_digest(1, 2)
    assert model.prefix_digest(0) != model.prefix_digest(1)
    assert model.prefix_digest(0) != model.prefix_digest(2, 2)
    assert model.prefix_digest(0) != model.prefix_digest(3)


async def test_sessions_that_run_together_have_a_script_each() -> None:
    model = ScriptedModel("SAY main", sessions={"alpha": "SAY a1\n---\nCALL read {}", "beta": script("b1", "b2")})
    alpha, beta = request("do alpha"), request("do beta")
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(text_of(model, asked)) for asked in (beta, alpha, beta, request("else"))]
    assert [task.result() for task in tasks] == ["b1", "a1", "b2", "main"]
    call = next(event for event in await play(model, alpha) if isinstance(event, ToolCall))
    assert call.id == "call_s0_2_0"
    model.assert_complete()


async def test_the_way_to_a_script_can_be_given() -> None:
    model = ScriptedModel("SAY main", sessions={"x": "SAY other"}, route=lambda asked: asked.headers.get("session"))
    asked = Request(model=MODEL, messages=(said("hi"),), tools=(READ,), headers={"session": "x"})
    assert await text_of(model, asked) == "other"
    assert await text_of(model) == "main"


async def test_a_name_in_the_configuration_is_a_file_or_the_prompt(tmp_path: Path) -> None:
    path = tmp_path / "demo.script"
    path.write_text("SAY from a file")
    assert await text_of(ScriptedModel.named(str(path))) == "from a file"
    assert await text_of(ScriptedModel.named("prompt"), request("SAY from the prompt")) == "from the prompt "


async def test_a_prompt_is_played_step_by_step() -> None:
    model = ScriptedModel.prompted()
    prompt = said('THINK hm\nSAY I read.\nCALL read {"path":"a"}\n---\nSAY Done.')
    events = await play(model, request(prompt))
    call = next(event for event in events if isinstance(event, ToolCall))
    answered = Assistant(content=(Text(text="I read."), ToolUse(id=call.id, name="read", input=call.input)))
    result = ToolResults(content=(ToolUseResult(id=call.id, name="read", output=(Text(text="x"),)),))
    assert await text_of(model, request(prompt, answered, result)) == "Done. "
    assert await play(model, request(prompt)) == events

    _, error = await error_of(model, request(prompt, answered, result, Assistant(content=(Text(text="Done."),))))
    assert "no turn of the prompt is left; it has 2 turns" in error.message
    assert "add '---' and another turn" in error.message


async def test_a_prefilled_answer_does_not_count() -> None:
    model = ScriptedModel.prompted()
    prompt = said("CALL read {}\n---\nSAY Done.")
    answered = Assistant(content=(ToolUse(id="c", name="read", input={}),))
    result = ToolResults(content=(ToolUseResult(id="c", name="read", output=()),))
    prefill = Assistant(content=(Text(text="This was the last step."),))
    assert await text_of(model, request(prompt, answered, result, prefill)) == "Done. "


async def test_a_failure_in_a_prompt_is_over_at_the_next_attempt() -> None:
    model = ScriptedModel.prompted()
    asked = request("FAIL 429\nSAY ok")
    for _ in range(2):
        _, error = await error_of(model, asked)
        assert (error.status, error.headers) == (429, {"retry-after-ms": "500"})
        assert error.body == '{"error": {"message": "scripted failure", "type": "rate_limit_error", "code": 429}}'
        assert await text_of(model, asked) == "ok "


async def test_a_prompt_without_a_script_is_repeated() -> None:
    model = ScriptedModel.prompted()
    assert await text_of(model, request("Say hello.")) == "You said: Say hello. "
    reminded = User(content=(Text(text="Hello."), Text(text="<system-reminder>\nIt is late.\n</system-reminder>")))
    assert await text_of(model, request(reminded)) == "You said: Hello. "
    assert await text_of(model, request("Sum it up.", tools=())) == f"{SUMMARY} "
    assert await text_of(model, TITLE_REQUEST) == TITLE
    _, error = await error_of(model, request("CALL read {"))
    assert "the script in the prompt is invalid: line 1" in error.message


async def test_only_the_part_of_a_prompt_that_is_a_script_is_played() -> None:
    asked = request(User(content=(Text(text="Look:"), Text(text="SAY a"), Text(text="SAY b"))))
    assert await text_of(ScriptedModel.prompted(), asked) == "a "


def recorded_turns(messages: list[dict[str, Any]]) -> tuple[Message, ...]:
    from opensesh.testing.wire_apis import ChatCompletion

    return ChatCompletion.read({"messages": messages}).messages


def recorded_requests(corpus: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (corpus / "requests.jsonl").read_text("utf-8").splitlines()]


async def test_a_recorded_session_is_played_again_to_the_letter(corpus: Path) -> None:
    asked = [one["messages"] for one in recorded_requests(corpus)]
    replayed = 0
    for index, before in enumerate(asked):
        after = next((later for later in asked[index + 1 :] if later[: len(before)] == before != later), None)
        if after is None:
            continue
        answer = after[len(before)]
        events = await play(ScriptedModel.prompted(), request(*recorded_turns(before)))
        thought = "".join(
            event.text for event in events if isinstance(event, TextDelta) and event.kind == "reasoning"
        ).rstrip()
        text = "".join(event.text for event in events if isinstance(event, TextDelta) and event.kind == "text").rstrip()
        made = [(event.name, event.raw) for event in events if isinstance(event, ToolCall)]
        assert (thought, text) == (answer.get("reasoning_content", ""), answer["content"])
        assert made == [
            (call["function"]["name"], call["function"]["arguments"]) for call in answer.get("tool_calls", [])
        ]
        replayed += 1
    assert replayed == 6


def test_recorded_requests_keep_their_format(corpus: Path) -> None:
    for asked in recorded_requests(corpus):
        assert request_body(request(*recorded_turns(asked["messages"])))["messages"] == asked["messages"]


def recorded_totals(corpus: Path) -> list[int]:
    stored = [json.loads(path.read_text("utf-8")) for path in corpus.glob("storage/message/*/*.json")]
    answers = {
        one["time"]["created"]: one["tokens"]["total"]
        for one in stored
        if one["role"] == "assistant" and one["agent"] != "compaction" and "total" in one["tokens"]
    }
    return [answers[moment] for moment in sorted(answers)]


def test_the_usage_of_recorded_sessions_follows_the_size_of_the_request(corpus: Path) -> None:
    refused, aborted, removed, sized, reminded = {8, 10}, {11, 12}, {21}, 16, {19, 20}
    asked = recorded_requests(corpus)
    answered = [index for index in range(len(asked)) if index not in refused | aborted | removed]
    totals = dict(zip(answered, recorded_totals(corpus), strict=True))
    assert totals.pop(sized) == prompt_usage(199_000).total
    sizes = {index: len(json.dumps(asked[index]["messages"])) for index in totals if index not in reminded}
    assert any(
        all(prompt_usage((system + size) // 4).total == totals[index] for index, size in sizes.items())
        for system in range(14_000, 14_400)
    )


def test_a_script_may_be_text_or_made() -> None:
    for arguments in ("ERROR reset", script(Fail("reset")), Script.parse("ERROR reset")):
        assert ScriptedModel(arguments).is_prompted is False
    assert ScriptedModel(None).is_prompted


async def test_lone_surrogates_in_a_request_are_replaced() -> None:
    model = ScriptedModel(None)
    asked = Request(
        model=Model(id="it", provider_id="scripted"),
        messages=(System(text="half \udc00"), User(content=(Text(text="SAY hello \ud83d"),))),
    )
    output = [
        event.text async for event in model.stream(asked) if isinstance(event, TextDelta) and event.kind == "text"
    ]
    assert "".join(output).startswith("hello")
    assert len(model.prefix_digest(0)) == 64
