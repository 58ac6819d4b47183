from __future__ import annotations

import asyncio

from opensesh import events
from opensesh.storage.memory import Memory
from tests.engine.harness import Acting, open_harness


async def test_promise_10_a_session_is_updated_when_an_answer_ends() -> None:
    async def wait(arguments: object, ctx: object) -> str:
        await asyncio.sleep(0.05)
        return "waited"

    async with open_harness("CALL wait {}\n---\nSAY done", tools=[Acting("wait", wait)]) as harness:
        await harness.ask()
        updated = harness.engine.sessions.get(harness.session).time.updated
        assert updated >= harness.answers()[-1].info["time"]["completed"]
        reported = [event.info["time"]["updated"] for event in harness.published(events.SessionUpdated)]
        first = harness.answers()[0].info["time"]["completed"]
        second = harness.answers()[1].info["time"]["created"]
        assert [moment for moment in reported if first <= moment <= second], "each step counts"


async def test_promise_10_a_session_is_updated_when_a_prompt_fails() -> None:
    async with open_harness("SAY never") as harness:
        assert (await harness.ask(agent="build", model="scripted/nothing")).kind == "failed"
        updated = harness.engine.sessions.get(harness.session).time.updated
        assert updated >= harness.answers()[-1].info["time"]["completed"]


async def test_promise_11_a_session_without_changes_has_an_empty_diff_and_a_summary_of_zeros() -> None:
    store = Memory()
    async with open_harness("SAY hi\n---\nSAY ho", store=store) as harness:
        await harness.ask()
        await harness.ask()
        assert store.read(("session_diff", harness.session)) == []
        (key,) = [key for key in store.list(("session",)) if key[-1] == harness.session]
        assert store.read(key)["summary"] == {"additions": 0, "deletions": 0, "files": 0}
        prompts = [message.info for message in harness.messages() if message.info["role"] == "user"]
        assert [info["summary"] for info in prompts] == [{"diffs": []}, {"diffs": []}]
        assert harness.published(events.SessionDiff)


async def test_promise_11_a_known_diff_is_not_replaced_by_an_empty_one() -> None:
    store = Memory()
    async with open_harness("SAY hi", store=store) as harness:
        diff = [{"file": "a", "before": "", "after": "x", "additions": 1, "deletions": 0}]
        store.write(("session_diff", harness.session), diff)
        await harness.ask()
        assert store.read(("session_diff", harness.session)) == diff
