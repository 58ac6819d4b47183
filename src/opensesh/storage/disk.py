"""The atomic file writer, and reading files."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from ..errors import WriteError

if TYPE_CHECKING:
    from collections.abc import Iterable

    Data = bytes | Iterable[bytes]

_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM)
_MAX_ATTEMPTS = 100
_MAX_LOG_BYTES = 1_000_000
MAX_RECORD_BYTES = 1 << 29


class Disk:
    """Writes files atomically: a reader sees the old file or the new one, even after a crash.

    Every file that must not be seen half-written is written through here. The methods at the end are single operating
    system operations, which tests override to make a disk fail or a process die at each of them.
    """

    def __init__(self, *, durable: bool = True) -> None:
        self.durable = durable
        """Whether a write that returned survives a power cut, or only the death of the process."""

    def replace(self, path: str, data: Data) -> None:
        """Put ``data``, as one piece or several, at ``path``, through a temporary file beside it."""
        temporary = self.stage(path, data)
        try:
            self.move_into_place(temporary, path)
            self.sync_name(path)
        except BaseException:
            self.discard(temporary)
            raise

    def stage(self, path: str, data: Data) -> str:
        """Write a temporary file beside ``path``, ready to be renamed, and return where it is.

        Its name begins with a dot, which keeps it out of every listing. If the write fails, no file is left.
        """
        folder, name = os.path.split(path)
        temporary = os.path.join(folder, f".{name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
        try:
            self.fill(self.create(temporary), data)
        except BaseException as error:
            self.discard(temporary)
            if isinstance(error, OSError):
                raise write_failed(path, error) from error
            raise
        return temporary

    def move_into_place(self, temporary: str, path: str) -> None:
        """Rename a staged file to ``path``. :meth:`sync_name` makes that survive a power cut."""
        try:
            self.rename(temporary, path)
        except OSError as error:
            raise write_failed(path, error) from error

    def sync_name(self, path: str) -> None:
        """Make every rename in the folder of ``path`` survive a power cut, if this disk is durable."""
        if self.durable:
            try:
                self.sync_folder(os.path.dirname(path))
            except OSError as error:
                raise write_failed(path, error) from error

    def fill(self, descriptor: int, data: Data) -> None:
        """Write all of a new file, and close it."""
        try:
            for piece in (data,) if isinstance(data, bytes) else data:
                self.write(descriptor, piece)
            if self.durable:
                self.sync(descriptor)
        finally:
            os.close(descriptor)

    def discard(self, temporary: str) -> None:
        """Remove a staged file, if it is still there."""
        try:
            self.unlink(temporary)
        except OSError:
            return

    def remove(self, path: str) -> None:
        """Remove a file. A missing file is not an error."""
        try:
            self.unlink(path)
            if self.durable:
                self.sync_folder(os.path.dirname(path))
        except FileNotFoundError:
            return  # the file, or its folder, which the process that removed the last file in it has removed
        except OSError as error:
            raise write_failed(path, error) from error

    def remove_empty(self, folder: str) -> None:
        """Remove a folder if it is empty."""
        try:
            self.remove_folder(folder)
        except OSError:
            return

    def make_folder(self, folder: str) -> None:
        """Create ``folder`` and its parents, readable by the owner only. The names survive a power cut too."""
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

    def create(self, path: str) -> int:
        """Create a file, and its folder if necessary, and return its descriptor."""
        # Another process may remove the folder, which it found empty, before the file is in it: hence the retries.
        for _ in range(_MAX_ATTEMPTS):
            try:
                return self.open_new(path)
            except FileNotFoundError:
                self.make_folder(os.path.dirname(path))
        return self.open_new(path)

    # -- single operations ------------------------------------------------------------------------------------

    def open_new(self, path: str) -> int:
        """Create a file that only the owner may read, and return its descriptor."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)

    def write(self, descriptor: int, data: bytes) -> None:
        """Write all of ``data``, in as many calls as it takes."""
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]

    def sync(self, descriptor: int) -> None:
        """Wait until the file's bytes are on disk."""
        os.fsync(descriptor)

    def rename(self, old: str, new: str) -> None:
        """Rename ``old`` to ``new``, replacing it atomically."""
        os.replace(old, new)

    def sync_folder(self, folder: str) -> None:
        """Wait until the folder's names are on disk, where the platform supports that."""
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
        """Remove a file."""
        os.unlink(path)

    def new_folder(self, folder: str) -> None:
        """Create one folder, readable by the owner only."""
        os.mkdir(folder, 0o700)

    def remove_folder(self, folder: str) -> None:
        """Remove one empty folder."""
        os.rmdir(folder)


def write_failed(path: str, error: OSError) -> WriteError:
    """Return the error for a write that the operating system refused."""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            message = f"{path}: the disk is full; what was stored before is unharmed. Free some space and try again."
        case errno.EROFS | errno.EACCES | errno.EPERM:
            message = f"{path}: not allowed to write here ({error.strerror}). Check the owner and mode of the folder."
        case _:
            message = f"{path}: could not be written: {error.strerror or error}"
    return WriteError(message, path=path, errno=error.errno)


def append_to_log(path: str, data: bytes) -> None:
    """Append to a log that only its owner may read. At a megabyte it is renamed to ``<path>.1`` and begun anew."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    if os.path.exists(path) and os.path.getsize(path) > _MAX_LOG_BYTES:
        os.replace(path, f"{path}.1")
    with open(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "wb") as file:
        file.write(data)


def read_file(path: str, *, limit: int = MAX_RECORD_BYTES, pipe: bool = False) -> bytes:
    """Return the bytes of a regular file, in as few system calls as possible.

    Raises :class:`OSError` for anything else, such as a device or a folder, and for more than ``limit`` bytes. Named
    pipes are read with ``pipe`` only, for a path that the user named.

    Records, configuration and caches are read through here, because any of them may be a link to ``/dev/zero`` in a
    folder that another program, or a repository, has filled.
    """
    # O_NONBLOCK: opening a named pipe with the name of a record must not block a listing.
    flags = 0 if pipe else getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | flags)
    try:
        status = os.fstat(descriptor)
        if not (stat.S_ISREG(status.st_mode) or (pipe and stat.S_ISFIFO(status.st_mode))):
            raise OSError(errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL, "not a regular file", path)
        if pipe:
            pieces, size = list[bytes](), 0
            while size <= limit and (piece := os.read(descriptor, 1 << 20)):
                pieces.append(piece)
                size += len(piece)
            if size > limit:
                raise _too_large(path, size)
            return b"".join(pieces)
        size = status.st_size
        while size <= limit:
            data = os.read(descriptor, size + 1)
            if len(data) <= size:
                return data
            # The file has grown. Its rest is not appended to what was read: of a program that writes in place, two
            # reads can return the halves of two versions.
            os.lseek(descriptor, 0, os.SEEK_SET)
            size = max(2 * size, os.fstat(descriptor).st_size, 1 << 16)
        raise _too_large(path, size)
    finally:
        os.close(descriptor)


def _too_large(path: str, size: int) -> OSError:
    return OSError(errno.EFBIG, f"too large: {size:,} bytes or more", path)


def read_or_empty(path: str) -> bytes:
    """Return the content of a regular file; nothing if it cannot be read."""
    try:
        return read_file(path)
    except OSError:
        return b""


def names_in(folder: str) -> list[str]:
    """Return the names in a folder, sorted; none if there is no such folder."""
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
