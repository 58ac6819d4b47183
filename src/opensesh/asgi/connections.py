"""HTTP connections with limits: of their number, and of the time in which a request has to arrive.

A connection on which no request is in progress costs nothing to close, so that idle connections never keep other
clients out: when the limit is reached, the one that has been idle for longest is closed in favour of the new one.
"""

from __future__ import annotations

import resource
import time
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

HEAD_SECONDS = 15.0
"""How long a client may take to send the head of a request."""
_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: %d\r\nretry-after: 1\r\n\r\n%b"
)
_REFUSAL_BODY = b'{"name":"UnknownError","data":{"message":"too many connections"}}'
_LENGTHS = {b"content-length", b"transfer-encoding"}
"""A proxy may disagree about where the body of a request with both ends, so that nothing after it is read."""
_RESERVED_DESCRIPTORS = 256
"""For files, programs and connections to models."""


def connection_limit(most: int) -> int:
    """Return how many connections to accept: ``most``, or fewer where the process may not open as many files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft == resource.RLIM_INFINITY else max(16, min(most, soft - _RESERVED_DESCRIPTORS))


def limited_protocol(limit: int, *, head_seconds: float = HEAD_SECONDS) -> type[H11Protocol]:
    """Return the class of a server's connections: at most ``limit``, with requests that begin within
    ``head_seconds``."""
    return type("LimitedConnection", (LimitedProtocol,), {"limit": limit, "head_seconds": head_seconds})


class LimitedProtocol(H11Protocol):
    """One connection."""

    limit: int
    head_seconds: float

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.idle_since = time.monotonic()
        self._head_timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no request is in progress."""
        return self.cycle is None or self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Accept the connection; at the limit, close an idle one for it."""
        super().connection_made(transport)
        if len(self.connections) > self.limit and not self._close_idle_connection():
            transport.write(_REFUSAL % (len(_REFUSAL_BODY), _REFUSAL_BODY))
            transport.close()
            return
        self._start_head_timer()

    def data_received(self, data: bytes) -> None:
        """Handle what arrived; the head of a request must be complete in time."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if not self.is_idle:
            self._stop_head_timer()
            if {name for name, _ in self.headers} >= _LENGTHS:
                self.cycle.keep_alive = False
        elif self._head_timer is None:
            self._start_head_timer()  # the first bytes of a further request

    def on_response_complete(self) -> None:
        """Note since when the connection is idle."""
        self.idle_since = time.monotonic()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_head_timer()
        super().connection_lost(exc)

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(self.head_seconds, self.transport.close)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _close_idle_connection(self) -> bool:
        others = (one for one in self.connections if isinstance(one, LimitedProtocol) and one is not self)
        idle = [one for one in others if one.is_idle and not one.transport.is_closing()]
        if not idle:
            return False
        oldest = min(idle, key=lambda one: one.idle_since)
        self.connections.discard(oldest)
        oldest.transport.abort()
        return True
