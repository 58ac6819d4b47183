from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from opensesh.engine.cancellation import in_thread, to_the_end

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Waiting = Callable[[threading.Event], Coroutine[Any, Any, str]]

FORKED = """
import asyncio, os, time
from opensesh.engine.cancellation import in_thread

async def main():
    return await asyncio.wait_for(in_thread(os.getpid), 10)

assert asyncio.run(main()) == os.getpid()
time.sleep(0.2)  # until its thread waits for more
child = os.fork()
if child == 0:
    os._exit(0 if asyncio.run(main()) == os.getpid() else 1)
assert os.waitpid(child, 0)[1] == 0
"""


def work(go_on: threading.Event) -> str:
    assert go_on.wait(10)
    return "done"


def broken(go_on: threading.Event) -> str:
    assert go_on.wait(10)
    raise OSError("the disk is full")


async def beside(go_on: threading.Event) -> str:
    return await to_the_end(asyncio.to_thread(work, go_on))


async def in_a_thread(go_on: threading.Event) -> str:
    return await in_thread(work, go_on)


async def broken_beside(go_on: threading.Event) -> str:
    return await to_the_end(asyncio.to_thread(broken, go_on))


async def broken_in_a_thread(go_on: threading.Event) -> str:
    return await in_thread(broken, go_on)


@pytest.mark.parametrize("waiting", [beside, in_a_thread])
async def test_work_gives_its_answer(waiting: Waiting) -> None:
    go_on = threading.Event()
    go_on.set()
    assert await waiting(go_on) == "done"


@pytest.mark.parametrize("waiting", [broken_beside, broken_in_a_thread])
async def test_work_that_fails_says_so(waiting: Waiting) -> None:
    go_on = threading.Event()
    go_on.set()
    with pytest.raises(OSError, match="the disk is full"):
        await waiting(go_on)


@pytest.mark.parametrize("waiting", [beside, in_a_thread, broken_beside, broken_in_a_thread])
async def test_who_is_cancelled_is_so_when_the_work_is_done_however_it_ended(waiting: Waiting) -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, complaint: complaints.append(complaint))
    go_on = threading.Event()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(waiting(go_on))
        for _ in range(3):
            await asyncio.sleep(0.01)
            task.cancel("enough")
            assert not task.done()
        go_on.set()
    assert task.cancelled()
    del task
    gc.collect()
    assert complaints == []


async def test_work_that_was_waited_for_in_vain_is_done_before_the_next_begins() -> None:
    written: list[str] = []
    go_on = threading.Event()

    def write(word: str) -> None:
        assert go_on.wait(10)
        written.append(word)

    async def writing() -> None:
        try:
            await in_thread(write, "first")
        finally:
            await in_thread(write, "second")

    async with asyncio.TaskGroup() as group:
        task = group.create_task(writing())
        await asyncio.sleep(0.01)
        task.cancel()
        go_on.set()
    assert written == ["first", "second"]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no forks")
def test_a_fork_has_threads_of_its_own() -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED], check=True, timeout=20)
