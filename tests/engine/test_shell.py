from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from opensesh.errors import BusyError, UsageError
from opensesh.models.request import ToolResults
from opensesh.storage.memory import Memory

from .harness import EngineHarness, open_harness


@pytest.fixture(autouse=True)
def _bash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/bash")


async def shell(harness: EngineHarness, command: str) -> str:
    outcome = await asyncio.wait_for(harness.engine.shell(harness.session, command, model="scripted/it"), 30)
    assert outcome.message is not None
    return outcome.message.parts[0]["state"]["output"]


async def test_a_command_of_the_users_is_on_record_and_no_model_is_asked() -> None:
    async with open_harness("SAY never") as harness:
        assert await shell(harness, "echo out; echo err >&2; exit 3") == "out\nerr\n"
        prompt, answer = harness.messages()
        assert [(part["text"], part["synthetic"]) for part in prompt.parts] == [
            ("The following tool was executed by the user", True)
        ]
        (call,) = answer.parts
        assert call["tool"] == "bash"
        assert call["state"]["input"] == {"command": "echo out; echo err >&2; exit 3"}
        assert call["state"]["metadata"] == {"output": "out\nerr\n", "description": ""}
        assert answer.info["parentID"] == prompt.info["id"]
        assert "finish" not in answer.info
        assert not harness.model.calls
        assert harness.engine.status() == {}


async def test_there_is_nothing_to_resume_after_it_and_the_next_prompt_sees_what_it_printed() -> None:
    async with open_harness("SAY I see") as harness:
        await shell(harness, "echo forty-two")
        assert await harness.engine.resume(harness.session) is None
        assert (await harness.ask("What was it?")).kind == "answered"
        results = [turn for turn in harness.model.calls[0].request.messages if isinstance(turn, ToolResults)]
        assert "forty-two" in str(results)
        harness.assert_sound()


async def test_the_users_aliases_count() -> None:
    Path("~/.bashrc").expanduser().write_text("alias greet='echo hello'\n")
    async with open_harness("SAY never") as harness:
        assert await shell(harness, "greet you") == "hello you\n"


async def test_a_long_output_is_kept_whole_in_a_file() -> None:
    async with open_harness("SAY never") as harness:
        output = await shell(harness, "seq 1 50000")
        path = harness.parts("tool")[0]["state"]["metadata"]["outputPath"]
        assert Path(path).read_text().split() == [str(number) for number in range(1, 50_001)]
        assert "49999\n50000\n" in output
        assert len(output) < 100_000


async def test_stopping_it_keeps_what_it_printed() -> None:
    async with open_harness("SAY on") as harness:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(
                harness.engine.shell(harness.session, "echo begun; sleep 60", model="scripted/it")
            )
            await harness.until(
                lambda: any("begun" in str(part["state"].get("metadata")) for part in harness.parts("tool"))
            )
            assert harness.engine.abort(harness.session)
            outcome = await running
        assert outcome.kind == "aborted"
        (call,) = harness.parts("tool")
        assert call["state"]["status"] == "completed"
        assert call["state"]["output"].startswith("begun\n")
        assert "stopped" in call["state"]["output"]
        assert (await harness.ask()).kind == "answered"
        harness.assert_sound()


async def test_cancelling_the_caller_ends_the_command() -> None:
    async with open_harness("SAY on") as harness:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(
                harness.engine.shell(harness.session, "echo begun; sleep 60", model="scripted/it")
            )
            await harness.until(
                lambda: any("begun" in str(part["state"].get("metadata")) for part in harness.parts("tool"))
            )
            running.cancel()
        assert harness.parts("tool")[0]["state"]["status"] == "completed"
        await harness.until(lambda: harness.engine.status() == {})


async def test_a_prompt_that_comes_while_it_runs_is_answered_behind_it() -> None:
    async with open_harness("SAY answered") as harness:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(
                harness.engine.shell(
                    harness.session, "until test -e go; do sleep 0.05; done; echo gone", model="scripted/it"
                )
            )
            await harness.until(lambda: harness.parts("tool"))
            prompt = await harness.submit("And now?")
            Path("go").touch()
            outcome = await running
        assert outcome.message is not None
        assert outcome.message.parts[0]["state"]["output"] == "gone\n"
        assert (await prompt).kind == "answered"
        assert harness.text() == "answered"
        harness.assert_sound()


async def test_a_session_at_work_runs_no_command() -> None:
    async with open_harness("HANG") as harness:
        outcome = await harness.submit()
        with pytest.raises(BusyError):
            await harness.engine.shell(harness.session, "echo never", model="scripted/it")
        harness.engine.abort(harness.session)
        await outcome
        with pytest.raises(UsageError):
            await harness.engine.shell(harness.session, "a\0b", model="scripted/it")
        assert await shell(harness, "echo now") == "now\n"


async def test_a_command_that_a_dead_runner_left_is_brought_to_an_end_and_not_run_again() -> None:
    store = Memory()
    async with open_harness("SAY on", store=store) as harness:
        session = harness.session
        await shell(harness, "touch ran; echo begun")
        answer = harness.messages()[1]
        call = answer.parts[0]
        running = {"status": "running", "input": call["state"]["input"], "time": {"start": 1}}
        store.write(("part", answer.info["id"], call["id"]), call | {"state": running})
        unfinished = answer.info | {"time": {"created": answer.info["time"]["created"]}}
        store.write(("message", session, answer.info["id"]), unfinished)
        Path("ran").unlink()
    async with open_harness("SAY on", store=store) as harness:
        harness.session = session
        assert await harness.engine.resume(session) is None
        assert harness.parts("tool")[0]["state"]["status"] == "error"
        assert not Path("ran").exists()
        assert (await harness.ask()).kind == "answered"
        harness.assert_sound()
