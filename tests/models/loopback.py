"""An HTTP server on the loopback address that sends given bytes, for what an in-memory transport cannot show."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, Awaitable, Callable

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class Exchange:
    """One received request, and methods that answer it."""

    def __init__(self, head: str, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.head = head
        self.body = body
        self._reader = reader
        self._writer = writer

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self._writer.write(piece)
        await self._writer.drain()

    async def hung_up(self) -> None:
        """Wait until the other side closes the connection."""
        while await self._reader.read(1024):
            pass

    def reset(self) -> None:
        self._writer.transport.abort()


class Server:
    """The connections and requests of a server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.connections = 0
        self.exchanges: list[Exchange] = []


@asynccontextmanager
async def serving(
    answer: Callable[[Exchange], Awaitable[None]], *, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[Server, None]:
    open_ones: list[tuple[asyncio.Task[None] | None, asyncio.StreamWriter]] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        open_ones.append((asyncio.current_task(), writer))
        try:
            while head := await _head(reader):
                length = next((int(line[15:]) for line in head.splitlines() if line.startswith("content-length:")), 0)
                exchange = Exchange(head, await reader.readexactly(length), reader, writer)
                server.exchanges.append(exchange)
                await answer(exchange)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    listener = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    port = listener.sockets[0].getsockname()[1]
    server = Server(f"{'https' if tls else 'http'}://127.0.0.1:{port}")
    try:
        yield server
    finally:
        listener.close()
        for _, writer in open_ones:
            writer.transport.abort()
        await asyncio.gather(*(task for task, _ in open_ones if task is not None))


@asynccontextmanager
async def breaking_after(data: bytes) -> AsyncGenerator[Server, None]:
    """A server that answers with this much, and then breaks the connection."""

    async def answer(exchange: Exchange) -> None:
        await exchange.send(HEAD, chunk(data))
        await asyncio.sleep(0.05)  # a reset takes away what was not read by then
        exchange.reset()

    async with serving(answer) as server:
        yield server


async def _head(reader: asyncio.StreamReader) -> str:
    try:
        first, _, rest = (await reader.readuntil(b"\r\n\r\n")).decode().partition("\r\n")
    except asyncio.IncompleteReadError:
        return ""
    return f"{first}\r\n{rest.lower()}"
