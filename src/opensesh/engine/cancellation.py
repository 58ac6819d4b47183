"""Work that is not left half done because the task that waits for it is cancelled."""

from __future__ import annotations

import asyncio
import os
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from concurrent.futures import Executor

P = ParamSpec("P")
T = TypeVar("T")


class _End(asyncio.Future[T]):
    """What comes of work. Whoever waits for it and is cancelled is told so when the work is done, not before."""

    def cancel(self, msg: Any = None) -> bool:
        """It cannot be: asyncio keeps the cancellation for the task's next step."""
        return False


async def to_the_end(work: Awaitable[T]) -> T:
    """What ``work`` answers. Cancelled, this waits until the work is done all the same, and is cancelled then."""
    done = asyncio.ensure_future(work)
    end: _End[None] = _End(loop=done.get_loop())
    done.add_done_callback(lambda _: end.set_result(None))
    try:
        await end
    except asyncio.CancelledError:
        if not done.cancelled():
            done.exception()
        raise
    return done.result()


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """``work`` in a thread, to its end. A write that has begun cannot be called back, so whoever is cancelled while
    it runs, and writes something newer then, must come after it."""
    loop = asyncio.get_running_loop()
    end: _End[T] = _End(loop=loop)
    # Not by way of the loop: a step does this ten times, and the futures it would chain cost more than most writes.
    _threads().submit(_perform, partial(work, *args, **kwargs), loop, end)
    try:
        return await end
    except asyncio.CancelledError:
        end.exception()
        raise


def _perform(work: Callable[[], T], loop: asyncio.AbstractEventLoop, end: _End[T]) -> None:
    try:
        answer = work()
    except BaseException as error:
        settle = partial(end.set_exception, error)
    else:
        settle = partial(end.set_result, answer)
    loop.call_soon_threadsafe(settle)  # a loop that is closed refuses it, and has nobody left who waits


@cache
def _threads() -> Executor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(thread_name_prefix="opensesh")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.cache_clear)  # a fork has none of its parent's threads
