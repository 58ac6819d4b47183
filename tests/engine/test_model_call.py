from __future__ import annotations

import asyncio
import gc
import subprocess
import threading
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from opensesh import events
from opensesh.engine.settings import Settings
from opensesh.errors import ModelConnectionError, WriteError
from opensesh.models import stream_events as stream
from opensesh.models.request import Request
from opensesh.retry import RetryPolicy
from opensesh.storage.memory import Memory
from opensesh.storage.protocol import Key
from opensesh.testing.scripted import Say, Split, Think, script, turn
from opensesh.workspace.revert import Reverts

from .harness import Acting, EngineHarness, Playing, WriteLog, echo, open_harness

STEP = (stream.StartStep(),)
STOP = (stream.FinishStep("stop"),)
CALLS = (stream.FinishStep("tool-calls"),)


async def test_every_event_of_a_stream_becomes_what_it_should() -> None:
    signed = {"anthropic": {"signature": "s"}}
    usage = stream.Usage(input=10, output=5, reasoning=2, cache_read=3, cache_write=1, total=21)
    first = [
        *STEP,
        stream.TextStart("r1", kind="reasoning"),
        stream.TextDelta("r1", "I should ", kind="reasoning"),
        stream.TextDelta("r1", "look.  ", kind="reasoning"),
        stream.TextEnd("r1", signed, kind="reasoning"),
        stream.TextStart("t1"),
        stream.TextDelta("t1", "Let me"),
        stream.TextDelta("t1", " see. \n"),
        stream.TextEnd("t1"),
        stream.ToolInputStart("c1", "echo"),
        stream.ToolInputDelta("c1", '{"a":'),
        stream.ToolInputDelta("c1", "1}"),
        stream.ToolCall("c1", "echo", {"a": 1}, metadata={"openai": {"itemId": "i"}}),
        stream.FinishStep("tool-calls", usage),
    ]
    last = [*STEP, stream.TextStart("t"), stream.TextDelta("t", "Done."), stream.TextEnd("t"), *STOP]
    async with open_harness(Playing(first, last), tools=[echo()]) as harness:
        outcome = await harness.ask()
        assert outcome.kind == "answered"
        harness.assert_sound()
        one, two = harness.answers()
        assert [part["type"] for part in one.parts] == ["step-start", "reasoning", "text", "tool", "step-finish"]
        _, thought, text, tool, finish = one.parts
        assert thought["text"] == "I should look."
        assert thought["metadata"] == signed
        assert thought["time"]["start"] <= thought["time"]["end"]
        assert text["text"] == "Let me see."
        assert tool["callID"] == "c1"
        assert tool["metadata"] == {"openai": {"itemId": "i"}}
        assert tool["state"]["output"] == 'echo {"a": 1}'
        assert finish["reason"] == one.info["finish"] == "tool-calls"
        assert finish["tokens"] == {
            "total": 21,
            "input": 10,
            "output": 5,
            "reasoning": 2,
            "cache": {"read": 3, "write": 1},
        }
        assert one.info["tokens"] == finish["tokens"]
        assert one.info["cost"] == finish["cost"] > 0
        assert two.info["finish"] == "stop"
        assert outcome.message == two
        assert two.info["parentID"] == one.info["parentID"] == harness.messages()[0].info["id"]


async def test_overlapping_pieces_are_kept_apart() -> None:
    mixed = [
        *STEP,
        stream.TextStart("1"),
        stream.TextStart("1", kind="reasoning"),
        stream.TextDelta("1", "say"),
        stream.TextDelta("1", "think", kind="reasoning"),
        stream.TextEnd("1", kind="reasoning"),
        stream.TextDelta("1", " it"),
        stream.TextEnd("1"),
        *STOP,
    ]
    async with open_harness(Playing(mixed)) as harness:
        await harness.ask()
        assert [part["text"] for part in harness.parts("text")][-1] == "say it"
        assert [part["text"] for part in harness.parts("reasoning")] == ["think"]


async def test_pieces_without_words_leave_no_part_but_a_signature_does() -> None:
    sealed = {"anthropic": {"redactedData": "xx"}}
    quiet = [
        *STEP,
        stream.TextStart("1"),
        stream.TextDelta("1", "  \n"),
        stream.TextEnd("1"),
        stream.TextStart("2"),
        stream.TextEnd("2"),
        stream.TextStart("3", kind="reasoning"),
        stream.TextEnd("3", sealed, kind="reasoning"),
        *STOP,
    ]
    async with open_harness(Playing(quiet)) as harness:
        await harness.ask()
        parts = harness.answers()[0].parts
        assert [part["type"] for part in parts] == ["step-start", "reasoning", "step-finish"]
        assert parts[1]["metadata"] == sealed


