from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opensesh.engine.projection import INTERRUPTED, MASKED, PRUNED, Projection, mark_cache_points, model_messages
from opensesh.models import (
    anthropic_request,
    bedrock_request,
    google_request,
    openai_chat_request,
    openai_responses_request,
)
from opensesh.models.model import Model
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
from opensesh.storage.protocol import StoredMessage

from . import wire_rules
from .histories import CLAUDE, PNG, answer, called, histories, model, say, user

READ = ToolSpec(name="read", description="Read.", parameters={"type": "object", "properties": {}})


WIRES: list[tuple[Model, Callable[[Request], dict[str, Any]], Callable[[dict[str, Any]], None]]] = [
    (CLAUDE, anthropic_request.request_body, wire_rules.anthropic),
    (
        model("anthropic", "claude-haiku-4", "@ai-sdk/anthropic", frozenset(("text",))),
        anthropic_request.request_body,
        wire_rules.anthropic,
    ),
    (model("openai", "gpt-5", "@ai-sdk/openai"), openai_responses_request.request_body, wire_rules.responses),
    (model("local", "qwen3", "@ai-sdk/openai-compatible"), openai_chat_request.request_body, wire_rules.chat),
    (
        model("openrouter", "claude-x", "@openrouter/ai-sdk-provider"),
        openai_chat_request.request_body,
        wire_rules.sent,
    ),
    (
        model("mistral", "devstral", "@ai-sdk/mistral"),
        openai_chat_request.request_body,
        lambda body: wire_rules.chat(body, mistral=True),
    ),
    (model("google", "gemini-2.5-pro", "@ai-sdk/google"), google_request.request_body, wire_rules.gemini),
    (model("google", "gemini-3-pro", "@ai-sdk/google"), google_request.request_body, wire_rules.gemini),
    (
        model("amazon-bedrock", "anthropic.claude-5", "@ai-sdk/amazon-bedrock"),
        bedrock_request.request_body,
        wire_rules.bedrock,
    ),
]


def request_for(target: Model, history: list[StoredMessage], masked: frozenset[str] = frozenset()) -> Request:
    turns = (System(text="Be brief."), *Projection(target, history, masked).conversation())
    return Request(model=target, messages=mark_cache_points(turns, target), tools=(READ,))


# -- any history at all ------------------------------------------------------------------------------------------------


HIDDEN = st.frozensets(st.sampled_from([f"prt_{message}_{part}" for message in range(4) for part in range(4)]))


def assert_taken_everywhere(history: list[StoredMessage], hidden: frozenset[str]) -> None:
    for target, body, rules in WIRES:
        try:
            rules(body(request_for(target, history, hidden)))
        except Exception as error:
            raise AssertionError(f"{target.ref}: {type(error).__name__}: {error}") from error


@settings(max_examples=80)
@given(history=histories(), hidden=HIDDEN)
def test_every_provider_accepts_every_history(history: list[StoredMessage], hidden: frozenset[str]) -> None:
    assert_taken_everywhere(history, hidden)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@settings(max_examples=5_000)
@given(history=histories(), hidden=HIDDEN)
def test_every_provider_accepts_what_a_long_search_generates(
    history: list[StoredMessage], hidden: frozenset[str]
) -> None:
    assert_taken_everywhere(history, hidden)


@settings(max_examples=40)
@given(history=histories(), cut=st.integers(0, 5))
def test_projecting_message_by_message_equals_projecting_all_at_once(history: list[StoredMessage], cut: int) -> None:
    for target, _, _ in WIRES[:4]:
        grown = Projection(target, history[:cut])
        before = grown.conversation()
        for message in history[cut:]:
            grown.add(message)
        assert grown.conversation() == Projection(target, history).conversation()
        assert before == Projection(target, history[:cut]).conversation()


