from __future__ import annotations

import asyncio
import json
import os
import random
import re
import socket
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from itertools import count as count_up
from pathlib import Path
from typing import Any

import httpx2
import pytest

from opensesh import ids

from .serving import SCRIPTED

ROOT = Path(__file__).parents[2]
WORDS = " ".join(f"word{number}" for number in range(40))
LIMIT_SECONDS = 60
PROMPTS_PER_SESSION = 3
LOAD_SECONDS = float(os.environ.get("OPENSESH_LOAD_SECONDS", "600"))  # read before the tests have an environment


class Server:
    """A server in a process of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.server.measured_server",
            str(self.directory),
            str(self.port),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self.process.stdout is not None
        async with asyncio.timeout(LIMIT_SECONDS):
            assert (await self.process.stdout.readline()).decode().strip() == self.url

    async def stop(self) -> dict[str, float]:
        assert self.process is not None
        self.process.terminate()
        output, _ = await self.process.communicate()
        return json.loads(output.splitlines()[-1])

    async def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        await self.process.wait()

    def client(self) -> httpx2.AsyncClient:
        headers = {"x-opencode-directory": str(self.directory)}
        limits = httpx2.Limits(max_connections=400, max_keepalive_connections=100)
        return httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=LIMIT_SECONDS, limits=limits)


class Listener:
    """The events of one stream: the numbers of those that every listener must have, and the texts."""

    def __init__(self, *, reads_text: bool) -> None:
        self.numbers: list[int] = []
        self.is_connected = asyncio.Event()
        self.last_id = ""
        self.mistakes: list[str] = []
        self._reads_text = reads_text
        self._texts: dict[str, str] = {}

    async def listen(self, server: Server) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 24)
        resumed = f"last-event-id: {self.last_id}\r\n" if self.last_id else ""
        head = f"GET /event?ids=true HTTP/1.1\r\nhost: 127.0.0.1:{server.port}\r\n{resumed}"
        writer.write(f"{head}x-opencode-directory: {server.directory}\r\n\r\n".encode())
        number = 0
        try:
            while line := await reader.readline():
                if line.startswith(b"id: "):
                    self.last_id = line[4:].decode().strip()
                    previous, number = number, int(self.last_id.rpartition(".")[2])
                    if number < previous:
                        self.mistakes.append(f"{number} after {previous}")
                elif line.startswith(b"data: "):
                    self._take(line[6:], number)
        finally:
            writer.close()

    def _take(self, data: bytes, number: int) -> None:
        if b'"server.connected"' in data[:40]:
            self.is_connected.set()
        elif b'"message.part.updated"' not in data[:60]:
            if b'"server.heartbeat"' not in data[:60]:
                self.numbers.append(number)
        elif self._reads_text:
            properties = json.loads(data)["properties"]
            part, delta = properties["part"], properties.get("delta")
            before = self._texts.get(part["id"], "")
            if delta is not None and before and part["text"] != before + delta:
                self.mistakes.append(f"{part['id']}: the text is not the text before and the delta")
            if part["type"] == "text":
                self._texts[part["id"]] = part["text"]


@asynccontextmanager
async def listening(server: Server, count: int) -> AsyncGenerator[list[Listener]]:
    listeners = [Listener(reads_text=number < 3) for number in range(count)]
    tasks = [asyncio.create_task(listener.listen(server)) for listener in listeners]
    async with asyncio.timeout(LIMIT_SECONDS):
        await asyncio.gather(*(listener.is_connected.wait() for listener in listeners))
    try:
        yield listeners
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def stream_sessions(server: Server, client: httpx2.AsyncClient, count: int, seconds: float, drip: float) -> int:
    """Stream answers in ``count`` sessions at a time; return how many prompts were answered.

    A session is replaced after some prompts: a longer history needs more memory while it is continued.
    """
    deadline, answered = time.monotonic() + seconds, 0

    async def run(number: int) -> None:
        nonlocal answered
        session_id = ""
        for turn in count_up():
            if time.monotonic() >= deadline:
                return
            if turn % PROMPTS_PER_SESSION == 0:
                session_id = (await client.post("/session", json={"title": f"S{number}"})).json()["id"]
            parts = [{"type": "text", "text": f"DRIP {drip}\nSAY {WORDS}"}]
            body = {"model": SCRIPTED, "parts": parts}
            response = await client.post(f"/session/{session_id}/message", json=body, timeout=600)
            texts = [part["text"] for part in response.json()["parts"] if part["type"] == "text"]
            assert texts == [WORDS]
            answered += 1

    await asyncio.gather(*map(run, range(count)))
    return answered


async def check_load(tmp_path: Path, listeners: int, sessions: int, seconds: float, drip: float) -> dict[str, float]:
    server = Server(tmp_path / "p")
    await server.start()
    async with server.client() as client, listening(server, listeners) as streams:
        answered = await stream_sessions(server, client, sessions, seconds, drip)
        assert answered >= sessions
        async with asyncio.timeout(LIMIT_SECONDS):  # the last events are under way
            while len({(len(stream.numbers), stream.numbers[-1]) for stream in streams}) > 1:
                await asyncio.sleep(0.1)
        assert [mistake for stream in streams for mistake in stream.mistakes] == []
        first = streams[0].numbers
        assert len(set(first)) == len(first)
        assert all(stream.numbers == first for stream in streams)
    report = await server.stop() | {"prompts": answered, "events": len(first)}
    print(json.dumps({"listeners": listeners, "sessions": sessions, "seconds": seconds, **report}))
    return report


async def test_every_listener_gets_every_event_once(tmp_path: Path) -> None:
    await check_load(tmp_path, 20, 5, 2, 0.02)


@pytest.mark.slow
@pytest.mark.load
@pytest.mark.timeout(1800)
async def test_200_listeners_and_100_streaming_sessions_lose_no_event(tmp_path: Path) -> None:
    report = await check_load(tmp_path, 200, 100, LOAD_SECONDS, 0.5)
    assert report["p99"] < 100 + report["idle_p99"]
    assert report["second_half_mb"] < report["first_half_mb"] * 1.1


# -- killed servers ----------------------------------------------------------------------------------------------------


async def prompt_until_killed(client: httpx2.AsyncClient, session_id: str, acknowledged: set[str]) -> None:
    """Send prompts until the server is gone, and note the ids of those that were answered."""
    script = 'DRIP 0.002\nSAY one two three\nCALL todowrite {"todos": []}\n---\nSAY end'
    while True:
        message_id = ids.ascending("msg")
        body = {"messageID": message_id, "model": SCRIPTED, "parts": [{"type": "text", "text": script}]}
        try:
            response = await client.post(f"/session/{session_id}/message", json=body)
        except httpx2.HTTPError:
            return
        assert response.status_code == 200, response.text
        acknowledged.add(message_id)


async def check_kills(tmp_path: Path, kills: int, sessions: int, seed: int) -> None:
    """Kill a server at random moments while sessions run; afterwards every prompt must have one outcome."""
    chance = random.Random(seed)
    server = Server(tmp_path / "p")
    await server.start()
    acknowledged: dict[str, set[str]] = {}
    listener = Listener(reads_text=False)

    async def follow() -> None:
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                await listener.listen(server)
            await asyncio.sleep(0.02)

    follower = asyncio.create_task(follow())
    try:
        async with server.client() as client:
            for number in range(sessions):
                created = await client.post("/session", json={"title": f"S{number}"})
                acknowledged[created.json()["id"]] = set()
            for _ in range(kills):
                tasks = [asyncio.create_task(prompt_until_killed(client, *item)) for item in acknowledged.items()]
                await asyncio.sleep(chance.uniform(0.02, 0.6))
                await server.kill()
                await asyncio.gather(*tasks)
                listener.is_connected.clear()
                await server.start()
                async with asyncio.timeout(LIMIT_SECONDS):
                    await listener.is_connected.wait()
            for session_id, message_ids in acknowledged.items():
                parts = [{"type": "text", "text": "SAY finally"}]
                response = await client.post(f"/session/{session_id}/message", json={"model": SCRIPTED, "parts": parts})
                assert response.json()["parts"][-2]["text"] == "finally"
                messages = (await client.get(f"/session/{session_id}/message")).json()
                check_outcomes(messages, message_ids)
        await server.stop()
    finally:
        follower.cancel()
        await asyncio.gather(follower, return_exceptions=True)


def check_outcomes(messages: list[Any], acknowledged: set[str]) -> None:
    infos = [message["info"] for message in messages]
    message_ids = [info["id"] for info in infos]
    assert len(message_ids) == len(set(message_ids))
    assert acknowledged <= set(message_ids)
    for info in infos:
        if info["role"] == "assistant":
            assert "completed" in info["time"], info
    for message_id in acknowledged:
        answers = [info for info in infos if info.get("parentID") == message_id]
        assert [answer.get("finish") for answer in answers].count("stop") == 1, answers
        assert answers[-1]["finish"] == "stop"
    for message in messages:
        for part in message["parts"]:
            if part["type"] == "tool":
                assert re.fullmatch("completed|error", part["state"]["status"]), part


async def test_every_prompt_has_one_outcome_although_the_server_is_killed(tmp_path: Path) -> None:
    await check_kills(tmp_path, 2, 3, 1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_every_prompt_has_one_outcome_although_the_server_is_killed_100_times(tmp_path: Path) -> None:
    for seed in range(5):
        (tmp_path / str(seed)).mkdir()
        await check_kills(tmp_path / str(seed), 20, 4, seed)
