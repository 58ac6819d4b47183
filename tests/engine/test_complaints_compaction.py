from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from opensesh import events
from opensesh.engine import context_window
from opensesh.engine.compaction import overhead_exceeds_window
from opensesh.engine.compaction_undo import undo_compaction
from opensesh.errors import ContextExceededError
from opensesh.history.library import Library
from opensesh.models.model import Model, scripted_model
from opensesh.models.request import Request
from opensesh.models.stream_events import FinishStep, StartStep, StreamEvent, TextDelta, TextEnd, TextStart, Usage
from opensesh.records import Rule
from opensesh.testing.scripted import ScriptedModel

from .harness import EngineHarness, Playing, echo, open_harness

FULL = "USAGE input=199000 output=10"
ALLOW = [Rule(permission="*", pattern="*", action="allow")]


def compactions(harness: EngineHarness) -> int:
    return len(harness.parts("compaction"))


def error_events(harness: EngineHarness) -> list[str]:
    return [json.dumps(event.error) for event in harness.published(events.SessionError)]


def in_view(harness: EngineHarness) -> list[str]:
    return [message.info["id"] for message in context_window.visible(harness.messages())]


def answer(text: str, **usage: int) -> list[StreamEvent | BaseException]:
    finish = FinishStep(reason="stop", usage=Usage(**usage))
    return [StartStep(), TextStart("1"), TextDelta("1", text), TextEnd("1"), finish]


# T5.1: loops.


async def test_t5_1_a_window_that_is_always_full_is_compacted_once_not_with_every_prompt() -> None:
    turns = [f"SAY hi\n{FULL}", "SAY in short", *[f"SAY hi\n{FULL}"] * 8]
    async with open_harness("\n---\n".join(turns)) as harness:
        for _ in range(6):
            assert (await harness.ask("hi")).kind == "answered"
        assert compactions(harness) == 1
        assert "the tools on offer about" in error_events(harness)[0]
        assert "the system prompt about" in error_events(harness)[0]


async def test_t5_1_a_full_window_in_the_middle_of_the_work_does_not_end_it_nor_sum_it_up_again_and_again() -> None:
    call = f'CALL echo {{"n":%d}}\n{FULL}'
    turns = [call % 0, "SAY in short", *(call % number for number in range(1, 30)), "SAY done"]
    async with open_harness("\n---\n".join(turns), tools=[echo()]) as harness:
        assert (await harness.ask("Work")).kind == "answered"
        assert compactions(harness) == 1
        assert len(error_events(harness)) == 1
        harness.model.assert_complete()


async def test_t5_1_a_full_answer_that_stays_in_view_beside_the_summary_does_not_call_for_another() -> None:
    turns = ["SAY " + "early " * 3_000, f"SAY full\n{FULL}", "SAY in short", "SAY on"]
    async with open_harness("\n---\n".join(turns)) as harness:
        for words in ("first", "second", "third"):
            assert (await harness.ask(words)).kind == "answered"
        assert compactions(harness) == 1
        assert "[assistant] full" in harness.model.model_text(3)
        harness.model.assert_complete()


async def test_t5_1_what_the_last_run_found_out_the_next_one_knows() -> None:
    turns = [f"SAY a\n{FULL}", "SAY in short", f"SAY b\n{FULL}", f"SAY c\n{FULL}"]
    async with open_harness("\n---\n".join(turns)) as harness:
        await harness.ask("one")
        await harness.ask("two")
        store, session = harness.store, harness.session
    async with open_harness(f"SAY d\n{FULL}", store=store) as harness:
        await harness.ask("three", session)
        kinds = [part["type"] for message in harness.messages(session) for part in message.parts]
        assert kinds.count("compaction") == 1


async def test_t5_1_instructions_and_tools_that_fill_the_window_alone_are_named_and_nothing_is_compacted() -> None:
    Path("AGENTS.md").write_text("Mind this. " * 80_000)
    async with open_harness("ERROR overflow") as harness:
        outcome = await harness.ask("hi")
        assert outcome.kind == "failed"
        assert "instruction files about 220," in outcome.description
        assert compactions(harness) == 0


async def test_t5_1_a_model_whose_limits_are_unknown_is_never_taken_to_be_full() -> None:
    async with open_harness("SAY ok") as harness:
        unknown = Model(id="local", provider_id="mine")
        assert not context_window.is_full({"input": 10**9}, unknown, harness.engine.config)
        assert not overhead_exceeds_window(Request(model=unknown, messages=()), harness.engine.config)


async def test_t5_1_a_provider_that_will_not_be_pleased_is_asked_a_limited_number_of_times() -> None:
    turns = ["ERROR overflow", "SAY s", "ERROR overflow", "SAY s", "ERROR overflow"]
    async with open_harness("\n---\n".join(turns)) as harness:
        outcome = await harness.ask("hi")
        assert (outcome.kind, compactions(harness)) == ("failed", 2)
        assert "the tools on offer about" in outcome.description


# T5.2: cannot compact.