@settings(max_examples=40)
@given(history=histories())
def test_the_history_itself_is_not_touched(history: list[StoredMessage]) -> None:
    copy = json.dumps([[message.info, message.parts] for message in history])
    request_for(CLAUDE, history)
    assert json.dumps([[message.info, message.parts] for message in history]) == copy


# -- particular cases --------------------------------------------------------------------------------------------------


def test_a_call_that_never_ended_is_sent_as_interrupted() -> None:
    for status in ("pending", "running"):
        _, result = model_messages(answer(1, called(status=status)), CLAUDE)
        assert isinstance(result, ToolResults)
        assert result.content[0].output == (Text(text=INTERRUPTED),)
        assert result.content[0].failed


def test_a_pruned_output_and_its_files_are_not_sent() -> None:
    files = [{"mime": "image/png", "url": f"data:image/png;base64,{PNG}"}]
    pruned = called(time={"start": 1, "end": 2, "compacted": 3}, attachments=files)
    _, result = model_messages(answer(1, pruned), CLAUDE)
    assert isinstance(result, ToolResults)
    assert result.content[0].output == (Text(text=PRUNED),)


def test_thought_goes_back_only_to_the_model_that_had_it() -> None:
    thought = {"type": "reasoning", "text": "hm", "metadata": {"anthropic": {"signature": "s"}}}
    proof = Reasoning(text="hm", metadata={"anthropic": {"signature": "s"}})
    assert model_messages(answer(1, thought, say("So.")), CLAUDE) == (Assistant(content=(proof, Text(text="So."))),)
    foreign = model_messages(answer(1, thought, say("So."), by="openai/gpt-5"), CLAUDE)
    assert foreign == (Assistant(content=(Text(text="So."),)),)


def test_provider_metadata_goes_back_only_to_the_model_that_sent_it() -> None:
    about = {"google": {"thoughtSignature": "s"}}
    parts = (say("So.", metadata=about), called() | {"metadata": about})
    for by, expected in (
        ("anthropic/claude-sonnet-5", about),
        ("anthropic/claude-opus", None),
        ("x/claude-sonnet-5", None),
    ):
        text, result = model_messages(answer(1, *parts, by=by), CLAUDE)
        assert isinstance(text, Assistant)
        assert isinstance(result, ToolResults)
        assert [piece.metadata for piece in (*text.content, *result.content)] == [expected] * 3


def test_the_results_of_a_step_come_before_the_next_text_of_the_model() -> None:
    step = {"type": "step-start"}
    parts = (step, say("a"), called("x"), step, say(" "), say("b"), called("y"), called("z"))
    turns: tuple[Any, ...] = model_messages(answer(1, *parts), CLAUDE)
    assert [[getattr(piece, "text", getattr(piece, "id", "")) for piece in turn.content] for turn in turns] == [
        ["a", "x"], ["x"], ["b", "y", "z"], ["y", "z"],
    ]  # fmt: skip
    assert [type(turn).__name__ for turn in turns] == ["Assistant", "ToolResults"] * 2


def test_thought_is_sent_with_its_words_or_its_signature_and_not_without_both() -> None:
    secret = {"anthropic": {"redactedData": "xx"}}
    thoughts: list[dict[str, Any]] = [{"text": "hm"}, {"text": "", "metadata": secret}, {"text": " "}]
    (turn,) = model_messages(answer(1, *({"type": "reasoning"} | thought for thought in thoughts), say("So.")), CLAUDE)
    assert turn == Assistant(content=(Reasoning(text="hm"), Reasoning(text="", metadata=secret), Text(text="So.")))


def test_thought_that_nothing_follows_is_left_out() -> None:
    thought = {"type": "reasoning", "text": "hm", "metadata": {"anthropic": {"signature": "s"}}}
    output = (Assistant(content=(Text(text="So."),)),)
    assert model_messages(answer(1, say("So."), thought, thought), CLAUDE) == output
    assert model_messages(answer(1, thought), CLAUDE) == ()


