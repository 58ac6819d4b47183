from __future__ import annotations

import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opensesh.engine.opening import open_engine
from opensesh.records import loads
from opensesh.storage.leases import leases_of
from opensesh.storage.protocol import Damage, StoredMessage
from opensesh.testing.scripted import ScriptedModel

from ..harness import ProcessGroup
from . import runners
from .harness import EngineHarness

SEED = int(os.environ.get("OPENSESH_SEED", "0")) or random.SystemRandom().randrange(1 << 30)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


@pytest.fixture
def processes() -> Iterator[ProcessGroup]:
    with ProcessGroup() as result:
        result.prepare(runners.run_forever)
        yield result


async def test_a_second_runner_gets_an_error_that_names_the_first(home: Path, processes: ProcessGroup) -> None:
    store = runners.tree(str(home), "relaxed")
    async with open_engine(".", store=store) as engine:
        session = await engine.create(title="shared")
    first = processes.start(runners.run_forever, str(home), session.id)
    first.wait_for()
    second = processes.start(runners.try_to_run, str(home), session.id).wait()
    assert second.reports[0]["holder"]["pid"] == first.pid
    assert f"test runner (pid {first.pid} on " in second.reports[0]["busy"]
    prompts = [m for m in store.messages(session.id) if m.info["role"] == "user"]
    assert len(prompts) == 1, "a prompt that was not taken is not stored"


async def test_the_session_of_a_runner_that_died_is_taken_over_at_once(home: Path, processes: ProcessGroup) -> None:
    store = runners.tree(str(home), "relaxed")
    async with open_engine(".", store=store) as engine:
        session = await engine.create(title="shared")
    first = processes.start(runners.run_forever, str(home), session.id)
    first.wait_for()
    while not [p for m in store.messages(session.id) for p in m.parts if p.get("text") == "holding"]:
        time.sleep(0.01)
    first.kill()
    assert [name for name, _ in leases_of(store).abandoned()] == [session.id]
    second = processes.start(runners.try_to_run, str(home), session.id).wait()
    assert second.reports == [{"outcome": "answered"}]
    assert leases_of(store).abandoned() == []
    first_prompt, cut_off, second_prompt, answer = store.messages(session.id)
    assert cut_off.info["parentID"] == first_prompt.info["id"]
    assert cut_off.info["finish"] == "unknown"
    assert answer.info["parentID"] == second_prompt.info["id"]


async def test_resume_finishes_the_prompt_that_a_dead_runner_left(home: Path, processes: ProcessGroup) -> None:
    store = runners.tree(str(home), "relaxed")
    async with open_engine(".", store=store) as engine:
        session = await engine.create(title="shared")
    first = processes.start(runners.run_forever, str(home), session.id)
    first.wait_for()
    first.kill()
    model = ScriptedModel("SAY finished")
    async with open_engine(".", store=store, scripts={"it": model}) as engine:
        outcome = await engine.resume(session.id)
        assert outcome is not None
        assert (await outcome).kind == "answered"
        assert await engine.resume(session.id) is None
    last = store.messages(session.id)[-1]
    assert last.parts[1]["text"] == "finished"
    assert last.info["parentID"] == store.messages(session.id)[0].info["id"]


# -- killed at any moment ----------------------------------------------------------------------------------------------

STEPS = 2


def assert_every_file_decodes(root: Path) -> None:
    for path in root.rglob("*"):
        if path.is_file() and path.suffix == ".json" and not path.name.startswith("."):
            loads(path.read_bytes(), str(path))


async def killed_and_taken_up(processes: ProcessGroup, home: Path, after: float) -> str:
    """Kill a process that works, and see that another can continue from what it left."""
    child = processes.start(runners.answer_prompts, str(home), STEPS)
    session = child.wait_for()[0]["session"]
    time.sleep(after)
    text = child.kill().reports
    assert_every_file_decodes(home / "storage")
    store = runners.tree(str(home), "relaxed")
    reported: list[Damage] = []
    before = store.messages(session, report=reported.append)
    assert reported == []
    os.environ.update(XDG_STATE_HOME=str(home / "state"), XDG_DATA_HOME=str(home / "data"))
    async with open_engine(".", store=store) as engine:
        outcome = await engine.resume(session)
        if outcome is not None:
            assert (await outcome).kind == "answered"
        open_harness = EngineHarness(engine, ScriptedModel.prompted(), store, session)
        taken = sum("taken" in item for item in text)
        check(open_harness, before, taken=taken, answered=sum("outcome" in item for item in text))
        await engine.run(session, "SAY and on", model="scripted/prompt")
        open_harness.assert_sound()
    return "nothing" if not before else "resumed" if outcome is not None else "between prompts"


def check(open_harness: EngineHarness, before: Any, *, taken: int, answered: int) -> None:
    messages = open_harness.messages()
    prompts = [m.info["id"] for m in messages if m.info["role"] == "user"]
    assert len(prompts) >= taken, "a prompt that was acknowledged is lost"
    assert len(prompts) == len([m for m in before if m.info["role"] == "user"])
    finals = Counter(m.info["parentID"] for m in messages if is_final(m))
    assert all(count == 1 for count in finals.values()), "a prompt was answered twice"
    assert set(finals) == set(prompts), "a prompt has no answer"
    assert len(finals) >= answered
    if messages:
        open_harness.assert_sound()
    kept = {part["id"] for m in before for part in m.parts}
    assert kept <= {part["id"] for m in messages for part in m.parts}, "something was removed"


def is_final(message: StoredMessage) -> bool:
    info = message.info
    return info["role"] == "assistant" and info.get("finish") not in ("tool-calls", "unknown", None)


async def kills(count: int, processes: ProcessGroup, home: Path) -> None:
    print(f"OPENSESH_SEED={SEED}")
    lottery = random.Random(SEED)
    processes.prepare(runners.answer_prompts)
    fates: Counter[str] = Counter()
    for number in range(count):
        path = home / str(number)
        (path / "work").mkdir(parents=True)
        os.chdir(path / "work")
        if number % 2:  # where there are snapshots of the files to be killed in
            subprocess.run(["git", "init", "-q"], check=True)
            subprocess.run(["git", "commit", "-q", "--allow-empty", "-m", "begin"], check=True)
        fates[await killed_and_taken_up(processes, path, lottery.random() * 0.9)] += 1
    print(fates)
    assert fates["resumed"], "no process was killed at work: the test proves nothing"


async def test_whenever_a_runner_is_killed_the_session_can_continue(home: Path, processes: ProcessGroup) -> None:
    await kills(15, processes, home)


@pytest.mark.slow
@pytest.mark.timeout(1_200)
async def test_however_often_a_runner_is_killed_the_session_can_continue(home: Path, processes: ProcessGroup) -> None:
    await kills(200, processes, home)
