"""A lease a session: one runner at a time, whatever the number of processes.

Holding the lease is holding an operating-system lock on a small file outside of the store, so the lease of a process
that dies is free at once and cannot be held by two. The file also says who holds it: owner, host, pid, since when,
and a heart-beat. Those are for people, and for telling a runner that is stuck from one that works.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import TYPE_CHECKING

import msgspec

from .. import ids
from ..errors import BusyError
from . import paths
from .disk import write_failed
from .json_tree.store import read_file, tree_name
from .keys import check_key
from .locks import open_lock_file, try_lock_file

if TYPE_CHECKING:
    from types import TracebackType

    from .protocol import Store

HEARTBEAT_MS = 5_000
"""How often a runner should call :meth:`Lease.beat`."""
_STALE_MS = 6 * HEARTBEAT_MS


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who runs a session."""

    owner: str
    """What the runner calls itself: ``opensesh run``, ``opensesh serve``."""
    host: str
    pid: int
    started: int
    """When the lease was taken, in milliseconds."""
    beat: int
    """The last sign of life."""

    @property
    def stuck(self) -> bool:
        """Alive, for the lock is held, but silent for longer than any healthy runner is."""
        return ids.now_ms() - self.beat > _STALE_MS

    def __str__(self) -> str:
        silence = (ids.now_ms() - self.beat) // 1000
        return f"{self.owner} (pid {self.pid} on {self.host}){f', silent for {silence} s' if self.stuck else ''}"


class Lease:
    """The right to run one session, until :meth:`release` or the end of the ``with`` block."""

    def __init__(self, session_id: str, descriptor: int, holder: Holder, previous: Holder | None) -> None:
        self.session_id = session_id
        self.holder = holder
        self.previous = previous
        """Who held it last and never let go: a runner that died, whose work may need to be taken up."""
        self._descriptor = descriptor
        self._turn = threading.Lock()
        _held.add(self)

    def beat(self) -> None:
        """Give a sign of life. One that the disk refuses, or that comes after the release, is left out."""
        # The turn keeps a beat from another thread off a descriptor whose number the system has given to another file.
        with self._turn:
            if self._descriptor >= 0:
                self.holder = msgspec.structs.replace(self.holder, beat=ids.now_ms())
                try:
                    _inscribe(self._descriptor, self.holder)
                except OSError:
                    return

    def release(self) -> None:
        """Let go. Doing it twice is no error."""
        with self._turn:
            if self._descriptor >= 0:
                descriptor, self._descriptor = self._descriptor, -1
                _held.discard(self)
                try:
                    os.ftruncate(descriptor, 0)
                finally:
                    os.close(descriptor)

    def leave_to_parent(self) -> None:
        """In a forked child: the lease is the parent's, and must not outlive it here."""
        self._turn = threading.Lock()
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Leases:
    """The leases of one store's sessions."""

    def __init__(self, store: Store, *, folder: str | None = None) -> None:
        self.folder = folder or os.path.join(paths.state(), "leases", tree_name(store.place))

    def acquire(self, session_id: str, owner: str) -> Lease:
        """Become the session's runner, or :class:`BusyError` with who is. A dead runner's lease is taken over."""
        descriptor = open_lock_file(self._file(session_id))
        if not _patiently(descriptor):
            os.close(descriptor)
            holder = self.holder(session_id)
            raise BusyError(
                f"session {session_id} is being run by {holder or 'someone else'}. Wait for it, or stop it first.",
                session=session_id,
                holder=msgspec.to_builtins(holder),
            )
        now = ids.now_ms()
        path = self._file(session_id)
        previous = _inscription(path)
        holder = Holder(owner=owner, host=socket.gethostname(), pid=os.getpid(), started=now, beat=now)
        try:
            _inscribe(descriptor, holder)
        except OSError as error:
            os.close(descriptor)
            raise write_failed(path, error) from error
        return Lease(session_id, descriptor, holder, previous)

    def holder(self, session_id: str) -> Holder | None:
        """Who runs the session at this moment; ``None`` when nobody does."""
        path = self._file(session_id)
        if not os.path.exists(path):
            return None
        descriptor = open_lock_file(path)
        try:
            return None if try_lock_file(descriptor, shared=True) else _inscription(path)
        finally:
            os.close(descriptor)

    def abandoned(self) -> list[tuple[str, Holder]]:
        """Sessions whose runner died before it let go."""
        try:
            names = sorted(os.listdir(self.folder))
        except FileNotFoundError:
            return []
        found = [(name, _inscription(os.path.join(self.folder, name))) for name in names]
        return [(name, holder) for name, holder in found if holder and self.holder(name) is None]

    def _file(self, session_id: str) -> str:
        return os.path.join(self.folder, *check_key((session_id,)))


_held: set[Lease] = set()


def _after_fork() -> None:
    for lease in tuple(_held):
        lease.leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _patiently(descriptor: int) -> bool:
    # Whoever only asks who the holder is has the lock for an instant; that must not look like a runner.
    for _ in range(10):
        if try_lock_file(descriptor):
            return True
        time.sleep(0.005)
    return False


def _inscribe(descriptor: int, holder: Holder) -> None:
    data = msgspec.json.encode(holder)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.ftruncate(descriptor, os.write(descriptor, data.ljust(512) + b"\n"))


def _inscription(path: str) -> Holder | None:
    try:
        return msgspec.json.decode(read_file(path), type=Holder)
    except (OSError, msgspec.MsgspecError):
        return None
