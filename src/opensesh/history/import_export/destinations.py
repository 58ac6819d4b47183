"""Destinations of an export: a stream, a file that an interrupted run can continue, or a folder of files."""

from __future__ import annotations

import errno
import os
import shlex
from hashlib import sha256
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from ...errors import ExportError, RecordError, UsageError
from ...records import Document, dumps_compact, loads
from ...storage.disk import read_file
from ..formatting import text, when
from ..stats.money import dollars, units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ..stats.session_usage import SessionInfo
    from .exporting import Export

    Step = Callable[[int, int], None]
    """Called after each session with the number of sessions done, and of all."""

_STATE_FILE = ".opensesh-export.jsonl"
_BUFFER_BYTES = 262_144
_MAX_PROMPT_LENGTH = 200


class IndexEntry(msgspec.Struct, kw_only=True):
    """The entry of a session in the index page."""

    file: str
    id: str
    title: str
    directory: str
    updated: int
    messages: int = 0
    cost: int = 0
    """The cost in units of :mod:`opensesh.history.stats.money`."""
    prompt: str = ""
    """The beginning of the first prompt."""

    def count(self, info: Document, parts: Iterable[Document]) -> None:
        """Add a message to the entry while it is exported."""
        self.messages += 1
        cost = info.get("cost")
        self.cost += units(cost) if isinstance(cost, (int, float)) else 0
        if not self.prompt and info.get("role") == "user":
            texts = (text(part, "text") for part in parts if part.get("type") == "text" and not part.get("synthetic"))
            self.prompt = " ".join(" ".join(texts).split())
            if len(self.prompt) > _MAX_PROMPT_LENGTH:
                beginning = self.prompt[:_MAX_PROMPT_LENGTH]
                space = beginning.rfind(" ", _MAX_PROMPT_LENGTH - 40)  # at the end of a word, if one ends nearby
                self.prompt = f"{beginning[:space] if space > 0 else beginning}…"

    def row(self, *, utc: bool) -> Document:
        """Return what the index page shows."""
        cost = f"${dollars(self.cost):.2f}" if self.cost else ""
        return msgspec.to_builtins(self) | {"when": when(self.updated, utc=utc), "cost": cost}


class WrittenSession(msgspec.Struct, kw_only=True):
    """A line of the state of an export: a session that is written."""

    id: str
    version: int
    """See :meth:`~opensesh.history.import_export.exporting.Export.version`."""
    offset: int = 0
    """The position in a single file at which the session ends."""
    entry: IndexEntry | None = None
    """The entry for the index of a folder."""


def to_stream(export: Export, stream: BinaryIO, step: Step) -> int:
    """Write all sessions to a pipe or terminal; return how many were written."""
    export.check_single_file()
    written = 0
    before, between, after = export.delimiters
    stream.write(before)
    for number, selected in enumerate(export.selected, 1):
        written += _write_chunks(export.chunks(selected), stream, between if written else b"")
        step(number, len(export.selected))
    stream.write(after)
    stream.flush()
    return written


def to_file(export: Export, path: str, step: Step, *, fingerprint: str = "", restart: bool = False) -> int:
    """Write all sessions to a file, which appears when it is complete; return how many were written.

    Until then they are in ``<path>.part``. An interrupted run is continued if its ``fingerprint`` is the same and the
    sessions written so far have not changed. A device or a named pipe is written to directly.
    """
    if os.path.isdir(path):
        raise UsageError(f"{path} is a folder; name a file in it, or write one file a session with --split {path}")
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        problem = "is a file" if os.path.exists(folder) else "does not exist; create it first"
        raise ExportError(f"{path} cannot be written: the folder {folder} {problem}", path=path)
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            if export.format_name == "parquet":
                raise UsageError(f"{path} is not a regular file, which Parquet needs")
            with open(path, "wb") as device:
                return to_stream(export, device, step)
        export.check_single_file()
        if export.format_name == "parquet":
            from ..formats.parquet import write_table

            def rows() -> Iterator[bytes]:
                for number, selected in enumerate(export.selected, 1):
                    yield from export.chunks(selected)
                    step(number, len(export.selected))

            write_table(rows(), path)
            return len(export.selected)
        return _write_file(export, path, step, fingerprint, restart=restart)
    except OSError as error:
        raise _export_error(path, error) from error


def to_folder(
    export: Export, folder: str, step: Step, *, fingerprint: str = "", restart: bool = False, utc: bool = False
) -> int:
    """Write one file a session, and an index if the format has one; return how many were written.

    Files of sessions that have not changed are kept: an interrupted run is continued, and a later run updates the
    folder.
    """
    if export.format_name == "parquet":
        raise UsageError("Parquet is a single file: use -o FILE")
    try:
        os.makedirs(folder, exist_ok=True)
        state = {} if restart else _read_state(os.path.join(folder, _STATE_FILE), fingerprint)
        written = _write_folder(export, folder, step, fingerprint, state)
        entries = [done.entry for done in state.values() if done.entry is not None]
        if export.format_name == "html":
            from ..formats.html_page import index_page  # Jinja is slow to import, and most exports need no page

            entries.sort(key=lambda entry: (-entry.updated, entry.id))
            _write_atomic(os.path.join(folder, "index.html"), index_page([entry.row(utc=utc) for entry in entries]))
        if export.format_name == "opencode":
            _write_atomic(os.path.join(folder, "import.sh"), [_import_script(entries)])
    except OSError as error:
        raise _export_error(folder, error) from error
    return written