def test_half_characters_are_mended_wherever_they_are() -> None:
    half = "a\ud800"
    odd = called(input={half: [{"b": half}]}, output=half) | {"metadata": {"anthropic": {half: half}}}
    parts = (odd, say(half, metadata={"x": half}), {"type": "file", "mime": "image/bmp", "url": half, "filename": half})
    for message in (answer(1, *parts), user(1, *parts)):
        for target, body, _ in WIRES:
            wire_rules.sent(body(request_for(target, [message])))
    (first, *_) = model_messages(answer(1, *parts), CLAUDE)
    assert isinstance(first, Assistant)
    assert isinstance(first.content[0], ToolUse)
    assert first.content[0].input == {"a\ufffd": [{"b": "a\ufffd"}]}


def test_a_failed_answer_is_left_out_and_an_aborted_one_stays_if_it_has_text() -> None:
    aborted = {"name": "MessageAbortedError", "data": {"message": ""}}
    failed = {"name": "APIError", "data": {"message": "no"}}
    assert model_messages(answer(1, say("half"), error=failed), CLAUDE) == ()
    assert model_messages(answer(1, say("half"), error={"name": "APIError", "data": {"message": 7}}), CLAUDE) == ()
    without_text = answer(1, {"type": "step-start"}, {"type": "reasoning", "text": "hm"}, error=aborted)
    assert model_messages(without_text, CLAUDE) == ()
    assert model_messages(answer(1, say("half"), error=aborted), CLAUDE) == (Assistant(content=(Text(text="half"),)),)


@pytest.mark.parametrize(
    ("arguments", "part", "sent"),
    [
        ("call_1-A", "prt_1", "call_1-A"),
        ("a.b:c", "prt_1", "a_b_c"),
        ("x" * 39 + ".y", "prt_1", "x" * 39 + "_"),
        ("", "prt_1", "prt_1"),
        ("", "", "call"),
    ],
)
def test_a_call_keeps_its_id_as_far_as_every_provider_takes_it(arguments: str, part: str, sent: str) -> None:
    text, result = model_messages(answer(1, called(arguments) | {"id": part}), CLAUDE)
    assert isinstance(text, Assistant)
    assert isinstance(result, ToolResults)
    assert [piece.id for piece in (*text.content, *result.content) if isinstance(piece, (ToolUse, ToolUseResult))] == [
        sent
    ] * 2


@pytest.mark.parametrize(
    ("tool", "sent"),
    [
        ("read", "read"),
        ("_my-tool2", "_my-tool2"),
        ("mcp.server/tool", "mcp_server_tool"),
        ("9lives", "_9lives"),
        ("-x", "_-x"),
        ("t" * 80, "t" * 64),
        ("", "invalid"),
    ],
)
def test_a_tool_keeps_its_name_as_far_as_every_provider_takes_it(tool: str, sent: str) -> None:
    text, result = model_messages(answer(1, called(tool=tool)), CLAUDE)
    assert isinstance(text, Assistant)
    assert isinstance(result, ToolResults)
    assert [
        piece.name for piece in (*text.content, *result.content) if isinstance(piece, (ToolUse, ToolUseResult))
    ] == [sent] * 2


def test_the_input_of_a_call_is_sent_as_it_was_given() -> None:
    arguments: dict[str, Any] = {"text": "é", "list": [1, 1.5, True, None, {"deep": [[]]}]}
    text, _ = model_messages(answer(1, called(input=arguments)), CLAUDE)
    assert text == Assistant(content=(ToolUse(id="call_1", name="read", input=arguments),))


@pytest.mark.parametrize(("error", "told"), [(" no such file\n", "no such file"), (" \n", "Error"), ("", "Error")])
def test_a_call_that_failed_says_why(error: str, told: str) -> None:
    _, result = model_messages(answer(1, called(status="error", error=error)), CLAUDE)
    assert result == ToolResults(
        content=(ToolUseResult(id="call_1", name="read", output=(Text(text=told),), failed=True),)
    )


