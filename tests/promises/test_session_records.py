from __future__ import annotations

import asyncio

from opensesh import events
from opensesh.storage.memory import Memory
from tests.engine.stage import Acting, stage


async def test_promise_10_a_session_is_updated_when_an_answer_ends() -> None:
    async def wait(arguments: object, ctx: object) -> str:
        await asyncio.sleep(0.05)
        return "waited"

    async with stage("CALL wait {}\n---\nSAY done", tools=[Acting("wait", wait)]) as on:
        await on.ask()
        updated = on.engine.sessions.get(on.session).time.updated
        assert updated >= on.answers()[-1].info["time"]["completed"]
        told = [event.info["time"]["updated"] for event in on.told(events.SessionUpdated)]
        first = on.answers()[0].info["time"]["completed"]
        second = on.answers()[1].info["time"]["created"]
        assert [moment for moment in told if first <= moment <= second], "each step counts"


async def test_promise_10_a_session_is_updated_when_a_prompt_fails() -> None:
    async with stage("SAY never") as on:
        assert (await on.ask(agent="build", model="scripted/nothing")).kind == "failed"
        updated = on.engine.sessions.get(on.session).time.updated
        assert updated >= on.answers()[-1].info["time"]["completed"]


async def test_promise_11_a_session_without_changes_has_an_empty_diff_and_a_summary_of_zeros() -> None:
    store = Memory()
    async with stage("SAY hi\n---\nSAY ho", store=store) as on:
        await on.ask()
        await on.ask()
        assert store.read(("session_diff", on.session)) == []
        (key,) = [key for key in store.list(("session",)) if key[-1] == on.session]
        assert store.read(key)["summary"] == {"additions": 0, "deletions": 0, "files": 0}
        prompts = [message.info for message in on.messages() if message.info["role"] == "user"]
        assert [info["summary"] for info in prompts] == [{"diffs": []}, {"diffs": []}]
        assert on.told(events.SessionDiff)


async def test_promise_11_a_known_diff_is_not_replaced_by_an_empty_one() -> None:
    store = Memory()
    async with stage("SAY hi", store=store) as on:
        diff = [{"file": "a", "before": "", "after": "x", "additions": 1, "deletions": 0}]
        store.write(("session_diff", on.session), diff)
        await on.ask()
        assert store.read(("session_diff", on.session)) == diff
