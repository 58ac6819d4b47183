"""Requests to ``opensesh serve``, relative to OpenCode 1.1.65 and 1.18.33 with the same model, in turns."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import httpx2
from tests.interop.opencode import DATABASE, JSON_FILES, opencode_binary
from tests.server.kit_server import OURS, KitServer, kit_module, kit_server

from . import report

_OTHERS = {f"OpenCode {version}": version for version in (JSON_FILES, DATABASE)}
_LISTENERS = 100
_AT_ONCE = 20
_PAGE_BYTES = 4096
_TICKS = os.sysconf("SC_CLK_TCK")
_SHORTEST_TICK = 1 / _TICKS
_START_SECONDS = 90


def run() -> None:
    commands = {"opensesh": OURS}
    for name, version in _OTHERS.items():
        commands[name] = f"{opencode_binary(version)} serve --port {{port}} --hostname 127.0.0.1"
    _compare("the start, to the first answer", _starts(list(commands.values()), 2 if report.is_quick else 5))
    with ExitStack() as stack:
        servers: list[KitServer] = []
        for command in commands.values():
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory())).resolve()
            servers.append(stack.enter_context(kit_server(folder, command)))
        asyncio.run(_measure(servers))


class _Measured:
    """One of the servers, and what is asked of it."""

    def __init__(self, server: KitServer, count: int) -> None:
        self.pid = server.pid
        self.count = count
        """How many sessions and messages are listed."""
        headers = {"x-opencode-directory": str(server.directory)}
        limits = httpx2.Limits(max_connections=_LISTENERS + 50, max_keepalive_connections=50)
        self.http = httpx2.AsyncClient(base_url=server.url, headers=headers, timeout=300, limits=limits)
        self.session_id = ""
        self._arrived = 0

    def memory_mb(self) -> float:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE_BYTES / 1e6

    def cpu_seconds(self) -> float:
        """Return the time of the server and of the programs that it has run."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / _TICKS

    async def create(self) -> str:
        return (await self.http.post("/session", json={"title": "Measured"})).json()["id"]

    async def prompt(self) -> None:
        await self._say("SAY ok")

    async def prompt_with_tool(self) -> None:
        await self._say('CALL bash {"command":"true","description":"x"}\n---\nSAY ok')

    async def append(self) -> None:
        await self._say("lorem ipsum dolor " * 20, noReply=True)

    async def prompt_many(self) -> None:
        """Prompt many sessions at once, each twice."""

        async def one(session_id: str) -> None:
            for _ in range(2):
                await self._say("SAY ok", session_id)

        await asyncio.gather(*[one(await self.create()) for _ in range(_AT_ONCE)])

    async def prompt_one_after_the_other(self) -> None:
        for _ in range(50 - _AT_ONCE):
            await self._say("SAY ok", await self.create())

    async def fill(self) -> None:
        """Create the sessions and messages that are listed."""
        for _ in range(0, self.count, _AT_ONCE):
            await asyncio.gather(*(self.create() for _ in range(_AT_ONCE)))
        self.session_id = await self.create()
        for _ in range(self.count):
            await self.append()

    async def list_sessions(self) -> None:
        assert len((await self.http.get(f"/session?limit={self.count}")).json()) == self.count

    async def list_messages(self) -> None:
        assert len((await self.http.get(f"/session/{self.session_id}/message")).json()) >= self.count

    async def list_newest_messages(self) -> None:
        assert len((await self.http.get(f"/session/{self.session_id}/message?limit=100")).json()) == 100

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

    async def _say(self, text: str, session_id: str = "", **fields: Any) -> None:
        body = {"parts": [{"type": "text", "text": text}], **fields}
        path = f"/session/{session_id or self.session_id}/message"
        (await self.http.post(path, json=body)).raise_for_status()