async def test_pieces_that_the_stream_leaves_open_are_closed_at_its_end() -> None:
    async with open_harness(Playing([*STEP, stream.TextStart("1"), stream.TextDelta("1", "cut")])) as harness:
        assert (await harness.ask()).kind == "answered"
        harness.assert_sound()
        assert harness.text() == "cut"
        assert "end" in harness.parts("text")[-1]["time"]


async def test_a_tool_that_the_provider_ran_is_recorded_and_not_run_again() -> None:
    searched = [
        *STEP,
        stream.ToolCall("c1", "web_search", {"q": "x"}, executed=True),
        stream.ToolResult("c1", "found"),
        stream.ToolCall("c2", "web_search", {"q": "y"}, executed=True),
        stream.ToolError("c2", "no luck"),
        stream.TextStart("t"),
        stream.TextDelta("t", "There."),
        stream.TextEnd("t"),
        *STOP,
    ]
    async with open_harness(Playing(searched)) as harness:
        assert (await harness.ask()).kind == "answered"
        one, two = harness.parts("tool")
        assert (one["tool"], one["state"]["status"], one["state"]["output"]) == ("web_search", "completed", "found")
        assert (two["state"]["status"], two["state"]["error"]) == ("error", "no luck")
        harness.assert_sound()


async def test_two_calls_under_one_id_are_two_calls() -> None:
    twice = [
        *STEP,
        stream.ToolInputStart("0", "echo"),
        stream.ToolCall("0", "echo", {"n": 1}),
        stream.ToolInputStart("0", "echo"),
        stream.ToolCall("0", "echo", {"n": 2}),
        *CALLS,
    ]
    done = [*STEP, stream.TextStart("t"), stream.TextDelta("t", "ok"), stream.TextEnd("t"), *STOP]
    playing = Playing(twice, done)
    async with open_harness(playing, tools=[echo()]) as harness:
        await harness.ask()
        assert sorted(part["state"]["output"] for part in harness.parts("tool")) == ['echo {"n": 1}', 'echo {"n": 2}']
        harness.assert_sound()


async def test_running_is_stored_before_the_tool_acts_and_published_in_order() -> None:
    store = WriteLog()
    seen: list[str] = []

    async def look(arguments: dict[str, Any], ctx: Any) -> str:
        (part,) = [value for _, value in store.scan(("part",)) if value["type"] == "tool"]
        seen.append(part["state"]["status"])
        await ctx.progress(title="half way", metadata={"percent": 50})
        return "looked"

    async with open_harness("CALL look {}\n---\nSAY ok", store=store, tools=[Acting("look", look)]) as harness:
        await harness.ask()
        (part,) = harness.parts("tool")
        assert seen == ["running"]
        assert store.states(part["id"]) == ["pending", "running", "running", "completed"]
        reported = [e.part["state"] for e in harness.published(events.PartUpdated) if e.part["id"] == part["id"]]
        assert [state["status"] for state in reported] == ["pending", "running", "running", "completed"]
        assert reported[2]["metadata"] == {"percent": 50}
        assert reported[1]["time"]["start"] == reported[3]["time"]["start"]


async def test_parallel_calls_run_at_the_same_time_and_before_the_stream_ends() -> None:
    all_here = asyncio.Event()
    here: list[str] = []

    async def meet(arguments: dict[str, Any], ctx: Any) -> str:
        here.append(ctx.call_id)
        if len(here) == 3:
            all_here.set()
        await all_here.wait()
        return "met"

    async with open_harness(
        'CALL meet {"n": 1}\nCALL meet {"n": 2}\nCALL meet {"n": 3}\n---\nSAY ok', tools=[Acting("meet", meet)]
    ) as harness:
        assert (await harness.ask()).kind == "answered"
        assert [part["state"]["input"]["n"] for part in harness.parts("tool")] == [1, 2, 3]


