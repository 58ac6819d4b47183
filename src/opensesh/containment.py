"""Exceptions of code that is called but not part of this package: tools, plugin hooks, callbacks.

Such code may raise anything: :class:`SystemExit` when its ``argparse`` fails, :class:`KeyboardInterrupt`,
:class:`GeneratorExit`, or :class:`asyncio.CancelledError` because something that it awaited was cancelled. It must end
itself alone, not the task that called it, nor the event loop with every other session.
"""

from __future__ import annotations

import asyncio
from typing import Any


def describe(error: BaseException) -> str:
    """Return the class and the message of an error. A message is made by such code, too."""
    try:
        message = str(error)
    except BaseException as failure:
        message = f"its message could not be read: {type(failure).__name__}"
    return f"{type(error).__name__}: {message}"


def ends_task(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """Return whether ``error``, raised by code that ``task`` called, is the end of the task itself: its cancellation,
    or its coroutine being closed with the event loop. Everything else is a failure of the code."""
    if isinstance(error, asyncio.CancelledError):
        return task is not None and task.cancelling() > 0
    if isinstance(error, GeneratorExit):
        try:
            return asyncio.current_task() is not task
        except RuntimeError:  # no event loop runs any more
            return True
    return False
