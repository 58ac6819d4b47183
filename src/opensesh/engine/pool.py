"""A pool of engines, one a directory, for servers and other callers that work in many directories.

Engines are opened on demand and shared by concurrent users. One that no caller uses, and in which no session runs, is
closed after a while.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ..errors import UsageError
from .cancellation import run_uncancellable
from .opening import open_engine

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from types import TracebackType

    from .engine import Engine

log = logging.getLogger("opensesh.engine")


class EnginePool:
    """Engines by directory. Use it as an async context manager; leaving it closes all engines, which aborts their runs.

    ::

        async with EnginePool(partial(open_engine, store=store, bus=bus)) as pool:
            async with pool.use("/home/me/project") as engine:
                await engine.submit(session_id, "Why does test_parse fail?")
    """

    def __init__(self, new_engine: Callable[[str], Engine] = open_engine, *, idle_seconds: float = 300.0) -> None:
        """``new_engine`` returns an engine, not entered, for the real path of a directory. An engine that has been
        unused for ``idle_seconds`` is closed."""
        self._new_engine = new_engine
        self._idle_seconds = idle_seconds
        self._entries: dict[str, _Entry] = {}
        self._group = asyncio.TaskGroup()
        self._is_open = False

    async def __aenter__(self) -> EnginePool:
        await self._group.__aenter__()
        self._is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_open = False
        for entry in self._entries.values():
            entry.close()
        await self._group.__aexit__(None, None, None)

    @asynccontextmanager
    async def use(self, directory: str | os.PathLike[str]) -> AsyncGenerator[Engine]:
        """Open the engine of a directory, or share it, and keep it open in this context. Raises what opening raises,
        for every caller that waits for it; the next caller tries again.

        A run that was submitted goes on after the context: an engine is not closed while a session runs in it.
        """
        if not self._is_open:
            raise UsageError("this pool of engines is not open; write: async with EnginePool(...) as pool")
        path = os.path.realpath(directory)
        entry = self._entries.get(path)
        if entry is None or entry.is_closing:
            entry = self._entries[path] = _Entry(self._new_engine, path, after=entry)
            entry.task = self._group.create_task(self._serve(path, entry))
        entry.users += 1
        entry.changed.set()
        try:
            yield await asyncio.shield(entry.engine)
        finally:
            entry.users -= 1
            entry.changed.set()

    async def close(self, directory: str | os.PathLike[str]) -> bool:
        """Close the engine of a directory even if it is used, which aborts its runs; whether there was one. The next
        caller opens a new one."""
        entry = self._entries.get(os.path.realpath(directory))
        if entry is None or entry.task is None:
            return False
        entry.close()
        await asyncio.wait((entry.task,))
        return True

    def engines(self) -> dict[str, Engine]:
        """Return the engines that are open, by directory."""
        return {path: entry.engine.result() for path, entry in self._entries.items() if entry.is_usable}

    async def _serve(self, path: str, entry: _Entry) -> None:
        """Open, keep and close one engine. An engine's task group belongs to the task that enters it."""
        try:
            await entry.serve(self._idle_seconds)
        except Exception:
            # The other engines must not end because this one could not be closed properly.
            log.exception("the engine of %s could not be closed", path)
        finally:
            if self._entries.get(path) is entry:
                del self._entries[path]


class _Entry:
    """The engine of one directory."""

    def __init__(self, new_engine: Callable[[str], Engine], path: str, after: _Entry | None) -> None:
        """``after`` is an engine of the same directory that is being closed."""
        self._new_engine = new_engine
        self._path = path
        self._after = after
        self.engine: asyncio.Future[Engine] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[None] | None = None
        self.users = 0
        self.changed = asyncio.Event()
        self.is_closing = False

    @property
    def is_usable(self) -> bool:
        """Whether the engine is open and stays so."""
        return self.engine.done() and self.engine.exception() is None and not self.is_closing

    def close(self) -> None:
        """Close the engine even if it is used."""
        self.is_closing = True
        self.changed.set()

    async def serve(self, idle_seconds: float) -> None:
        """Open the engine, wait until it has been idle for ``idle_seconds`` or is closed, and close it."""
        try:
            if self._after is not None and self._after.task is not None:
                await asyncio.wait((self._after.task,))
                self._after = None
            engine = self._new_engine(self._path)
            await engine.__aenter__()
        except BaseException as error:
            self.is_closing = True  # the next caller gets a new entry
            self.engine.set_exception(error if isinstance(error, Exception) else asyncio.CancelledError())
            self.engine.exception()  # retrieved: there may be no caller left to raise it for
            if isinstance(error, Exception):
                return
            raise
        self.engine.set_result(engine)
        try:
            while not self.is_closing:
                self.changed.clear()
                is_idle = not self.users and not engine.status()
                try:
                    # A run that ends is noticed at the next look.
                    async with asyncio.timeout(idle_seconds):
                        await self.changed.wait()
                except TimeoutError:
                    self.is_closing = is_idle and not self.users and not engine.status()
        finally:
            self.is_closing = True
            await run_uncancellable(engine.__aexit__(None, None, None))
