from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from opensesh import events
from opensesh.engine.context_window import is_pruned
from opensesh.engine.settings import Settings
from opensesh.records import Rule
from opensesh.retry import RetryPolicy
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.leases import leases_of
from opensesh.storage.memory import Memory
from opensesh.storage.protocol import Key

from ..tools.mcp.test_servers import alive, gone
from .harness import IMPATIENT, Acting, EngineHarness, WriteLog, echo, hanging, open_harness

Moment = Callable[[EngineHarness], Awaitable[Any]]


async def while_text(harness: EngineHarness) -> None:
    await harness.until(lambda: "some words" in harness.text())


async def while_reasoning(harness: EngineHarness) -> None:
    await harness.until(lambda: harness.parts("reasoning"))


async def while_a_tool_runs(harness: EngineHarness) -> None:
    await harness.until(lambda: [p for p in harness.parts("tool") if p["state"].get("title") == "hanging"])


async def while_it_waits_to_try_again(harness: EngineHarness) -> None:
    await harness.until(lambda: [s for s in harness.published(events.SessionStatus) if s.status["type"] == "retry"])


async def while_permission_is_asked(harness: EngineHarness) -> None:
    await harness.until_published(events.PermissionAsked)


async def while_a_question_waits(harness: EngineHarness) -> None:
    await harness.until_published(events.QuestionAsked)


async def while_a_child_runs(harness: EngineHarness) -> None:
    await harness.until(
        lambda: [e for e in harness.published(events.PartUpdated) if e.part.get("text", "").startswith("child")]
    )


async def at_once(harness: EngineHarness) -> None:
    return


OPTION = '{"label": "A", "description": "a"}'
QUESTION = f'CALL question {{"questions": [{{"question": "Which?", "header": "W", "options": [{OPTION}]}}]}}'
TASK = 'CALL task {"description": "Look around", "prompt": "CHILD", "subagent_type": "general"}'
MOMENTS: list[tuple[str, Moment]] = [
    ("SAY first\nHANG", at_once),
    ("SAY some words\nHANG", while_text),
    ("THINK deeply\nHANG", while_reasoning),
    ('SAY ok\nCALL hang {}\nCALL echo {"n": 1}', while_a_tool_runs),
    ("CALL hang {}\nHANG", while_a_tool_runs),
    ("ERROR rate-limit after=60", while_it_waits_to_try_again),
    ("CALL ask {}", while_permission_is_asked),
    (QUESTION, while_a_question_waits),
    (TASK, while_a_child_runs),
]


async def asks(arguments: dict[str, Any], ctx: Any) -> str:
    await ctx.ask("bash", ["rm x"], always=["rm *"])
    return "allowed"


ASKING = [Rule(permission="bash", pattern="*", action="ask")]


@pytest.mark.parametrize(
    ("script", "moment"), MOMENTS, ids=[f"{moment.__name__}-{at}" for at, (_, moment) in enumerate(MOMENTS)]
)
async def test_a_run_can_be_aborted_at_any_moment(script: str, moment: Moment) -> None:
    tools = [hanging(), echo(), Acting("ask", asks)]
    rest = (
        "\n---\nSAY afterwards" if moment is not while_a_child_runs else "\n---\nSAY child\nHANG\n---\nSAY afterwards"
    )
    settings = Settings(retry=RetryPolicy(initial_delay_ms=1))
    async with open_harness(script + rest, tools=tools, rules=ASKING, settings=settings) as harness:
        first = await harness.submit("Go.")
        also = (
            asyncio.ensure_future(harness.engine.run(harness.session, "And this.", model="scripted/it"))
            if moment is while_text
            else None
        )
        await moment(harness)
        assert harness.engine.abort(harness.session)
        harness.engine.abort(harness.session)
        outcome = await asyncio.wait_for(first, 60)
        assert outcome.kind == "aborted"
        if also is not None:
            assert await also is outcome
        last = harness.messages()[-1].info
        assert (
            last["error"]
            == outcome.error
            == {"name": "MessageAbortedError", "data": {"message": "The user stopped this"}}
        )
        assert last["time"]["completed"] >= last["time"]["created"]
        harness.assert_sound()
        assert harness.engine.permissions() == []
        assert harness.engine.questions() == []
        assert len(harness.published(events.SessionIdle)) == len(
            {e.session_id for e in harness.published(events.SessionIdle)}
        )
        assert leases_of(harness.store).holder(harness.session) is None
        assert await harness.engine.resume(harness.session) is None
        if moment is not at_once:
            assert (await harness.ask("Once more.")).kind == "answered"
            assert harness.text().endswith("afterwards")
        harness.assert_sound()


async def test_text_before_an_abort_is_kept_and_sent_along() -> None:
    async with open_harness("SPLIT word\nSAY It is forty\nHANG\n---\nSAY two") as harness:
        outcome = await harness.submit()
        await harness.until(lambda: len(harness.published(events.PartDelta)) >= 2)
        harness.engine.abort(harness.session)
        await outcome
        assert harness.text() == "It is forty"
        assert "end" in harness.parts("text")[-1]["time"]
        await harness.ask("Which number?")
        assert "It is forty" in harness.model.model_text(1)


