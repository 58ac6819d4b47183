"""Files of a work tree: their state by git's blob id, and safe reading, writing and deleting."""

from __future__ import annotations

import logging
import os
import stat
from functools import cache
from hashlib import sha1
from typing import TYPE_CHECKING, NamedTuple

from ..errors import SnapshotError
from ..records import object_at
from ..storage.disk import Disk, write_failed

if TYPE_CHECKING:
    from ..project import ProjectLocation
    from ..records import Document

log = logging.getLogger("opensesh.workspace")
FILE, EXECUTABLE, LINK = "100644", "100755", "120000"
_FOLDER, _UNREADABLE = "040000", "000000"
_CHUNK_BYTES = 1 << 20


class FileState(NamedTuple):
    """The state of a file: now, before or as planned."""

    oid: str = ""
    """Git's blob id of its content; empty without a file."""
    mode: str = ""
    """Git's file mode; empty if it does not matter."""

    def fits(self, other: FileState) -> bool:
        """Return whether both are the same, as far as both are known."""
        return self.oid == other.oid and (self.mode == other.mode or not self.mode or not other.mode)

    @property
    def obstacle(self) -> str:
        """Why this cannot be kept or overwritten; empty for a file, a link, or nothing."""
        return {_FOLDER: "a folder is in its place", _UNREADABLE: "it cannot be read"}.get(self.mode, "")

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return self.mode == _FOLDER


ABSENT = FileState()


def blob_id(data: bytes) -> str:
    """Return the id that git gives to this content."""
    return sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def read_file_or_link(path: str) -> bytes:
    """Return the content of a file, or the target of a link; empty if there is neither, or it cannot be read."""
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            return os.fsencode(os.readlink(path))
        if not stat.S_ISREG(mode):  # opening a named pipe would block
            return b""
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def file_state(path: str, *, modes: bool = True) -> FileState:
    """Return the state of ``path`` now. ``modes`` is whether the disk supports the executable bit."""
    try:
        info = os.lstat(path)
        if stat.S_ISDIR(info.st_mode):
            return FileState("folder", _FOLDER)
        if stat.S_ISLNK(info.st_mode):
            return FileState(blob_id(os.fsencode(os.readlink(path))), LINK)
        if stat.S_ISREG(info.st_mode):
            return FileState(_blob_id_of_file(path), (EXECUTABLE if info.st_mode & 0o100 else FILE) if modes else "")
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    except OSError as error:
        log.info("%s: %s", path, error.strerror)
    return FileState("other", _UNREADABLE)


def _blob_id_of_file(path: str) -> str:
    # In chunks: a file may be larger than memory.
    with open(path, "rb") as file:
        digest = sha1(b"blob %d\0" % os.fstat(file.fileno()).st_size, usedforsecurity=False)
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def is_reachable(root: str, name: str) -> bool:
    """Return whether ``name`` is a path below ``root`` that leads through no link and not into ``.git``."""
    if not name or os.path.isabs(name) or ".." in name.split("/") or ".git" in name.casefold().split("/"):
        return False
    return not any(os.path.islink(os.path.join(root, parent)) for parent in _parents(name))


def write_file(disk: Disk, path: str, state: FileState, data: bytes) -> None:
    """Write a file atomically, with the mode of ``state``. Its folders are created."""
    temp_path = temp_path_for(path, state)
    try:
        _make_folder(disk, os.path.dirname(path))
        disk.discard(temp_path)
        if state.mode == LINK:
            os.symlink(os.fsdecode(data), temp_path)
        else:
            disk.fill(disk.open_new(temp_path), data)
            os.chmod(temp_path, _permissions(path, state))
        disk.rename(temp_path, path)
    except OSError as error:
        disk.discard(temp_path)
        raise write_failed(path, error) from error


def temp_path_for(path: str, state: FileState) -> str:
    """Return where a file is written before it is renamed: always the same, so that leftovers can be found."""
    return os.path.join(os.path.dirname(path), f".{state.oid}.opensesh")


