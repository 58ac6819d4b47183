from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from opensesh.engine import context_window
from opensesh.engine.compaction_undo import undo_compaction
from opensesh.engine.context_window import estimate
from opensesh.engine.engine import Engine
from opensesh.engine.opening import open_engine
from opensesh.engine.settings import Settings
from opensesh.engine.summary_text import split_transcript, transcript, user_prompts_verbatim
from opensesh.models.request import Request
from opensesh.models.stream_events import FinishStep, StartStep, StreamEvent, TextDelta, TextEnd, TextStart, Usage
from opensesh.retry import RetryPolicy
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.memory import Memory
from opensesh.storage.protocol import StoredMessage
from opensesh.testing.scripted import ScriptedModel
from opensesh.tools.tool import ToolOutput

from .harness import Acting, Playing, WriteLog, open_harness

FULL = 'CALL bash {"command":"seq 1 800","description":"count"}\nUSAGE input=199000 output=10'


def message(number: int, role: str = "user", text: str = "x", **more: Any) -> StoredMessage:
    info = {"id": f"msg_{number}", "sessionID": "ses_1", "role": role, "time": {"created": number}}
    part = {"id": f"prt_{number}", "sessionID": "ses_1", "messageID": f"msg_{number}", "type": "text", "text": text}
    return StoredMessage(info | more, [part])


def request(number: int, **more: Any) -> StoredMessage:
    base = message(number)
    return StoredMessage(base.info, [{"id": f"prt_{number}", "type": "compaction", "auto": False} | more])


def summary(number: int, of: int, **more: Any) -> StoredMessage:
    return message(number, "assistant", "sum", parentID=f"msg_{of}", summary=True, finish="stop", **more)


def names(messages: list[StoredMessage]) -> list[int]:
    return [int(item.info["id"].removeprefix("msg_")) for item in messages]


def output(number: int, size: int, **time: Any) -> StoredMessage:
    base = message(number, "assistant")
    state: dict[str, Any] = {"status": "completed", "input": {}, "output": "x" * size, "title": "", "metadata": {}}
    tool = {"id": f"prt_{number}", "type": "tool", "tool": "bash", "messageID": base.info["id"], "sessionID": "ses_1"}
    return StoredMessage(base.info, [tool | {"state": state | {"time": {"start": 1, "end": 2} | time}}])


class Play:
    def __init__(self, *turns: str) -> None:
        self.model = ScriptedModel("\n---\n".join(turns))
        self.engine: Engine = open_engine(
            ".",
            store=Memory(),
            scripts={"x": self.model},
            settings=Settings(retry=RetryPolicy(initial_delay_ms=1, max_delay_ms=1)),
        )

    async def __aenter__(self) -> Play:
        await self.engine.__aenter__()
        self.session = (await self.engine.create(title="t")).id
        return self

    async def __aexit__(self, *problem: Any) -> None:
        await self.engine.__aexit__(None, None, None)

    async def prompt(self, text: str) -> Any:
        return await self.engine.run(self.session, text, model="scripted/x")

    def outline(self) -> list[str]:
        result: list[str] = []
        for stored in self.engine.sessions.messages(self.session):
            kinds = "+".join(part["type"] for part in stored.parts)
            result.append(f"{stored.info['role']} {'!' if 'error' in stored.info else ''}{kinds}")
        return result


def test_the_view_begins_at_the_newest_compaction_that_has_its_summary() -> None:
    messages = [message(1), message(2, "assistant"), request(3), summary(4, 3), message(5), request(6)]
    assert names(context_window.visible(messages)) == [3, 4, 5, 6]
    assert names(context_window.visible([*messages, summary(7, 6)])) == [6, 7]


def test_a_summary_that_failed_cuts_nothing() -> None:
    messages = [message(1), request(2), summary(3, 2, error={"name": "UnknownError", "data": {}}), message(4)]
    assert names(context_window.visible(messages)) == [1, 2, 3, 4]


def test_the_tail_stays_in_view_behind_the_summary() -> None:
    messages = [
        message(1),
        message(2, "assistant"),
        message(3),
        request(4, tail_start_id="msg_3"),
        summary(5, 4),
        message(6),
    ]
    assert names(context_window.visible(messages)) == [4, 5, 3, 6]


