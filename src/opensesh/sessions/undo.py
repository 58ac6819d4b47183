"""Changes to many records of a store that can be undone.

Every change is recorded, and every file that will be replaced or moved away is kept, in a folder of its own below the
state folder, before the first record is touched. ``undo.jsonl`` in that folder is the undo file: its first line says
what was done and why, each other line is one change. Undoing reads it from the end and skips records that have been
changed again since; it can be interrupted and repeated.

Records are named by their path in the JSON tree, ``session/<project>/<id>.json``, for every kind of store.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from contextlib import contextmanager
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct, convert, to_builtins

from ..errors import NotFoundError, OpenseshError, RecordError, StoreError, WriteError
from ..storage import paths, unfinished
from ..storage.disk import Disk, names_in, read_file, write_failed
from ..storage.json_tree.migrations import refuse_newer
from ..storage.json_tree.store import JsonTree
from ..storage.protocol import Damage, RawRows, Store, member_stores, store_ids
from ..storage.registry import open_store
from .record_files import RowFiles, record_files

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Iterator, Sequence

    from .record_files import RecordFiles

log = logging.getLogger("opensesh.sessions")
_T = TypeVar("_T")
UNDO_FILE = "undo.jsonl"
_FORMAT = "opensesh-undo-1"
FILES = "files"
"""The subfolder for records that were moved away, by their path in the store."""
_NOTE = "undo"
"""The kind of notes about changes that are being applied or undone."""
_BEFORE = "before"
"""The subfolder for copies of records that were replaced."""
_FOLDERS = {"doctor": "quarantine", "remove": "trash", "archive": "archived", "move": "moved"}


class Change(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One change. ``path`` is relative to the root of the store."""

    path: str
    aside: bool = False
    """Move the record away, and keep it."""
    data: bytes | None = None
    """Replace the content; the old content is kept."""
    to: str = ""
    """Rename to this path, with the new content if there is one."""
    mode: int | None = None
    """Set these file permissions."""


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
    """The store that was changed: the root of a tree, or the id of another store."""
    what: str
    """``doctor``, ``remove``, ``archive`` or ``move``."""
    time: int
    """In milliseconds."""
    about: dict[str, Any] = {}
    """A description for users: titles by session."""
    raw: bool = False
    """Whether the changes are those of rows, not of records."""
    operation: str = ""
    """The operation that the changes are a part of; the changes of one operation to several stores are undone
    together."""


class Undone(Struct, kw_only=True):
    """The result of an undo."""

    restored: int = 0
    """Files that are as they were before, counted as by :func:`files_changed`."""
    left: list[Damage] = []
    """What could not be undone, and why; it is still in the folder."""


# -- changes -----------------------------------------------------------------------------------------------------------


def files_changed(changes: Iterable[Change]) -> int:
    """Return how many files a list of changes concerns; one that is changed twice, or also renamed, counts once."""
    return len({change.path for change in changes})