def test_an_id_used_before_gets_a_number_and_the_others_stay() -> None:
    long = "x" * 40
    turns = turns_in(
        answer(1, called("a"), called("b"), say("and"), called(long)),
        answer(2, called("b"), say("then"), called("c"), called("a_2"), called(long)),
        answer(3, called("a"), called("a"), called("d"), {"type": "step-start"}, called("a"), called("e")),
    )
    results = [[result.id for result in turn.content] for turn in turns if isinstance(turn, ToolResults)]
    assert results == [["a", "b", long], ["b_2", "c", "a_2", "x" * 32 + "_2"], ["a_3", "a_4", "d"], ["a_5", "e"]]
    calls = [
        [piece.id for piece in turn.content if isinstance(piece, ToolUse)]
        for turn in turns
        if isinstance(turn, Assistant)
    ]
    assert calls == results
    assert [type(piece).__name__ for piece in turns[3].content] == ["ToolUse", "Text", "ToolUse", "ToolUse", "ToolUse"]


def test_ids_that_look_alike_once_they_are_spelled_for_a_provider_stay_apart() -> None:
    turns = turns_in(answer(1, called("a.b"), called("a:b"), called("a_b")), answer(2, called("a_b_2"), called("a_b")))
    text = [piece for turn in turns if isinstance(turn, Assistant) for piece in turn.content]
    names = [piece.id for piece in text if isinstance(piece, ToolUse)]
    results = [result.id for turn in turns if isinstance(turn, ToolResults) for result in turn.content]
    assert len(set(names)) == 5
    assert names == results


def turns_in(*messages: StoredMessage) -> tuple[Any, ...]:
    return Projection(CLAUDE, messages).conversation()


def test_an_answer_that_was_cut_off_and_its_continuation_are_one_turn() -> None:
    before = (user(1, say("hi")), answer(2, say("Hello.")), user(3, say("go")))
    *reported, whole, results = turns_in(*before, answer(4, say("I was")), answer(5, say(" here."), called()))
    assert tuple(reported) == turns_in(*before)
    assert [type(piece).__name__ for piece in whole.content] == ["Text", "Text", "ToolUse"]
    assert whole.content[:2] == (Text(text="I was"), Text(text=" here."))
    assert isinstance(results, ToolResults)


def test_a_part_that_cannot_be_read_hides_no_other() -> None:
    parts = (say("before"), {"type": 7}, say("after"))
    read = (Text(text="before"), Text(text="after"))
    assert model_messages(user(1, *parts), CLAUDE) == (User(content=read),)
    assert model_messages(answer(1, *parts), CLAUDE) == (Assistant(content=read),)


def test_each_turn_is_known_to_come_from_its_message() -> None:
    projection = Projection(
        CLAUDE, [answer(1, called()), user(2, say("go on")), answer(3, say("a")), answer(4, say("b"))]
    )
    assert [turn for turn, _ in projection.origins()] == list(projection.conversation())
    assert [name for _, name in projection.origins()] == ["msg_1", "msg_1", "msg_1", "msg_2", "msg_3"]


def test_what_the_user_is_shown_but_the_model_is_not_stays_with_the_user() -> None:
    assert model_messages(user(1, say("shown", ignored=True), say(" "), say("sent")), CLAUDE) == (
        User(content=(Text(text="sent"),)),
    )
    assert model_messages(user(1, say("shown", ignored=True)), CLAUDE) == ()