async def test_a_failed_tool_is_reported_to_the_model_and_the_turn_continues() -> None:
    async def fail(arguments: dict[str, Any], ctx: Any) -> str:
        raise ValueError("no such thing")

    async with open_harness(
        "CALL fail {}\n---\nEXPECT last no such thing\nSAY ok", tools=[Acting("fail", fail)]
    ) as harness:
        assert (await harness.ask()).kind == "answered"
        assert harness.parts("tool")[0]["state"]["error"] == "Error: ValueError: no such thing"
        harness.model.assert_complete()


@pytest.mark.parametrize("call", ['CALL nothing {"a": 1}', "CALL echo\n  {broken"])
async def test_calls_of_tools_that_do_not_exist_or_make_no_sense_are_answered_all_the_same(call: str) -> None:
    async with open_harness(f"{call}\n---\nSAY ok", tools=[echo()]) as harness:
        assert (await harness.ask()).kind == "answered"
        (part,) = harness.parts("tool")
        assert part["tool"] == "invalid"
        harness.assert_sound()


# -- how much is written -----------------------------------------------------------------------------------------------


class Counting(Memory):
    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0
        self.writes = 0

    def write(self, key: tuple[str, ...], value: Any) -> None:
        super().write(key, value)
        self.bytes += len(self._records[key])
        self.writes += 1


@pytest.mark.parametrize("kind", [Say, Think])
async def test_a_growing_text_is_stored_a_few_times_however_often_it_grows(kind: type[Say] | type[Think]) -> None:
    store = Counting()
    text = "word " * 60_000
    async with open_harness(script(turn(Split(30), kind(text), ".")), store=store) as harness:
        before = store.writes
        await harness.ask()
        assert store.writes - before < 16
        assert store.bytes < 1.3 * len(text)


async def test_sessions_of_any_length_write_little_more_than_their_text() -> None:
    store = Counting()
    sizes = range(3_000, 90_000, 4_321)
    async with open_harness(script(*(turn(Split(50), Say("x" * size)) for size in sizes)), store=store) as harness:
        for _ in sizes:
            await harness.ask()
        assert store.bytes < 1.6 * sum(sizes)


async def test_every_piece_is_published_once_and_holds_few_copies_of_the_whole() -> None:
    text = "word " * 20_000
    async with open_harness(script(turn(Split(10), Say(text)))) as harness:
        await harness.ask()
        (whole,) = harness.parts("text")[1:]
        deltas = [e.delta for e in harness.published(events.PartDelta)]
        updates = [e for e in harness.published(events.PartUpdated) if e.part["id"] == whole["id"]]
        pieces = "".join(_pieces(harness, whole["id"]))
        assert pieces.rstrip() == whole["text"] == text.rstrip()
        assert len(deltas) + len(updates) == 10_000 + 1
        assert sum(len(e.part["text"]) for e in updates) < 2.2 * len(text)


def _pieces(harness: EngineHarness, part: str) -> list[str]:
    result: list[str] = []
    for envelope in sorted(harness.received, key=lambda envelope: envelope.sequence):
        match envelope.event:
            case events.PartDelta(part_id=name, delta=delta) if name == part:
                result.append(delta)
            case events.PartUpdated(part=document, delta=str(delta)) if document["id"] == part:
                result.append(delta)
            case _:
                pass
    return result


# -- when it goes wrong ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", ["rate-limit", "overloaded", "reset", "malformed", "torn", "500", "408", "409"])
async def test_a_call_that_may_well_succeed_is_tried_again(error: str) -> None:
    half = "THINK hm\nSAY half\n" if error in ("reset", "torn") else ""
    async with open_harness(f"{half}ERROR {error}\n---\nSAY whole") as harness:
        assert (await harness.ask()).kind == "answered"
        harness.assert_sound()
        assert harness.text() == "whole"
        (retry,) = harness.parts("retry")
        assert retry["attempt"] == 1
        assert retry["error"]["name"] == "APIError"
        assert retry["error"]["data"]["isRetryable"] is True
        waited = [e.status for e in harness.published(events.SessionStatus) if e.status["type"] == "retry"]
        assert len(waited) == 1
        assert waited[0]["attempt"] == 1
        assert waited[0]["message"] == retry["error"]["data"]["message"]
        assert waited[0]["next"] >= retry["time"]["created"]
        kinds = [e.status["type"] for e in harness.published(events.SessionStatus)]
        assert kinds == ["busy", "retry", "busy", "idle"]