def perform(
    store: Store,
    what: str,
    changes: Sequence[Change],
    about: dict[str, Any] | None = None,
    *,
    raw: bool = False,
    note: UndoNote | None = None,
    operation: str = "",
) -> str:
    """Apply changes to a store and return the undo file. Nothing is created if there are no changes.

    With ``raw``, the paths of the changes name rows of a store in tables. If the process is killed, the next command
    undoes the changes. With ``note``, that holds as long as the note exists, for changes to several stores that belong
    together; ``operation`` is the name by which they are found together.
    """
    if not changes:
        return ""
    if note is None:
        with undo_note() as own_note:
            return perform(store, what, changes, about, raw=raw, note=own_note, operation=operation)
    if isinstance(store, JsonTree):
        refuse_newer(store)
    records, disk = _files_of(store, raw=raw), Disk()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    folder = os.path.join(paths.state(), _FOLDERS.get(what, what), f"{stamp}-{os.urandom(3).hex()}")
    disk.make_folder(folder)
    undo_file = os.path.join(folder, UNDO_FILE)
    note.add(folder)  # before the undo file exists, so that there never is one of changes that were not made
    try:
        with records.lock():
            moved_away: set[str] = set()
            lines = [_prepare(records, folder, change, disk, moved_away) for change in changes]
            now = time.time_ns() // 1_000_000
            header = Header(root=records.root, what=what, time=now, about=about or {}, raw=raw, operation=operation)
            disk.replace(undo_file, b"".join(_encode(line) + b"\n" for line in (header, *lines)))
            for change, line in zip(changes, lines, strict=True):
                _apply(records, folder, change, line)
    except BaseException as error:
        if not os.path.exists(undo_file):
            shutil.rmtree(folder, ignore_errors=True)  # nothing was changed yet
        elif isinstance(error, OpenseshError) and not _is_undone(undo_file, store):
            message = f"{error} The changes before that can be undone: {undo_file}"
            raise WriteError(message, **error.data, undo=undo_file) from error
        raise
    return undo_file


def take_back(undo_file: str, only: Collection[str] = (), *, store: Store | None = None) -> Undone:
    """Undo the changes in an undo file (or its folder), or those to ``only`` these paths.

    An undo that was interrupted is completed by :func:`undo_unfinished`, and can be repeated. The folder is removed
    when nothing is left to undo. ``store`` is needed for a store that cannot be opened by its id, as one in memory.
    """
    if os.path.isdir(undo_file):
        undo_file = os.path.join(undo_file, UNDO_FILE)
    header, lines = read_undo_file(undo_file)
    folder = os.path.dirname(os.path.abspath(undo_file))
    records = _files_of(_store_of(header, store), raw=header.raw)
    outcome = Undone()
    restored: set[str] = set()
    with undo_note() as note:
        note.add(folder, only)
        with records.lock():
            for line in reversed(lines):
                if only and line.path not in only:
                    continue
                try:
                    if _undo(records, folder, line):
                        restored.add(line.path)
                except _ChangedSinceError as error:
                    outcome.left.append(Damage(records.locate(line.path), str(error)))
                except OSError as error:
                    raise write_failed(line.path, error) from error
        if not outcome.left and _is_spent(folder, lines):
            discard(folder)
    outcome.restored = len(restored)
    return outcome


def undo_unfinished(store: Store) -> list[tuple[Header, Undone]]:
    """Undo what a process that died had begun to change in a store: half a removal, archiving, move or repair.

    An undo that was interrupted is completed. What other processes are doing at this moment is left to them.
    """
    undone: list[tuple[Header, Undone]] = []
    known = store_ids(store)
    for path, content in chain(unfinished.abandoned(_NOTE), unfinished.abandoned("")):
        is_settled = True
        for entry in reversed(_noted_folders(content, path)):
            folder = os.fsdecode(entry.folder)
            try:
                header, _ = read_undo_file(os.path.join(folder, UNDO_FILE))
            except NotFoundError:  # not begun, or undone already
                if _is_in_state_folder(folder):
                    shutil.rmtree(folder, ignore_errors=True)
                continue
            except RecordError:
                continue
            if header.root in known or os.path.realpath(header.root) in known:
                undone.append((header, take_back(folder, entry.only, store=store)))
            else:
                is_settled = False  # of a store that is not open
        if is_settled:
            unfinished.forget(path)
    return undone


class _Unfinished(Struct):
    folder: bytes
    """As bytes, because a path need not be UTF-8."""
    only: list[str]
    """The paths to undo; all if empty."""


def _noted_folders(content: bytes, path: str) -> list[_Unfinished]:
    first, *only = content.split(b"\n")
    if first.startswith(os.fsencode(os.sep)):  # as earlier versions wrote it
        return [_Unfinished(first, [os.fsdecode(name) for name in only])]
    try:
        return _decode(content, list[_Unfinished])
    except ValueError as error:
        log.warning("the note %s is damaged; what it is about can be undone by its undo file: %s", path, error)
        return []


