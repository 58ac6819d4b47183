"""Which requests a server accepts: by their Host and Origin headers, and by the size and time of their bodies.

A web page elsewhere can send requests to a server on this machine. A check of Host stops one that has rebound its own
DNS name to 127.0.0.1; a check of Origin stops one that sends requests across origins.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from starlette.requests import Request


class AcceptedOrigins:
    """The accepted values of both headers, in lower case."""

    def __init__(self, hosts: Iterable[str], origins: Iterable[str] = (), names: Iterable[str] = ()) -> None:
        """``hosts`` have ports, and ``names`` are hosts with any port. ``origins`` are accepted beside those of the
        hosts: ``https://app.example``."""
        self._hosts = frozenset(host.lower() for host in hosts)
        self._names = frozenset(name.lower() for name in names)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)

    def accepts_host(self, host: str) -> bool:
        """Whether a request names this server."""
        host = host.lower()
        name, separator, port = host.rpartition(":")
        return (
            host in self._hosts or host in self._names or (bool(separator) and port.isdecimal() and name in self._names)
        )

    def accepts_origin(self, origin: str) -> bool:
        """Whether a page of this origin may send requests."""
        scheme, separator, host = origin.lower().partition("://")
        is_own = bool(separator) and scheme in ("http", "https") and host in self._hosts
        return is_own or origin.lower() in self._origins


def cookie_value(headers: Mapping[str, str], name: str) -> str:
    """Return the value of a cookie of a request; empty if it has none. ``http.cookies`` and Starlette would take
    quadratic time for a value in quotes, with Python versions before 3.12.6."""
    pairs = (pair.partition("=") for pair in headers.get("cookie", "").split(";"))
    return {key.strip(): value.strip() for key, _, value in pairs}.get(name, "")


class BodyError(Exception):
    """A body that cannot be accepted, with the status of the response."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


async def read_body(request: Request, limit: int, *, seconds: float = 60.0) -> bytes:
    """Return the body of a request. Raises :class:`BodyError` if it has more than ``limit`` bytes or takes longer."""
    too_large = BodyError(413, f"more than {limit:,} bytes")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit:
        raise too_large
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                size += len(chunk)
                if size > limit:
                    raise too_large
                chunks.append(chunk)
    except (TimeoutError, ClientDisconnect):
        raise BodyError(408, "the request did not arrive in time") from None
    return b"".join(chunks)
