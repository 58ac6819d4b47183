"""What a session has seen of the files it is about to change.

A model that writes over a file it has not read, or that has changed since, destroys what it does not know of. So the
tools note the state of each file they read or write, and refuse to overwrite one that is in another state.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from ..errors import ToolFailedError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class FileLocks:
    """One lock a file, for all the sessions that share this object."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, path: str) -> asyncio.Lock:
        """The lock of the file at ``path``, by whatever name."""
        key = os.path.realpath(path)
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock


class FileTimes:
    """The files of one session, each in the state in which the session last read or wrote it."""

    def __init__(self, *, locks: FileLocks | None = None, required: bool = True) -> None:
        """``locks`` should be shared by the sessions of a process. With ``required=False``, nothing is refused."""
        self._locks = locks or FileLocks()
        self._required = required
        self._seen: dict[str, tuple[int, int]] = {}

    def note(self, path: str) -> None:
        """The file was read or written just now."""
        state = _state(path)
        if state is None:
            self.forget(path)
        else:
            self._seen[os.path.realpath(path)] = state

    def forget(self, path: str) -> None:
        """The file is gone."""
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
        """Keep every other tool call from changing these files meanwhile."""
        locks = {id(lock): lock for lock in map(self._locks.of, paths)}
        keyed = sorted(locks.values(), key=id)  # one order for all, so that no two wait for each other
        taken: list[asyncio.Lock] = []
        try:
            for lock in keyed:
                await lock.acquire()
                taken.append(lock)
            yield
        finally:
            for lock in reversed(taken):
                lock.release()


def _state(path: str) -> tuple[int, int] | None:
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size
