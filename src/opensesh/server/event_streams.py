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
from typing import TYPE_CHECKING, Protocol

from ..events import MessageUpdated, PartDelta, PartRemoved, PartUpdated
from ..records import dumps_compact, object_at
from .client_documents import client_event, client_part

if TYPE_CHECKING:
    from ..bus import Bus, Envelope
    from ..records import Document

HEARTBEAT_SECONDS = 10.0
"""OpenCode 1.1.65 sends a heartbeat every 30 seconds, 1.18 every 10."""
_CACHED_FRAMES = 512


class OpenStream(Protocol):
    """A stream that a client reads."""

    directory: str | None
    """``None`` for a stream of all directories."""

    @property
    def written(self) -> int:
        """The number of the last event that has been written."""
        ...

    def close(self) -> None:
        """End the stream."""


class EventStreams:
    """All event streams of a server."""

    def __init__(self, bus: Bus, *, heartbeat_seconds: float = HEARTBEAT_SECONDS) -> None:
        self.bus = bus
        self.run_id = secrets.token_hex(4)
        self.heartbeat_seconds = heartbeat_seconds
        self._texts: dict[str, StreamingText] = {}
        self._payloads: OrderedDict[int, bytes] = OrderedDict()
        self._open: set[OpenStream] = set()
        self._lock = Lock()
        self._stop_listening = bus.listen(self._on_event)
        self._is_closed = False

    def event_id(self, sequence: int) -> str:
        """Return the id of an event for clients: the run of the server, and the number of the event."""
        return f"{self.run_id}.{sequence}"

    def position(self, last_event_id: str | None) -> int | None:
        """Return the number of the event that a client names; ``None`` if it is not one of this run."""
        run_id, _, number = (last_event_id or "").partition(".")
        if run_id != self.run_id or not number.isdecimal() or int(number) > self.bus.last:
            return None
        return int(number)

    def add(self, stream: OpenStream) -> None:
        """Register a stream, so that it ends with the server."""
        if not self._is_closed:
            self._open.add(stream)

    def forget(self, stream: OpenStream) -> None:
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
            encoded = dumps_compact(client_event(envelope.event))
            self._payloads[envelope.sequence] = encoded
            while len(self._payloads) > _CACHED_FRAMES:
                self._payloads.popitem(last=False)
        return encoded

    def text(self, part_id: str) -> StreamingText | None:
        """Return the text of a part that is being streamed."""
        return self._texts.get(part_id)

    def texts(self) -> list[StreamingText]:
        """Return the texts of all parts that are being streamed, oldest first."""
        with self._lock:
            return list(self._texts.values())

    def _on_event(self, envelope: Envelope) -> None:
        """Called in the thread that publishes."""
        match envelope.event:
            case PartUpdated(part=part) if part.get("type") in ("text", "reasoning"):
                part_id = str(part.get("id"))
                with self._lock:
                    if has_ended(part) or envelope.event.delta == "":
                        self._texts.pop(part_id, None)
                    elif part_id in self._texts or envelope.event.delta is not None:
                        self._texts[part_id] = StreamingText(part, envelope.directory)
            case PartDelta(part_id=part_id, delta=delta):
                with self._lock:
                    if (text := self._texts.get(part_id)) is not None:
                        text.add(delta, envelope.sequence)
            case PartRemoved(part_id=part_id):
                with self._lock:
                    self._texts.pop(part_id, None)
            case MessageUpdated(info=info) if is_completed(info):
                # The text of an answer that was aborted is stored without an end.
                with self._lock:
                    for part_id, text in list(self._texts.items()):
                        if text.part.get("messageID") == info.get("id"):
                            del self._texts[part_id]
            case _:
                pass


class StreamingText:
    """The text of one part that a model is writing."""

    def __init__(self, part: Document, directory: str | None) -> None:
        self.directory = directory
        self.part = client_part(part)
        """The part as it was last stored, with less text."""
        self._chunks = [str(part.get("text", ""))]
        self.length = len(self._chunks[0])
        self._ends: dict[int, int] = {}
        self._encoded: tuple[int, int, bytes] = (-1, -1, b"")
        """The last update: its beginning, its end, and the event."""

    def add(self, delta: str, sequence: int) -> None:
        """Append what an event added."""
        self._chunks.append(delta)
        self.length += len(delta)
        self._ends[sequence] = self.length

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._chunks)

    def end_of(self, sequence: int) -> int | None:
        """Return the length of the text after an event; ``None`` if the part has been stored since."""
        return self._ends.get(sequence)

    def payload(self, start: int) -> tuple[int, bytes]:
        """Return the length of the text, and the update with the whole text, of which everything from ``start`` is
        new."""
        if self._encoded[:2] != (start, self.length):
            text = self.text
            properties = {"part": self.part | {"text": text}, "delta": text[start:]}
            encoded = dumps_compact({"type": "message.part.updated", "properties": properties})
            self._encoded = (start, len(text), encoded)
        return self._encoded[1:]


def is_completed(info: Document) -> bool:
    """Whether nothing is added to a message any more."""
    return object_at(info, "time").get("completed") is not None


def has_ended(part: Document) -> bool:
    """Whether a streaming part is complete."""
    return object_at(part, "time").get("end") is not None