async def _measure(started: Sequence[KitServer]) -> None:
    rounds = 5 if report.is_quick else 20
    count = 200 if report.is_quick else 1000
    servers = [_Measured(server, count) for server in started]
    async with AsyncExitStack() as stack:
        for server in servers:
            await stack.enter_async_context(server.http)
            server.session_id = await server.create()
            await server.prompt()
        await asyncio.sleep(2)
        _compare("memory, idle after a prompt", [server.memory_mb() for server in servers], 1 / 3)
        await _in_turns("a prompt", rounds, [server.prompt for server in servers], servers)
        await _in_turns("a prompt with a tool call", 5, [server.prompt_with_tool for server in servers], servers)
        many = [server.prompt_many for server in servers]
        await _in_turns(f"{_AT_ONCE} sessions at once, two prompts each", 1, many, servers)
        for server in servers:
            await server.prompt_one_after_the_other()
        await asyncio.sleep(2)
        _compare("memory, after 50 sessions", [server.memory_mb() for server in servers], 1 / 3)
        await _in_turns("appending a message", 5 * rounds, [server.append for server in servers], servers)
        for server in servers:
            await server.fill()
        await _in_turns(f"listing {count} sessions", rounds, [server.list_sessions for server in servers], servers)
        await _in_turns(f"listing {count} messages", rounds, [server.list_messages for server in servers], servers)
        newest = [server.list_newest_messages for server in servers]
        await _in_turns("listing the newest 100 messages", rounds, newest, servers)
        await _in_turns(f"a prompt after {count} messages", 3, [server.prompt for server in servers], servers)
        await _fan_out(rounds, servers)
        _compare("memory, at the end", [server.memory_mb() for server in servers], 1 / 3)


async def _fan_out(rounds: int, servers: Sequence[_Measured]) -> None:
    tasks: list[asyncio.Task[None]] = []
    for server in servers:
        connected = [asyncio.Event() for _ in range(_LISTENERS)]
        tasks += [asyncio.create_task(server.listen(event)) for event in connected]
        await asyncio.gather(*(event.wait() for event in connected))
    await _in_turns(f"an event for {_LISTENERS} listeners", rounds, [server.fan_out for server in servers], servers)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _in_turns(
    what: str, rounds: int, works: Sequence[Callable[[], Awaitable[None]]], servers: Sequence[_Measured]
) -> None:
    """Print the ratios of the shortest times, and of the CPU times of all rounds."""
    best = [float("inf")] * len(works)
    cpu = [0.0] * len(works)
    for _ in range(rounds):
        for number, work in enumerate(works):
            before, start = servers[number].cpu_seconds(), time.perf_counter()
            await work()
            best[number] = min(best[number], time.perf_counter() - start)
            cpu[number] += servers[number].cpu_seconds() - before
    _compare(what, best)
    _compare(f"{what}, CPU time", [max(seconds, _SHORTEST_TICK) for seconds in cpu])


def _compare(what: str, values: Sequence[float], budget: float = 1) -> None:
    """Print a row for each of the other servers: what was measured of opensesh, which is first, relative to it."""
    for name, value in zip(_OTHERS, values[1:], strict=True):
        report.line(what, values[0] / value, name, budget)


def _starts(commands: Sequence[str], rounds: int) -> list[float]:
    """Return the shortest time from the start of each server to its first answer."""
    model_port: int = kit_module("scripted_model").start(0)[1]
    best = [float("inf")] * len(commands)
    for _ in range(rounds):
        for number, command in enumerate(commands):
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                start = time.perf_counter()
                server = kit_module("apicheck").Spawned(command, Path(folder).resolve(), model_port, {})
                try:
                    _wait_for_answer(server.url)
                    best[number] = min(best[number], time.perf_counter() - start)
                finally:
                    server.stop()
    return best


def _wait_for_answer(url: str) -> None:
    deadline = time.perf_counter() + _START_SECONDS
    while True:
        try:
            httpx2.get(f"{url}/global/health", timeout=10).raise_for_status()
        except httpx2.TransportError:
            if time.perf_counter() > deadline:
                raise
            time.sleep(0.01)
        else:
            return
