"""Where an export goes: a stream, a file that an interrupted run can go on with, or a folder with a file a session."""

from __future__ import annotations

import errno
import os
import shlex
from hashlib import sha256
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from ...errors import ExportError, NotFoundError, RecordError, UsageError
from ...records import dumps_compact, loads
from ...storage.disk import read_file
from ..formats.html_page import IndexEntry, index_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ..filters import SelectedSession
    from .exporting import Export, RenderedSession

    Step = Callable[[int, int], None]

_LIST = ".opensesh-export.jsonl"
_BUFFER = 262_144


class Done(msgspec.Struct, kw_only=True):
    """A session that is written: in a file, up to which byte; in a folder, to which file, with what the index shows."""

    id: str
    version: int
    """See :meth:`~opensesh.history.import_export.exporting.Export.version`."""
    offset: int = 0
    entry: IndexEntry | None = None


def to_stream(export: Export, stream: BinaryIO, step: Step) -> int:
    """All sessions, to a pipe or a terminal; how many. Whoever reads gets every byte, however slowly it reads."""
    _refuse_several(export)
    written = 0
    before, between, after = export.frame
    stream.write(before)
    for number, made in enumerate(export.sessions(export.chosen), 1):
        written += _pour(made.pieces, stream, between if written else b"")
        step(number, len(export.chosen))
    stream.write(after)
    stream.flush()
    return written


def to_file(export: Export, path: str, step: Step, *, mark: str = "", restart: bool = False) -> int:
    """All sessions, to a file that appears when it is complete; how many.

    Until then they are in ``<path>.part``. A run that was interrupted is taken up there, provided that it was about
    the same (``mark`` tells) and that what it has written has not changed since. A device or a pipe stays what it is:
    it is written to, and never replaced.
    """
    if os.path.isdir(path):
        raise UsageError(f"{path} is a folder; name a file in it, or write a file a session with --split {path}")
    _check_folder(path)
    if os.path.exists(path) and not os.path.isfile(path):
        return _to_device(export, path, step)
    _refuse_several(export)
    try:
        if export.form == "parquet":
            from ..formats.parquet import write_table

            write_table(_rows(export, step), path)
            return len(export.chosen)
        return _Part(export, path, mark, restart=restart).write(step)
    except OSError as error:
        raise _refused(path, error) from error


def to_folder(
    export: Export, folder: str, step: Step, *, mark: str = "", restart: bool = False, utc: bool = False
) -> int:
    """A file a session, and an index where the form has one; how many were written.

    Sessions that are there already, and have not changed since, are left as they are: an interrupted run goes on, and
    a later one brings the folder up to date.
    """
    if export.form == "parquet":
        raise UsageError("a table is one file: give it with -o FILE")
    try:
        os.makedirs(folder, exist_ok=True)
        held = {} if restart else _read_list(os.path.join(folder, _LIST), mark)
        written = _Folder(export, folder, held, mark).write(step)
        entries = [done.entry for done in held.values() if done.entry is not None]
        if export.form == "html":
            _put(os.path.join(folder, "index.html"), index_page(entries, utc=utc))
        if export.form == "opencode":
            _put(os.path.join(folder, "import.sh"), [_script(entries)])
    except OSError as error:
        raise _refused(folder, error) from error
    return written


def export_fingerprint(*settings: object) -> str:
    """A short form of what an export is about, to know an earlier run of the same by."""
    return sha256(repr(settings).encode()).hexdigest()[:32]


class _Part:
    """One file, written session by session, with a note of how far it has come."""

    def __init__(self, export: Export, path: str, mark: str, *, restart: bool) -> None:
        self.export = export
        self.path = path
        self.part = f"{path}.part"
        self.notes = f"{path}.part.done"
        self.mark = export_fingerprint(mark, export.frame)
        self.done = {} if restart else _read_list(self.notes, self.mark)

    def write(self, step: Step) -> int:
        before, between, after = self.export.frame
        todo, offset = self._left()
        with (
            open(self.part, "r+b" if offset else "wb", buffering=_BUFFER) as file,
            open(self.notes, "ab" if offset else "wb") as notes,
        ):
            if offset:
                file.truncate(offset)
                file.seek(offset)
            else:
                notes.write(_header(self.mark))
                file.write(before)
            written = len(self.export.chosen) - len(todo)
            for number, (chosen, pieces, _) in enumerate(self.export.sessions(todo), written + 1):
                written += _pour(pieces, file, between if file.tell() > len(before) else b"")
                file.flush()
                notes.write(_line(Done(id=chosen.id, version=self.export.version(chosen), offset=file.tell())))
                notes.flush()
                step(number, len(self.export.chosen))
            file.write(after)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self.part, self.path)
        os.unlink(self.notes)
        return written

    def _left(self) -> tuple[list[SelectedSession], int]:
        """What is still to be written, and from which byte; everything, if the beginning is not what it was."""
        chosen, count, offset = self.export.chosen, 0, 0
        size = os.path.getsize(self.part) if os.path.exists(self.part) else 0
        for each, done in zip(chosen, self.done.values(), strict=False):
            if (each.id, self.export.version(each)) != (done.id, done.version):
                return chosen, 0
            if done.offset > size:
                break
            count, offset = count + 1, done.offset
        return chosen[count if offset else 0 :], offset


