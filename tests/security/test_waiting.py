from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

import pytest

from opensesh import events
from opensesh.engine.loop import Outcome
from opensesh.engine.opening import open_engine
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.leases import leases_of
from opensesh.testing.scripted import ScriptedModel
from tests.engine.harness import Acting, EngineHarness, open_harness

Start = Callable[[EngineHarness], Awaitable["asyncio.Future[Outcome] | None"]]


async def by_submit(harness: EngineHarness) -> asyncio.Future[Outcome] | None:
    return await harness.submit("Go.")


async def by_command(harness: EngineHarness) -> asyncio.Future[Outcome] | None:
    return await harness.engine.command(harness.session, "go", model="scripted/it")


async def by_resume(harness: EngineHarness) -> asyncio.Future[Outcome] | None:
    await harness.submit("Go.")
    return await harness.engine.resume(harness.session)


async def by_compact(harness: EngineHarness) -> asyncio.Future[Outcome] | None:
    await harness.submit("Go.")
    return await harness.engine.compact(harness.session)


@pytest.mark.parametrize("start", [by_submit, by_command, by_resume, by_compact])
async def test_h9_a_wait_that_times_out_leaves_the_run_and_its_lease_alone(start: Start) -> None:
    may_end = asyncio.Event()

    async def wait(arguments: object, ctx: object) -> str:
        await may_end.wait()
        return "waited"

    script = "CALL wait {}\n---\nSAY one\n---\nSAY two\n---\nSAY three"
    config = {"command": {"go": {"template": "Go."}}}
    store = JsonTree("storage")
    async with open_harness(script, tools=[Acting("wait", wait)], store=store, config=config) as harness:
        outcome = await start(harness)
        assert outcome is not None
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await outcome
        assert outcome.cancelled()
        others = await harness.engine.resume(harness.session)
        assert others is not None
        may_end.set()
        assert (await asyncio.wait_for(others, 30)).kind == "answered"
        assert harness.engine.status() == {}
        assert (await harness.ask("Again.")).kind == "answered"
        leases_of(store).acquire(harness.session, "another").release()
        if start is by_command:
            assert harness.published(events.CommandExecuted), "the caller's wait is not the command"


async def test_h9_no_descriptor_is_left_by_waits_that_were_cancelled() -> None:
    async with open_engine(
        store=JsonTree("storage"), scripts={"it": ScriptedModel("SAY a\n" + "---\nSAY b\n" * 40)}
    ) as engine:
        session = await engine.create(title="A title")
        await engine.run(session.id, "Go.", model="scripted/it")
        before = len(os.listdir("/dev/fd"))
        for _ in range(20):
            outcome = await engine.submit(session.id, "Go.", model="scripted/it")
            outcome.cancel()
            running = await engine.resume(session.id)
            if running is not None:
                await asyncio.wait_for(running, 30)
        assert len(os.listdir("/dev/fd")) <= before + 2
        assert engine.status() == {}
