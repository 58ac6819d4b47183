"""Event streams of clients: OpenCode's server-sent events, from the bus.

Clients of 1.1.65 expect every update of a streaming part with its whole text so far, and newer ones accept that. The
engine publishes only what was added, so the text of each streaming part is kept here once for all clients. A client
that is slower than the model skips to the newest text, with everything that it has not been sent as one delta. So it
needs no memory of its own, and does not slow others: the bus keeps the newest events in a ring that each client reads
at its own pace.

Every event has an id: the run of the server and the number of the event. A client that reconnects with a
``Last-Event-ID`` of this run receives what it missed. If that is no longer there, it receives
``server.instance.disposed``, upon which OpenCode's clients read everything again.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING

from ..events import Missed, PartDelta, PartUpdated
from ..records import as_object, dumps_compact

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from ..bus import Bus, Envelope, Subscription
    from ..records import Document

HEARTBEAT_SECONDS = 10.0
"""OpenCode 1.1.65 sends a heartbeat every 30 seconds, 1.18 every 10."""
DISPOSED = "server.instance.disposed"
_HEARTBEAT = b'{"type":"server.heartbeat","properties":{}}'
_CACHED_FRAMES = 512
_BATCH = 64
_BYTES_PER_SECOND = 4 << 20
"""How much of streaming texts is sent to one client. Every update has the whole text, so that long texts are updated
less often."""


class EventStreams:
    """All event streams of a server."""

    def __init__(self, bus: Bus, *, heartbeat_seconds: float = HEARTBEAT_SECONDS) -> None:
        self.bus = bus
        self.run_id = secrets.token_hex(4)
        self.heartbeat_seconds = heartbeat_seconds
        self._texts: dict[str, _StreamingText] = {}
        self._payloads: OrderedDict[int, bytes] = OrderedDict()
        self._open: set[EventStream] = set()
        self._lock = Lock()
        self._stop_listening = bus.listen(self._on_event)
        self._is_closed = False

    def open(
        self,
        directory: str | None,
        *,
        last_event_id: str | None = None,
        with_ids: bool = False,
        first: Callable[[], Iterable[Document]] = tuple,
    ) -> EventStream:
        """Return a stream of the events of one directory, or of all. ``first`` returns events to send at its start."""
        stream = EventStream(self, directory, self._position(last_event_id), with_ids=with_ids, first=first)
        if last_event_id and stream.after is None:
            stream.is_incomplete = True
        if not self._is_closed:
            self._open.add(stream)
        return stream

    def _position(self, last_event_id: str | None) -> int | None:
        run_id, _, number = (last_event_id or "").partition(".")
        if run_id != self.run_id or not number.isdecimal() or int(number) > self.bus.last:
            return None
        return int(number)

    def forget(self, stream: EventStream) -> None:
        """Remove a stream that has ended."""
        self._open.discard(stream)

    def __len__(self) -> int:
        return len(self._open)

    def close(self) -> None:
        """End all streams."""
        self._is_closed = True
        self._stop_listening()
        for stream in list(self._open):
            stream.close()

    async def delivered(self, directory: str | None, timeout_seconds: float) -> None:
        """Wait until the streams of a directory, or all, have written every event of now, up to a timeout."""
        last = self.bus.last
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            streams = [stream for stream in self._open if directory is None or stream.directory in (None, directory)]
            if all(stream.written >= last for stream in streams):
                return
            await asyncio.sleep(0.005)

    def payload(self, envelope: Envelope) -> bytes:
        """Return an event as JSON; encoded once for all streams that are up to date."""
        encoded = self._payloads.get(envelope.sequence)
        if encoded is None:
            encoded = dumps_compact(envelope.document)
            self._payloads[envelope.sequence] = encoded
            while len(self._payloads) > _CACHED_FRAMES:
                self._payloads.popitem(last=False)
        return encoded

    def text(self, part_id: str) -> _StreamingText | None:
        """Return the text of a part that is being streamed."""
        return self._texts.get(part_id)

    def _on_event(self, envelope: Envelope) -> None:
        """Called in the thread that publishes."""
        match envelope.event:
            case PartUpdated(part=part) if part.get("type") in ("text", "reasoning"):
                part_id = str(part.get("id"))
                with self._lock:
                    if _has_ended(part):
                        self._texts.pop(part_id, None)
                    elif part_id in self._texts or envelope.event.delta is not None:
                        self._texts[part_id] = _StreamingText(part, envelope.directory)
            case PartDelta(part_id=part_id, delta=delta):
                with self._lock:
                    if (text := self._texts.get(part_id)) is not None:
                        text.add(delta, envelope.sequence)
            case _:
                pass


class _StreamingText:
    """The text of one part that a model is writing."""

    def __init__(self, part: Document, directory: str | None) -> None:
        self.directory = directory
        self._part = part
        self._chunks = [str(part.get("text", ""))]
        self.length = len(self._chunks[0])
        self._ends: dict[int, int] = {}
        self._encoded: tuple[int, int, bytes] = (-1, -1, b"")

    def add(self, delta: str, sequence: int) -> None:
        """Append what an event added."""
        self._chunks.append(delta)
        self.length += len(delta)
        self._ends[sequence] = self.length

    def end_of(self, sequence: int) -> int | None:
        """Return the length of the text after an event; ``None`` if the part has been stored since."""
        return self._ends.get(sequence)

    def payload(self, start: int) -> bytes:
        """Return the update with the whole text, of which everything from ``start`` is new."""
        end = self.length
        if self._encoded[:2] != (start, end):
            text = "".join(self._chunks)
            part = self._part | {"text": text}
            properties = {"part": part, "delta": text[start:]}
            encoded = dumps_compact({"type": "message.part.updated", "properties": properties})
            self._encoded = (start, len(text), encoded)
        return self._encoded[2]


class EventStream:
    """The stream of one client: an asynchronous iterator of bytes to send."""

    def __init__(
        self,
        streams: EventStreams,
        directory: str | None,
        after: int | None,
        *,
        with_ids: bool,
        first: Callable[[], Iterable[Document]],
    ) -> None:
        self.directory = directory
        """``None`` for the stream of all directories, whose events are wrapped."""
        self.after = after
        self.is_incomplete = False
        """Whether the client asked for events that are not there any more."""
        self._streams = streams
        self._with_ids = with_ids
        self._first = first
        self._subscription: Subscription = streams.bus.subscribe(after=after)
        self.written = self._subscription.sequence
        """The number of the last event that has been written."""
        self._sent: dict[str, tuple[int, float]] = {}
        """By streaming part: how much of its text was sent, and when the next update may be."""
        self._is_ended = False

    def close(self) -> None:
        """End the stream."""
        self._is_ended = True
        self._subscription.close()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            yield self._beginning()
            while not self._is_ended:
                chunk = await self._next_chunk()
                if chunk:
                    yield chunk
                self.written = self._subscription.sequence
        finally:
            self._subscription.close()
            self._streams.forget(self)

    def _beginning(self) -> bytes:
        documents: list[Document] = [{"type": "server.connected", "properties": {}}]
        if self.is_incomplete and self.directory is not None:
            documents.append({"type": DISPOSED, "properties": {"directory": self.directory}})
        frames = [self._frame(dumps_compact(document), None) for document in documents]
        pending = [dumps_compact(document) for document in self._first()]
        frames += [self._frame(payload, self.directory) for payload in pending]
        return b"".join(frames)

    async def _next_chunk(self) -> bytes:
        """Wait for events, and return their frames; a heartbeat if there are none for a while."""
        due = min((due for _, due in self._sent.values() if due), default=None)
        timeout = self._streams.heartbeat_seconds
        if due is not None:
            timeout = min(timeout, max(due - time.monotonic(), 0))
        try:
            async with asyncio.timeout(timeout):
                envelope: Envelope | None = await anext(self._subscription)
        except StopAsyncIteration:
            self._is_ended = True
            return b""
        except TimeoutError:
            return self._frame(_HEARTBEAT, None) if due is None else self._deferred()
        frames: list[bytes] = []
        while envelope is not None:
            frames += self._frames_of(envelope)
            if len(frames) >= _BATCH or self._is_ended:
                return b"".join(frames)
            envelope = self._streams.bus.next_after(self._subscription.sequence)
            if envelope is not None:
                self._subscription.sequence = envelope.sequence
        return b"".join(frames)

    def _frames_of(self, envelope: Envelope) -> list[bytes]:
        event = envelope.event
        if isinstance(event, Missed):
            self._sent.clear()
            if self.directory is None:
                return []
            payload = dumps_compact({"type": DISPOSED, "properties": {"directory": self.directory}})
            return [self._frame(payload, self.directory, envelope.sequence)]
        if self.directory is not None and envelope.directory not in (None, self.directory):
            return []
        match event:
            case PartDelta(part_id=part_id, delta=delta):
                return self._text_frames(part_id, len(delta), envelope)
            case PartUpdated(part=part, delta=delta) if delta is not None and part.get("id") in self._sent:
                return self._text_frames(str(part["id"]), len(delta), envelope)
            case PartUpdated(part=part) if part.get("type") in ("text", "reasoning"):
                if _has_ended(part):
                    self._sent.pop(str(part.get("id")), None)
                else:
                    self._sent[str(part.get("id"))] = len(str(part.get("text", ""))), 0.0
            case _:
                if event.type == DISPOSED and self.directory is not None:
                    self._is_ended = True
        return [self._frame(self._streams.payload(envelope), envelope.directory, envelope.sequence)]

    def _text_frames(self, part_id: str, added: int, envelope: Envelope) -> list[bytes]:
        """Return an update with the newest text of a part; none if the client has it, or too soon after the last."""
        text = self._streams.text(part_id)
        if text is None:
            return []  # it has ended; the event that says so follows
        start, due = self._sent.get(part_id, (-1, 0.0))
        if start < 0:  # the client has resumed its stream in the middle of the text
            end = text.end_of(envelope.sequence)
            if end is None:
                return []  # the event that stored it follows
            start = end - added
        now = time.monotonic()
        if text.length <= start or due > now:
            return []
        self._sent[part_id] = text.length, now + text.length / _BYTES_PER_SECOND
        return [self._frame(text.payload(start), envelope.directory, envelope.sequence)]

    def _deferred(self) -> bytes:
        """Return the updates of texts that were held back."""
        now = time.monotonic()
        frames: list[bytes] = []
        for part_id, (start, due) in list(self._sent.items()):
            if not due or due > now:
                continue
            text = self._streams.text(part_id)
            self._sent[part_id] = start, 0.0
            if text is None:
                del self._sent[part_id]  # the event that ends it follows
            elif text.length > start:
                self._sent[part_id] = text.length, now + text.length / _BYTES_PER_SECOND
                frames.append(self._frame(text.payload(start), text.directory))
        return b"".join(frames)

    def _frame(self, payload: bytes, directory: str | None, sequence: int | None = None) -> bytes:
        if self.directory is None:
            head = b'"directory":' + dumps_compact(directory) + b"," if directory is not None else b""
            payload = b"{" + head + b'"payload":' + payload + b"}"
        number = b"id: %s.%d\n" % (self._streams.run_id.encode(), sequence) if sequence and self._with_ids else b""
        return number + b"data: " + payload + b"\n\n"


def _has_ended(part: Document) -> bool:
    return (as_object(part.get("time")) or {}).get("end") is not None
