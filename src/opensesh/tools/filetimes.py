"""Read-before-write checks: the state in which a session last saw each file.

A model that overwrites a file it has not read, or that has changed since, destroys content it does not know about. The
tools record the state of each file they read or write, and refuse to overwrite a file in another state.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from ..errors import ToolFailedError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


FileLocks = WeakValueDictionary[str, asyncio.Lock]
"""One lock for each file, by its real path, for all sessions that share this object."""


class FileTimes:
    """Modification time and size of the files of one session, as the session last read or wrote them."""

    def __init__(self, *, locks: FileLocks | None = None, required: bool = True) -> None:
        """``locks`` should be shared by the sessions of a process. ``required=False`` disables the checks."""
        self._locks = FileLocks() if locks is None else locks
        self._required = required
        self._seen: dict[str, tuple[int, int]] = {}

    def note(self, path: str) -> None:
        """Record that the file was just read or written."""
        state = _state(path)
        if state is None:
            self.forget(path)
        else:
            self._seen[os.path.realpath(path)] = state

    def forget(self, path: str) -> None:
        """Record that the file was deleted."""
        self._seen.pop(os.path.realpath(path), None)

    def check(self, path: str) -> None:
        """Raise :class:`ToolFailedError` unless the file is as the session last saw it."""
        if not self._required:
            return
        seen = self._seen.get(os.path.realpath(path))
        if seen is None:
            raise ToolFailedError(
                f"{path} has not been read in this session. Read it first, then change it.", path=path
            )
        if seen != _state(path):
            raise ToolFailedError(
                f"{path} has changed since it was last read. Read it again, then change it.", path=path
            )

    @asynccontextmanager
    async def lock(self, *paths: str) -> AsyncGenerator[None]:
        """Keep other tool calls from changing these files inside the ``with`` block."""
        async with AsyncExitStack() as stack:
            # All names of one file have one lock; one order for all callers prevents a deadlock.
            for path in sorted(set(map(os.path.realpath, paths))):
                await stack.enter_async_context(self._locks.setdefault(path, asyncio.Lock()))
            yield


def _state(path: str) -> tuple[int, int] | None:
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size
