"""Event streams of OpenCode's clients. Clients with the same options that are up to date share what they are sent.

A channel reads the bus for all clients of one directory, or of all directories. It encodes an event once and joins what
was published meanwhile to one chunk, which every client then writes. It waits after each chunk, for longer the longer
writing took: a busy server sends fewer and larger chunks, in which the updates of a streaming text are one.

A client that cannot take as much as is published reads the bus by itself at its own pace, with nothing kept for it but
a position, until it is up to date again.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from ..events import Missed, PartDelta, PartRemoved, PartUpdated
from ..records import dumps_compact
from .client_documents import client_part
from .event_streams import has_ended

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable

    from ..bus import Envelope
    from ..records import Document
    from .event_streams import EventStreams

DISPOSED = "server.instance.disposed"
_GLOBAL = "global"
"""The directory of events of all directories, in OpenCode."""
_HEARTBEAT = b'{"type":"server.heartbeat","properties":{}}'
_CHUNK_BYTES = 256 << 10
_KEPT_BYTES = 2 << 20
"""How much of a channel is kept for clients that are slower for a moment."""
_BYTES_PER_SECOND = 4 << 20
"""How much of one streaming text is sent to one client. Every update has the whole text, so that long texts are
updated less often."""
_PAUSE_FACTOR = 2.0
"""How many times as long as writing its last chunk took a channel waits."""
_MAX_PAUSE_SECONDS = 0.1
_RETRY_SECONDS = 0.01


class StreamPosition:
    """A position in the events of a directory, and what has been sent of the texts that are streamed there."""

    def __init__(
        self, streams: EventStreams, directory: str | None, sequence: int, sent: dict[str, int], *, with_ids: bool
    ) -> None:
        """``directory`` is ``None`` for all directories; events are wrapped then."""
        self.streams = streams
        self.directory = directory
        self.sequence = sequence
        """The number of the last event that was read."""
        self.sent = sent
        """How much of the text of each streaming part was sent, by part id."""
        self.is_ended = False
        self._with_ids = with_ids
        self._due: dict[str, float] = {}
        """The earliest time of the next update of a streaming part that was sent a moment ago, by part id."""

    def copy(self, sequence: int, sent: dict[str, int]) -> StreamPosition:
        """Return an earlier position for a client of its own."""
        return StreamPosition(self.streams, self.directory, sequence, dict(sent), with_ids=self._with_ids)

    @property
    def next_due(self) -> float | None:
        """The time at which an update that was held back has to be sent, in monotonic seconds."""
        return min(self._due.values(), default=None)

    def read(self) -> bytes:
        """Return the frames of the next events, up to some size; empty if there are none."""
        frames: list[bytes] = []
        size = 0
        while size < _CHUNK_BYTES and not self.is_ended:
            envelope = self.streams.bus.next_after(self.sequence)
            if envelope is None:
                break
            self.sequence = envelope.sequence
            if frame := self._frame_of(envelope):
                frames.append(frame)
                size += len(frame)
        return b"".join(frames)

    def read_deferred(self, *, only_due: bool = True) -> bytes:
        """Return updates of the texts that were held back; without ``only_due`` of all texts that have grown."""
        now = time.monotonic()
        frames: list[bytes] = []
        for part_id in list(self._due if only_due else self.sent):
            if only_due and self._due[part_id] > now:
                continue
            self._due.pop(part_id, None)
            text = self.streams.text(part_id)  # none if the part has ended: the event of its end follows
            if text is not None and text.length > self.sent[part_id]:
                frames.append(self._text_frame(part_id, self.sent[part_id], text.directory))
        return b"".join(frames)

    def frame(self, payload: bytes, directory: str | None, sequence: int | None = None) -> bytes:
        """Return one event as it is sent."""
        if self.directory is None:
            head = b'"directory":' + dumps_compact(directory) + b"," if directory is not None else b""
            payload = b"{" + head + b'"payload":' + payload + b"}"
        number = f"id: {self.streams.event_id(sequence)}\n".encode() if sequence and self._with_ids else b""
        return number + b"data: " + payload + b"\n\n"

    def disposed_frames(self, sequence: int | None = None) -> bytes:
        """Return the events upon which clients read everything again.

        On a stream of all directories, OpenCode's web interface does so upon one, its terminal client upon the other.
        """
        directory = self.directory or _GLOBAL
        events: list[Document] = [{"type": DISPOSED, "properties": {"directory": directory}}]
        if self.directory is None:
            events.insert(0, {"type": "global.disposed", "properties": {}})
        return b"".join(self.frame(dumps_compact(event), directory, sequence) for event in events)

    def _frame_of(self, envelope: Envelope) -> bytes:
        """Return what clients are sent for an event; empty if they are sent nothing, or only later."""
        event = envelope.event
        if isinstance(event, Missed):
            self.sent.clear()
            self._due.clear()
            return self.disposed_frames(envelope.sequence)
        if self.directory not in (None, envelope.directory):
            return b""
        rest = b""
        match event:
            case PartDelta(part_id=part_id, delta=delta):
                return self._delta_frame(part_id, len(delta), envelope)
            case PartUpdated(part=part, delta=delta) if delta and part.get("id") in self.sent:
                return self._delta_frame(str(part["id"]), len(delta), envelope)
            case PartUpdated(part=part, delta=""):
                return self._rest_frame(part, self._forget(str(part.get("id"))) or 0, envelope)
            case PartUpdated(part=part, delta=delta) if delta or part.get("id") in self.sent:
                part_id = str(part.get("id"))
                if not has_ended(part):
                    self.sent[part_id] = len(str(part.get("text", "")))
                elif (start := self._forget(part_id)) is not None:
                    # Clients that read deltas alone have all of the text before its end.
                    rest = self._rest_frame(part | {"time": {"start": part["time"].get("start")}}, start, envelope)
            case PartRemoved(part_id=part_id):
                self._forget(part_id)
            case _:
                self.is_ended = event.type == DISPOSED and self.directory is not None
        return rest + self.frame(self.streams.payload(envelope), envelope.directory, envelope.sequence)

    def _delta_frame(self, part_id: str, added: int, envelope: Envelope) -> bytes:
        """Return an update with the newest text of a part; empty if that was sent already, or if the last update was
        sent only a moment ago."""
        text = self.streams.text(part_id)
        if text is None:
            return b""  # the part has ended, and the event of its end follows
        start = self.sent.get(part_id)
        if start is None:  # the client has resumed its stream in the middle of the text
            end = text.end_of(envelope.sequence)
            if end is None:
                return b""  # the part was stored meanwhile, and the event of that follows
            start = end - added
        if text.length <= start:
            return b""
        if self._due.get(part_id, 0.0) > time.monotonic():
            return b""
        return self._text_frame(part_id, start, envelope.directory, envelope.sequence)

    def _text_frame(self, part_id: str, start: int, directory: str | None, sequence: int | None = None) -> bytes:
        text = self.streams.text(part_id)
        if text is None:
            return b""
        length, payload = text.payload(start)
        self.sent[part_id] = length
        self._due[part_id] = time.monotonic() + length / _BYTES_PER_SECOND
        return self.frame(payload, directory, sequence)

    def _rest_frame(self, part: Document, start: int, envelope: Envelope) -> bytes:
        """Return an update with the rest of a text to which nothing is added any more, if there is any."""
        text = str(part.get("text", ""))
        if len(text) <= start:
            return b""
        properties = {"part": client_part(part), "delta": text[start:]}
        payload = dumps_compact({"type": envelope.event.type, "properties": properties})
        return self.frame(payload, envelope.directory, envelope.sequence)

    def _forget(self, part_id: str) -> int | None:
        """Forget a part; return how much of its text was sent."""
        self._due.pop(part_id, None)
        return self.sent.pop(part_id, None)


class StreamChunk(NamedTuple):
    """The bytes that all clients of a channel are sent at once."""

    number: int
    data: bytes
    sequence: int
    """The number of the last event in it."""
    sent: dict[str, int]
    """How much of the text of each streaming part clients have after it, by part id."""


class ClientChannel:
    """The shared stream of all up-to-date clients of a directory, or of all directories."""

    def __init__(self, streams: EventStreams, directory: str | None, *, with_ids: bool) -> None:
        sequence = streams.bus.last
        sent = {
            str(text.part.get("id")): text.length
            for text in streams.texts()
            if directory is None or text.directory in (None, directory)
        }
        self.position = StreamPosition(streams, directory, sequence, sent, with_ids=with_ids)
        self.members: set[ClientStream] = set()
        self._streams = streams
        self._chunks = deque([StreamChunk(0, b"", sequence, dict(sent))])
        self.kept_bytes = 0
        self._waiting: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def newest(self) -> StreamChunk:
        """The last chunk."""
        return self._chunks[-1]

    def join(self, member: ClientStream) -> StreamChunk:
        """Add a client, which is sent what follows the returned chunk."""
        self.flush()
        self.members.add(member)
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return self.newest

    def leave(self, member: ClientStream) -> None:
        """Remove a client."""
        self.members.discard(member)
        if not self.members and self._task is not None:
            self._task.cancel()

    def chunk(self, number: int) -> StreamChunk | None:
        """Return a chunk; ``None`` if it is not kept any more, or still to come."""
        index = number - self._chunks[0].number
        return self._chunks[index] if 0 <= index < len(self._chunks) else None

    async def changed(self) -> None:
        """Wait for the next chunk, or until :meth:`wake` is called."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        await waiter

    def flush(self, *, whole_texts: bool = False) -> None:
        """Append everything that was published until now; with ``whole_texts`` also the updates that are held back."""
        last = self._streams.bus.last
        while self.position.sequence < last and not self.position.is_ended:
            self._append(self.position.read())
        if whole_texts:
            self._append(self.position.read_deferred(only_due=False))

    def wake(self) -> None:
        """Wake the clients that wait."""
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    def _append(self, data: bytes) -> None:
        position = self.position
        if not data:
            # Nothing to send: the last chunk now stands for a later position too.
            self._chunks[-1] = self.newest._replace(sequence=position.sequence, sent=dict(position.sent))
            return
        self._chunks.append(StreamChunk(self.newest.number + 1, data, position.sequence, dict(position.sent)))
        self.kept_bytes += len(data)
        while self.kept_bytes > _KEPT_BYTES and len(self._chunks) > 1:
            self.kept_bytes -= len(self._chunks.popleft().data)
        self.wake()

    async def _run(self) -> None:
        """Read the bus while there are clients."""
        heartbeat = time.monotonic() + self._streams.heartbeat_seconds
        async with self._streams.bus.subscribe(after=self.position.sequence) as subscription:
            while not self.position.is_ended:
                due = min(self.position.next_due or heartbeat, heartbeat)
                subscription.sequence = self.position.sequence
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(due - time.monotonic(), 0)):
                        await subscription.peek()
                started, number = time.monotonic(), self.newest.number
                self._append(self.position.read_deferred())
                self.flush()
                if self.newest.number == number and started >= heartbeat:
                    self._append(self.position.frame(_HEARTBEAT, None))
                if self.newest.number > number:
                    heartbeat = started + self._streams.heartbeat_seconds
                    await asyncio.sleep(0)  # the clients are woken
                    await asyncio.sleep(0)  # and have written
                    pause = (time.monotonic() - started) * _PAUSE_FACTOR
                    await asyncio.sleep(min(pause, _MAX_PAUSE_SECONDS))


