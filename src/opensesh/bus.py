"""Who hears of it: every event gets a number, and a subscriber can join after any number and miss nothing.

The bus keeps the newest events in one ring that all subscribers read from, each at its own pace. A slow subscriber
therefore costs nothing and holds nobody up; if the ring passes it by, it gets one :class:`~opensesh.events.Missed` in
place of what it lost, and goes on.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from .events import Event, Missed

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from types import TracebackType

    from .records import Document

log = logging.getLogger("opensesh.bus")


class Envelope(NamedTuple):
    """An event as it was published."""

    sequence: int
    event: Event
    directory: str | None = None
    """The directory of the project it concerns; ``None`` for what concerns all."""

    @property
    def document(self) -> Document:
        """As OpenCode's event stream has it."""
        return {"type": self.event.type, "properties": self.event.properties}


class Bus:
    """Publish from any thread; subscribe from any event loop."""

    def __init__(self, *, keep: int = 4096) -> None:
        self._ring: deque[Envelope] = deque(maxlen=keep)
        self._last = 0
        self._lock = threading.Lock()
        self._waiting: set[Subscription] = set()
        self._listeners: list[Callable[[Envelope], None]] = []

    @property
    def last(self) -> int:
        """The number of the newest event; 0 before the first."""
        return self._last

    def publish(self, event: Event, *, directory: str | None = None) -> int:
        """Tell everyone; the event's number. Never waits for a subscriber."""
        with self._lock:
            self._last += 1
            envelope = Envelope(self._last, event, directory)
            self._ring.append(envelope)
            waiting, self._waiting = self._waiting, set()
            listeners = tuple(self._listeners)
        for subscription in waiting:
            subscription.wake()
        for listener in listeners:
            try:
                listener(envelope)
            except Exception:
                log.exception("a listener failed on %s", event.type)
        return envelope.sequence

    def subscribe(self, *, after: int | None = None) -> Subscription:
        """Hear of everything from now on, or of everything after the event numbered ``after``."""
        return Subscription(self, self._last if after is None else after)

    def listen(self, listener: Callable[[Envelope], None]) -> Callable[[], None]:
        """Have ``listener`` called, in the publishing thread, for every event; the answer ends it.

        Events of several threads may arrive out of order here; their numbers tell. An error in a listener is logged.
        """
        with self._lock:
            self._listeners.append(listener)

        def stop() -> None:
            with self._lock:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return stop

    def next_after(self, sequence: int, waiter: Subscription | None = None) -> Envelope | None:
        """The event after ``sequence``, or ``None`` if it is yet to come; ``waiter`` is then woken when it does."""
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
        """A subscriber stops waiting."""
        with self._lock:
            self._waiting.discard(waiter)


class Subscription:
    """An async iterator of :class:`Envelope`; it ends when it is closed. For one reader, in one event loop."""

    def __init__(self, bus: Bus, after: int) -> None:
        self.sequence = after
        """The number of the last event handed out."""
        self._bus = bus
        self._closed = False
        self._until: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready: asyncio.Event | None = None

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Envelope:
        while not self._closed and (self._until is None or self.sequence < self._until):
            ready = self._listen_here()
            envelope = self._bus.next_after(self.sequence, self)
            if envelope is not None:
                self.sequence = envelope.sequence
                return envelope
            await ready.wait()
        raise StopAsyncIteration

    def wake(self) -> None:
        """Called by the bus, in any thread."""
        loop, ready = self._loop, self._ready
        if loop is not None and ready is not None and not loop.is_closed():
            loop.call_soon_threadsafe(ready.set)

    def close(self) -> None:
        """End the iteration, also of one that is waiting."""
        self._closed = True
        self._bus.forget(self)
        self.wake()

    def close_after(self, sequence: int) -> None:
        """End the iteration once the event numbered ``sequence`` has been handed out."""
        self._until = sequence
        self.wake()

    async def __aenter__(self) -> Subscription:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _listen_here(self) -> asyncio.Event:
        if self._ready is None:
            import asyncio

            self._loop = asyncio.get_running_loop()
            self._ready = asyncio.Event()
        self._ready.clear()
        return self._ready