@pytest.mark.parametrize(
    ("error", "name"),
    [
        ("auth", "APIError"),
        ("content-filter", "ContentFilterError"),
        ("status=422", "APIError"),
        ("404", "APIError"),
    ],
)
async def test_a_call_that_cannot_succeed_is_not(error: str, name: str) -> None:
    async with open_harness(f"ERROR {'status ' if '=' in error else ''}{error}") as harness:
        outcome = await harness.ask()
        assert outcome.kind == "failed"
        assert harness.answers()[-1].info["error"]["name"] == name
        assert outcome.error == harness.answers()[-1].info["error"]
        assert [e.error for e in harness.published(events.SessionError)] == [outcome.error]
        assert harness.parts("retry") == []
        harness.assert_sound()


async def test_retries_end_and_the_last_text_is_kept() -> None:
    settings = Settings(retry=RetryPolicy(max_retries=2, initial_delay_ms=1))
    broken = "SAY half\nERROR reset\n---\n"
    async with open_harness(broken * 2 + "SAY the last half\nERROR reset", settings=settings) as harness:
        outcome = await harness.ask()
        assert outcome.kind == "failed"
        assert outcome.error is not None
        assert outcome.error["data"]["metadata"]["code"] == "ECONNRESET"
        assert [part["attempt"] for part in harness.parts("retry")] == [1, 2]
        assert harness.text() == "the last half"
        assert len(harness.model.calls) == 3
        harness.assert_sound()


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [("after=2", 2.0), ("after=1.5 form=ms", 1.5), ("after=0.25", 0.25), ("after=90 form=date", 90.0)],
)
async def test_a_provider_that_asks_for_time_is_given_it(asked: str, seconds: float) -> None:
    slept: list[float] = []

    async def sleep(delay: float) -> None:
        slept.append(delay)

    async with open_harness(f"ERROR rate-limit {asked}\n---\nSAY ok", settings=Settings(sleep=sleep)) as harness:
        assert (await harness.ask()).kind == "answered"
        (delay,) = slept
        assert seconds - 2 < delay <= seconds if "date" in asked else delay == seconds


async def test_nothing_is_tried_again_once_a_tool_has_run() -> None:
    ran: list[int] = []

    async def count(arguments: dict[str, Any], ctx: Any) -> str:
        ran.append(1)
        return "counted"

    broken = "SAY first\nCALL count {}\nERROR reset\n---\nEXPECT last counted\nSAY second"
    async with open_harness(broken, tools=[Acting("count", count)]) as harness:
        assert (await harness.ask()).kind == "answered"
        assert ran == [1]
        assert harness.parts("retry") == []
        one, two = harness.answers()
        assert one.info["finish"] == "tool-calls"
        assert "error" not in one.info
        assert two.info["finish"] == "stop"
        harness.assert_sound()
        harness.model.assert_complete()


async def test_an_error_that_stands_ends_the_turn_also_after_a_tool_has_run() -> None:
    async with open_harness("CALL echo {}\nERROR content-filter", tools=[echo()]) as harness:
        assert (await harness.ask()).kind == "failed"
        assert harness.parts("tool")[0]["state"]["status"] == "completed"
        harness.assert_sound()


async def test_a_call_cut_off_while_it_was_written_is_not_run_and_leaves_nothing_open() -> None:
    begun = [
        *STEP,
        stream.ToolInputStart("c1", "echo"),
        stream.ToolCall("c0", "echo", {}),
        ModelConnectionError("gone"),
    ]
    done = [*STEP, stream.TextStart("t"), stream.TextDelta("t", "ok"), stream.TextEnd("t"), *STOP]
    async with open_harness(Playing(begun, done), tools=[echo()]) as harness:
        assert (await harness.ask()).kind == "answered"
        states = {part["callID"]: part["state"]["status"] for part in harness.parts("tool")}
        assert states == {"c0": "completed", "c1": "error"}
        harness.assert_sound()


async def test_a_fault_in_an_adapter_is_an_outcome_like_any_other_and_other_sessions_continue() -> None:
    slow = Playing([*STEP, stream.TextStart("t"), stream.TextDelta("t", "ok"), stream.TextEnd("t"), *STOP])
    async with open_harness(Playing([*STEP, KeyError("choices")], [*STEP, *STOP]), slow=slow) as harness:
        other = await harness.engine.create(title="other")
        fine = await harness.submit(session=other.id, model="scripted/slow")
        outcome = await harness.ask()
        assert outcome.kind == "failed"
        assert "KeyError" in outcome.description
        assert (await fine).kind == "answered"
        harness.assert_sound()
        assert (await harness.ask()).kind == "answered"