class ClientChannels:
    """The channels of a server."""

    def __init__(self, streams: EventStreams) -> None:
        self.streams = streams
        self._channels: dict[tuple[str | None, bool], ClientChannel] = {}

    def get(self, directory: str | None, *, with_ids: bool) -> ClientChannel:
        """Return the channel of a directory, or of all."""
        channel = self._channels.get((directory, with_ids))
        if channel is None or channel.position.is_ended:
            channel = self._channels[directory, with_ids] = ClientChannel(self.streams, directory, with_ids=with_ids)
        return channel

    def leave(self, channel: ClientChannel, member: ClientStream) -> None:
        """Remove a client, and the channel if it was its last."""
        channel.leave(member)
        if not channel.members:
            self._channels = {key: other for key, other in self._channels.items() if other is not channel}

    def flush(self) -> None:
        """Send what was published until now without waiting for more."""
        for channel in self._channels.values():
            channel.flush()


class ClientStream:
    """The stream of one client: an asynchronous iterator of bytes to send."""

    def __init__(
        self,
        channels: ClientChannels,
        directory: str | None,
        *,
        last_event_id: str | None = None,
        with_ids: bool = False,
        first: Callable[[], Iterable[Document]] = tuple,
    ) -> None:
        """Begins after ``last_event_id``, or with the next event. ``first`` returns events to send at its start."""
        self._channels = channels
        after = channels.streams.position(last_event_id)
        self.directory = directory
        self._is_incomplete = bool(last_event_id) and after is None
        self._first = first
        self._is_closed = False
        self._channel = channels.get(directory, with_ids=with_ids)
        self._at = self._channel.join(self)
        self._own = self._channel.position.copy(after, {}) if after is not None else None
        """The position of a client that is not up to date."""
        channels.streams.add(self)

    @property
    def written(self) -> int:
        """The number of the last event that has been written."""
        return self._at.sequence if self._own is None else self._own.sequence

    def close(self) -> None:
        """End the stream."""
        self._is_closed = True
        self._channel.wake()

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        channel = self._channel
        try:
            yield self._beginning()
            while not self._is_closed:
                if self._own is not None:
                    data = self._read_own(self._own)
                    if data:
                        yield data
                    else:
                        await asyncio.sleep(_RETRY_SECONDS if self._own else 0)
                elif (chunk := channel.chunk(self._at.number + 1)) is not None:
                    yield chunk.data
                    self._at = chunk
                elif self._at.number < channel.newest.number:
                    self._own = channel.position.copy(self._at.sequence, self._at.sent)
                elif channel.position.is_ended:
                    return
                else:
                    await channel.changed()
        finally:
            self._channels.leave(channel, self)
            self._channels.streams.forget(self)

    def _beginning(self) -> bytes:
        position = self._channel.position
        frames = [position.frame(dumps_compact({"type": "server.connected", "properties": {}}), None)]
        if self._is_incomplete:
            frames.append(position.disposed_frames())
        frames += [position.frame(dumps_compact(document), self.directory) for document in self._first()]
        return b"".join(frames)

    def _read_own(self, own: StreamPosition) -> bytes:
        """Return what a client that is not up to date is sent next. Once that is everything, it shares the channel."""
        data = own.read()
        if own.sequence >= self._channels.streams.bus.last:
            # The channel and this client read up to the same event, so that both have sent the same. Other threads may
            # publish meanwhile.
            self._channel.flush(whole_texts=True)
            data += own.read() + own.read_deferred(only_due=False)
            position = self._channel.position
            if own.sequence == position.sequence and own.sent.items() <= position.sent.items():
                self._at, self._own = self._channel.newest, None
        if own.is_ended:
            self._is_closed = True
        return data
