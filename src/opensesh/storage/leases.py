"""Leases of sessions: at most one runner a session.

:class:`FileLeases` are for stores of one host. Holding a lease is holding an operating-system lock on a small file
outside of the store, so the lease of a process that dies is free at once and cannot be held twice. The file also
contains the :class:`Holder`, for error messages and to distinguish a runner that hangs from one that works. A process
with another state folder, in a container for instance, does not see that file. So the folder of the session's messages
in a tree is locked as well, which leaves no trace there.
:class:`ProcessLeases` are for stores that do not outlive the process.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from .. import ids
from ..errors import BusyError
from . import paths
from .disk import names_in, read_file, write_failed
from .keys import check_key
from .locks import attempt_lock, open_lock_file, try_lock_file
from .protocol import FileTree, Lease, LeaseProvider, member_stores

if TYPE_CHECKING:
    from collections.abc import Callable

    from .protocol import Leases, Store

HEARTBEAT_MS = 5_000
"""How often a runner should call :meth:`Lease.heartbeat`."""
_STALE_MS = 6 * HEARTBEAT_MS
_LOCK_ATTEMPTS = 10
_LOCK_RETRY_SECONDS = 0.005
_HOLDER_BYTES = 512


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """The runner of a session."""

    owner: str
    """What the runner calls itself: ``opensesh run``, ``opensesh serve``."""
    host: str
    pid: int
    started: int
    """When the lease was acquired, in milliseconds."""
    beat: int
    """The last heartbeat, in milliseconds."""

    @property
    def stuck(self) -> bool:
        """Whether the runner is alive, for it holds the lock, but has missed several heartbeats."""
        return ids.now_ms() - self.beat > _STALE_MS

    def __str__(self) -> str:
        if not self.pid:  # not known
            return self.owner
        silence = (ids.now_ms() - self.beat) // 1000
        return f"{self.owner} (pid {self.pid} on {self.host}){f', silent for {silence} s' if self.stuck else ''}"


def is_alive(process_id: int) -> bool:
    """Whether a process of this host exists. On Windows, where asking would end it, every process seems to."""
    if os.name == "nt":
        return True
    try:
        os.kill(process_id, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass  # of another user
    return True


def leases_of(store: Store) -> Leases:
    """Return the leases of a store: its own, or file leases of this host if it does not provide any."""
    return store.leases() if isinstance(store, LeaseProvider) else FileLeases.of(store)


class FileLeases:
    """Leases held with file locks by processes of this host, in ``folder``, for the sessions of a tree at ``root``."""

    def __init__(self, folder: str, root: str = "") -> None:
        self.folder = folder
        self._root = root

    @classmethod
    def of(cls, store: Store) -> FileLeases:
        """Return the leases of a store, in the state folder."""
        roots = (member.root for member in member_stores(store) if isinstance(member, FileTree))
        return cls(os.path.join(paths.state(), "leases", paths.digest(store.id)), next(roots, ""))

    def acquire(self, session_id: str, owner: str) -> FileLease:
        """Become the session's runner, or raise :class:`BusyError`. A dead runner's lease is taken over."""
        path = self._file(session_id)
        descriptor = open_lock_file(path)
        messages = MessagesLock(self._root, session_id)
        if not _is_locked(partial(try_lock_file, descriptor)) or not _is_locked(messages.attempt):
            os.close(descriptor)
            raise _busy(session_id, self.holder(session_id))
        previous = _read_holder(path)
        holder = _new_holder(owner)
        try:
            _write_holder(descriptor, holder)
        except OSError as error:
            os.close(descriptor)
            messages.release()
            raise write_failed(path, error) from error
        return FileLease(session_id, descriptor, holder, previous, messages)

    def holder(self, session_id: str) -> Holder | None:
        """Return who runs the session now, or ``None``."""
        path = self._file(session_id)
        if os.path.exists(path):
            with attempt_lock(path, shared=True) as is_free:
                if not is_free:
                    return _read_holder(path)
        messages = MessagesLock(self._root, session_id)
        if messages.attempt(shared=True):
            messages.release()
            return None
        now = ids.now_ms()
        return Holder(owner="a process with another state folder", host="?", pid=0, started=now, beat=now)

    def held(self) -> list[tuple[str, Holder]]:
        """Return the sessions that run now, with their runners."""
        return [(name, holder) for name in names_in(self.folder) if (holder := self.holder(name)) is not None]

    def abandoned(self) -> list[tuple[str, Holder]]:
        """Return the sessions whose runner died before it released the lease."""
        holders = [(name, _read_holder(os.path.join(self.folder, name))) for name in names_in(self.folder)]
        return [(name, holder) for name, holder in holders if holder and self.holder(name) is None]

    def _file(self, session_id: str) -> str:
        return os.path.join(self.folder, *check_key((session_id,)))


class MessagesLock:
    """A lock on the folder of a session's messages in the tree at ``root``. A folder that does not exist yet is not
    locked."""

    def __init__(self, root: str, session_id: str) -> None:
        self._folder = os.path.join(root, "message", session_id) if root else ""
        self._descriptor = -1

    def attempt(self, *, shared: bool = False) -> bool:
        """Take the lock; return whether no other process has it."""
        if self._descriptor >= 0 or not self._folder:
            return True
        try:
            descriptor = os.open(self._folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        except OSError:  # it does not exist, or the system does not open folders, as Windows
            return True
        try:
            is_free = try_lock_file(descriptor, shared=shared)
        except OSError:  # a file system that does not lock folders
            os.close(descriptor)
            return True
        if is_free:
            self._descriptor = descriptor
        else:
            os.close(descriptor)
        return is_free

    def release(self) -> None:
        """Give the lock up, if it was taken."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class FileLease(Lease):
    """A lease of :class:`FileLeases`, until :meth:`release` or the end of the ``with`` block."""

    def __init__(
        self, session_id: str, descriptor: int, holder: Holder, previous: Holder | None, messages: MessagesLock
    ) -> None:
        self.session_id = session_id
        self.holder = holder
        self._messages = messages
        self.previous = previous
        """The holder that died without a release, if there was one: its work may need recovery."""
        self._descriptor = descriptor
        self._lock = threading.Lock()
        _open_leases.add(self)

    def heartbeat(self) -> None:
        """Record that the runner is alive. A failure, or a call after the release, is ignored."""
        # Without the lock, a release in another thread could close the descriptor, whose number the system may already
        # have given to another file.
        with self._lock:
            if self._descriptor >= 0:
                self._messages.attempt()  # a new session has the folder since its first message
                self.holder = msgspec.structs.replace(self.holder, beat=ids.now_ms())
                try:
                    _write_holder(self._descriptor, self.holder)
                except OSError:
                    return

    def release(self) -> None:
        """Give the lease up. Releasing twice is not an error."""
        with self._lock:
            if self._descriptor >= 0:
                descriptor, self._descriptor = self._descriptor, -1
                _open_leases.discard(self)
                try:
                    os.ftruncate(descriptor, 0)
                finally:
                    self._messages.release()
                    os.close(descriptor)

    def close_in_child(self) -> None:
        """Close the descriptor in a forked child: the lease belongs to the parent and must not outlive it here."""
        self._lock = threading.Lock()
        self._messages.release()
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class ProcessLeases:
    """Leases between the threads and tasks of one process."""

    def __init__(self) -> None:
        self._held: dict[str, ProcessLease] = {}
        self._lock = threading.Lock()

    def acquire(self, session_id: str, owner: str) -> ProcessLease:
        """Become the session's runner, or raise :class:`BusyError`."""
        check_key((session_id,))
        with self._lock:
            if (current := self._held.get(session_id)) is not None:
                raise _busy(session_id, current.holder)
            lease = self._held[session_id] = ProcessLease(session_id, _new_holder(owner), self._release)
            return lease

    def holder(self, session_id: str) -> Holder | None:
        """Return who runs the session now, or ``None``."""
        current = self._held.get(session_id)
        return current.holder if current is not None else None

    def held(self) -> list[tuple[str, Holder]]:
        """Return the sessions that run now, with their runners."""
        with self._lock:
            return [(session_id, lease.holder) for session_id, lease in self._held.items()]

    def abandoned(self) -> list[tuple[str, Holder]]:
        """Return nothing: a runner cannot die without the process."""
        return []

    def _release(self, lease: ProcessLease) -> None:
        with self._lock:
            if self._held.get(lease.session_id) is lease:
                del self._held[lease.session_id]