def export_fingerprint(*settings: object) -> str:
    """Return a digest of the settings of an export, by which a later run recognises the same export."""
    return sha256(repr(settings).encode()).hexdigest()[:32]


def _write_file(export: Export, path: str, step: Step, fingerprint: str, *, restart: bool) -> int:
    part, state_file = f"{path}.part", f"{path}.part.done"
    before, between, after = export.delimiters
    fingerprint = export_fingerprint(fingerprint, export.delimiters)
    todo, offset = _remaining(export, part, {} if restart else _read_state(state_file, fingerprint))
    with (
        open(part, "r+b" if offset else "wb", buffering=_BUFFER_BYTES) as file,
        open(state_file, "ab" if offset else "wb") as state,
    ):
        if offset:
            file.truncate(offset)
            file.seek(offset)
        else:
            state.write(_state_header(fingerprint))
            file.write(before)
        written = len(export.selected) - len(todo)
        for number, selected in enumerate(todo, written + 1):
            written += _write_chunks(export.chunks(selected), file, between if file.tell() > len(before) else b"")
            file.flush()
            done = WrittenSession(id=selected.id, version=export.version(selected), offset=file.tell())
            state.write(_state_line(done))
            state.flush()
            step(number, len(export.selected))
        file.write(after)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
    os.unlink(state_file)
    return written


def _remaining(export: Export, part: str, state: dict[str, WrittenSession]) -> tuple[list[SessionInfo], int]:
    """Return the sessions still to be written, and from which byte; all, if a session written so far has changed."""
    count, offset = 0, 0
    size = os.path.getsize(part) if os.path.exists(part) else 0
    for selected, done in zip(export.selected, state.values(), strict=False):
        if (selected.id, export.version(selected)) != (done.id, done.version):
            return export.selected, 0
        if done.offset > size:
            break  # its line reached the disk before a power cut, and its session did not
        count, offset = count + 1, done.offset
    return export.selected[count if offset else 0 :], offset


def _write_folder(export: Export, folder: str, step: Step, fingerprint: str, state: dict[str, WrittenSession]) -> int:
    """Write the sessions that are missing or have changed, and add them to ``state``."""
    written = 0
    state_file = os.path.join(folder, _STATE_FILE)
    _write_atomic(state_file, [_state_header(fingerprint), *map(_state_line, state.values())])

    def is_current(selected: SessionInfo) -> bool:
        done = state.get(selected.id)
        path = os.path.join(folder, f"{selected.id}{export.format.suffix}")
        return done is not None and done.version == export.version(selected) and os.path.exists(path)

    todo = [selected for selected in export.selected if not is_current(selected)]
    total = len(export.selected)
    with open(state_file, "ab") as file:
        for number, selected in enumerate(todo, total - len(todo) + 1):
            name = f"{selected.id}{export.format.suffix}"
            entry = IndexEntry(file=name, id=selected.id, title=selected.id, directory="", updated=selected.updated)
            session = export.read(selected, entry.count)
            if session is not None:
                entry.title = text(session.info, "title") or selected.id
                entry.directory = text(session.info, "directory")
                _write_atomic(os.path.join(folder, name), export.format.chunks(session))
                done = WrittenSession(id=selected.id, version=export.version(selected), entry=entry)
                state[done.id] = done
                file.write(_state_line(done))
                file.flush()
                written += 1
            step(number, total)
    return written


def _write_chunks(chunks: Iterable[bytes], stream: BinaryIO, prefix: bytes) -> bool:
    """Write chunks after ``prefix``; return whether there were any."""
    any_written = False
    for chunk in chunks:
        stream.write(chunk if any_written else prefix + chunk)
        any_written = True
    return any_written


def _export_error(path: str, error: OSError) -> ExportError:
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            advice = "the disk is full. Free some space and run the command again: it continues where it stopped"
        case errno.EROFS | errno.EACCES | errno.EPERM:
            advice = f"{error.strerror}. Check owner and mode of the folder, or choose another one"
        case _:
            advice = error.strerror or str(error)
    return ExportError(f"{path} cannot be written: {advice}", path=path, errno=error.errno)


def _state_header(fingerprint: str) -> bytes:
    return dumps_compact({"mark": fingerprint}) + b"\n"


def _state_line(done: WrittenSession) -> bytes:
    return dumps_compact(msgspec.to_builtins(done)) + b"\n"


def _read_state(path: str, fingerprint: str) -> dict[str, WrittenSession]:
    """Return what an earlier run of the same export has written. A line that was cut off ends the list."""
    try:
        first, *lines = read_file(path).split(b"\n")
        if loads(first) != {"mark": fingerprint}:
            return {}
    except (OSError, RecordError):
        return {}
    state: dict[str, WrittenSession] = {}
    for line in lines:
        try:
            done = msgspec.convert(loads(line), WrittenSession)
        except (RecordError, msgspec.ValidationError):
            break
        state[done.id] = done
    return state


def _write_atomic(path: str, chunks: Iterable[bytes]) -> None:
    # Not Disk.replace: an export needs no sync for each of thousands of files, and its files are readable by others.
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.writelines(chunks)
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def _import_script(entries: Iterable[IndexEntry]) -> bytes:
    """Return a shell script that imports each file from the directory of its session.

    OpenCode assigns an imported session to the project of the current directory.
    """
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
