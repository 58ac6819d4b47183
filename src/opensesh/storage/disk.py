"""The few things a store asks of a disk, in one place so that tests can make a disk fail or a process die at each."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from ..errors import WriteError

if TYPE_CHECKING:
    from collections.abc import Iterable

    Data = bytes | Iterable[bytes]

_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM)
_PATIENCE = 100


class Disk:
    """Writes files so that a reader sees the old one or the new one, whole, whatever happens in between."""

    def __init__(self, *, durable: bool = True) -> None:
        self.durable = durable
        """Whether a write that returned survives a power cut; without, only the death of the process."""

    def replace(self, path: str, data: Data) -> None:
        """Put ``data``, whole or in pieces, at ``path``, through a dot-named neighbour that everyone else overlooks."""
        temporary = self.set_aside(path, data)
        try:
            self.rename(temporary, path)
            if self.durable:
                self.sync_folder(os.path.dirname(path))
        except BaseException as error:
            self.discard(temporary)
            if isinstance(error, OSError):
                raise write_failed(path, error) from error
            raise

    def set_aside(self, path: str, data: Data) -> str:
        """Write the neighbour of ``path`` alone, ready to be renamed; where it is. A refused one leaves no trace."""
        folder, name = os.path.split(path)
        temporary = os.path.join(folder, f".{name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
        try:
            self.fill(self._open_in_folder(temporary), data)
        except BaseException as error:
            self.discard(temporary)
            if isinstance(error, OSError):
                raise write_failed(path, error) from error
            raise
        return temporary

    def fill(self, descriptor: int, data: Data) -> None:
        """Write a new file to its end, and close it."""
        try:
            for piece in (data,) if isinstance(data, bytes) else data:
                self.write(descriptor, piece)
            if self.durable:
                self.sync(descriptor)
        finally:
            os.close(descriptor)

    def discard(self, temporary: str) -> None:
        """Remove what was set aside, if it is still there."""
        try:
            self.unlink(temporary)
        except OSError:
            return

    def remove(self, path: str) -> None:
        """Remove a file; one that is not there is no error."""
        try:
            self.unlink(path)
            if self.durable:
                self.sync_folder(os.path.dirname(path))
        except FileNotFoundError:
            return  # the file; or its folder, which whoever removed the last of its neighbours took away
        except OSError as error:
            raise write_failed(path, error) from error

    def remove_empty(self, folder: str) -> None:
        """Remove a folder if nothing is left in it."""
        try:
            self.remove_folder(folder)
        except OSError:
            return

    def make_folder(self, folder: str) -> None:
        """Make ``folder`` and those above it, for the owner alone; the names survive a power cut too."""
        if os.path.isdir(folder):
            return
        above = os.path.dirname(folder)
        if above != folder:
            self.make_folder(above)
        try:
            self.new_folder(folder)
            if self.durable:
                self.sync_folder(above)
        except FileExistsError:
            return
        except OSError as error:
            raise write_failed(folder, error) from error

    # -- what all of the above is made of ------------------------------------------------------------------------------

    def open_new(self, path: str) -> int:
        """A descriptor for a new file that only the owner may read."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)

    def write(self, descriptor: int, data: bytes) -> None:
        """All of ``data``, however many calls it takes."""
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]

    def sync(self, descriptor: int) -> None:
        """Wait until the file's bytes are on the disk."""
        os.fsync(descriptor)

    def rename(self, old: str, new: str) -> None:
        """Give ``old`` the name ``new``, in one step."""
        os.replace(old, new)

    def sync_folder(self, folder: str) -> None:
        """Wait until the folder's names are on the disk, where the platform knows how."""
        if os.name == "nt":
            return
        try:
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            if error.errno not in _NO_FOLDER_SYNC:
                raise

    def unlink(self, path: str) -> None:
        """Take a file's name away."""
        os.unlink(path)

    def new_folder(self, folder: str) -> None:
        """Make one folder, for the owner alone."""
        os.mkdir(folder, 0o700)

    def remove_folder(self, folder: str) -> None:
        """Remove one folder, which must be empty."""
        os.rmdir(folder)

    def _open_in_folder(self, path: str) -> int:
        """A new file in a folder that is made if need be: again, if someone who found it empty took it away."""
        for _ in range(_PATIENCE):
            try:
                return self.open_new(path)
            except FileNotFoundError:
                self.make_folder(os.path.dirname(path))
        return self.open_new(path)


def write_failed(path: str, error: OSError) -> WriteError:
    """The error for a refused write: what it means for the one who asked for it."""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            said = f"{path}: the disk is full; what was stored before is unharmed. Free some space and try again."
        case errno.EROFS | errno.EACCES | errno.EPERM:
            said = f"{path}: not allowed to write here ({error.strerror}). Check the owner and mode of the folder."
        case _:
            said = f"{path}: could not be written: {error.strerror or error}"
    return WriteError(said, path=path, errno=error.errno)


def content(path: str) -> bytes:
    """What is in a file; nothing if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