async def test_a_tool_that_is_aborted_keeps_what_it_last_showed() -> None:
    async with open_harness("CALL hang {}", tools=[hanging()]) as harness:
        outcome = await harness.submit()
        await while_a_tool_runs(harness)
        harness.engine.abort(harness.session)
        await outcome
        state = harness.parts("tool")[0]["state"]
        assert state["status"] == "error"
        assert state["error"] == "Tool execution aborted"
        assert state["metadata"] == {"so": "far"}
        assert state["time"]["end"] >= state["time"]["start"]


async def test_the_child_of_an_aborted_session_is_aborted_too() -> None:
    async with open_harness(f"{TASK}\n---\nSAY child words\nHANG") as harness:
        outcome = await harness.submit()
        await while_a_child_runs(harness)
        harness.engine.abort(harness.session)
        await outcome
        (child,) = harness.engine.sessions.children(harness.session)
        await harness.until(lambda: harness.engine.status() == {})
        last = harness.messages(child.id)[-1]
        assert last.info["error"]["name"] == "MessageAbortedError"
        assert [part["text"] for part in last.parts if part["type"] == "text"] == ["child words"]
        assert leases_of(harness.store).holder(child.id) is None


async def test_cancelling_the_one_who_waits_aborts_the_run_and_waits_for_its_end() -> None:
    async with open_harness("SAY some words\nHANG\n---\nSAY again") as harness:
        waiting = asyncio.ensure_future(harness.ask())
        await while_text(harness)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        harness.assert_sound()
        assert (await harness.ask()).kind == "answered"


@pytest.mark.parametrize("ticks", [0, 1, 2, 3, 5, 8, 13])
async def test_cancelling_while_the_prompt_is_being_stored_leaves_no_lease_behind(ticks: int) -> None:
    async with open_harness("SAY one\n---\nSAY two\n---\nSAY three") as harness:
        waiting = asyncio.ensure_future(harness.engine.run(harness.session, "Go.", model="scripted/it"))
        for _ in range(ticks):
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert leases_of(harness.store).holder(harness.session) is None
        assert (await harness.ask("Again.")).kind == "answered"
        harness.assert_sound()


class Halting(Memory):
    """Holds the write of an aborted answer up, once it is armed."""

    def __init__(self) -> None:
        super().__init__()
        self.parent = ""
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def write(self, key: Key, value: Any) -> None:
        if key[0] == "message" and value.get("parentID") == self.parent:
            self.reached.set()
            self.go_on.wait(60)
        super().write(key, value)


async def test_a_prompt_that_comes_while_a_run_is_being_aborted_is_answered() -> None:
    store = Halting()
    async with open_harness("SAY some words\nHANG\n---\nSAY fresh", store=store) as harness:
        first = await harness.submit("Go.")
        await while_text(harness)
        second = await harness.submit("And this.")
        store.parent = [m for m in harness.messages() if m.info["role"] == "user"][-1].info["id"]
        harness.engine.abort(harness.session)
        await harness.until(store.reached.is_set)
        third = await harness.submit("Something else.")
        store.go_on.set()
        assert await first is await second is await third
        assert (await third).kind == "answered"
        assert harness.text().endswith("fresh")
        harness.assert_sound()


async def test_an_abort_in_the_very_instant_a_run_begins_is_recorded() -> None:
    for _ in range(5):
        async with open_harness("SAY never\nHANG") as harness:

            async def eager() -> None:
                while not harness.engine.abort(harness.session):
                    await asyncio.sleep(0)

            async with asyncio.TaskGroup() as group:
                for _ in range(3):
                    group.create_task(eager())
                outcome = await harness.submit()
            assert (await asyncio.wait_for(outcome, 60)).kind == "aborted"
            assert harness.messages()[-1].info["error"]["name"] == "MessageAbortedError"
            harness.assert_sound()


async def test_summing_up_can_be_aborted() -> None:
    async with open_harness("SAY some words\n---\nSAY half a summary\nHANG\n---\nSAY on we go") as harness:
        await harness.ask()
        outcome = await harness.engine.compact(harness.session)
        await harness.until(lambda: len(harness.model.calls) == 2)
        harness.engine.abort(harness.session)
        assert (await asyncio.wait_for(outcome, 60)).kind == "aborted"
        harness.assert_sound()
        assert await harness.engine.resume(harness.session) is None
        assert (await harness.ask()).kind == "answered"
        assert "some words" in harness.model.model_text(2)


async def test_aborting_what_does_not_run_is_not_an_error() -> None:
    async with open_harness("SAY fine") as harness:
        assert harness.engine.abort(harness.session) is False
        await harness.ask()
        assert harness.engine.abort(harness.session) is False


