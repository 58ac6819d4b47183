"""Work that is not left half done because the task that waits for it is cancelled."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from contextlib import suppress
from functools import cache, partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

P = ParamSpec("P")
T = TypeVar("T")
_AT_ONCE = 32
"""Threads, at the most."""


class _End(asyncio.Future[T]):
    """What comes of work. Whoever waits for it and is cancelled is told so when the work is done, not before."""

    def cancel(self, msg: Any = None) -> bool:
        """It cannot be: asyncio keeps the cancellation for the task's next step."""
        return False


async def run_uncancellable(work: Awaitable[T]) -> T:
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


async def run_in_thread_uncancellable(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """``work`` in a thread, to its end. A write that has begun cannot be called back, so whoever is cancelled while
    it runs, and writes something newer then, must come after it."""
    loop = asyncio.get_running_loop()
    end: _End[T] = _End(loop=loop)
    _threads().give(partial(work, *args, **kwargs), end)
    try:
        return await end
    except asyncio.CancelledError:
        end.exception()
        raise


class _Threads:
    """Threads that take their work from one queue.

    A step hands them ten things. The future that an executor makes for each, with a lock and a condition of its own,
    would cost more than most writes.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[Callable[[], Any], _End[Any]] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._open = 0
        """How much was given and is not done yet."""
        atexit.register(self._stop)

    def give(self, work: Callable[[], T], end: _End[T]) -> None:
        """Have ``work`` done, and ``end`` told what came of it."""
        with self._lock:
            if len(self._threads) < min(self._open + 1, _AT_ONCE):
                thread = threading.Thread(target=self._serve, name="opensesh", daemon=True)
                thread.start()  # where the system allows no more threads, the caller is told, and nothing waits for one
                self._threads.append(thread)
            self._open += 1
        self._queue.put((work, end))

    def _serve(self) -> None:
        while (given := self._queue.get()) is not None:
            work, end = given
            settle = _outcome(work, end)
            # Before it is told: whoever has more to do then finds this thread free, and need not wake another.
            with self._lock:
                self._open -= 1
            with suppress(RuntimeError):  # the loop is closed, and nobody is left who waits
                end.get_loop().call_soon_threadsafe(settle)
            del given, work, end, settle

    def _stop(self) -> None:
        """The program ends; what was given is done first."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()


def _outcome(work: Callable[[], T], end: _End[T]) -> Callable[[], None]:
    """Do ``work``; the answer tells ``end`` what came of it."""
    try:
        return partial(end.set_result, work())
    except BaseException as error:
        return partial(end.set_exception, error)


_threads = cache(_Threads)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.cache_clear)  # a fork has none of its parent's threads
