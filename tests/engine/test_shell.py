from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from opensesh.errors import BusyError, UsageError
from opensesh.models.request import ToolResults
from opensesh.storage.memory import Memory

from .stage import Stage, stage


@pytest.fixture(autouse=True)
def _bash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/bash")


async def shell(on: Stage, command: str) -> str:
    outcome = await asyncio.wait_for(on.engine.shell(on.session, command, model="scripted/it"), 30)
    assert outcome.message is not None
    return outcome.message.parts[0]["state"]["output"]


async def test_a_command_of_the_users_is_on_record_and_no_model_is_asked() -> None:
    async with stage("SAY never") as on:
        assert await shell(on, "echo out; echo err >&2; exit 3") == "out\nerr\n"
        prompt, answer = on.messages()
        assert [(part["text"], part["synthetic"]) for part in prompt.parts] == [
            ("The following tool was executed by the user", True)
        ]
        (call,) = answer.parts
        assert call["tool"] == "bash"
        assert call["state"]["input"] == {"command": "echo out; echo err >&2; exit 3"}
        assert call["state"]["metadata"] == {"output": "out\nerr\n", "description": ""}
        assert answer.info["parentID"] == prompt.info["id"]
        assert "finish" not in answer.info
        assert not on.model.calls
        assert on.engine.status() == {}


async def test_there_is_nothing_to_resume_after_it_and_the_next_prompt_sees_what_it_printed() -> None:
    async with stage("SAY I see") as on:
        await shell(on, "echo forty-two")
        assert await on.engine.resume(on.session) is None
        assert (await on.ask("What was it?")).kind == "answered"
        results = [turn for turn in on.model.calls[0].request.messages if isinstance(turn, ToolResults)]
        assert "forty-two" in str(results)
        on.assert_sound()


async def test_the_users_aliases_count() -> None:
    Path("~/.bashrc").expanduser().write_text("alias greet='echo hello'\n")
    async with stage("SAY never") as on:
        assert await shell(on, "greet you") == "hello you\n"


async def test_a_long_output_is_kept_whole_in_a_file() -> None:
    async with stage("SAY never") as on:
        output = await shell(on, "seq 1 50000")
        path = on.parts("tool")[0]["state"]["metadata"]["outputPath"]
        assert Path(path).read_text().split() == [str(number) for number in range(1, 50_001)]
        assert "49999\n50000\n" in output
        assert len(output) < 100_000


async def test_stopping_it_keeps_what_it_printed() -> None:
    async with stage("SAY on") as on:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(on.engine.shell(on.session, "echo begun; sleep 60", model="scripted/it"))
            await on.until(lambda: any("begun" in str(part["state"].get("metadata")) for part in on.parts("tool")))
            assert on.engine.abort(on.session)
            outcome = await running
        assert outcome.kind == "aborted"
        (call,) = on.parts("tool")
        assert call["state"]["status"] == "completed"
        assert call["state"]["output"].startswith("begun\n")
        assert "stopped" in call["state"]["output"]
        assert (await on.ask()).kind == "answered"
        on.assert_sound()


async def test_cancelling_the_caller_ends_the_command() -> None:
    async with stage("SAY on") as on:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(on.engine.shell(on.session, "echo begun; sleep 60", model="scripted/it"))
            await on.until(lambda: any("begun" in str(part["state"].get("metadata")) for part in on.parts("tool")))
            running.cancel()
        assert on.parts("tool")[0]["state"]["status"] == "completed"
        await on.until(lambda: on.engine.status() == {})


async def test_a_prompt_that_comes_while_it_runs_is_answered_behind_it() -> None:
    async with stage("SAY answered") as on:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(
                on.engine.shell(on.session, "until test -e go; do sleep 0.05; done; echo gone", model="scripted/it")
            )
            await on.until(lambda: on.parts("tool"))
            prompt = await on.submit("And now?")
            Path("go").touch()
            outcome = await running
        assert outcome.message is not None
        assert outcome.message.parts[0]["state"]["output"] == "gone\n"
        assert (await prompt).kind == "answered"
        assert on.text() == "answered"
        on.assert_sound()


async def test_a_session_at_work_runs_no_command() -> None:
    async with stage("HANG") as on:
        outcome = await on.submit()
        with pytest.raises(BusyError):
            await on.engine.shell(on.session, "echo never", model="scripted/it")
        on.engine.abort(on.session)
        await outcome
        with pytest.raises(UsageError):
            await on.engine.shell(on.session, "a\0b", model="scripted/it")
        assert await shell(on, "echo now") == "now\n"


async def test_a_command_that_a_dead_runner_left_is_brought_to_an_end_and_not_run_again() -> None:
    store = Memory()
    async with stage("SAY on", store=store) as on:
        session = on.session
        await shell(on, "touch ran; echo begun")
        answer = on.messages()[1]
        call = answer.parts[0]
        running = {"status": "running", "input": call["state"]["input"], "time": {"start": 1}}
        store.write(("part", answer.info["id"], call["id"]), call | {"state": running})
        unfinished = answer.info | {"time": {"created": answer.info["time"]["created"]}}
        store.write(("message", session, answer.info["id"]), unfinished)
        Path("ran").unlink()
    async with stage("SAY on", store=store) as on:
        on.session = session
        assert await on.engine.resume(session) is None
        assert on.parts("tool")[0]["state"]["status"] == "error"
        assert not Path("ran").exists()
        assert (await on.ask()).kind == "answered"
        on.assert_sound()
