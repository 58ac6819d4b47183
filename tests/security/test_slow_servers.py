"""Servers that answer byte by byte and never end, so that no single read takes long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from opensesh.config.source import CachedFetch
from opensesh.errors import ShareError
from opensesh.sharing.client import ShareServer

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


@asynccontextmanager
async def dripping(beginning: bytes) -> AsyncGenerator[str]:
    """Run a server that sends a byte every 20 ms behind the beginning of its answer; yields its address."""

    stopping = asyncio.Event()
    answers: list[asyncio.Task[None] | None] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers.append(asyncio.current_task())
        with suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(beginning)
            while not stopping.is_set():
                writer.write(b"a")
                await writer.drain()
                await asyncio.sleep(0.02)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1") as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        stopping.set()
        await asyncio.gather(*filter(None, answers))


BEGINNINGS = pytest.mark.parametrize("beginning", [HEAD + b"x-a: ", HEAD + b"content-length: 100000\r\n\r\n"])


@BEGINNINGS
async def test_an_answer_without_an_end_does_not_keep_the_configuration_from_being_read(
    tmp_path: Path, beginning: bytes
) -> None:
    async with dripping(beginning) as url:
        begun = time.monotonic()
        with pytest.raises(OSError, match=r"did not answer within 1 s|took too long"):
            await asyncio.to_thread(CachedFetch(str(tmp_path)), f"{url}/.well-known/opencode", timeout=1.0)
        assert time.monotonic() - begun < 4.0


@BEGINNINGS
async def test_an_answer_of_a_share_server_without_an_end_is_given_up(beginning: bytes) -> None:
    async with asyncio.timeout(20), dripping(beginning) as url, ShareServer(url, total_seconds=0.5) as server:
        with pytest.raises(ShareError, match="did not answer in time"):
            await server.data("share")
