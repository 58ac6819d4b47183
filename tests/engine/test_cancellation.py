from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from opensesh.engine.cancellation import run_in_thread_uncancellable, run_uncancellable

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Waiting = Callable[[threading.Event], Coroutine[Any, Any, str]]

FORKED = """
import asyncio, os
from opensesh.engine.cancellation import run_in_thread_uncancellable

async def main():
    return await asyncio.wait_for(run_in_thread_uncancellable(os.getpid), 60)

assert asyncio.run(main()) == os.getpid()
child = os.fork()
if child == 0:
    os._exit(0 if asyncio.run(main()) == os.getpid() else 1)
assert os.waitpid(child, 0)[1] == 0
"""

ONE_BY_ONE = """
import asyncio, threading
from opensesh.engine.cancellation import run_in_thread_uncancellable

async def main():
    return {await run_in_thread_uncancellable(threading.get_ident) for _ in range(50)}

print(len(asyncio.run(main())))
"""
REFUSED = """
import asyncio, os, threading
from opensesh.engine.cancellation import run_in_thread_uncancellable

def refuse(thread):
    raise RuntimeError("can't start new thread")

async def main():
    start, threading.Thread.start = threading.Thread.start, refuse
    calls = [run_in_thread_uncancellable(os.getpid) for _ in range(100)]
    refused = await asyncio.gather(*calls, return_exceptions=True)
    print(*set(map(str, refused)))
    threading.Thread.start = start
    print(await asyncio.wait_for(run_in_thread_uncancellable(os.getpid), 60) == os.getpid())

asyncio.run(main())
"""
LEFT = """
import asyncio, atexit, os, threading
from opensesh.engine.cancellation import run_in_thread_uncancellable

go_on = threading.Event()

def work():
    assert go_on.wait(60)
    os.write(1, b"done\\n")

def leave():
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.create_task(run_in_thread_uncancellable(work))
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()

"""
IN_VAIN = f"""{LEFT}
for _ in range(50):
    leave()
go_on.set()
asyncio.run(run_in_thread_uncancellable(os.write, 1, b"more\\n"))
"""
AT_THE_END = f"""{LEFT}
leave()
atexit.register(go_on.set)
"""


def work(go_on: threading.Event) -> str:
    assert go_on.wait(60)
    return "done"


def broken(go_on: threading.Event) -> str:
    assert go_on.wait(60)
    raise OSError("the disk is full")


async def beside(go_on: threading.Event) -> str:
    return await run_uncancellable(asyncio.to_thread(work, go_on))


async def in_a_thread(go_on: threading.Event) -> str:
    return await run_in_thread_uncancellable(work, go_on)


async def broken_beside(go_on: threading.Event) -> str:
    return await run_uncancellable(asyncio.to_thread(broken, go_on))


async def broken_in_a_thread(go_on: threading.Event) -> str:
    return await run_in_thread_uncancellable(broken, go_on)


def printed(script: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", script], check=True, timeout=60, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    return ran.stdout.decode()


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


def test_where_no_thread_can_be_had_the_caller_gets_an_error_and_the_next_one_is_served() -> None:
    assert printed(REFUSED) == "can't start new thread\nTrue\n"


async def test_work_that_was_waited_for_in_vain_is_done_before_the_next_begins() -> None:
    written: list[str] = []
    go_on = threading.Event()

    def write(word: str) -> None:
        assert go_on.wait(60)
        written.append(word)

    async def writing() -> None:
        try:
            await run_in_thread_uncancellable(write, "first")
        finally:
            await run_in_thread_uncancellable(write, "second")

    async with asyncio.TaskGroup() as group:
        task = group.create_task(writing())
        await asyncio.sleep(0.01)
        task.cancel()
        go_on.set()
    assert written == ["first", "second"]


async def test_what_is_given_at_once_is_done_at_once() -> None:
    together = threading.Barrier(5)
    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(run_in_thread_uncancellable(together.wait, 10))


def test_what_is_given_one_after_another_is_done_by_one_thread() -> None:
    assert printed(ONE_BY_ONE) == "1\n"


def test_work_whose_loop_is_closed_costs_no_thread() -> None:
    assert sorted(printed(IN_VAIN).split()) == ["done"] * 50 + ["more"]


def test_what_was_given_is_done_before_the_program_ends() -> None:
    assert printed(AT_THE_END) == "done\n"


@pytest.mark.skipif(sys.platform == "win32", reason="there are no forks")
def test_a_fork_has_threads_of_its_own() -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED], check=True, timeout=60)