class UndoNote:
    """A note of the undo folders whose changes are being applied or undone."""

    def __init__(self, note: unfinished.Note) -> None:
        self._note = note
        self._entries: list[_Unfinished] = []

    def add(self, folder: str, only: Collection[str] = ()) -> None:
        """Note that the changes of a folder begin."""
        self._entries.append(_Unfinished(os.fsencode(folder), list(only)))
        self._note.write(_encode(self._entries))


@contextmanager
def undo_note() -> Generator[UndoNote]:
    """Keep a note: if the process is killed meanwhile, the next command undoes what was added to it."""
    with unfinished.noted(_NOTE) as note:
        yield UndoNote(note)


def read_undo_file(path: str) -> tuple[Header, list[_Line]]:
    """Read an undo file; raise :class:`RecordError` for any other file."""
    try:
        first, *rest = read_file(path).splitlines()
        header = _decode(first, Header)
        lines = [_decode(line, _Line) for line in rest]
    except FileNotFoundError:
        raise NotFoundError(f"there is no undo file at {path}; it may be undone already", path=path) from None
    except (OSError, ValueError) as error:
        raise RecordError(f"not an undo file: {error}", path=path) from None
    if header.format != _FORMAT:
        raise RecordError(f"an undo file of another version: {header.format}", path=path)
    for name in (name for line in lines for name in (line.path, line.kept, line.to)):
        if os.path.isabs(name) or ".." in name.split(os.sep):
            raise RecordError(f"not an undo file: {name} is outside of the store", path=path)
    return header, lines


def _encode(value: object) -> bytes:
    """Return ``value`` as JSON. Paths that are not UTF-8 have surrogates, which msgspec does not encode."""
    return json.dumps(to_builtins(value), separators=(",", ":")).encode()


def _decode(data: bytes, kind: type[_T]) -> _T:
    """Return a value from JSON; raise :class:`ValueError` for anything else."""
    return convert(json.loads(data), kind)


def undo_files(what: str) -> Iterator[tuple[str, Header]]:
    """Iterate over the undo files of one kind, oldest first."""
    parent = os.path.join(paths.state(), _FOLDERS.get(what, what))
    for name in names_in(parent):
        try:
            path = os.path.join(parent, name, UNDO_FILE)
            yield path, read_undo_file(path)[0]
        except (NotFoundError, RecordError):
            continue


def discard(folder: str) -> None:
    """Delete the folder of an undo file for good. The undo file goes first: without it the rest is nothing."""
    Disk().remove(os.path.join(folder, UNDO_FILE))
    shutil.rmtree(folder)


class _ChangedSinceError(Exception):
    """The record is not as the change left it."""


def _is_undone(undo_file: str, store: Store) -> bool:
    """Undo changes that failed; return whether all of them could be."""
    try:
        return not take_back(undo_file, store=store).left
    except OpenseshError:
        return False


def _files_of(store: Store, *, raw: bool) -> RecordFiles:
    return RowFiles(store.id, store) if raw and isinstance(store, RawRows) else record_files(store)


def _store_of(header: Header, store: Store | None) -> Store:
    for member in member_stores(store) if store is not None else ():
        if member.id in (header.root, os.path.realpath(header.root)):
            return member
    if not os.path.isabs(header.root):
        raise StoreError(f"the store {header.root} is not open", place=header.root)
    return open_store(header.root) if os.path.isfile(header.root) else JsonTree(header.root)


