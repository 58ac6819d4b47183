"""A server in this process, on a free port, and clients of it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from opensesh.server.http_server import http_server
from opensesh.server.state import ServerOptions

Json = dict[str, Any]
SCRIPTED = {"providerID": "scripted", "modelID": "prompt"}
LIMIT_SECONDS = 60.0


class Client:
    """A client whose requests are about one directory."""

    def __init__(self, url: str, directory: Path, **options: Any) -> None:
        self.url = url
        self.directory = directory
        self.http = httpx2.AsyncClient(base_url=url, timeout=60, **options)
        self.http.headers["x-opencode-directory"] = str(directory)

    async def get(self, path: str, **options: Any) -> Any:
        response = await self.http.get(path, **options)
        assert response.status_code == 200, response.text
        return response.json()

    async def post(self, path: str, body: Any = None, **options: Any) -> Any:
        response = await self.http.post(path, json={} if body is None else body, **options)
        assert response.status_code in (200, 204), response.text
        return response.json() if response.content else None

    async def create(self, **fields: Any) -> str:
        return (await self.post("/session", fields))["id"]

    async def prompt(self, session_id: str, script: str, **fields: Any) -> Json:
        body = {"model": SCRIPTED, "parts": [{"type": "text", "text": script}], **fields}
        return await self.post(f"/session/{session_id}/message", body)


class Events:
    """The events of one stream, read in the background."""

    def __init__(self) -> None:
        self.seen: list[Json] = []
        self.ids: list[str] = []
        self.is_ended = False
        self._changed = asyncio.Event()

    def types(self) -> list[str]:
        return [event["type"] for event in self.seen]

    async def wait_for(self, kind: str, **properties: Any) -> Json:
        async with asyncio.timeout(LIMIT_SECONDS):
            while True:
                for event in self.seen:
                    if event["type"] == kind and properties.items() <= event["properties"].items():
                        return event
                self._changed.clear()
                await self._changed.wait()

    async def wait_until_ended(self) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            while not self.is_ended:
                self._changed.clear()
                await self._changed.wait()

    async def read(self, client: Client, path: str, headers: dict[str, str]) -> None:
        try:
            async with client.http.stream("GET", path, headers=headers, timeout=None) as response:
                async for line in response.aiter_lines():
                    if line.startswith("data: "):
                        event = json.loads(line[6:])
                        self.seen.append(event.get("payload", event))
                    elif line.startswith("id: "):
                        self.ids.append(line[4:])
                    self._changed.set()
        finally:
            self.is_ended = True
            self._changed.set()


@asynccontextmanager
async def listening(client: Client, path: str = "/event", **headers: str) -> AsyncGenerator[Events]:
    events = Events()
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    task = asyncio.create_task(events.read(client, path, names))
    try:
        await events.wait_for("server.connected")
        yield events
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def serving(directory: Path, **options: Any) -> AsyncGenerator[Client]:
    directory.mkdir(parents=True, exist_ok=True)
    async with http_server(ServerOptions(port=0, directory=str(directory), **options)) as url:
        auth = ("opencode", options["password"]) if options.get("password") else None
        client = Client(url, directory, auth=auth)
        try:
            yield client
        finally:
            await client.http.aclose()


def make_project(directory: Path) -> Path:
    (directory / "src").mkdir(parents=True)
    (directory / "README.md").write_text("hello\nsecond line\n")
    (directory / "src/a.py").write_text("def f():\n    return 1\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_DIR")}
    for arguments in (["init", "-q", "."], ["add", "-A"], ["commit", "-qm", str(directory)]):
        subprocess.run(["git", *arguments], cwd=directory, check=True, capture_output=True, env=environment)
    return directory
