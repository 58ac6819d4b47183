"""One command from start to end: what it printed, how it ended, and what there is to say about that."""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING

from ...errors import ToolFailedError
from . import process
from .capture import Capture

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ..truncation import Outputs, Preview

_PROGRESS_EVERY = 0.2


async def _nobody_looks(output: str) -> None:
    pass


class Running:
    """A command that is run once, with :meth:`through`."""

    def __init__(
        self,
        outputs: Outputs,
        *,
        timeout_ms: float = math.inf,
        grace: float = process.GRACE,
        show: Callable[[str], Awaitable[None]] = _nobody_looks,
    ) -> None:
        """``show`` is given the last of the output when it begins, while it grows, and when it is cut off."""
        self._timeout_ms = timeout_ms
        self._grace = grace
        self._show = show
        self._capture = Capture(outputs)
        self.notes: list[str] = []
        """What whoever reads the output has to know."""
        self.exit_code: int | None = None
        """As a shell gives it: 128 and the number of the signal, if one ended the command. ``None`` if it was
        stopped."""

    @property
    def recent(self) -> str:
        """The last of the output."""
        return self._capture.recent()

    async def through(
        self, arguments: list[str], directory: str, environment: Mapping[str, str], *, errors: bool = True
    ) -> Preview:
        """Run it; its output, or as much of it as fits. Without ``errors`` its standard error is thrown away.

        Cancelled, the command and everything it started is ended.
        """
        await self._show(self.recent)
        running = await self._start(arguments, directory, environment, errors=errors)
        try:
            if await self._wait(running):
                code = running.exit_code
                self.exit_code = code if code is None or code >= 0 else 128 - code
        except BaseException as error:
            await running.stop(self._grace)
            if isinstance(error, asyncio.CancelledError):
                await self._show(self.recent)
            raise
        finally:
            running.close()
            self._capture.close()
        return self.finish()

    def finish(self) -> Preview:
        """What it printed until now."""
        return self._capture.finish()

    async def _start(
        self, arguments: list[str], directory: str, environment: Mapping[str, str], *, errors: bool
    ) -> process.Process:
        try:
            return await process.start(
                arguments, cwd=directory, env=environment, received=self._capture.feed, errors=errors
            )
        except OSError as error:
            raise ToolFailedError(f"{arguments[0]} could not be started: {error.strerror or error}") from error
        except asyncio.CancelledError:
            self._capture.close()
            await self._show(self.recent)
            raise

    async def _wait(self, running: process.Process) -> bool:
        """Until the command exits, or its time is up; whether it exited by itself."""
        deadline = time.monotonic() + self._timeout_ms / 1000
        shown = 0
        while not await running.wait(min(_PROGRESS_EVERY, max(0.0, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                await running.stop(self._grace)
                await running.drain()
                self.notes.append(
                    f"The command took longer than its timeout of {self._timeout_ms:g} ms and was stopped. "
                    "If it needs more time, run it again with a larger timeout."
                )
                return False
            if self._capture.size != shown:
                shown = self._capture.size
                await self._show(self.recent)
        if not await running.drain():
            self.notes.append(
                "A process that the command left in the background still has the output open. What it writes from now "
                "on is lost, and writing may end it: send its output to a file."
            )
        return True
