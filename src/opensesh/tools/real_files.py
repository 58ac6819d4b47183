"""Files opened, written and deleted at real paths, without following links.

A tool resolves a path once, asks about what it resolved to, and opens that. A background process may replace a folder
by a link between the question and the opening, so no component is followed if it is a link by then: the call fails
instead of touching a file that the user was not asked about.

A write never leaves a file half written. It goes to a temporary file beside, which is then renamed. Where that would
lose something (hard links, an owner or attributes that cannot be copied) or is not possible (a folder without write
permission, a mount point), the file is overwritten in place, and its old content is restored if that fails.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

from ..errors import ToolFailedError
from ..storage.disk import Disk

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

_BY_COMPONENT = os.open in os.supports_dir_fd and os.rename in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
"""Whether the system can open a path component by component. Windows cannot; there, links need a privilege."""
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_FOLDER_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | _FLAGS
"""``O_PATH``: going through a folder needs no permission to list it."""
_NOT_REPLACEABLE = (errno.EACCES, errno.EPERM, errno.EBUSY, errno.EXDEV, errno.ENOTSUP, errno.EINVAL)


class Folder:
    """An open folder, in which names are looked up without following links."""

    def __init__(self, path: str, descriptor: int | None) -> None:
        self._path = path
        self.descriptor = descriptor

    def _at(self, name: str) -> str:
        return name if self.descriptor is not None else os.path.join(self._path, name)

    def open(self, name: str, flags: int, mode: int = 0o666) -> int:
        """Open a file of the folder."""
        return os.open(self._at(name), flags | _FLAGS, mode, dir_fd=self.descriptor)

    @contextmanager
    def scan(self) -> Generator[Iterator[os.DirEntry[str]]]:
        """List the folder."""
        descriptor = None if self.descriptor is None else self.open(".", os.O_RDONLY)
        try:
            with os.scandir(self._path if descriptor is None else descriptor) as entries:
                yield entries
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def stat(self, name: str) -> os.stat_result | None:
        """Return the status of a name itself; ``None`` if it does not exist."""
        try:
            return os.stat(self._at(name), dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def rename(self, old: str, new: str) -> None:
        """Rename a file within the folder, replacing another."""
        os.replace(self._at(old), self._at(new), src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def unlink(self, name: str) -> None:
        """Remove a name."""
        os.unlink(self._at(name), dir_fd=self.descriptor)


@contextmanager
def open_folder(real: str, *, create: bool = False) -> Generator[Folder]:
    """Open the folder at a real path, and create it and its parents on demand."""
    if not _BY_COMPONENT:
        if create:
            os.makedirs(real, exist_ok=True)
        _require_unchanged(real, os.path.realpath(real) == real)
        yield Folder(real, None)
        return
    descriptor = os.open(os.sep, _FOLDER_FLAGS)
    try:
        for name in filter(None, real.split(os.sep)):
            if create:
                with suppress(FileExistsError, PermissionError):
                    try:
                        os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                    except FileNotFoundError:
                        os.mkdir(name, dir_fd=descriptor)
            inner = _open_component(name, descriptor, real)
            os.close(descriptor)
            descriptor = inner
        yield Folder(real, descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def open_file(real: str) -> Generator[IO[bytes]]:
    """Open the regular file at a real path for reading. Raises :class:`ToolFailedError` for anything else, and
    :class:`OSError`."""
    parent, name = os.path.split(real)
    with open_folder(parent) as folder:
        try:  # O_NONBLOCK: a named pipe must not block
            descriptor = folder.open(name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        except OSError as error:
            _require_unchanged(real, error.errno != errno.ELOOP)
            raise
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            kind = "a directory" if stat.S_ISDIR(mode) else "a special file, and reading it might never end"
            raise ToolFailedError(f"{real} is {kind}", path=real)
        with open(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def write_file(real: str, data: bytes) -> None:
    """Write the file at a real path, with the folders it needs. Mode, owner and hard links are kept.

    If it fails, with :class:`OSError`, the file is as it was before.
    """
    parent, name = os.path.split(real)
    with open_folder(parent, create=True) as folder:
        status = folder.stat(name)
        if status is not None:
            _require_unchanged(real, not stat.S_ISLNK(status.st_mode))
            if not stat.S_ISREG(status.st_mode):
                raise ToolFailedError(f"{real} cannot be written: it is not a regular file", path=real)
        if status is None or status.st_nlink == 1:
            try:
                _replace(folder, name, data, status)
            except OSError as error:
                if status is None or error.errno not in _NOT_REPLACEABLE:
                    raise
            else:
                return
        _overwrite(folder, name, data)


def delete_file(real: str) -> None:
    """Delete the name at a real path: a file, or a link itself."""
    parent, name = os.path.split(real)
    with open_folder(parent) as folder:
        folder.unlink(name)


def _replace(folder: Folder, name: str, data: bytes, status: os.stat_result | None) -> None:
    """Write a temporary file and rename it to ``name``; ``status`` is that of the file it replaces."""
    temporary = f".opensesh-{os.getpid()}-{os.urandom(4).hex()}.tmp"
    descriptor = folder.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if status is None else 0o600)
    try:
        try:
            Disk().write(descriptor, data)
            if status is not None:
                _copy_attributes(folder, name, status, descriptor)
        finally:
            os.close(descriptor)
        folder.rename(temporary, name)
    except BaseException:
        with suppress(OSError):
            folder.unlink(temporary)
        raise


def _copy_attributes(folder: Folder, name: str, status: os.stat_result, descriptor: int) -> None:
    """Give a new file the owner, mode and extended attributes of the one it replaces."""
    if not hasattr(os, "fchown"):
        return
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) != (status.st_uid, status.st_gid):
        os.fchown(descriptor, status.st_uid, status.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
    if not hasattr(os, "listxattr"):
        return
    existing = folder.open(name, os.O_RDONLY | os.O_NONBLOCK)
    try:
        for attribute in os.listxattr(existing):
            value = os.getxattr(existing, attribute)
            if attribute not in os.listxattr(descriptor) or os.getxattr(descriptor, attribute) != value:
                os.setxattr(descriptor, attribute, value)
    except OSError as error:
        if error.errno != errno.ENOTSUP:  # a file system without attributes
            raise
    finally:
        os.close(existing)


def _overwrite(folder: Folder, name: str, data: bytes) -> None:
    """Overwrite a file in place, and restore it if that fails."""
    descriptor = folder.open(name, os.O_RDWR)
    try:
        original = b"".join(iter(lambda: os.read(descriptor, 1 << 20), b""))
        try:
            if len(data) > len(original) and hasattr(os, "posix_fallocate"):
                _reserve(descriptor, len(data))
            os.lseek(descriptor, 0, os.SEEK_SET)
            Disk().write(descriptor, data)
            os.ftruncate(descriptor, len(data))
        except BaseException:
            # The blocks of the old content are still the file's own, so a full disk cannot prevent this.
            os.lseek(descriptor, 0, os.SEEK_SET)
            Disk().write(descriptor, original)
            os.ftruncate(descriptor, len(original))
            raise
    finally:
        os.close(descriptor)


def _reserve(descriptor: int, size: int) -> None:
    """Find out that the disk is full before anything is overwritten."""
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise  # others: the file system does not support it


def _open_component(name: str, descriptor: int, real: str) -> int:
    try:
        return os.open(name, _FOLDER_FLAGS, dir_fd=descriptor)
    except OSError as error:
        # A link gives ELOOP, or ENOTDIR where O_DIRECTORY is examined first.
        is_link = error.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(name, descriptor)
        _require_unchanged(real, not is_link)
        raise


def _is_link(name: str, descriptor: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode)
    except OSError:
        return True  # it is being replaced this moment


def _require_unchanged(real: str, condition: bool) -> None:
    if not condition:
        raise ToolFailedError(f"{real} was replaced by a link meanwhile, so it was not opened", path=real)
