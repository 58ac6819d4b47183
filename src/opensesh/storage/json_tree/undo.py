"""Changes to a tree's files that can be taken back.

Everything that is about to be done is noted, and what will be replaced or put aside is kept, in a folder of its own
under the state folder, before the first file is touched. ``undo.jsonl`` in that folder is the undo file: its first
line says what was done and why, each other line is one change. Taking back goes through it from the end and leaves
alone whatever has been changed again since; it can be interrupted, and run again.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from msgspec import Struct, json

from ...errors import NotFoundError, RecordError, WriteError
from .. import paths
from ..disk import Disk, write_failed
from ..protocol import Damage
from .store import JsonTree, read_file

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

UNDO_FILE = "undo.jsonl"
_FORMAT = "opensesh-undo-1"
FILES = "files"
"""Where what was put aside is kept, in the folder of the undo file, by its path in the tree."""
_BEFORE = "before"
"""Where copies of what was replaced are kept."""


class Change(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One change. ``path`` is below the tree's root."""

    path: str
    aside: bool = False
    """Moved away, to be kept."""
    data: bytes | None = None
    """Given this content; what was there before is kept."""
    to: str = ""
    """Renamed to this, with its new content if it is given one."""
    mode: int | None = None
    """Given these permissions."""


class _Line(Struct, omit_defaults=True, kw_only=True):
    path: str
    kept: str = ""
    to: str = ""
    after: str = ""
    mode: int | None = None


class Header(Struct, kw_only=True):
    """The first line of an undo file."""

    format: str = _FORMAT
    root: str
    """The tree that was changed."""
    what: str
    """``doctor``, ``remove``, ``archive`` or ``move``."""
    time: int
    """When, in milliseconds."""
    about: dict[str, Any] = {}
    """What it was about, for people: titles by session."""


class Undone(Struct, kw_only=True):
    """What taking back came to."""

    restored: int = 0
    """Files that are as they were before, counted as :func:`files_changed` counts them."""
    left: list[Damage] = []
    """What could not be taken back, and why; it is still in the folder."""


def files_changed(changes: Iterable[Change]) -> int:
    """How many files a list of changes is about; a file that is changed twice, or changed and renamed, is one."""
    return len({change.path for change in changes})


def perform(tree: JsonTree, what: str, changes: Sequence[Change], about: dict[str, Any] | None = None) -> str:
    """Make the changes, alone with the tree; the undo file. Nothing is created if there is nothing to do."""
    if not changes:
        return ""
    folder = _new_folder(what)
    undo_file = os.path.join(folder, UNDO_FILE)
    disk = Disk()
    with tree.locks.everything():
        try:
            gone: set[str] = set()
            lines = [_noted(tree, folder, change, disk, gone) for change in changes]
            header = Header(root=tree.root, what=what, time=time.time_ns() // 1_000_000, about=about or {})
            disk.replace(undo_file, b"".join(json.encode(line) + b"\n" for line in (header, *lines)))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)  # nothing was changed yet
            raise
        try:
            for change, line in zip(changes, lines, strict=True):
                _do(tree, folder, change, line, disk)
        except WriteError as error:
            told = f"{error} What was changed before that can be taken back: {undo_file}"
            raise WriteError(told, **error.data, undo=undo_file) from error
    return undo_file


def take_back(undo_file: str, only: Collection[str] = ()) -> Undone:
    """Undo what an undo file (or its folder) says, or the changes to ``only`` these paths. What was interrupted can be
    done again; the folder goes when nothing is left to undo."""
    if os.path.isdir(undo_file):
        undo_file = os.path.join(undo_file, UNDO_FILE)
    header, lines = read_undo_file(undo_file)
    tree, folder = JsonTree(header.root), os.path.dirname(os.path.abspath(undo_file))
    outcome, disk = Undone(), Disk()
    restored: set[str] = set()
    with tree.locks.everything():
        for line in reversed(lines):
            if only and line.path not in only:
                continue
            try:
                if _undo(tree, folder, line, disk):
                    restored.add(line.path)
            except _Changed as error:
                outcome.left.append(Damage(os.path.join(tree.root, line.path), str(error)))
            except OSError as error:
                raise write_failed(line.path, error) from error
    outcome.restored = len(restored)
    if not outcome.left and _is_spent(folder, lines):
        discard(folder)
    return outcome


def read_undo_file(path: str) -> tuple[Header, list[_Line]]:
    """What an undo file says; :class:`RecordError` if it is none."""
    try:
        first, *rest = read_file(path).splitlines()
        header = json.decode(first, type=Header)
        lines = [json.decode(line, type=_Line) for line in rest]
    except FileNotFoundError:
        raise NotFoundError(
            f"there is no undo file at {path}; what it undid may be undone already", path=path
        ) from None
    except (OSError, ValueError) as error:
        raise RecordError(f"not an undo file: {error}", path=path) from None
    if header.format != _FORMAT:
        raise RecordError(f"an undo file of another version: {header.format}", path=path)
    for place in (place for line in lines for place in (line.path, line.kept, line.to)):
        if os.path.isabs(place) or ".." in place.split(os.sep):
            raise RecordError(f"not an undo file: {place} is outside of the store", path=path)
    return header, lines


