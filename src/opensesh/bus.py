"""Event bus with sequence numbers and replay.

The bus keeps the newest events in one ring buffer that all subscribers read at their own pace. A slow subscriber needs
no memory of its own and delays no other; if the buffer overwrites events that it has not read, it receives one
:class:`~opensesh.events.Missed` in their place and continues.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from .events import Event, Missed, PartDelta, PartRemoved, PartUpdated

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from types import TracebackType

    from .records import Document

log = logging.getLogger("opensesh.bus")


class Envelope(NamedTuple):
    """An event with its sequence number."""

    sequence: int
    event: Event
    directory: str | None = None
    """The directory of the project; ``None`` for an event of all projects."""

    @property
    def document(self) -> Document:
        """The event as in OpenCode's event stream."""
        return {"type": self.event.type, "properties": self.event.properties}


class Bus:
    """Publishes events from any thread to subscribers in any event loop."""

    def __init__(self, *, keep: int = 4096) -> None:
        self._ring: deque[Envelope] = deque(maxlen=keep)
        self._last = 0
        self._lock = threading.Lock()
        self._waiting: set[Subscription] = set()
        self._listeners: list[Callable[[Envelope], None]] = []

    @property
    def last(self) -> int:
        """The sequence number of the newest event; 0 before the first."""
        return self._last

    def publish(self, event: Event, *, directory: str | None = None) -> int:
        """Publish an event and return its sequence number. It never waits for a subscriber."""
        with self._lock:
            self._last += 1
            envelope = Envelope(self._last, event, directory)
            self._ring.append(envelope)
            waiting, self._waiting = self._waiting, set()
            listeners = tuple(self._listeners)
        for listener in listeners:
            try:
                listener(envelope)
            except KeyboardInterrupt:  # Ctrl-C, where no event loop handles the signal
                raise
            except BaseException:
                log.exception("a listener failed on %s", event.type)
        if waiting:
            self._wake(waiting)
        return envelope.sequence

    def _wake(self, waiting: set[Subscription]) -> None:
        """Wake subscribers with one call an event loop: each call from another thread interrupts the loop."""
        events: dict[asyncio.AbstractEventLoop, list[asyncio.Event]] = {}
        for subscription in waiting:
            loop, ready = subscription.waiting_in
            if loop is not None and ready is not None and not loop.is_closed():
                events.setdefault(loop, []).append(ready)
        for loop, ready_events in events.items():
            loop.call_soon_threadsafe(_set_all, ready_events)

    def subscribe(self, *, after: int | None = None, whole_parts: bool = False) -> Subscription:
        """Subscribe to all events from now on, or to all events after the sequence number ``after``.

        With ``whole_parts``, every piece of streamed text comes as ``message.part.updated`` with the part so far and
        the ``delta``, as in OpenCode 1.1, instead of ``message.part.delta``.
        """
        return Subscription(self, self._last if after is None else after, whole_parts=whole_parts)

    def listen(self, listener: Callable[[Envelope], None]) -> Callable[[], None]:
        """Call ``listener`` for every event, in the publishing thread; return a function that stops it.

        Events of several threads may arrive out of order; their sequence numbers tell. Errors of a listener are logged.
        """
        with self._lock:
            self._listeners.append(listener)

        def stop() -> None:
            with self._lock:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return stop

    def next_after(self, sequence: int, waiter: Subscription | None = None) -> Envelope | None:
        """Return the event after ``sequence``, or ``None`` if it is still to come; ``waiter`` is woken then."""
        with self._lock:
            if sequence >= self._last:
                if waiter is not None:
                    self._waiting.add(waiter)
                return None
            oldest = self._ring[0].sequence
            if sequence + 1 < oldest:
                return Envelope(oldest - 1, Missed(first=sequence + 1, last=oldest - 1))
            return self._ring[sequence + 1 - oldest]

    def forget(self, waiter: Subscription) -> None:
        """Remove a waiting subscriber."""
        with self._lock:
            self._waiting.discard(waiter)


class Subscription:
    """An async iterator of :class:`Envelope` that ends when it is closed. For one reader in one event loop."""

    def __init__(self, bus: Bus, after: int, *, whole_parts: bool = False) -> None:
        self.sequence = after
        """The sequence number of the last event that was read."""
        self._bus = bus
        self._closed = False
        self._until: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready: asyncio.Event | None = None
        self._parts: dict[str, Document] | None = {} if whole_parts else None
        """The parts that are being streamed, if they are to be reported whole."""

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Envelope:
        envelope = await self.peek()
        if envelope is None:
            raise StopAsyncIteration
        self.sequence = envelope.sequence
        return envelope if self._parts is None else _with_whole_part(envelope, self._parts)

    async def peek(self) -> Envelope | None:
        """Wait for the next event and return it, without reading it; ``None`` at the end."""
        while not self._closed and (self._until is None or self.sequence < self._until):
            if self._ready is None:
                import asyncio  # synchronous commands use the bus without asyncio, which costs more than they do

                self._loop = asyncio.get_running_loop()
                self._ready = asyncio.Event()
            ready = self._ready
            ready.clear()
            envelope = self._bus.next_after(self.sequence, self)
            if envelope is not None:
                return envelope
            await ready.wait()
        return None

    @property
    def waiting_in(self) -> tuple[asyncio.AbstractEventLoop | None, asyncio.Event | None]:
        """The event loop of the reader, and what it waits for."""
        return self._loop, self._ready

    def wake(self) -> None:
        """Wake a waiting reader, from any thread."""
        loop, ready = self._loop, self._ready
        if loop is not None and ready is not None and not loop.is_closed():
            loop.call_soon_threadsafe(ready.set)

    def close(self) -> None:
        """End the iteration, also while a reader waits."""
        self._closed = True
        self._bus.forget(self)
        self.wake()

    def close_after(self, sequence: int) -> None:
        """End the iteration after the event ``sequence``."""
        self._until = sequence
        self.wake()

    async def __aenter__(self) -> Subscription:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _with_whole_part(envelope: Envelope, parts: dict[str, Document]) -> Envelope:
    """Return the event with the whole part in place of a piece of it. ``parts`` are those seen so far."""
    match envelope.event:
        case PartUpdated(part=part) if part.get("type") in ("text", "reasoning"):
            parts[str(part.get("id"))] = part
            if "end" in (part.get("time") or {}):
                del parts[str(part.get("id"))]
        case PartRemoved(part_id=part_id):
            parts.pop(part_id, None)
        case PartDelta(part_id=part_id, field=field, delta=delta) if part_id in parts:
            part = parts[part_id] = parts[part_id] | {field: str(parts[part_id].get(field, "")) + delta}
            return envelope._replace(event=PartUpdated(part=part, delta=delta))
        case _:
            pass
    return envelope


def _set_all(events: list[asyncio.Event]) -> None:
    for event in events:
        event.set()
