"""Work that is not left half done because the task that waits for it is cancelled."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

P = ParamSpec("P")
T = TypeVar("T")


async def to_the_end(work: Awaitable[T]) -> T:
    """What ``work`` answers. Cancelled, this waits until the work is done all the same, and is cancelled then."""
    done = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not done.done():
        try:
            await asyncio.wait([done])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not done.cancelled():
            done.exception()
        raise cancelled
    return done.result()


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """``work`` in a thread, to its end. A write that has begun cannot be called back, so whoever is cancelled while
    it runs, and writes something newer then, must come after it."""
    return await to_the_end(asyncio.get_running_loop().run_in_executor(None, partial(work, *args, **kwargs)))