def undo_files(what: str) -> Iterator[tuple[str, Header]]:
    """The undo files of one kind, oldest first."""
    above = os.path.join(paths.state(), _SHELVES.get(what, what))
    for name in sorted(os.listdir(above)) if os.path.isdir(above) else ():
        try:
            path = os.path.join(above, name, UNDO_FILE)
            yield path, read_undo_file(path)[0]
        except (NotFoundError, RecordError):
            continue


def discard(folder: str) -> None:
    """Remove such a folder, with all it keeps, for good."""
    shutil.rmtree(folder)


_SHELVES = {"doctor": "quarantine", "remove": "trash", "archive": "archived", "move": "moved"}


class _Changed(Exception):
    """The file is not as it was left."""


def _new_folder(what: str) -> str:
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    folder = os.path.join(paths.state(), _SHELVES.get(what, what), f"{stamp}-{os.urandom(3).hex()}")
    Disk().make_folder(folder)
    return folder


def _noted(tree: JsonTree, folder: str, change: Change, disk: Disk, gone: set[str]) -> _Line:
    """How to undo a change; a copy of what it will replace is kept from here on. ``gone`` is what earlier changes will
    have taken away by then."""
    path = os.path.join(tree.root, change.path)
    line = _Line(path=change.path, to=change.to)
    if change.mode is not None:
        line.mode = os.stat(path).st_mode & 0o7777 if os.path.exists(path) else None
    elif change.aside:
        line.kept = os.path.join(FILES, change.path)
        gone.add(change.path)
    elif change.data is not None:
        line.after = sha256(change.data).hexdigest()
        if change.path not in gone and os.path.exists(path):
            line.kept = os.path.join(_BEFORE, change.path)
            disk.replace(os.path.join(folder, line.kept), read_file(path))
    return line


def _do(tree: JsonTree, folder: str, change: Change, line: _Line, disk: Disk) -> None:
    path = os.path.join(tree.root, change.path)
    try:
        if change.mode is not None:
            os.chmod(path, change.mode)
        elif change.aside:
            _move(path, os.path.join(folder, line.kept), disk)
            _tidy(tree, path, disk)
        elif not (change.to and os.path.lexists(os.path.join(tree.root, change.to))):
            if change.data is not None:
                disk.replace(path, change.data)
            if change.to:
                _move(path, os.path.join(tree.root, change.to), disk)
                _tidy(tree, path, disk)
    except FileNotFoundError:
        return  # someone else was faster; there is nothing to change any more
    except OSError as error:
        raise write_failed(path, error) from error


def _undo(tree: JsonTree, folder: str, line: _Line, disk: Disk) -> bool:
    path = os.path.join(tree.root, line.path)
    if line.mode is not None:
        if not os.path.exists(path):
            return False
        os.chmod(path, line.mode)
        return True
    if line.after:
        return _undo_content(tree, path, os.path.join(folder, line.kept) if line.kept else "", line, disk)
    kept = os.path.join(tree.root, line.to) if line.to else os.path.join(folder, line.kept)
    if not (line.to or line.kept) or not os.path.lexists(kept):
        return False  # never came to it, or taken back already
    if os.path.lexists(path):
        raise _Changed("something else is there now")
    _move(kept, path, disk)
    if line.to:
        _tidy(tree, kept, disk)
    return True


def _undo_content(tree: JsonTree, path: str, kept: str, line: _Line, disk: Disk) -> bool:
    if kept and not os.path.exists(kept):
        return False
    there = os.path.join(tree.root, line.to) if line.to else path
    renamed = there != path and not os.path.lexists(path)
    now = _content(there if renamed else path)
    before = read_file(kept) if kept else None
    if now == before and not renamed:
        return False
    if now is None or sha256(now).hexdigest() != line.after:
        raise _Changed("it has been changed since")
    if renamed:
        _move(there, path, disk)
        _tidy(tree, there, disk)
    disk.remove(path) if before is None else disk.replace(path, before)
    return True


def _content(path: str) -> bytes | None:
    try:
        return read_file(path)
    except FileNotFoundError:
        return None


def _is_spent(folder: str, lines: Iterable[_Line]) -> bool:
    """Whether a folder is one of ours and keeps nothing that is nowhere else. An undo file may have been copied to any
    folder, and lines of it taken out."""
    if os.path.dirname(os.path.dirname(os.path.realpath(folder))) != os.path.realpath(paths.state()):
        return False
    copies = {line.kept for line in lines if line.after}
    for each in (FILES, _BEFORE):
        for base, _, names in os.walk(os.path.join(folder, each)):
            if any(os.path.relpath(os.path.join(base, name), folder) not in copies for name in names):
                return False
    return True


def _move(old: str, new: str, disk: Disk) -> None:
    disk.make_folder(os.path.dirname(new))
    try:
        os.rename(old, new)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        if os.path.islink(old) or os.path.isdir(old):
            shutil.move(old, new)
            return
        disk.replace(new, read_file(old))
        shutil.copystat(old, new)
        os.unlink(old)


def _tidy(tree: JsonTree, path: str, disk: Disk) -> None:
    """Remove the folder of a record that was the last in it, as the tree itself does."""
    folder = os.path.dirname(path)
    if os.path.dirname(folder).startswith(os.path.join(tree.root, "")):
        disk.remove_empty(folder)
