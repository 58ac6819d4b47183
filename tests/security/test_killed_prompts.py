from __future__ import annotations

from opensesh.engine.recovery import NOT_FINISHED
from opensesh.storage.memory import Memory
from tests.engine.stage import stage
from tests.engine.test_recovery import Past, call


async def test_m4_a_killed_prompt_gets_its_outcome_when_another_follows() -> None:
    store = Memory()
    async with stage("SAY done", store=store) as on:
        past = Past(on, store)
        past.answer(past.prompt(), {"type": "text", "text": "half"}, call("running", time={"start": 5}))
        assert (await on.ask("Next.")).kind == "answered"
        killed, last = on.answers()
        assert killed.info["error"] == {"name": "MessageAbortedError", "data": {"message": NOT_FINISHED}}
        assert "error" not in last.info
        on.assert_sound()


async def test_m4_a_killed_compaction_gets_its_outcome_when_another_prompt_follows() -> None:
    store = Memory()
    async with stage("SAY done", store=store) as on:
        past = Past(on, store)
        past.answer(past.prompt("First."), {"type": "text", "text": "One."}, finish="stop", time={"completed": 2})
        past.answer(past.compaction(), summary=True)
        assert (await on.ask("Next.")).kind == "answered"
        summary = on.answers()[1]
        assert summary.info["error"]["data"]["message"] == NOT_FINISHED
        assert "finish" not in summary.info
        assert "First." in str(on.model.calls[-1].request.messages), "it hides nothing"
        on.assert_sound()


async def test_m4_a_prompt_that_was_only_appended_keeps_waiting_for_the_next() -> None:
    store = Memory()
    async with stage("SAY done", store=store) as on:
        Past(on, store).prompt("Appended.")
        assert (await on.ask("Next.")).kind == "answered"
        assert [message.info.get("error") for message in on.messages()] == [None, None, None]
