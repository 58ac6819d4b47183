"""Shared and exclusive locks between threads and between processes, on Linux, macOS and Windows.

They are advisory locks of the operating system on small files outside of any store: the locks of a process that dies
are released, and OpenCode, which takes no locks between processes, is not affected. Names are hashed to a fixed number
of files, so that there is not one lock file a record; two names may share a file and wait for each other.
"""

from __future__ import annotations

import os
import threading
import time
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..errors import StoreError
from .disk import write_failed

if TYPE_CHECKING:
    from collections.abc import Generator

_LOCK_FILES = 256
_POLL_SECONDS = 0.02
_held = threading.local()  # the paths of the lock files that this thread holds


class Locks:
    """The locks of one store, kept in ``folder``."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    @contextmanager
    def hold(self, name: str | None = None, *, shared: bool = False) -> Generator[None]:
        """Hold the lock of ``name`` until the block ends, or that of the whole store, which every writer holds
        ``shared``."""
        file = "all" if name is None else f"{zlib.crc32(name.encode()) % _LOCK_FILES:02x}"
        path = os.path.join(self.folder, file)
        held_paths: set[str] = _held.__dict__.setdefault("paths", set())
        if path in held_paths:
            raise StoreError("a store was called from inside its own update; that would wait forever")
        descriptor = open_lock_file(path)
        try:
            try:
                lock_file(descriptor, shared=shared)
            except OSError as error:
                reason = error.strerror or error
                raise StoreError(f"{path}: this file system does not support locks: {reason}") from error
            held_paths.add(path)
            try:
                yield
            finally:
                held_paths.discard(path)
        finally:
            os.close(descriptor)


def open_lock_file(path: str) -> int:
    """Open a lock file, creating it if necessary, and return a new descriptor."""
    try:
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise write_failed(path, error) from error


@contextmanager
def attempt_lock(path: str, *, shared: bool = False, timeout_seconds: float | None = 0) -> Generator[bool]:
    """Hold the lock of a file for the block; yield whether it was free within the time, for ever without one."""
    descriptor = open_lock_file(path)
    deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    try:
        while not (is_free := try_lock_file(descriptor, shared=shared)):
            if deadline is not None and time.monotonic() >= deadline:
                break
            time.sleep(_POLL_SECONDS)
        yield is_free
    finally:
        os.close(descriptor)


if os.name == "nt":
    from .locks_windows import lock_file, try_lock_file
else:
    import fcntl

    def lock_file(descriptor: int, *, shared: bool) -> None:
        """Wait for the lock. It is released when the descriptor is closed or the process ends."""
        fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)

    def try_lock_file(descriptor: int, *, shared: bool = False) -> bool:
        """Take the lock if it is free; return whether it was."""
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
