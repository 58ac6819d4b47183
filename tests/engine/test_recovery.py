from __future__ import annotations

from typing import Any

from opensesh import ids
from opensesh.models.stream_events import FinishStep, StartStep, TextDelta, TextEnd, TextStart
from opensesh.sessions.final_states import INTERRUPTED
from opensesh.storage.memory import Memory

from .harness import EngineHarness, Playing, open_harness

MODEL = {"providerID": "scripted", "modelID": "it"}


class Past:
    """Writes down what a runner that died has left."""

    def __init__(self, harness: EngineHarness, store: Memory) -> None:
        self._session = harness.session
        self._store = store
        self._now = ids.now_ms() - 60_000

    def prompt(self, text: str = "Go.") -> str:
        info: dict[str, Any] = {"role": "user", "agent": "build", "model": MODEL}
        return self._write(info, [{"type": "text", "text": text}])

    def compaction(self) -> str:
        info: dict[str, Any] = {"role": "user", "agent": "build", "model": MODEL}
        return self._write(info, [{"type": "compaction", "auto": True}])

    def answer(self, parent: str, *parts: dict[str, Any], **more: Any) -> str:
        info = {"role": "assistant", "parentID": parent, "mode": "build", "agent": "build"} | MODEL
        return self._write(info | {"path": {"cwd": "/", "root": "/"}} | more, list(parts))

    def _write(self, info: dict[str, Any], parts: list[dict[str, Any]]) -> str:
        self._now += 1_000
        name = ids.ascending("msg")
        time = {"created": self._now} | info.pop("time", {})
        self._store.write(
            ("message", self._session, name), {"id": name, "sessionID": self._session, "time": time} | info
        )
        for part in parts:
            own = {"id": ids.ascending("prt"), "sessionID": self._session, "messageID": name}
            self._store.write(("part", name, own["id"]), own | part)
        return name


def call(status: str, **state: Any) -> dict[str, Any]:
    return {"type": "tool", "callID": "c", "tool": "bash", "state": {"status": status, "input": {"a": 1}} | state}


DONE = {"completed": 2_000_000_000_000}


async def test_calls_that_never_ended_are_marked_and_the_prompt_is_finished() -> None:
    store = Memory()
    async with open_harness("EXPECT last interrupted\nSAY done", store=store) as harness:
        past = Past(harness, store)
        running = call("running", time={"start": 5}, metadata={"output": "half"}, title="t")
        past.answer(past.prompt(), {"type": "step-start"}, call("pending", raw="{"), running)
        resumed = await harness.engine.resume(harness.session)
        assert resumed is not None
        assert (await resumed).kind == "answered"
        harness.model.assert_complete()
        one, two = harness.parts("tool")
        assert one["state"]["error"] == two["state"]["error"] == INTERRUPTED
        assert two["state"]["time"]["start"] == 5
        assert two["state"]["metadata"] == {"output": "half", "interrupted": True}
        assert harness.answers()[0].info["finish"] == "unknown"
        harness.assert_sound()


async def test_an_answer_that_was_complete_is_not_given_again() -> None:
    store = Memory()
    async with open_harness("SAY never", store=store) as harness:
        past = Past(harness, store)
        tokens = {"input": 1, "output": 2, "reasoning": 0, "cache": {"read": 0, "write": 0}}
        ending = {"type": "step-finish", "reason": "stop", "cost": 0.5, "tokens": tokens}
        past.answer(past.prompt(), {"type": "text", "text": "All of it."}, ending, cost=0, tokens={})
        assert await harness.engine.resume(harness.session) is None
        info = harness.answers()[0].info
        assert info["finish"] == "stop"
        assert info["cost"] == 0.5
        assert info["tokens"] == tokens
        harness.assert_sound()


async def test_an_answer_to_an_earlier_prompt_does_not_answer_a_later_one() -> None:
    store = Memory()
    async with open_harness("SAY to the second", store=store) as harness:
        past = Past(harness, store)
        first = past.prompt("one")
        second = past.prompt("two")
        past.answer(first, {"type": "text", "text": "to the first"}, finish="stop", time=DONE)
        resumed = await harness.engine.resume(harness.session)
        assert resumed is not None
        await resumed
        assert harness.answers()[-1].info["parentID"] == second


async def test_an_answer_from_before_answers_named_their_prompt_counts() -> None:
    store = Memory()
    async with open_harness("SAY never", store=store) as harness:
        past = Past(harness, store)
        name = past.answer(past.prompt(), {"type": "text", "text": "old"}, finish="stop", time=DONE)
        store.update(("message", harness.session, name), lambda info: info.pop("parentID"))
        assert await harness.engine.resume(harness.session) is None


async def test_what_ended_is_left_as_it_is_to_the_byte() -> None:
    store = Memory()
    async with open_harness("SAY new", store=store) as harness:
        past = Past(harness, store)
        past.answer(past.prompt(), call("completed", output="o", title="", metadata={}, time={"start": 1, "end": 2}),
                    finish="stop", time=DONE, odd={"kept": True})  # fmt: skip
        before = {key: store.read(key) for kind in ("message", "part") for key in store.list((kind,))}
        await harness.ask()
        assert {key: store.read(key) for key in before} == before


async def test_a_summary_that_was_cut_off_hides_nothing() -> None:
    store = Memory()
    text = (StartStep(), TextStart("t"), TextDelta("t", "ok"), TextEnd("t"), FinishStep(reason="stop"))
    model = Playing(text)
    async with open_harness(model, store=store) as harness:
        past = Past(harness, store)
        past.answer(past.prompt("The word is xylophone."), {"type": "text", "text": "Yes."}, finish="stop", time=DONE)
        past.answer(past.compaction(), summary=True)
        assert (await harness.ask("Which word?")).kind == "answered"
        assert "xylophone" in str(model.requests[0].messages)
        assert "completed" in harness.answers()[1].info["time"]
        assert "finish" not in harness.answers()[1].info


async def test_a_summary_that_was_cut_off_is_made_anew_when_the_run_is_taken_up() -> None:
    store = Memory()
    async with open_harness("SAY the summary\n---\nSAY going on", store=store) as harness:
        past = Past(harness, store)
        past.answer(past.prompt(), {"type": "text", "text": "Yes."}, finish="tool-calls", time=DONE)
        past.answer(past.compaction(), summary=True)
        resumed = await harness.engine.resume(harness.session)
        assert resumed is not None
        assert (await resumed).kind == "answered"
        harness.model.assert_complete()
        assert harness.text().startswith("Yes.the summary")


async def test_parts_that_lack_what_they_need_cost_only_themselves() -> None:
    store = Memory()
    async with open_harness("SAY fine", store=store) as harness:
        past = Past(harness, store)
        kinds = ("tool", "file", "patch", "step-finish", "text", "compaction-like")
        odd = [{"text": "no type"}, call("completed"), call("completed", time={}), *({"type": item} for item in kinds)]
        past.answer(past.prompt("one"), *odd, finish="stop", time=DONE)
        past.prompt("two")
        assert (await harness.ask("three")).kind == "answered"
