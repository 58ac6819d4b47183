"""Shared and exclusive locks that hold between threads and between processes, on Linux, macOS and Windows.

They are advisory locks of the operating system on small files outside of any store, so a process that dies lets go of
them, and OpenCode, which takes no locks between processes, never meets them. Names are spread over a fixed number of
files: two different names may share a file and wait for each other, but no store grows a lock file a record.
"""

from __future__ import annotations

import os
import threading
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..errors import StoreError
from .disk import write_failed

if TYPE_CHECKING:
    from collections.abc import Generator

_STRIPES = 256
_held = threading.local()


class Locks:
    """The locks of one store, kept in ``folder``."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    @contextmanager
    def exclusive(self, name: str) -> Generator[None]:
        """Alone with ``name``: no other holder, shared or exclusive, until the block ends."""
        with self._hold(self._stripe(name), shared=False):
            yield

    @contextmanager
    def shared(self, name: str) -> Generator[None]:
        """Together with other shared holders of ``name``, never with an exclusive one."""
        with self._hold(self._stripe(name), shared=True):
            yield

    @contextmanager
    def exclusive_store_lock(self) -> Generator[None]:
        """Alone with the whole store: waits for all who hold anything in it, and keeps newcomers out."""
        with self._hold("all", shared=False):
            yield

    @contextmanager
    def shared_store_lock(self) -> Generator[None]:
        """At work somewhere in the store; keeps :meth:`exclusive_store_lock` waiting."""
        with self._hold("all", shared=True):
            yield

    def _stripe(self, name: str) -> str:
        return f"{zlib.crc32(name.encode()) % _STRIPES:02x}"

    @contextmanager
    def _hold(self, stripe: str, *, shared: bool) -> Generator[None]:
        path = os.path.join(self.folder, stripe)
        held: set[str] = _held.__dict__.setdefault("paths", set())
        if path in held:
            raise StoreError("a store was called from inside its own update; that would wait forever")
        descriptor = open_lock_file(path)
        try:
            _wait_for(descriptor, path, shared=shared)
            held.add(path)
            try:
                yield
            finally:
                held.discard(path)
        finally:
            os.close(descriptor)


def _wait_for(descriptor: int, path: str, *, shared: bool) -> None:
    try:
        lock_file(descriptor, shared=shared)
    except OSError as error:
        raise StoreError(f"{path}: this file system has no locks to offer: {error.strerror or error}") from error


def open_lock_file(path: str) -> int:
    """A descriptor of its own for a lock file, which is made if need be."""
    try:
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise write_failed(path, error) from error


if os.name == "nt":
    from .locks_windows import lock_file, try_lock_file
else:
    import fcntl

    def lock_file(descriptor: int, *, shared: bool) -> None:
        """Wait for the lock. It ends when the descriptor is closed, or its process is gone."""
        fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)

    def try_lock_file(descriptor: int, *, shared: bool = False) -> bool:
        """Take the lock if that needs no waiting."""
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