class _Folder:
    """A folder, with a list of what is in it."""

    def __init__(self, export: Export, folder: str, held: dict[str, Done], mark: str) -> None:
        self.export = export
        self.folder = folder
        self.held = held
        self.mark = mark

    def write(self, step: Step) -> int:
        written = 0
        names = os.path.join(self.folder, _LIST)
        _put(names, [_header(self.mark), *map(_line, self.held.values())])
        every = self.export.chosen
        todo = [chosen for chosen in every if not self._is_there(chosen)]
        with open(names, "ab") as notes:
            for number, made in enumerate(self.export.sessions(todo, listed=True), len(every) - len(todo) + 1):
                if made.entry is not None:
                    done = self._put(made, made.entry)
                    self.held[done.id] = done
                    notes.write(_line(done))
                    notes.flush()
                    written += 1
                step(number, len(every))
        return written

    def _is_there(self, chosen: SelectedSession) -> bool:
        done = self.held.get(chosen.id)
        return (
            done is not None
            and done.version == self.export.version(chosen)
            and os.path.exists(os.path.join(self.folder, f"{chosen.id}{self.export.format.suffix}"))
        )

    def _put(self, made: RenderedSession, entry: IndexEntry) -> Done:
        _put(os.path.join(self.folder, entry.file), made.pieces)
        return Done(id=made.chosen.id, version=self.export.version(made.chosen), entry=entry)


def _pour(pieces: Iterable[bytes], stream: BinaryIO, before: bytes) -> bool:
    """Write them, with ``before`` in front; whether there were any."""
    some = False
    for piece in pieces:
        stream.write(piece if some else before + piece)
        some = True
    return some


def _rows(export: Export, step: Step) -> Iterator[bytes]:
    for number, chosen in enumerate(export.chosen, 1):
        yield from export.pieces(chosen)
        step(number, len(export.chosen))


def _check_folder(path: str) -> None:
    """Say at once, and not after an hour's work, that there is no place for a file."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        what = "is a file" if os.path.exists(folder) else "does not exist; make it first"
        raise ExportError(f"{path} cannot be written: the folder {folder} {what}", path=path)


def _to_device(export: Export, path: str, step: Step) -> int:
    if export.form == "parquet":
        raise UsageError(f"{path} is no file, and a table needs one")
    try:
        with open(path, "wb") as device:
            return to_stream(export, device, step)
    except OSError as error:
        raise _refused(path, error) from error


def _refused(path: str, error: OSError) -> ExportError:
    """What to tell, and what to do."""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            advice = "the disk is full. Free some space and run it again: it goes on where it stopped"
        case errno.EROFS | errno.EACCES | errno.EPERM:
            advice = f"{error.strerror}. Check the owner and mode of its folder, or name another place"
        case _:
            advice = error.strerror or str(error)
    return ExportError(f"{path} cannot be written: {advice}", path=path, errno=error.errno)


def _refuse_several(export: Export) -> None:
    if export.format.together is None and not export.chosen:
        raise NotFoundError(f"no sessions fit in {export.store.place}")
    if export.format.together is None and len(export.chosen) > 1:
        raise UsageError(
            f"{len(export.chosen):,} sessions do not fit in one file of the format {export.form!r}; "
            "give a folder with --split DIR"
        )


def _header(mark: str) -> bytes:
    return dumps_compact({"mark": mark}) + b"\n"


def _line(done: Done) -> bytes:
    return dumps_compact(msgspec.to_builtins(done)) + b"\n"


def _read_list(path: str, mark: str) -> dict[str, Done]:
    """What an earlier run of the same export has written; a line that was cut short does not count."""
    try:
        first, *lines = read_file(path).split(b"\n")
        if loads(first) != {"mark": mark}:
            return {}
    except (OSError, RecordError):
        return {}
    found: dict[str, Done] = {}
    for line in lines:
        try:
            done = msgspec.convert(loads(line), Done)
        except (RecordError, msgspec.ValidationError):
            break
        found[done.id] = done
    return found


def _put(path: str, pieces: Iterable[bytes]) -> None:
    """A file, whole or not at all."""
    folder, name = os.path.split(path)
    unfinished = os.path.join(folder, f".{name}.{os.getpid()}.tmp")
    try:
        with open(unfinished, "wb") as file:
            file.writelines(pieces)
        os.replace(unfinished, path)
    except BaseException:
        if os.path.exists(unfinished):
            os.unlink(unfinished)
        raise


def _script(entries: Iterable[IndexEntry]) -> bytes:
    """A shell script that imports every file in the folder it belongs to: OpenCode files a session under the project
    of the folder it is imported in."""
    lines = [
        "#!/bin/sh",
        "# Imports every session beside this script with the opencode on the path, each in its own folder.",
        'here=$(cd "$(dirname "$0")" && pwd)',
        "missing=0",
    ]
    for entry in sorted(entries, key=lambda entry: entry.directory):
        into, file = shlex.quote(entry.directory or "/"), shlex.quote(entry.file)
        lines += [
            f'if [ -d {into} ]; then (cd {into} && opencode import "$here"/{file})',
            f"else echo {shlex.quote(f'{entry.file}: no folder {entry.directory}')} >&2; missing=1; fi",
        ]
    return "\n".join((*lines, "exit $missing", "")).encode(errors="replace")