def test_an_earlier_summary_is_not_kept_word_for_word_behind_the_next() -> None:
    messages = [
        message(1),
        message(2),
        request(3, tail_start_id="msg_2"),
        summary(4, 3),
        message(5),
        request(6, tail_start_id="msg_2"),
        summary(7, 6),
    ]
    assert names(context_window.visible(messages)) == [6, 7, 2, 5]


def test_old_outputs_are_pruned_only_when_it_is_worth_it_and_come_back() -> None:
    store = Memory()
    big = [message(1), output(2, 100_000), output(3, 100_000), message(4), output(5, 100_000), message(6), output(7, 4)]
    assert [part["id"] for part in context_window.prunable(big)] == ["prt_2"]
    few = [message(1), output(2, 1_000), message(4), output(5, 1_000), message(6)]
    assert context_window.prunable(few) == []
    from opensesh.project import ProjectLocation
    from opensesh.sessions import Sessions

    sessions = Sessions(store, ProjectLocation("/x", "global", "/", "/", None))
    huge = [message(1), output(2, 200_000), output(3, 200_000), message(4), message(5)]
    for item in huge:
        sessions.update_message(item.info)
        for part in item.parts:
            sessions.update_part(part)
    assert context_window.prune(sessions, huge) == 2
    pruned = sessions.messages("ses_1")
    assert [bool(item.parts[0]["state"]["time"].get("compacted")) for item in pruned[1:3]] == [True, True]
    assert len(pruned[1].parts[0]["state"]["output"]) == 200_000
    assert context_window.prunable(pruned) == []


def test_the_newest_forty_thousand_tokens_and_two_turns_are_never_pruned() -> None:
    inside = [message(1), output(2, 150_000), message(3), message(4), output(5, 900_000)]
    assert context_window.prunable(inside) == []


def test_a_transcript_goes_into_pieces_that_fit() -> None:
    lines = transcript([message(number, text="word " * 100) for number in range(20)])
    cut = split_transcript(lines, 400)
    assert all(estimate(piece) <= 410 for piece in cut)
    assert "".join(cut).count("word") == 2_000
    assert split_transcript(["y" * 10_000], 100) == ["y" * 400]


def test_the_users_own_words_are_kept_to_the_letter() -> None:
    sentence = user_prompts_verbatim([message(1, text="Never touch the API!"), message(2, text="And\nno tabs.")])
    assert sentence == "> Never touch the API!\n\n> And\n> no tabs."


async def test_a_full_window_is_compacted_and_the_turn_continues() -> None:
    async with Play(FULL, "SAY what we did", "SAY finished") as play:
        outcome = await play.prompt("Count, but never past 800.")
        assert outcome.kind == "answered"
        assert play.outline() == [
            "user text",
            "assistant step-start+tool+step-finish",
            "user compaction",
            "assistant step-start+text+step-finish",
            "user text",
            "assistant step-start+text+step-finish",
        ]
        summed = play.engine.sessions.messages(play.session)[3]
        assert summed.info["summary"] is True
        assert "> Count, but never past 800." in summed.parts[1]["text"]
        play.model.assert_complete()
        assert "seq 1 800" not in play.model.model_text(2)
        assert play.model.tools_offered(1) == ()


async def test_an_overflow_error_on_the_first_request_leads_to_a_summary_and_a_new_try() -> None:
    async with Play("ERROR overflow", "SAY short", "SAY done") as play:
        assert (await play.prompt("Do it")).kind == "answered"
        assert "Do it" in play.model.model_text(2)


async def test_a_summary_that_is_empty_three_times_ends_with_a_reason_and_changes_nothing() -> None:
    async with Play(FULL, "THINK hm", "THINK hm", "THINK hm") as play:
        outcome = await play.prompt("Count")
        assert outcome.kind == "failed"
        assert "it was empty, 3 times in a row" in outcome.description
        stored = play.engine.sessions.messages(play.session)
        assert names_of(context_window.visible(stored)) == names_of(stored)


async def test_a_summary_longer_than_what_it_stands_for_does_not_count() -> None:
    long = "SAY " + "very long " * 900
    async with Play("SAY hello\nUSAGE input=199000", long, "SAY brief", "SAY ok") as play:
        assert (await play.prompt("Hi")).kind == "answered"
        assert (await play.prompt("Again")).kind == "answered"
        assert "tokens long" in play.model.model_text(2)


