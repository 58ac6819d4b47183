from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from opensesh import history
from opensesh.engine.opening import open_engine
from opensesh.engine.settings import Budget, Settings
from opensesh.errors import ModelError
from opensesh.models.request import Request
from opensesh.models.stream_events import FinishStep, StartStep, StreamEvent, TextDelta, TextStart, ToolCall, Usage
from opensesh.records import side_calls
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.opencode_db.store import OpencodeDB
from opensesh.storage.protocol import Store
from opensesh.testing.scripted import ScriptedModel
from tests.engine.harness import IMPATIENT, Playing, open_harness
from tests.harness.processes import ProcessGroup, Report

REPORTED = Usage(input=100_000, output=1_000)
COST_OF_REPORTED = 0.315
LONG = "word " * 4_000
COST_OF_LONG = 5_000 * 15 / 1_000_000


class Unending:
    """Sends a long text, and then nothing more."""

    def __init__(self, report: Report) -> None:
        self.report = report

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        yield StartStep()
        yield TextStart("t")
        yield TextDelta("t", LONG)
        self.report("received")
        await asyncio.Event().wait()


class Commanding(Unending):
    """Runs a command that does not end, and reports its usage."""

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        yield StartStep()
        yield ToolCall("c", "bash", {"command": "sleep 600", "description": "Wait"})
        yield FinishStep(reason="tool-calls", usage=REPORTED)
        self.report("received")
        await asyncio.Event().wait()


class Delegating(Unending):
    """Starts a subagent, which sends a long text and then nothing more."""

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        if not any(tool.name == "task" for tool in request.tools):
            async for event in super().stream(request):
                yield event
        yield StartStep()
        arguments = {"description": "Look", "prompt": "Look around.", "subagent_type": "general"}
        yield ToolCall("c", "task", arguments)
        yield FinishStep(reason="tool-calls", usage=REPORTED)


MODELS = {model.__name__: model for model in (Unending, Commanding, Delegating)}


def open_place(place: str) -> Store:
    return OpencodeDB(place) if place.endswith(".db") else JsonTree(place)


def run_unending(report: Report, place: str, model: str, compacts: bool) -> None:
    async def run() -> None:
        scripts = {"it": MODELS[model](report), "quick": ScriptedModel.prompted()}
        async with open_engine(store=open_place(place), scripts=scripts) as engine:
            session = await engine.create(title="A title")
            report(session.id)
            if compacts:
                await engine.run(session.id, "SAY one", model="scripted/quick")
                await engine.compact(session.id, model="scripted/it")
            await engine.run(session.id, "Go.", model="scripted/it")

    asyncio.run(run())


@pytest.fixture(params=["storage", "opencode.db"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    path = tmp_path / request.param
    if path.suffix == ".db":
        path.write_bytes((Path(__file__).parents[1] / "fixtures/opencode-1.2/opencode.db").read_bytes())
        with closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA journal_mode=WAL")  # as OpenCode has it
    return str(path)


def killed(place: str, model: type[Unending], *, compacts: bool = False) -> str:
    with ProcessGroup() as processes:
        process = processes.start(run_unending, place, model.__name__, compacts)
        session_id, *_ = process.wait_for(2)
        process.kill()
    return session_id


async def resumed(place: str, session_id: str, settings: Settings | None = None) -> Any:
    scripts = {"it": ScriptedModel("SAY more")}
    async with open_engine(store=open_place(place), scripts=scripts, settings=settings) as engine:
        outcome = await engine.resume(session_id)
        assert outcome is not None
        return await outcome


def answers(place: str, session_id: str) -> list[dict[str, Any]]:
    return [message.info for message in open_place(place).messages(session_id) if message.info["role"] == "assistant"]


def test_l7_a_call_whose_runner_is_killed_has_an_estimated_cost_that_counts(place: str) -> None:
    session_id = killed(place, Unending)
    assert asyncio.run(resumed(place, session_id)).kind == "answered"
    first, second = answers(place, session_id)
    (call,) = side_calls(first)
    assert (first["cost"], call["estimated"], call["agent"]) == (0, True, "build")
    assert call["tokens"]["output"] == 5_000
    assert call["tokens"]["input"] > 1_000, "the system prompt and the tools were sent"
    assert call["cost"] == pytest.approx(COST_OF_LONG + call["tokens"]["input"] * 3 / 1_000_000)
    entry = history.open(place).session(session_id)
    assert float(entry.cost) == pytest.approx(call["cost"] + second["cost"])
    assert asyncio.run(spent(place, session_id)) == pytest.approx(call["cost"] + second["cost"])


async def spent(place: str, session_id: str) -> float:
    async with open_engine(store=open_place(place)) as engine:
        return float((await engine.cost(session_id)).total.known)


def test_l7_a_budget_counts_the_calls_of_killed_runners(place: str) -> None:
    session_id = killed(place, Unending)
    settings = Settings(budget=Budget(session=Decimal("0.08")))
    outcome = asyncio.run(resumed(place, session_id, settings))
    assert outcome.kind == "failed"
    assert outcome.error["name"] == "BudgetExceededError"


def test_l7_usage_that_was_reported_survives_kill_9_while_tools_run(place: str) -> None:
    session_id = killed(place, Commanding)
    asyncio.run(resumed(place, session_id))
    first, _ = answers(place, session_id)
    assert first["cost"] == pytest.approx(COST_OF_REPORTED)
    assert first["tokens"]["input"] == REPORTED.input
    assert side_calls(first) == []


def test_l7_the_calls_of_subagents_are_recovered_with_their_parent(place: str) -> None:
    session_id = killed(place, Delegating)
    asyncio.run(resumed(place, session_id))
    (child,) = [value["id"] for _, value in open_place(place).scan(("session",)) if value.get("parentID") == session_id]
    (answer,) = answers(place, child)
    (call,) = side_calls(answer)
    assert call["cost"] > COST_OF_LONG
    assert answers(place, session_id)[0]["cost"] == pytest.approx(COST_OF_REPORTED)


def test_l7_a_summary_whose_runner_is_killed_counts(place: str) -> None:
    session_id = killed(place, Unending, compacts=True)
    asyncio.run(resumed(place, session_id))
    (call,) = [call for answer in answers(place, session_id) for call in side_calls(answer)]
    assert (call["agent"], call["estimated"], call["cost"] > 0) == ("compaction", True, True)


async def test_l7_a_call_that_is_aborted_counts_like_one_that_is_killed() -> None:
    received = asyncio.Event()
    async with open_harness(Unending(lambda _: received.set())) as harness:
        outcome = await harness.submit()
        await received.wait()
        harness.engine.abort(harness.session)
        assert (await outcome).kind == "aborted"
        (call,) = side_calls(harness.answers()[0].info)
        assert call["tokens"]["output"] == 5_000
        assert float((await harness.engine.cost(harness.session)).total.known) == pytest.approx(call["cost"])


async def test_l7_a_call_that_broke_off_counts_and_one_that_was_refused_does_not() -> None:
    refused = ModelError("overloaded", retryable=True)
    broken = [StartStep(), TextStart("t"), TextDelta("t", LONG), ModelError("reset", retryable=True)]
    settings = replace(IMPATIENT, budget=Budget(run=Decimal("0.1")))
    async with open_harness(Playing([refused], broken, broken, broken), settings=settings) as harness:
        outcome = await harness.ask()
        assert outcome.kind == "failed"
        assert outcome.error is not None
        assert outcome.error["name"] == "BudgetExceededError", "two that broke off are counted"
        calls = side_calls(harness.answers()[0].info)
        assert [call["tokens"]["output"] for call in calls] == [5_000]