class Narrow:
    """A provider that takes fewer tokens than anyone knows."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.sizes: list[int] = []
        self.refused = 0

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        size = len(str(request.messages))
        if size > self.most:
            self.refused += 1
            raise ContextExceededError("too long", status=400)
        self.sizes.append(size)
        for event in answer("in short", input=1, output=1):
            assert not isinstance(event, BaseException)
            yield event
            await asyncio.sleep(0)


async def test_t5_2_a_request_for_a_summary_that_is_too_long_is_cut_smaller_until_it_fits() -> None:
    narrow = Narrow(10**9)
    async with open_harness(narrow) as harness:
        for _ in range(12):
            await harness.ask("long words " * 8_000)
        narrow.most = 120_000
        outcome = await (await harness.engine.compact(harness.session))
        assert outcome.kind == "answered"
        assert narrow.refused > 0
        assert len(in_view(harness)) == 2


async def test_t5_2_a_conversation_larger_than_the_window_is_compacted_in_pieces_that_each_fit() -> None:
    narrow = Narrow(10**9)
    async with open_harness(narrow) as harness:
        for _ in range(12):
            await harness.ask("long words " * 8_000)
        usable = context_window.usable(scripted_model("it"), harness.engine.config)
        before = len(narrow.sizes)
        await (await harness.engine.compact(harness.session))
        asked = narrow.sizes[before:]
        assert len(asked) > 1
        assert all(size / 4 < usable for size in asked)


async def test_t5_2_without_automatic_compaction_an_overflow_is_an_error_and_traps_nothing() -> None:
    async with open_harness("ERROR overflow\n---\nSAY fine", config={"compaction": {"auto": False}}) as harness:
        assert (await harness.ask("one")).kind == "failed"
        assert compactions(harness) == 0
        assert (await harness.ask("two")).kind == "answered"


async def test_t5_2_a_compaction_that_failed_does_not_stand_in_the_way_of_the_next_prompt() -> None:
    async with open_harness(f"SAY a\n{FULL}\n---\nERROR auth\n---\nSAY b\n---\nSAY c") as harness:
        await harness.ask("one")
        assert (await harness.ask("two")).kind == "failed"
        assert (await harness.ask("three")).kind == "answered"
        assert len(in_view(harness)) == len(harness.messages())


# T5.3: an empty summary is taken for a good one.


@pytest.mark.parametrize(
    "reply",
    ["THINK only thoughts", "USAGE input=5 output=0", "SAY \"  \"", "SAY half\nFINISH content-filter", "ERROR auth"],
)  # fmt: skip
async def test_t5_3_an_answer_without_a_summary_leaves_everything_in_view(reply: str) -> None:
    async with open_harness("\n---\n".join(["SAY one", *[reply] * 3, "SAY two"])) as harness:
        await harness.ask("The key is 4711.")
        before = in_view(harness)
        outcome = await (await harness.engine.compact(harness.session))
        assert outcome.kind == "failed"
        assert outcome.description
        assert in_view(harness)[: len(before)] == before


async def test_t5_3_silence_is_not_a_summary() -> None:
    playing = Playing(answer("one"), [], [], [])
    async with open_harness(playing) as harness:
        await harness.ask("The key is 4711.")
        assert (await (await harness.engine.compact(harness.session))).kind == "failed"
        assert len(in_view(harness)) == len(harness.messages())


async def test_t5_3_a_summary_as_long_as_the_conversation_is_none() -> None:
    long = "SAY " + "more and more words " * 600
    async with open_harness("\n---\n".join(["SAY one", long, long, long])) as harness:
        await harness.ask("hi")
        outcome = await (await harness.engine.compact(harness.session))
        assert "tokens long for a conversation of" in outcome.description


# T5.4: forgets.


async def compacted(harness: EngineHarness) -> str:
    await (await harness.engine.compact(harness.session))
    return [part["text"] for part in harness.messages()[-1].parts if part["type"] == "text"][-1]


async def test_t5_4_what_the_user_asked_for_is_kept_to_the_letter() -> None:
    async with open_harness("SAY ok\n---\nSAY ok\n---\nSAY in short") as harness:
        await harness.ask("NEVER touch `src/api/v1.py`, and no tabs.")
        await harness.ask("Call it frobnicate_v2, not frobnicate2.")
        summary = await compacted(harness)
        assert "> NEVER touch `src/api/v1.py`, and no tabs." in summary
        assert "> Call it frobnicate_v2, not frobnicate2." in summary


async def test_t5_4_what_is_still_to_be_done_is_in_the_summary_and_stays_a_list() -> None:
    todos = [
        {"content": "write the parser", "status": "completed", "priority": "high", "id": "1"},
        {"content": "write the tests", "status": "in_progress", "priority": "high", "id": "2"},
    ]
    async with open_harness(
        f"CALL todowrite {json.dumps({'todos': todos})}\n---\nSAY ok\n---\nSAY in short"
    ) as harness:
        await harness.ask("Go")
        summary = await compacted(harness)
        assert "- [in_progress] write the tests" in summary
        assert "write the parser" not in summary
        assert [todo["content"] for todo in harness.engine.sessions.todos(harness.session)] == [
            item["content"] for item in todos
        ]


async def test_t5_4_a_pasted_log_can_be_found_again_word_for_word() -> None:
    log = "E   AssertionError: expected 0x7f3a, found 0x7f3b at frame 1812"
    script = 'SAY ok\n---\nSAY in short\n---\nCALL recall {"query":"frame 1812"}\n---\nSAY found'
    async with open_harness(script) as harness:
        await harness.ask(f"{'noise ' * 2_000}\n{log}\n{'noise ' * 2_000}")
        await (await harness.engine.compact(harness.session))
        await harness.ask("Which frame?")
        assert log in harness.parts("tool")[0]["state"]["output"]


async def test_t5_4_what_one_summary_says_the_next_one_is_given() -> None:
    async with open_harness("SAY ok\n---\nSAY Ruled out: caching\n---\nSAY ok\n---\nSAY both") as harness:
        await harness.ask("first")
        await (await harness.engine.compact(harness.session))
        await harness.ask("second")
        await (await harness.engine.compact(harness.session))
        assert "Ruled out: caching" in harness.model.model_text(3)


async def test_t5_4_the_model_knows_that_it_reads_a_summary() -> None:
    async with open_harness("SAY ok\n---\nSAY in short\n---\nSAY on") as harness:
        await harness.ask("first")
        await (await harness.engine.compact(harness.session))
        await harness.ask("second")
        assert "What follows is a summary." in harness.model.model_text(2)


# T5.5: a one-way door.


async def test_t5_5_a_summary_can_be_taken_back_and_the_request_is_what_it_was() -> None:
    async with open_harness("SAY one\n---\nSAY in short\n---\nSAY two\n---\nSAY two") as harness:
        await harness.ask("first")
        fork = harness.engine.sessions.fork(harness.session)
        await (await harness.engine.compact(harness.session))
        assert undo_compaction(harness.engine.sessions, harness.session)
        await harness.ask("second")
        await harness.ask("second", fork.id)
        assert harness.model.model_text(2) == harness.model.model_text(3)


async def test_t5_5_what_was_compacted_is_still_stored_to_the_byte() -> None:
    async with open_harness("SAY one\n---\nSAY in short") as harness:
        await harness.ask("first")
        before = harness.messages()
        await (await harness.engine.compact(harness.session))
        assert harness.messages()[: len(before)] == before


async def test_t5_5_another_model_can_be_chosen_for_it() -> None:
    small = ScriptedModel("SAY by the other")
    config = {"agent": {"compaction": {"model": "scripted/small"}}}
    async with open_harness("SAY one", config=config, small=small) as harness:
        await harness.ask("first")
        assert (await compacted(harness)).startswith("by the other")
        assert harness.messages()[-1].info["modelID"] == "small"


async def test_t5_5_how_much_stays_word_for_word_can_be_set() -> None:
    config = {"compaction": {"tail_turns": 2}}
    turns = ["SAY " + "early " * 3_000, "SAY late", f"SAY last\n{FULL}", "SAY in short", "SAY on"]
    async with open_harness("\n---\n".join(turns), config=config) as harness:
        for words in ("first", "second", "third", "fourth"):
            await harness.ask(words)
        shown = harness.model.model_text(4)
        assert "[user] third\n[assistant] last" in shown
        assert "[user] second" not in shown
        assert "early early" not in shown


# T5.6: unbilled.


async def test_t5_6_a_summary_is_paid_for_even_if_it_is_not_used() -> None:
    costly = "USAGE input=1000000 output=0"
    turns = ["SAY one\nUSAGE input=0 output=0", *[f"THINK hm\n{costly}"] * 3, f"SAY in short\n{costly}"]
    async with open_harness("\n---\n".join(turns)) as harness:
        await harness.ask("first")
        assert (await (await harness.engine.compact(harness.session))).kind == "failed"
        assert harness.messages()[-1].info["cost"] == pytest.approx(9.0)
        assert harness.messages()[-1].info["tokens"]["input"] == 3_000_000
        assert (await (await harness.engine.compact(harness.session))).kind == "answered"
        assert harness.messages()[-1].info["cost"] == pytest.approx(3.0)
        assert float(Library(store=harness.store).totals(harness.session).cost) == pytest.approx(12.0)


async def test_t5_6_a_summary_that_was_stopped_is_paid_for_as_far_as_it_went() -> None:
    narrow = "USAGE input=1000000 output=0"
    turns = ["SAY one\nUSAGE input=0 output=0", f"THINK hm\n{narrow}", "HANG"]
    async with open_harness("\n---\n".join(turns)) as harness:
        await harness.ask("first")
        outcome = await harness.engine.compact(harness.session)
        await harness.until(lambda: len(harness.model.calls) == 3)
        harness.engine.abort(harness.session)
        assert (await outcome).kind == "aborted"
        (stopped,) = [message.info for message in harness.messages() if message.info.get("summary") is True]
        assert stopped["cost"] == pytest.approx(3.0)
        assert len(in_view(harness)) == len(harness.messages())
