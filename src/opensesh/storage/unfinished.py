"""Notes about work in several steps.

A note is kept in the state folder while the work lasts, and says how to complete or undo it. A process that dies leaves
its notes behind, and the next command does what they say. A note is locked by the process that works: a lock is
released when its process ends, even by a crash.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from . import paths
from .disk import Disk, names_in, read_file, write_failed
from .locks import attempt_lock, lock_file, open_lock_file

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

_LOCK, _NEW = ".lock", ".new"


def folder() -> str:
    """Return the folder of the notes; it is empty, or missing, if nothing is unfinished."""
    return os.path.join(paths.state(), "unfinished")


def has_notes() -> bool:
    """Return whether there may be something to complete: of a process that works, or of one that died."""
    return bool(names_in(folder()))


class Note:
    """A note that this process keeps."""

    def __init__(self, path: str, disk: Disk) -> None:
        self._path = path
        self._disk = disk

    def write(self, content: bytes) -> None:
        """Replace what the note says."""
        try:
            self._disk.discard(self._path + _NEW)
            self._disk.fill(self._disk.create(self._path + _NEW), content)
        except OSError as error:
            raise write_failed(self._path, error) from error
        self._disk.move_into_place(self._path + _NEW, self._path)
        self._disk.sync_name(self._path)


@contextmanager
def noted(kind: str, content: bytes = b"", *, durable: bool = True) -> Generator[Note]:
    """Keep a note while the block runs; without ``content``, from when the block writes it.

    An exception removes it as well, because the caller handles or reports that; an interruption from outside, such as
    :class:`KeyboardInterrupt`, leaves it to the next command.
    """
    disk = Disk(durable=durable)
    path = os.path.join(folder(), f"{kind}-{os.urandom(6).hex()}")
    descriptor = _locked(path + _LOCK)  # before the note exists, so that it never looks abandoned
    note = Note(path, disk)
    try:
        if content:
            note.write(content)
        try:
            yield note
        except Exception:
            disk.remove(path)
            raise
        disk.remove(path)
    finally:
        os.close(descriptor)
        if not os.path.exists(path):
            _discard(path)


def abandoned(kind: str) -> Iterator[tuple[str, bytes]]:
    """Iterate over the notes of processes that ended. Each is locked until the next is asked for.

    The caller removes it with :func:`forget` when it has done what the note says.
    """
    prefix = f"{kind}-" if kind else tuple("0123456789")  # the notes of earlier versions have a time for a kind
    names = {os.path.splitext(name)[0] for name in names_in(folder()) if name.startswith(prefix)}
    for path in (os.path.join(folder(), name) for name in sorted(names)):
        with attempt_lock(path + _LOCK) as is_free:
            if is_free and os.path.exists(path):
                yield path, read_file(path)
            elif is_free:
                _discard(path)  # completed meanwhile, or not begun


def forget(path: str) -> None:
    """Remove a note."""
    Disk().remove(path)
    _discard(path)


def _discard(path: str) -> None:
    """Remove the files beside a note that does not exist any more."""
    for suffix in (_NEW, _LOCK):
        Disk().discard(path + suffix)


def _locked(path: str) -> int:
    """Create and lock a lock file. Another process may take it for one that was left behind, and remove it first."""
    while True:
        descriptor = open_lock_file(path)
        lock_file(descriptor, shared=False)
        try:
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        except FileNotFoundError:
            pass
        os.close(descriptor)
