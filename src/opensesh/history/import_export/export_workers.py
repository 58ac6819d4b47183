"""Worker processes for large exports: one for each core, which receive sessions to render through a pipe.

The result is the same as without workers, in the same order. What a worker cannot do, because it died or the session is
too large, is done in the main process. A worker ends when its pipe is closed, so none survives the export.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO, cast

from msgspec import Struct, msgpack

from ...redaction import Redactor
from ...storage import open_store
from ...storage.protocol import Damage
from ..filters import SelectedSession
from ..formats import FormatOptions
from ..formats.html_index import IndexEntry
from .exporting import RenderedSession, SessionRenderer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from .exporting import Export

_MAX_WORKERS = 8
_SESSIONS_AHEAD = 2
"""How many sessions a worker has in its queue."""
_MAX_RESULT_BYTES = 4 << 20
"""Larger sessions are rendered in the main process, a chunk at a time, so that none is in memory as a whole."""
_PIPE_BYTES = 1 << 20


class ExportJob(Struct, frozen=True):
    """What a worker receives once, at its start."""

    place: str
    format_name: str
    options: FormatOptions
    with_entry: bool
    redact: bool
    redact_paths: bool
    known_secrets: tuple[str, ...]


class _WorkerReply(Struct):
    """What a worker sends before the bytes of a session."""

    size: int
    """Number of bytes; -1 if the session is too large."""
    damage: list[tuple[str, str]]
    redacted: dict[str, int]
    entry: IndexEntry | None


def default_workers() -> int:
    """Return how many worker processes make sense on this machine."""
    usable = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return min(usable, _MAX_WORKERS) if sys.executable else 1


def render_in_workers(
    export: Export, job: ExportJob, todo: Sequence[SelectedSession], count: int
) -> Iterator[RenderedSession]:
    """Render sessions in ``count`` processes; see :meth:`Export.sessions`."""
    workers = [_Worker(job) for _ in range(count)]
    ahead = len(workers) * _SESSIONS_AHEAD
    try:
        for number, selected in enumerate(todo[:ahead]):
            workers[number % len(workers)].send(selected, export.descendants_of(selected))
        for number, selected in enumerate(todo):
            worker = workers[number % len(workers)]
            result = worker.receive()
            if number + ahead < len(todo):
                worker.send(later := todo[number + ahead], export.descendants_of(later))
            if result is None or result[0].size < 0:
                yield export.render(selected, with_entry=job.with_entry)
                continue
            reply, data = result
            export.add_worker_results((Damage(*entry) for entry in reply.damage), reply.redacted)
            yield RenderedSession(selected, (data,) if data else (), reply.entry)
    finally:
        for worker in workers:
            worker.close()


class _Worker:
    """A worker process, seen from the main process."""

    def __init__(self, job: ExportJob) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the main process only
        )
        self._stdin, self._stdout = cast("BinaryIO", self._process.stdin), cast("BinaryIO", self._process.stdout)
        if sys.platform == "linux":
            import fcntl

            with suppress(OSError):  # a larger pipe lets the worker get further ahead
                fcntl.fcntl(self._stdout, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._send_frame(msgpack.encode(job))

    def send(self, selected: SelectedSession, descendants: Mapping[str, Sequence[SelectedSession]]) -> None:
        self._send_frame(msgpack.encode((selected, descendants)))

    def receive(self) -> tuple[_WorkerReply, bytes] | None:
        """Return the next result; ``None`` if the worker has died."""
        head = _read_frame(self._stdout)
        if head is None:
            return None
        reply = msgpack.decode(head, type=_WorkerReply)
        size = max(reply.size, 0)
        data = self._stdout.read(size)
        return (reply, data) if len(data) == size else None

    def close(self) -> None:
        for pipe in (self._stdin, self._stdout):
            with suppress(OSError):
                pipe.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _send_frame(self, frame: bytes) -> None:
        with suppress(OSError):  # it has died; receive() returns None
            _write_frame(self._stdin, frame)


def _write_frame(pipe: BinaryIO, frame: bytes, data: bytes = b"") -> None:
    pipe.write(len(frame).to_bytes(4) + frame + data)
    pipe.flush()


def _read_frame(pipe: BinaryIO) -> bytes | None:
    head = pipe.read(4)
    frame = pipe.read(int.from_bytes(head))
    return frame if len(head) == 4 and len(frame) == int.from_bytes(head) else None


# -- in the worker process ---------------------------------------------------------------------------------------------


def work(source: BinaryIO, target: BinaryIO) -> None:
    """Render the sessions received from ``source`` until it is closed."""
    frame = _read_frame(source)
    if frame is None:
        return
    job = msgpack.decode(frame, type=ExportJob)
    damage: list[Damage] = []
    redactor = None
    if job.redact:
        redactor = Redactor(job.known_secrets, paths=job.redact_paths)
    store = open_store(job.place, report=lambda damage: None)  # the main process has reported it
    renderer = SessionRenderer(store, job.format_name, job.options, redactor=redactor, report=damage.append)
    while (frame := _read_frame(source)) is not None:
        fields, descendants = msgpack.decode(frame)
        renderer.children = {id_: [*map(_selected, children)] for id_, children in descendants.items()}
        damage.clear()
        if redactor is not None:
            redactor.counts.clear()
        rendered = renderer.render(_selected(fields), with_entry=job.with_entry)
        data = bytearray()
        for chunk in rendered.chunks:
            data += chunk
            if len(data) > _MAX_RESULT_BYTES:
                break
        size = len(data) if len(data) <= _MAX_RESULT_BYTES else -1
        counts = dict(redactor.counts) if redactor is not None else {}
        reply = _WorkerReply(size, [(entry.path, entry.reason) for entry in damage], counts, rendered.entry)
        _write_frame(target, msgpack.encode(reply), bytes(data) if size > 0 else b"")


def _selected(fields: Sequence[Any]) -> SelectedSession:
    key, *others = fields
    return SelectedSession(tuple(key), *others)


if __name__ == "__main__":
    work(sys.stdin.buffer, sys.stdout.buffer)