def _prepare(records: RecordFiles, folder: str, change: Change, disk: Disk, moved_away: set[str]) -> _Line:
    """Return the line that undoes a change, and keep a copy of what it will replace.

    ``moved_away`` are the paths that earlier changes of the list will have moved away by then.
    """
    line = _Line(path=change.path, to=change.to)
    if change.mode is not None:
        path = records.locate(change.path)
        line.mode = os.stat(path).st_mode & 0o7777 if os.path.exists(path) else None
    elif change.aside:
        line.kept = os.path.join(FILES, change.path)
        moved_away.add(change.path)
    elif change.data is not None:
        line.after = sha256(change.data).hexdigest()
        if change.path not in moved_away and (before := _content(records, change.path)) is not None:
            line.kept = os.path.join(_BEFORE, change.path)
            disk.replace(os.path.join(folder, line.kept), before)
    return line


def _apply(records: RecordFiles, folder: str, change: Change, line: _Line) -> None:
    try:
        if change.mode is not None:
            os.chmod(records.locate(change.path), change.mode)
        elif change.aside:
            records.move_out(change.path, os.path.join(folder, line.kept))
        elif not (change.to and records.exists(change.to)):
            if change.to:
                records.rename(change.path, change.to, change.data)
            elif change.data is not None:
                records.replace(change.path, change.data)
    except FileNotFoundError:
        return  # removed meanwhile by another process
    except OSError as error:
        raise write_failed(records.locate(change.path), error) from error


def _undo(records: RecordFiles, folder: str, line: _Line) -> bool:
    """Undo one change; return whether anything was restored."""
    if line.mode is not None:
        path = records.locate(line.path)
        if not os.path.exists(path):
            return False
        os.chmod(path, line.mode)
        return True
    if line.after:
        return _undo_content(records, os.path.join(folder, line.kept) if line.kept else "", line)
    # A rename is undone from its new path, a removal from the file that was kept.
    kept = os.path.join(folder, line.kept)
    if not (records.exists(line.to) if line.to else line.kept and os.path.lexists(kept)):
        return False  # never applied, or undone already
    if records.exists(line.path):
        if line.kept and _is_copy(kept, records, line.path):  # copied, but not moved: interrupted in between
            Disk().remove(kept)
            return False
        raise _ChangedSinceError("something else is there now")
    if line.to:
        records.rename(line.to, line.path)
    else:
        records.move_in(kept, line.path)
    return True


def _undo_content(records: RecordFiles, kept: str, line: _Line) -> bool:
    if kept and not os.path.exists(kept):
        return False
    renamed = bool(line.to) and line.to != line.path and not records.exists(line.path)
    now = _content(records, line.to if renamed else line.path)
    before = read_file(kept) if kept else None
    if now == before and not renamed:
        return False
    # An undo that was interrupted may have brought the content back, but not the name.
    if now is None or (now != before and sha256(now).hexdigest() != line.after):
        raise _ChangedSinceError("it has been changed since")
    if renamed:
        records.rename(line.to, line.path, before)
    elif before is None:
        records.remove(line.path)
    else:
        records.replace(line.path, before)
    return True


def _is_copy(file: str, records: RecordFiles, path: str) -> bool:
    try:
        return not os.path.islink(file) and read_file(file) == records.read(path)
    except (OSError, RecordError):
        return False


def _content(records: RecordFiles, path: str) -> bytes | None:
    try:
        return records.read(path)
    except FileNotFoundError:
        return None


def _is_spent(folder: str, lines: Iterable[_Line]) -> bool:
    """Return whether a folder is below the state folder and keeps nothing that exists nowhere else.

    An undo file may have been copied to any folder, and lines of it removed.
    """
    if not _is_in_state_folder(folder):
        return False
    copies = {line.kept: bool(line.after) for line in lines}
    return all(
        # A file without a line of its own is unfinished if Disk was writing it.
        copies.get(os.path.relpath(os.path.join(base, name), folder), name.startswith(".") and name.endswith(".tmp"))
        for kept in (FILES, _BEFORE)
        for base, _, names in os.walk(os.path.join(folder, kept))
        for name in names
    )


def _is_in_state_folder(folder: str) -> bool:
    return os.path.dirname(os.path.dirname(os.path.realpath(folder))) == os.path.realpath(paths.state())
