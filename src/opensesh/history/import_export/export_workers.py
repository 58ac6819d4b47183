"""Other processes that take part in a large export: one for each core, each told through a pipe what to do next.

They give what this process would have given, in the same order. What a worker cannot do, because it has died or the
session is a large one, is done here. A worker ends when its pipe does, so that none outlives the export.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO, cast

from msgspec import Struct, msgpack

from ...storage import open_store
from ...storage.protocol import Damage
from ..filters import SelectedSession
from ..formats import FormatOptions
from ..formats.html_page import IndexEntry
from .exporting import RenderedSession, SessionRenderer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from .exporting import Export

_MOST = 8
_AHEAD = 2
"""How many sessions a worker has been told of that are not asked for yet."""
_LARGE = 4 << 20
"""What is larger is made here, a piece at a time: nobody holds a session whole."""
_PIPE = 1 << 20


class ExportJob(Struct, frozen=True):
    """What a worker needs to know once."""

    place: str
    form: str
    options: FormatOptions
    listed: bool
    redact: bool
    redact_paths: bool


class _Told(Struct):
    """What it says of a session, in front of what it made of it."""

    size: int
    """In bytes; -1 if it was too large."""
    damage: list[tuple[str, str]]
    redacted: dict[str, int]
    entry: IndexEntry | None


def cores() -> int:
    """How many processes are worth having."""
    usable = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return min(usable, _MOST) if sys.executable else 1


def shared(export: Export, job: ExportJob, todo: Sequence[SelectedSession]) -> Iterator[RenderedSession]:
    """Each session as :meth:`Export.sessions` gives it."""
    workers = [_Worker(job) for _ in range(cores())]
    told = len(workers) * _AHEAD
    try:
        for number, chosen in enumerate(todo[:told]):
            workers[number % len(workers)].tell(chosen, export.beneath(chosen))
        for number, chosen in enumerate(todo):
            worker = workers[number % len(workers)]
            made = worker.hear()
            if number + told < len(todo):
                worker.tell(later := todo[number + told], export.beneath(later))
            if made is None or made[0].size < 0:
                yield export.make(chosen, listed=job.listed)
            else:
                export.take_note((Damage(*each) for each in made[0].damage), made[0].redacted)
                yield RenderedSession(chosen, (made[1],) if made[1] else (), made[0].entry)
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    def __init__(self, job: ExportJob) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the process that was started by hand
        )
        self._into, self._out_of = cast("BinaryIO", self._process.stdin), cast("BinaryIO", self._process.stdout)
        _widen(self._out_of)
        self._send(msgpack.encode(job))

    def tell(self, chosen: SelectedSession, beneath: Mapping[str, Sequence[SelectedSession]]) -> None:
        self._send(msgpack.encode((chosen, beneath)))

    def hear(self) -> tuple[_Told, bytes] | None:
        """The next session; ``None`` if the worker is no more."""
        head = _receive(self._out_of)
        if head is None:
            return None
        told = msgpack.decode(head, type=_Told)
        data = self._out_of.read(max(told.size, 0))
        return (told, data) if len(data) == max(told.size, 0) else None

    def end(self) -> None:
        for pipe in (self._into, self._out_of):
            with suppress(OSError):
                pipe.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _send(self, frame: bytes) -> None:
        with suppress(OSError):  # it has died, and will not be heard of
            _write(self._into, frame)


def _widen(pipe: BinaryIO) -> None:
    """Let a worker get ahead by more than a pipe usually holds, where that can be had."""
    if sys.platform == "linux":
        import fcntl

        with suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE)


def _write(pipe: BinaryIO, frame: bytes, data: bytes = b"") -> None:
    pipe.write(len(frame).to_bytes(4) + frame + data)
    pipe.flush()


def _receive(pipe: BinaryIO) -> bytes | None:
    head = pipe.read(4)
    frame = pipe.read(int.from_bytes(head))
    return frame if len(head) == 4 and len(frame) == int.from_bytes(head) else None


# -- in a worker -------------------------------------------------------------------------------------------------------


def work(source: BinaryIO, target: BinaryIO) -> None:
    """Export what is asked for, until nothing is any more."""
    frame = _receive(source)
    if frame is None:
        return
    job = msgpack.decode(frame, type=ExportJob)
    damage: list[Damage] = []
    redactor = None
    if job.redact:
        from .redaction import Redactor

        redactor = Redactor(paths=job.redact_paths)
    store = open_store(job.place, report=lambda damage: None)  # whoever started this was told
    reader = SessionRenderer(store, job.form, job.options, redactor=redactor, report=damage.append)
    while (frame := _receive(source)) is not None:
        head, beneath = msgpack.decode(frame)
        chosen = _selected(head)
        reader.nested = {name: [*map(_selected, children)] for name, children in beneath.items()}
        damage.clear()
        if redactor is not None:
            redactor.counts.clear()
        made = reader.listed(chosen) if job.listed else RenderedSession(chosen, reader.pieces(chosen))
        data = _whole(made.pieces)
        counts = dict(redactor.counts) if redactor is not None else {}
        noticed = [(each.path, each.reason) for each in damage]
        told = _Told(-1 if data is None else len(data), noticed, counts, made.entry)
        _write(target, msgpack.encode(told), data or b"")


def _selected(fields: Sequence[Any]) -> SelectedSession:
    key, *others = fields
    return SelectedSession(tuple(key), *others)


def _whole(pieces: Iterable[bytes]) -> bytes | None:
    made = bytearray()
    for piece in pieces:
        made += piece
        if len(made) > _LARGE:
            return None
    return bytes(made)


if __name__ == "__main__":
    work(sys.stdin.buffer, sys.stdout.buffer)