async def test_a_stream_is_closed_as_soon_as_it_has_no_reader() -> None:
    playing = Playing([*STEP, cast("stream.StreamEvent", "unknown"), stream.TextStart("t")])
    async with open_harness(playing) as harness:
        await harness.ask()
        assert playing.closed_in_place == 1


@pytest.mark.parametrize("reason", ["stop", "length", "content-filter", "error", "other", "unknown", "tool-calls"])
async def test_an_answer_without_calls_is_the_last_one_with_any_finish_reason(reason: str) -> None:
    async with open_harness(f"SAY so\nFINISH {reason}") as harness:
        assert (await harness.ask()).kind == "answered"
        harness.assert_sound()
        assert len(harness.model.calls) == 1


@pytest.mark.parametrize("reason", ["stop", "length", "unknown", "tool-calls"])
async def test_an_answer_with_calls_continues_with_any_finish_reason(reason: str) -> None:
    async with open_harness(f"CALL echo {{}}\nFINISH {reason}\n---\nSAY ok", tools=[echo()]) as harness:
        assert (await harness.ask()).kind == "answered"
        harness.model.assert_complete()


def repository() -> None:
    """Make the current directory one."""
    for words in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "first")):
        subprocess.run(["git", "-c", "user.name=T", "-c", "user.email=t@example.invalid", *words], check=True)


async def test_tools_do_not_wait_for_ever_for_a_snapshot_and_the_engine_leaves_no_thread(
    isolated: Path,
) -> None:
    repository()
    settings = Settings(snapshot_timeout_seconds=0.05)
    async with open_harness('CALL echo {"n": 1}\n---\nSAY done', tools=[echo()], settings=settings) as harness:
        with harness.engine.components.snapshots.repository.index_lock().hold(
            "index"
        ):  # so that no snapshot is finished
            assert (await harness.ask()).kind == "answered"
            assert all("snapshot" not in part for part in harness.parts("step-start"))
            assert harness.parts("tool")[0]["state"]["status"] == "completed"
            assert any(item.name.startswith("opensesh-snapshot") for item in threading.enumerate())
    assert not any(item.name.startswith("opensesh-snapshot") for item in threading.enumerate())


async def test_what_the_user_changes_while_the_model_speaks_is_not_put_down_to_it(isolated: Path) -> None:
    repository()

    class Speaking(Playing):
        async def stream(self, request: Request) -> AsyncIterator[stream.StreamEvent]:
            async for event in super().stream(request):
                if isinstance(event, stream.TextEnd):
                    await asyncio.to_thread(harness.engine.components.snapshots.track)  # behind the one that was begun
                    Path("mine.txt").write_text("the user's own")
                yield event

    model = Speaking([*STEP, stream.TextStart("t"), stream.TextDelta("t", "Hi."), stream.TextEnd("t"), *STOP])
    async with open_harness(model) as harness:
        assert (await harness.ask()).kind == "answered"
        assert harness.parts("step-finish")[0]["snapshot"] != harness.parts("step-start")[0]["snapshot"]
        assert harness.parts("patch") == []
        Reverts(harness.engine.sessions, harness.engine.components.snapshots).revert(
            harness.session, harness.messages()[0].info["id"]
        )
        assert Path("mine.txt").read_text() == "the user's own"


class Stubborn(Playing):
    """A provider that swallows one cancellation, and then sends another tool call."""

    async def stream(self, request: Request) -> AsyncIterator[stream.StreamEvent]:
        for event in STEP:
            yield event
        yield stream.ToolCall("call_1", "echo", {"n": 1})
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            yield stream.ToolCall("call_2", "echo", {"n": 2})


async def test_a_call_that_arrives_while_the_calls_are_being_cancelled_leaves_no_coroutine_behind() -> None:
    class Full(WriteLog):
        """Refuses to store that a call runs."""

        def write(self, key: Key, value: Any) -> None:
            if key[0] == "part" and value.get("callID") == "call_1" and value["state"]["status"] == "running":
                raise WriteError("the disk is full")
            super().write(key, value)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with open_harness(Stubborn(), store=Full(), tools=[echo()]) as harness:
            outcome = await harness.ask()
            assert (outcome.kind, "the disk is full" in outcome.description) == ("failed", True)
            assert [part["state"]["status"] for part in harness.parts("tool")] == ["error", "error"]
            harness.assert_sound()
        gc.collect()