def delete_file(disk: Disk, root: str, name: str, *, keep: str) -> None:
    """Delete a file, and the folders above it that are empty then, but not the folder ``keep``."""
    disk.remove(os.path.join(root, name))
    for parent in reversed(_parents(name)):
        folder = os.path.join(root, parent)
        if os.path.realpath(folder) == os.path.realpath(keep):
            return
        disk.remove_empty(folder)


def _make_folder(disk: Disk, folder: str) -> None:
    """Create a folder with the user's usual permissions (those that ``Disk`` creates are private)."""
    if os.path.isdir(folder):
        return
    _make_folder(disk, os.path.dirname(folder))
    disk.make_folder(folder)
    inherited = stat.S_IMODE(os.stat(folder).st_mode) & ~0o777
    os.chmod(folder, inherited | 0o777 & ~_umask())


def _parents(name: str) -> list[str]:
    """Return the folders above ``name``, the outermost first."""
    steps = name.split("/")[:-1]
    return ["/".join(steps[:count]) for count in range(1, len(steps) + 1)]


def _permissions(path: str, state: FileState) -> int:
    """Return the permissions of the existing file, or of a new one, with the executable bit of ``state``."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        mode = 0
    permissions = stat.S_IMODE(mode) if stat.S_ISREG(mode) else 0o666 & ~_umask()
    is_executable = bool(permissions & 0o100)
    if state.mode == EXECUTABLE and not is_executable:
        return permissions | (permissions & 0o444) >> 2
    return permissions & ~0o111 if state.mode == FILE and is_executable else permissions


@cache
def _umask() -> int:
    # It can only be read by setting it. That is done once, with the strictest mask for that moment.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


class ProjectFolder:
    """The folder whose files a session may change: the checkout or, outside of git, the directory. Names are relative
    to it; nothing outside is ever touched."""

    def __init__(self, location: ProjectLocation) -> None:
        is_checkout = location.vcs == "git" and location.sandbox != os.sep
        self.root = location.sandbox if is_checkout else location.directory
        self.directory = location.directory
        """Where the session works. This folder is never deleted."""
        self._is_root: dict[str, bool] = {}

    def path(self, name: str) -> str:
        """Return the absolute path of ``name``."""
        return os.path.join(self.root, name)

    def name(self, path: str, info: Document) -> str | None:
        """Return a path that the message ``info`` recorded, relative to the folder; ``None`` if it is outside.

        A project that was moved since is found at its new location.
        """
        base = self._base(info)
        roots = (self.root, base) if self._is_here(base) or not os.path.isdir(base) else (self.root,)
        for root in roots:
            below = path.removeprefix(root.rstrip(os.sep) + os.sep)
            if below != path:
                name = os.path.normpath(below).replace(os.sep, "/")
                return name if is_reachable(self.root, name) else None
        return None

    def paths(self, name: str, info: Document) -> tuple[str, ...]:
        """Return the absolute paths of ``name``: now, and where it was when the message ``info`` was recorded."""
        return self.path(name), os.path.join(self._base(info), name)

    def check(self, info: Document) -> None:
        """Raise :class:`SnapshotError` for a message of a session that ran in another checkout that still exists."""
        base = self._base(info)
        if not self._is_here(base) and not base.startswith(self.root + os.sep) and os.path.isdir(base):
            raise SnapshotError(f"the session ran in {base}, not in {self.root}; revert it there", path=base)

    def _is_here(self, base: str) -> bool:
        """Return whether a path is this folder, perhaps under another name."""
        if base not in self._is_root:
            self._is_root[base] = base == self.root or (os.path.isdir(base) and os.path.samefile(base, self.root))
        return self._is_root[base]

    def _base(self, info: Document) -> str:
        path = object_at(info, "path")
        root, directory = path.get("root"), path.get("cwd")
        base = root if isinstance(root, str) and root not in ("", "/", os.sep) else directory
        return base if isinstance(base, str) and base else self.root
