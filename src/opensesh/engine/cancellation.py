"""Blocking work and cancellation: the threading idiom of the engine.

Stores, snapshots and files are accessed by synchronous code. The engine calls it through
:func:`run_in_thread_uncancellable`, under these rules:

- A thread cannot be interrupted, so neither can a call that has begun. A task that is cancelled while it waits keeps
  waiting until the call returns, and is cancelled then. What the task does about the cancellation (record that the
  run was aborted) is therefore written after what it had begun to write.
- Awaits that belong together (store a prompt, then start its run) are wrapped in :func:`run_uncancellable`, or are a
  function decorated with :func:`uncancellable`: by the same rule all of them happen, or none.
- What a call returned or raised is dropped when its caller was cancelled.
- :func:`asyncio.to_thread` is right only for work that takes long and that nothing depends on once the caller is
  cancelled, such as comparing snapshots of a large project.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from contextlib import suppress
from functools import cache, partial, wraps
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from types import CoroutineType

P = ParamSpec("P")
T = TypeVar("T")
_MAX_THREADS = 32


async def run_uncancellable(work: Awaitable[T]) -> T:
    """Await ``work`` to its end. A cancellation that arrives meanwhile is raised once the work is done."""
    task = asyncio.ensure_future(work)
    cancellation: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is not None:
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not report it
        raise cancellation
    return task.result()


def uncancellable(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, CoroutineType[Any, Any, T]]:
    """Make an async function run to its end even if its caller is cancelled; see :func:`run_uncancellable`."""

    @wraps(function)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return await run_uncancellable(function(*args, **kwargs))

    return run


async def run_in_thread_uncancellable(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call ``work`` in a thread and wait for it. A cancellation that arrives meanwhile is raised once it returned."""
    call = _ThreadCall(partial(work, *args, **kwargs), asyncio.get_running_loop())
    threads().submit(call)
    cancellation: asyncio.CancelledError | None = None
    while not call.is_done:
        # Each cancellation uses up one future, honestly: what is waited for next is another one.
        call.waiter = call.loop.create_future()
        try:
            await call.waiter
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is not None:
        raise cancellation
    if call.error is not None:
        try:
            raise call.error
        finally:
            del call  # its error holds this frame, which would hold it
    return cast("T", call.result)


class _ThreadCall(Generic[T]):
    """A call that a thread makes on behalf of a task."""

    __slots__ = ("error", "is_done", "loop", "result", "waiter", "work")

    def __init__(self, work: Callable[[], T], loop: asyncio.AbstractEventLoop) -> None:
        self.work = work
        self.loop = loop
        self.waiter: asyncio.Future[None] | None = None
        self.is_done = False
        self.result: T | None = None
        self.error: BaseException | None = None

    def wake(self) -> None:
        """Note, in the thread of the event loop, that the call has returned."""
        self.is_done = True
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class _ThreadPool:
    """Threads that take calls from one queue.

    A step makes about ten calls. The future that an executor makes for each, with its own lock and condition, would
    cost more than most of the writes.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[_ThreadCall[Any] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._unfinished = 0
        atexit.register(self._stop)

    def submit(self, call: _ThreadCall[Any]) -> None:
        with self._lock:
            if len(self._threads) < min(self._unfinished + 1, _MAX_THREADS):
                thread = threading.Thread(target=self._serve, name="opensesh", daemon=True)
                thread.start()  # raises to the caller, before anything is queued, where no thread can be had
                self._threads.append(thread)
            self._unfinished += 1
        self._queue.put(call)

    def _serve(self) -> None:
        while (call := self._queue.get()) is not None:
            try:
                call.result = call.work()
            except BaseException as error:
                call.error = error
            # Before the task wakes up: its next call then finds this thread free and does not start another.
            with self._lock:
                self._unfinished -= 1
            with suppress(RuntimeError):  # the event loop is closed
                call.loop.call_soon_threadsafe(call.wake)
            del call

    def _stop(self) -> None:
        """Finish what was queued, at the end of the process."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()


threads = cache(_ThreadPool)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=threads.cache_clear)  # a forked process has none of its parent's threads