async def test_compacting_in_vain_stops_and_says_what_fills_the_window() -> None:
    turns = ["ERROR overflow", "SAY s", "ERROR overflow", "SAY s", "ERROR overflow"]
    async with Play(*turns) as play:
        outcome = await play.prompt("Hi")
        assert outcome.kind == "failed"
        assert "even after it was compacted" in outcome.description
        assert "the tools on offer about" in outcome.description


async def test_compacting_by_hand_can_be_taken_back_exactly() -> None:
    async with Play("SAY one", "SAY two", "SAY the summary", "SAY three") as play:
        await play.prompt("first")
        await play.prompt("second")
        before = context_window.visible(play.engine.sessions.messages(play.session))
        outcome = await (await play.engine.compact(play.session))
        assert outcome.kind == "answered"
        assert len(context_window.visible(play.engine.sessions.messages(play.session))) == 2
        assert undo_compaction(play.engine.sessions, play.session)
        assert context_window.visible(play.engine.sessions.messages(play.session)) == before
        assert not undo_compaction(play.engine.sessions, play.session)


def names_of(messages: Any) -> list[str]:
    return [item.info["id"] for item in messages]


def switched_off(how: str, setting: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    if how == "flag":
        monkeypatch.setenv({"auto": "OPENCODE_DISABLE_AUTOCOMPACT", "prune": "OPENCODE_DISABLE_PRUNE"}[setting], "1")
        return {}
    return {"compaction": {setting: False}} if how == "config" else {}


@pytest.mark.parametrize(("how", "compacted"), [("nothing", 1), ("flag", 0), ("config", 0)])
async def test_a_flag_or_a_setting_turns_automatic_compaction_off(
    how: str, compacted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = switched_off(how, "auto", monkeypatch)
    turns = ["SAY one\nUSAGE input=199000 output=10", *(["SAY in short"] if compacted else []), "SAY two"]
    async with open_harness("\n---\n".join(turns), config=config) as harness:
        await harness.ask("first")
        assert (await harness.ask("second")).kind == "answered"
        assert len(harness.parts("compaction")) == compacted
        harness.model.assert_complete()


async def test_what_is_not_done_by_itself_can_still_be_asked_for() -> None:
    async with open_harness("SAY one\n---\nSAY in short", config={"compaction": {"auto": False}}) as harness:
        await harness.ask("first")
        assert (await (await harness.engine.compact(harness.session))).kind == "answered"


@pytest.mark.parametrize(("how", "pruned"), [("nothing", 3), ("flag", 0), ("config", 0)])
async def test_a_flag_or_a_setting_turns_pruning_off(how: str, pruned: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def much(arguments: dict[str, Any], ctx: Any) -> ToolOutput:
        return ToolOutput("much", "x" * 80_000, {"truncated": False})

    config = switched_off(how, "prune", monkeypatch)
    calls = "\n".join(f'CALL much {{"n":{number}}}' for number in range(5))
    turns = [calls, "SAY one", "SAY two", "SAY three"]
    async with open_harness("\n---\n".join(turns), config=config, tools=[Acting("much", much)]) as harness:
        for words in ("first", "second", "third"):
            await harness.ask(words)
        marks = [part for part in harness.parts("tool") if "compacted" in part["state"]["time"]]
        assert len(marks) == pruned


@pytest.mark.parametrize(("provider", "why"), [("nobody", "there is no provider 'nobody'"), ("scripted", "the script")])
async def test_a_model_that_is_gone_is_the_answer_to_the_wish_to_sum_up(
    provider: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_harness("SAY one") as harness:
        await harness.ask("first")
        prompt = harness.messages()[0].info
        harness.engine.sessions.update_message(prompt | {"model": {"providerID": provider, "modelID": "gone"}})
        outcome = await (await harness.engine.compact(harness.session))
        assert outcome.kind == "failed"
        assert why in outcome.description
        harness.assert_sound()
        assert not [record for record in caplog.records if record.exc_info], "it is no fault of ours"


async def test_a_summary_that_the_provider_ends_leaves_no_connection_open() -> None:
    text = [StartStep(), TextStart("t"), TextDelta("t", "one"), TextEnd("t"), FinishStep(reason="stop")]
    playing = Playing(text, [StartStep(), FinishStep(reason="content-filter")])
    async with open_harness(playing) as harness:
        await harness.ask("first")
        outcome = await (await harness.engine.compact(harness.session))
        assert (outcome.kind, "content-filter" in outcome.description) == ("failed", True)
        assert playing.closed_in_place == 2


async def test_the_wish_to_sum_up_is_on_disk_before_the_message_that_holds_it() -> None:
    store = WriteLog()
    async with open_harness("SAY one\n---\nSAY in short", store=store) as harness:
        await harness.ask("first")
        await (await harness.engine.compact(harness.session))
        (wish,) = harness.parts("compaction")
        keys = [key for key, _ in store.written if wish["messageID"] in key]
        assert keys == [("part", wish["messageID"], wish["id"]), ("message", harness.session, wish["messageID"])]


class Held(Playing):
    """Waits in the middle of its second answer."""

    def __init__(self, *calls: list[Any]) -> None:
        super().__init__(*calls)
        self.go_on = asyncio.Event()

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        if len(self.requests) == 1:
            await self.go_on.wait()
        async for event in super().stream(request):
            yield event


def said(text: str, **usage: int) -> list[Any]:
    ending = FinishStep(reason="stop", usage=Usage(**usage))
    return [StartStep(), TextStart("t"), TextDelta("t", text), TextEnd("t"), ending]


class HeldHistory(Memory):
    """Gives engines the history of a session that is being compacted only when ``go_on`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()

    def messages(self, session_id: str, **options: Any) -> Sequence[StoredMessage]:
        messages = super().messages(session_id, **options)
        is_compacted = any(part["type"] == "compaction" for message in messages for part in message.parts)
        if not is_compacted or threading.current_thread() is threading.main_thread():
            return messages
        assert self.go_on.wait(60)
        return super().messages(session_id, **options)


async def test_a_prompt_that_comes_before_the_history_is_read_for_a_summary_is_sent_once() -> None:
    model, store = Playing(said("one", input=199_000), said("summary", input=9), said("two", input=9)), HeldHistory()
    async with open_harness(model, store=store) as harness:
        await harness.ask("First.")
        outcome = await harness.submit("Second.")
        await harness.until(lambda: harness.parts("compaction"))
        joined = await harness.submit("Third.")
        store.go_on.set()
        assert (await outcome).kind == (await joined).kind == "answered"
        assert ["Third." in str(request.messages) for request in model.requests] == [False, False, True]
        assert str(model.requests[-1].messages[1:]).count("Third.") == 1


async def test_a_prompt_that_comes_while_a_session_is_compacted_is_sent_once() -> None:
    model = Held(said("one", input=199_000), said("summary", input=9), said("two", input=9))
    async with open_harness(model) as harness:
        await harness.ask("First.")
        outcome = await harness.submit("Second.")
        await harness.until(lambda: harness.parts("compaction"))
        joined = await harness.submit("Third.")
        model.go_on.set()
        assert (await outcome).kind == "answered"
        assert await joined is await outcome
        assert str(model.requests[-1].messages[1:]).count("Third.") == 1
        harness.assert_sound()
        assert await harness.engine.resume(harness.session) is None


async def test_every_error_in_a_summary_ends_it() -> None:
    model = Playing(said("one"), [StartStep(), RuntimeError("a defect")])
    async with open_harness(model) as harness:
        await harness.ask("First.")
        outcome = await (await harness.engine.compact(harness.session))
        assert outcome.kind == "failed"
        assert outcome.description == "RuntimeError: a defect"
        assert [answer.info.get("summary") for answer in harness.answers()] == [None, True]
        harness.assert_sound()


async def test_todos_that_cannot_be_read_cost_only_themselves(tmp_path: Path) -> None:
    store = JsonTree(tmp_path / "storage", durability="relaxed")
    async with open_harness("SAY one\n---\nSAY the summary", store=store) as harness:
        await harness.ask("First.")
        harness.engine.sessions.set_todos(harness.session, [])
        Path(store.locate(("todo", harness.session))).write_bytes(b"")
        assert (await (await harness.engine.compact(harness.session))).kind == "answered"
