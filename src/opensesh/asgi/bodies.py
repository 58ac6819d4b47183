"""Reading the body of a request within limits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect

if TYPE_CHECKING:
    from starlette.requests import Request


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
