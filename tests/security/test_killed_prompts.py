from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from opensesh.engine.recovery import NOT_FINISHED
from opensesh.history.library import Library
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.memory import Memory
from tests.engine.harness import open_harness
from tests.engine.test_recovery import Past, call


async def test_m4_a_killed_prompt_gets_its_outcome_when_another_follows() -> None:
    store = Memory()
    async with open_harness("SAY done", store=store) as harness:
        past = Past(harness, store)
        past.answer(past.prompt(), {"type": "text", "text": "half"}, call("running", time={"start": 5}))
        assert (await harness.ask("Next.")).kind == "answered"
        killed, last = harness.answers()
        assert killed.info["error"] == {"name": "MessageAbortedError", "data": {"message": NOT_FINISHED}}
        assert "error" not in last.info
        harness.assert_sound()


async def test_m4_a_killed_compaction_gets_its_outcome_when_another_prompt_follows() -> None:
    store = Memory()
    async with open_harness("SAY done", store=store) as harness:
        past = Past(harness, store)
        past.answer(past.prompt("First."), {"type": "text", "text": "One."}, finish="stop", time={"completed": 2})
        past.answer(past.compaction(), summary=True)
        assert (await harness.ask("Next.")).kind == "answered"
        summary = harness.answers()[1]
        assert summary.info["error"]["data"]["message"] == NOT_FINISHED
        assert "finish" not in summary.info
        assert "First." in str(harness.model.calls[-1].request.messages), "it hides nothing"
        harness.assert_sound()


async def test_m4_a_prompt_that_was_only_appended_keeps_waiting_for_the_next() -> None:
    store = Memory()
    async with open_harness("SAY done", store=store) as harness:
        Past(harness, store).prompt("Appended.")
        assert (await harness.ask("Next.")).kind == "answered"
        assert [message.info.get("error") for message in harness.messages()] == [None, None, None]


def test_l7_a_killed_model_call_has_no_cost_and_the_steps_before_it_keep_theirs(tmp_path: Path) -> None:
    waiting = "touch begun; while [ ! -e end ]; do sleep 0.1; done"
    calls = [json.dumps({"command": line, "description": "x"}) for line in ("echo one", waiting)]
    script = "\n---\n".join([*(f"CALL bash {call}" for call in calls), "SAY end"])
    root, folder = tmp_path / "storage", tmp_path / "work"
    folder.mkdir()
    command = [sys.executable, "-P", "-m", "opensesh", "run", "--yes", "-m", "scripted/prompt", "--store", str(root)]
    runner = subprocess.Popen([*command, script], cwd=folder, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    try:
        while not (folder / "begun").exists():
            assert runner.poll() is None, "it ended by itself"
            time.sleep(0.05)
        runner.kill()
        runner.wait()
    finally:
        (folder / "end").touch()
    (entry,) = Library(str(root)).sessions()
    answers = [stored.info for stored in JsonTree(root).messages(entry.id) if stored.info["role"] == "assistant"]
    assert [answer["cost"] > 0 for answer in answers] == [True, False]
    assert entry.totals.cost > 0