class Slow(Memory):
    """Threads take their time, each another time: what was begun first may well be done last."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)

    def write(self, key: Key, value: Any) -> None:
        time.sleep(self._random.random() * 0.004)
        super().write(key, value)


@pytest.mark.parametrize("seed", range(12))
async def test_whenever_an_abort_comes_what_is_written_last_is_the_end(seed: int) -> None:
    lottery = random.Random(seed)
    tools = [echo(), hanging()]
    script = 'THINK a\nSAY b\nCALL echo {"n": 1}\nCALL echo {"n": 2}\n---\nSAY c\nCALL hang {}\nCALL echo {"n": 3}'
    async with open_harness(f"{script}\n---\nSAY end", store=Slow(seed), tools=tools) as harness:
        outcome = await harness.submit()
        await asyncio.sleep(lottery.random() * 0.08)
        harness.engine.abort(harness.session)
        assert (await asyncio.wait_for(outcome, 60)).kind == "aborted"
        before = harness.messages()
        await asyncio.sleep(0.02)
        assert harness.messages() == before, "something was written after the end"
        harness.assert_sound()


async def test_an_abort_reaches_commands_and_nothing_of_them_is_left(tmp_path: Path) -> None:
    shell, child = tmp_path / "shell", tmp_path / "child"
    command = f"sleep 600 & echo $! > {child}; echo $$ > {shell}; wait"
    script = f'CALL bash {{"command": "{command}", "description": "wait"}}\n---\nSAY ok'
    tree = JsonTree(tmp_path / "storage", durability="relaxed")
    allow = [Rule(permission="*", pattern="*", action="allow")]
    async with open_harness(script, store=tree, settings=IMPATIENT, rules=allow) as harness:
        outcome = await harness.submit()
        await harness.until(lambda: shell.exists() and shell.read_text().strip())
        started = [int(path.read_text()) for path in (shell, child)]
        assert all(map(alive, started))
        harness.engine.abort(harness.session)
        assert (await outcome).kind == "aborted"
        for process in started:
            assert await gone(process)
        harness.assert_sound()


class AbortingAt(WriteLog):
    """Has the session aborted while a certain write is under way; counted from when it is armed."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.writes_left = number
        self._abort: Callable[[], None] | None = None

    def watch(self, harness: EngineHarness) -> None:
        loop = asyncio.get_running_loop()
        self._abort = lambda: loop.call_soon_threadsafe(harness.engine.abort, harness.session) and None

    def write(self, key: Key, value: Any) -> None:
        if self._abort is not None:
            self.writes_left -= 1
            if self.writes_left == 0:
                self._abort()
                time.sleep(0.02)
        super().write(key, value)


FULL_WINDOW = "SAY one\nUSAGE input=199000 output=10"
TO_AND_FRO = "\n---\n".join(
    (FULL_WINDOW, "SAY the summary", 'CALL echo {"n": 1}\nCALL echo {"n": 2}', "CALL plan_enter {}", "SAY planned")
)


async def agreeing(asked: events.QuestionAsked) -> list[list[str]]:
    return [["Yes"] for _ in asked.questions]


WRITES = 33
"""Writes of the answer below if it is not aborted."""


@pytest.mark.parametrize(
    "number", [pytest.param(item, marks=() if item % 2 else pytest.mark.slow) for item in range(1, WRITES + 2)]
)
async def test_an_abort_at_any_write_leaves_nothing_open_and_nothing_twice(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCODE_EXPERIMENTAL_PLAN_MODE", "1")
    store = AbortingAt(number)
    settings = replace(IMPATIENT, question=agreeing)
    async with open_harness(TO_AND_FRO, store=store, tools=[echo()], settings=settings) as harness:
        assert (await harness.ask()).kind == "answered"
        store.watch(harness)
        outcome = await harness.ask("Go on.")
        assert (store.writes_left > 0) is (number > WRITES)
        harness.assert_sound()
        await asyncio.sleep(0.01)
        assert await harness.engine.resume(harness.session) is None, (outcome.kind, "there is something left to answer")
        for answer in harness.answers():
            kinds = [part["type"] for part in answer.parts]
            assert kinds.count("step-finish") <= 1
            assert kinds.count("step-finish") == 1 or not answer.info["cost"]
            assert answer.info["cost"] == sum(p["cost"] for p in answer.parts if p["type"] == "step-finish")


async def test_an_abort_after_the_last_text_takes_nothing_back() -> None:
    class Pruning(Memory):
        reached, go_on = threading.Event(), threading.Event()

        def write(self, key: Key, value: Any) -> None:
            if key[0] == "part" and is_pruned(value):
                self.reached.set()
                self.go_on.wait(60)
            super().write(key, value)

    async def act(arguments: dict[str, Any], ctx: Any) -> str:
        return "x" * 200_000

    store = Pruning()
    long = f"{chr(10).join(['CALL long {}'] * 2)}\n---\nSAY one\n---\nSAY two\n---\nSAY three"
    async with open_harness(
        long, store=store, tools=[Acting("long", act)], config={"tool_output": {"max_bytes": 999_999}}
    ) as harness:
        await harness.ask()
        await harness.ask()
        outcome = await harness.submit("The last.")
        await harness.until(store.reached.is_set)
        assert harness.engine.abort(harness.session)
        store.go_on.set()
        assert (await outcome).kind == "answered"
        assert harness.published(events.SessionError) == []
        harness.assert_sound()
