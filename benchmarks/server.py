"""Requests to ``opensesh serve``, relative to OpenCode 1.1.65 with the same model, in turns."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx2
from tests.interop.opencode import JSON_FILES, opencode_binary
from tests.server.kit_server import KitServer, kit_server

from .report import line

_OPENCODE = "OpenCode 1.1.65"
_SESSIONS = 200
_LISTENERS = 100
_PAGE_BYTES = 4096


class _Measured:
    """One of the servers, and what is asked of it."""

    def __init__(self, server: KitServer) -> None:
        self.pid = server.pid
        headers = {"x-opencode-directory": str(server.directory)}
        limits = httpx2.Limits(max_connections=_LISTENERS + 50, max_keepalive_connections=50)
        self.http = httpx2.AsyncClient(base_url=server.url, headers=headers, timeout=120, limits=limits)
        self.session_id = ""
        self._arrived = 0

    def memory_mb(self) -> float:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE_BYTES / 1e6

    async def create(self) -> None:
        self.session_id = (await self.http.post("/session", json={"title": "Measured"})).json()["id"]

    async def prompt(self, text: str = "SAY ok") -> None:
        await self._post({"parts": [{"type": "text", "text": text}]})

    async def prompt_with_tool(self) -> None:
        await self.prompt('CALL bash {"command":"true","description":"x"}\n---\nSAY ok')

    async def append(self) -> None:
        await self._post({"noReply": True, "parts": [{"type": "text", "text": "lorem ipsum dolor " * 20}]})

    async def list_sessions(self) -> None:
        assert len((await self.http.get(f"/session?limit={_SESSIONS}")).json()) == _SESSIONS

    async def list_messages(self) -> None:
        await self.http.get(f"/session/{self.session_id}/message")

    async def fan_out(self) -> None:
        """Change the title, and wait until every listener has been sent it."""
        self._arrived = 0
        await self.http.patch(f"/session/{self.session_id}", json={"title": f"at {time.perf_counter()}"})
        while self._arrived < _LISTENERS:
            await asyncio.sleep(0.0005)

    async def listen(self, is_connected: asyncio.Event) -> None:
        async with self.http.stream("GET", "/event", timeout=None) as response:
            async for text in response.aiter_lines():
                if "server.connected" in text:
                    is_connected.set()
                elif '"session.updated"' in text:
                    self._arrived += 1

    async def _post(self, body: object) -> None:
        (await self.http.post(f"/session/{self.session_id}/message", json=body)).raise_for_status()


async def _in_turns(rounds: int, *works: Callable[[], Awaitable[None]]) -> float:
    """Return the ratio of the shortest times."""
    best = [float("inf")] * len(works)
    for _ in range(rounds):
        for number, work in enumerate(works):
            start = time.perf_counter()
            await work()
            best[number] = min(best[number], time.perf_counter() - start)
    return best[0] / best[1]


async def _compare(ours: _Measured, theirs: _Measured) -> None:
    for server in (ours, theirs):
        await server.create()
        await server.prompt()
    await asyncio.sleep(2)
    line("memory, idle after a prompt", ours.memory_mb() / theirs.memory_mb(), _OPENCODE, 1 / 3)
    line("a prompt", await _in_turns(15, ours.prompt, theirs.prompt), _OPENCODE, 1)
    line("a prompt with a tool call", await _in_turns(5, ours.prompt_with_tool, theirs.prompt_with_tool), _OPENCODE, 1)
    line("appending a message", await _in_turns(100, ours.append, theirs.append), _OPENCODE, 1)
    line("listing the messages", await _in_turns(10, ours.list_messages, theirs.list_messages), _OPENCODE, 1)
    for server in (ours, theirs):
        await asyncio.gather(*(server.http.post("/session", json={"title": "x"}) for _ in range(_SESSIONS)))
    line(f"listing {_SESSIONS} sessions", await _in_turns(20, ours.list_sessions, theirs.list_sessions), _OPENCODE, 1)
    tasks: list[asyncio.Task[None]] = []
    for server in (ours, theirs):
        connected = [asyncio.Event() for _ in range(_LISTENERS)]
        tasks += [asyncio.create_task(server.listen(event)) for event in connected]
        await asyncio.gather(*(event.wait() for event in connected))
    line(f"an event for {_LISTENERS} listeners", await _in_turns(20, ours.fan_out, theirs.fan_out), _OPENCODE, 1)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    line("memory, at the end", ours.memory_mb() / theirs.memory_mb(), _OPENCODE, 1 / 3)


def run() -> None:
    command = f"{opencode_binary(JSON_FILES)} serve --port {{port}} --hostname 127.0.0.1"

    async def compare(first: KitServer, second: KitServer) -> None:
        ours, theirs = _Measured(first), _Measured(second)
        async with ours.http, theirs.http:
            await _compare(ours, theirs)

    with (
        tempfile.TemporaryDirectory() as one,
        tempfile.TemporaryDirectory() as two,
        kit_server(Path(one).resolve()) as first,
        kit_server(Path(two).resolve(), command) as second,
    ):
        asyncio.run(compare(first, second))
