"""What is at a place in the work tree: nothing, a file or a link, known by the name that git gives its content."""

from __future__ import annotations

import logging
import os
import stat
from functools import cache
from hashlib import sha1
from typing import TYPE_CHECKING, NamedTuple

from ..errors import SnapshotError
from ..records import as_object
from ..storage.disk import Disk, write_failed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..project import ProjectLocation
    from ..records import Document

log = logging.getLogger("opensesh.workspace")
FILE, PROGRAM, LINK = "100644", "100755", "120000"
_FOLDER, _OTHER = "040000", "000000"
_PIECE = 1 << 20


class FileState(NamedTuple):
    """A file as it is, was or should be."""

    oid: str = ""
    """The name of its content; empty where there is no file."""
    mode: str = ""
    """What kind of file, as git writes it; empty if that does not matter."""

    def fits(self, other: FileState) -> bool:
        """Whether the two are the same, as far as both say."""
        return self.oid == other.oid and (self.mode == other.mode or not self.mode or not other.mode)

    @property
    def obstacle(self) -> str:
        """Why there is nothing here that could be kept or written over; empty for a file, a link, or nothing."""
        return {_FOLDER: "a folder is in its place", _OTHER: "it cannot be read"}.get(self.mode, "")

    @property
    def is_folder(self) -> bool:
        """Whether this is a folder."""
        return self.mode == _FOLDER


ABSENT = FileState()


def blob_id(data: bytes) -> str:
    """The name that git gives to a file with this content."""
    return sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def read_file_or_link(path: str) -> bytes:
    """The content of a file, or what a link says; empty where neither is, or none that can be read."""
    try:
        found = os.lstat(path).st_mode
        if stat.S_ISLNK(found):
            return os.fsencode(os.readlink(path))
        if not stat.S_ISREG(found):  # to open a pipe is to wait for its other end
            return b""
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def file_state(path: str, *, modes: bool = True) -> FileState:
    """What is at ``path`` now. ``modes`` is whether the disk knows which files may be executed."""
    try:
        found = os.lstat(path)
        if stat.S_ISDIR(found.st_mode):
            return FileState("folder", _FOLDER)
        if stat.S_ISLNK(found.st_mode):
            return FileState(blob_id(os.fsencode(os.readlink(path))), LINK)
        if stat.S_ISREG(found.st_mode):
            return FileState(_name_of_file(path), (PROGRAM if found.st_mode & 0o100 else FILE) if modes else "")
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    except OSError as error:
        log.info("%s: %s", path, error.strerror)
    return FileState("other", _OTHER)


def _name_of_file(path: str) -> str:
    """:func:`blob_id` what a file holds, however large it is."""
    with open(path, "rb") as file:
        digest = sha1(b"blob %d\0" % os.fstat(file.fileno()).st_size, usedforsecurity=False)
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def is_reachable(root: str, name: str) -> bool:
    """Whether ``name`` leads to a place below ``root`` without going through a link."""
    if not name or os.path.isabs(name) or ".." in name.split("/") or ".git" in name.casefold().split("/"):
        return False
    return not any(os.path.islink(os.path.join(root, above)) for above in _above(name))


def write_file(disk: Disk, path: str, state: FileState, data: bytes) -> None:
    """Make the file at ``path`` be ``state``, whose content is ``data``: the old file or the new one, never half."""
    temporary = temp_path_for(path, state)
    try:
        _make_folder(disk, os.path.dirname(path))
        disk.discard(temporary)
        if state.mode == LINK:
            os.symlink(os.fsdecode(data), temporary)
        else:
            disk.fill(disk.open_new(temporary), data)
            os.chmod(temporary, _permissions(path, state))
        disk.rename(temporary, path)
    except OSError as error:
        disk.discard(temporary)
        raise write_failed(path, error) from error


def temp_path_for(path: str, state: FileState) -> str:
    """Where a file is before it is whole: the same each time, so that what a dead process left can be found."""
    return os.path.join(os.path.dirname(path), f".{state.oid}.opensesh")


def delete_file(disk: Disk, root: str, name: str, *, keep: str) -> None:
    """Remove the file, and the folders above it that hold nothing any more; but not the folder ``keep``."""
    disk.remove(os.path.join(root, name))
    for above in reversed(list(_above(name))):
        folder = os.path.join(root, above)
        if os.path.realpath(folder) == os.path.realpath(keep):
            return
        disk.remove_empty(folder)


def _make_folder(disk: Disk, folder: str) -> None:
    """Make a folder as the user would: our own are for the owner alone, a project's are not."""
    if os.path.isdir(folder):
        return
    _make_folder(disk, os.path.dirname(folder))
    disk.make_folder(folder)
    inherited = stat.S_IMODE(os.stat(folder).st_mode) & ~0o777
    os.chmod(folder, inherited | 0o777 & ~_umask())


def _above(name: str) -> Iterator[str]:
    """The folders on the way to ``name``, the outermost first."""
    steps = name.split("/")[:-1]
    for count in range(1, len(steps) + 1):
        yield "/".join(steps[:count])


def _permissions(path: str, state: FileState) -> int:
    """Those of the file that is there, or of a new one; whether it may be executed, as ``state`` says."""
    try:
        found = os.lstat(path).st_mode
    except OSError:
        found = 0
    permissions = stat.S_IMODE(found) if stat.S_ISREG(found) else 0o666 & ~_umask()
    if state.mode == PROGRAM:
        return permissions | (permissions & 0o444) >> 2
    return permissions & ~0o111 if state.mode == FILE else permissions


@cache
def _umask() -> int:
    # It can only be read by setting it; once is enough, and for that moment it is the strictest.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


class ProjectFolder:
    """The folder of one place. What lies outside of it is never touched."""

    def __init__(self, place: ProjectLocation) -> None:
        self.root = place.sandbox if place.vcs == "git" and place.sandbox != os.sep else place.directory
        self.directory = place.directory
        """Where the session works. Whatever goes, this folder stays."""
        self._known: dict[str, bool] = {}

    def path(self, name: str) -> str:
        """Where ``name`` is."""
        return os.path.join(self.root, name)

    def name(self, path: str, info: Document) -> str | None:
        """A path that the message ``info`` recorded, relative to the folder; ``None`` if it is outside of it.

        A project that has moved since is found where it is now.
        """
        base = self._base(info)
        roots = (self.root, base) if self._is_here(base) or not os.path.isdir(base) else (self.root,)
        for root in roots:
            below = path.removeprefix(root.rstrip(os.sep) + os.sep)
            if below != path:
                name = os.path.normpath(below).replace(os.sep, "/")
                return name if is_reachable(self.root, name) else None
        return None

    def check(self, info: Document) -> None:
        """Refuse a message of a session that worked in another checkout, which is still there."""
        base = self._base(info)
        if not self._is_here(base) and not base.startswith(self.root + os.sep) and os.path.isdir(base):
            raise SnapshotError(f"the session worked in {base}, not in {self.root}; go there to revert it", path=base)

    def _is_here(self, base: str) -> bool:
        """Whether a folder is this one, perhaps by another name."""
        if base not in self._known:
            self._known[base] = base == self.root or (os.path.isdir(base) and os.path.samefile(base, self.root))
        return self._known[base]

    def _base(self, info: Document) -> str:
        path = as_object(info.get("path")) or {}
        root, directory = path.get("root"), path.get("cwd")
        base = root if isinstance(root, str) and root not in ("", "/", os.sep) else directory
        return base if isinstance(base, str) and base else self.root
