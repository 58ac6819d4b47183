from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from opensesh.engine.engine import Engine
from opensesh.engine.opening import open_engine
from opensesh.engine.pool import EnginePool
from opensesh.errors import UsageError
from opensesh.storage.memory import Memory
from opensesh.testing.scripted import ScriptedModel


class Opening:
    """Counts the engines that it makes."""

    def __init__(self, script: str = "SAY Hello.") -> None:
        self.opened: list[str] = []
        self._open: Callable[[str], Engine] = partial(
            open_engine, store=Memory(), scripts={"it": ScriptedModel(script)}
        )

    def __call__(self, directory: str) -> Engine:
        self.opened.append(directory)
        return self._open(directory)


async def closed(pool: EnginePool) -> None:
    async with asyncio.timeout(60):
        while pool.engines():
            await asyncio.sleep(0.01)


async def test_concurrent_users_of_a_directory_share_one_engine(tmp_path: Path) -> None:
    opening = Opening()
    async with EnginePool(opening) as pool:

        async def use(directory: Path) -> Engine:
            async with pool.use(directory) as engine:
                await asyncio.sleep(0.01)
                return engine

        engines = await asyncio.gather(*(use(tmp_path) for _ in range(10)), use(tmp_path / "."))
        assert len({id(engine) for engine in engines}) == 1
        assert opening.opened == [str(tmp_path.resolve())]


async def test_each_directory_has_an_engine(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    async with EnginePool(Opening()) as pool, pool.use(tmp_path / "one") as one, pool.use(tmp_path / "two") as two:
        assert one is not two
        assert set(pool.engines()) == {str(tmp_path / "one"), str(tmp_path / "two")}


async def test_an_engine_that_is_idle_is_closed_and_opened_again_on_demand(tmp_path: Path) -> None:
    opening = Opening()
    async with EnginePool(opening, idle_seconds=0.02) as pool:
        async with pool.use(tmp_path) as engine:
            await asyncio.sleep(0.1)  # used, so that it stays open
            assert pool.engines() == {str(tmp_path.resolve()): engine}
        await closed(pool)
        async with pool.use(tmp_path) as again:
            assert again is not engine
            assert (await again.create(title="x")).title == "x"
    assert len(opening.opened) == 2


async def test_an_engine_in_which_a_session_runs_is_not_idle(tmp_path: Path) -> None:
    async with EnginePool(Opening("WAIT 0.3\nSAY Done."), idle_seconds=0.02) as pool:
        async with pool.use(tmp_path) as engine:
            session = await engine.create(title="x")
            outcome = await engine.submit(session.id, "go", model="scripted/it")
        assert (await asyncio.wait_for(outcome, 60)).kind == "answered"
        await closed(pool)


async def test_a_failure_to_open_reaches_every_waiting_user_and_the_next_one_tries_again(tmp_path: Path) -> None:
    directory = tmp_path / "later"
    async with EnginePool(Opening()) as pool:

        async def use() -> None:
            async with pool.use(directory):
                pass

        failures = await asyncio.gather(*(use() for _ in range(3)), return_exceptions=True)
        assert [type(failure) for failure in failures] == [UsageError] * 3
        directory.mkdir()
        async with pool.use(directory) as engine:
            assert engine.location.directory == str(directory)


async def test_leaving_the_pool_aborts_the_runs_that_are_active(tmp_path: Path) -> None:
    async with EnginePool(Opening("HANG")) as pool, pool.use(tmp_path) as engine:
        session = await engine.create(title="x")
        outcome = await engine.submit(session.id, "go", model="scripted/it")
    assert (await asyncio.wait_for(outcome, 60)).kind == "aborted"
    with pytest.raises(UsageError, match="not open"):
        async with pool.use(tmp_path):
            pass