def test_replacement_texts_are_those_of_opencode() -> None:
    pruned = called("a", time={"start": 1, "end": 2, "compacted": 3})
    asked = user(1, {"type": "compaction", "auto": True}, {"type": "subtask"})
    image = [{"mime": "image/png", "url": f"data:image/png;base64,{PNG}", "filename": "it.png"}]
    local = model("local", "qwen3", "@ai-sdk/openai-compatible")
    turns = Projection(local, [asked, answer(2, pruned, called("b", status="running"), called("c", attachments=image))])
    prompt, _, results, images = turns.conversation()
    asked_for = ("What did we do so far?", "The following tool was executed by the user")
    assert prompt == User(content=tuple(Text(text=words) for words in asked_for))
    assert isinstance(results, ToolResults)
    assert [result.output for result in results.content] == [
        (Text(text="[Old tool result content cleared]"),),
        (Text(text="[Tool execution was interrupted]"),),
        (Text(text="ok"),),
    ]
    assert [result.failed for result in results.content] == [False, True, False]
    attached = File(mime="image/png", url=f"data:image/png;base64,{PNG}")
    assert images == User(content=(Text(text="Attached image(s) from tool result:"), attached))


def test_a_history_that_begins_with_an_answer_gets_an_opening() -> None:
    opening = User(content=(Text(text="(The beginning of this conversation is not available.)"),))
    assert turns_in(answer(1, say("Well."))) == (opening, Assistant(content=(Text(text="Well."),)))
    assert turns_in() == (opening,)
    asked = user(1, say("hi"))
    assert turns_in(asked, answer(2, say("Well."))) == (
        *model_messages(asked, CLAUDE),
        Assistant(content=(Text(text="Well."),)),
    )


def test_prompts_sent_while_the_model_works_are_marked() -> None:
    (turn,) = model_messages(user(1, say("stop that", metadata={"opensesh": {"steering": True}})), CLAUDE)
    assert isinstance(turn, User)
    assert isinstance(turn.content[0], Text)
    assert turn.content[0].text.startswith("<system-reminder>")
    assert "\nstop that\n" in turn.content[0].text
    assert turn.content[0].text.endswith("\n</system-reminder>")


def test_prompts_sent_between_answers_are_sent_unchanged() -> None:
    others: list[dict[str, Any]] = [{"opensesh": {"steering": False}}, {"opensesh": {}}, {"opensesh": "odd"}, {}]
    for about in others:
        assert model_messages(user(1, say("hi", metadata=about)), CLAUDE) == (User(content=(Text(text="hi"),)),)


def test_masked_parts_are_replaced_by_a_word_about_them() -> None:
    (turn,) = model_messages(
        user(1, say("look"), {"type": "file", "mime": "image/png", "url": "x"}), CLAUDE, {"prt_1_1"}
    )
    assert isinstance(turn, User)
    assert turn.content == (Text(text=MASKED), Text(text="look"))


def test_cache_points_lie_at_the_system_prompt_and_the_last_two_turns_and_only_for_who_wants_them() -> None:
    turns = (System(text="s"), *turns_in(user(1, say("a")), answer(2, say("b")), user(3, say("c"))))
    marked = mark_cache_points(turns, CLAUDE)
    assert [turn.cache for turn in marked] == [True, False, True, True]
    assert not any(turn.cache for turn in mark_cache_points(turns, WIRES[3][0]))


@pytest.mark.parametrize(
    "target",
    [
        model("anthropic", "opus", "x"),
        model("router", "Claude-9", "x"),
        model("router", "opus", "@ai-sdk/anthropic"),
        msgspec.structs.replace(model("router", "mine", "x"), api_id="eu.claude"),
    ],
)
def test_a_model_that_wants_cache_points_is_known_by_any_of_its_names(target: Model) -> None:
    systems = tuple(System(text=word) for word in "abc")
    assert [turn.cache for turn in mark_cache_points(systems, target)] == [True, True, False]
    asked = User(content=(Text(text="hi"),))
    assert [turn.cache for turn in mark_cache_points((*systems[:1], asked), target)] == [True, True]
    assert [turn.cache for turn in mark_cache_points((asked,), target)] == [True]
    assert mark_cache_points((), target) == ()