class ProcessLease(Lease):
    """A lease of :class:`ProcessLeases`."""

    previous: Holder | None = None

    def __init__(self, session_id: str, holder: Holder, release: Callable[[ProcessLease], None]) -> None:
        self.session_id = session_id
        self.holder = holder
        self._release = release

    def heartbeat(self) -> None:
        """Record that the runner is alive."""
        self.holder = msgspec.structs.replace(self.holder, beat=ids.now_ms())

    def release(self) -> None:
        """Give the lease up. Releasing twice is not an error."""
        self._release(self)


_open_leases: set[FileLease] = set()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: [lease.close_in_child() for lease in tuple(_open_leases)])


def _is_locked(attempt: Callable[[], bool]) -> bool:
    """Try to take a lock several times: holder() takes it for a moment, which must not look like a runner."""
    for _ in range(_LOCK_ATTEMPTS):
        if attempt():
            return True
        time.sleep(_LOCK_RETRY_SECONDS)
    return False


def _new_holder(owner: str) -> Holder:
    now = ids.now_ms()
    return Holder(owner=owner, host=socket.gethostname(), pid=os.getpid(), started=now, beat=now)


def _busy(session_id: str, holder: Holder | None) -> BusyError:
    return BusyError(
        f"session {session_id} is being run by {holder or 'another process'}. Wait for it, or stop it first.",
        session=session_id,
        holder=msgspec.to_builtins(holder),
    )


def _write_holder(descriptor: int, holder: Holder) -> None:
    data = msgspec.json.encode(holder)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.ftruncate(descriptor, os.write(descriptor, data.ljust(_HOLDER_BYTES) + b"\n"))


def _read_holder(path: str) -> Holder | None:
    try:
        return msgspec.json.decode(read_file(path), type=Holder)
    except (OSError, msgspec.MsgspecError):
        return None
