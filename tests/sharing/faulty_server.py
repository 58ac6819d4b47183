"""A share server for tests that can be stopped, restarted and made to fail, and sessions to share."""

from __future__ import annotations

import asyncio
import json
import socket
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import uvicorn
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from opensesh.bus import Bus
from opensesh.project import ProjectLocation
from opensesh.retry import RetryPolicy
from opensesh.sessions import Sessions
from opensesh.sharing.share_server import RateLimits, share_app
from opensesh.sharing.share_service import ShareService
from opensesh.sharing.share_settings import ShareSettings
from opensesh.sharing.share_store import ShareLimits, ShareStore
from opensesh.storage.json_tree.store import JsonTree

from ..history.sample_tree import Sample

Json = dict[str, Any]
QUICK = RetryPolicy(max_retries=3, initial_delay_ms=10, max_delay_ms=50)


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class FaultyServer:
    """The server. ``faults`` are taken one a request: a status to answer, alone or with headers, seconds to wait, or
    ``"drop"``."""

    def __init__(self, folder: Path, *, limits: ShareLimits | None = None, rates: RateLimits | None = None) -> None:
        self.faults: deque[int | float | str | tuple[int, dict[str, str]]] = deque()
        self.requests: list[tuple[str, str, Json]] = []
        self.port = 0
        self._folder = folder
        self._limits = limits
        self._rates = rates
        self._server: _Server | None = None
        self._group = asyncio.TaskGroup()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def syncs(self) -> list[list[Json]]:
        """The items of each sync request."""
        return [body["data"] for method, path, body in self.requests if path.endswith("/sync") and method == "POST"]

    async def start(self) -> None:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen()
        self.port = listener.getsockname()[1]
        shares = ShareStore(str(self._folder), self._limits)
        app = share_app(shares, hosts=frozenset({f"127.0.0.1:{self.port}"}), rates=self._rates)
        options: Json = {"log_level": "critical", "lifespan": "off", "ws": "none", "timeout_graceful_shutdown": 1}
        options["date_header"] = False
        self._server = _Server(uvicorn.Config(self._faulty(app), **options))
        self._group = asyncio.TaskGroup()
        await self._group.__aenter__()
        self._group.create_task(self._server.serve(sockets=[listener]))
        while not self._server.started:
            await asyncio.sleep(0.005)
        self._shares = shares

    async def stop(self) -> None:
        if self._server is not None:
            self._server.should_exit = True
            await self._group.__aexit__(None, None, None)
            self._shares.close()
            self._server = None

    def _faulty(self, app: ASGIApp) -> ASGIApp:
        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            body = b""
            more = True
            while more:
                message = await receive()
                body += message.get("body", b"")
                more = message.get("more_body", False)
            text: Json = {}
            with suppress(ValueError, RecursionError):
                text = json.loads(body)
            self.requests.append((scope["method"], scope["path"], text))
            fault = self.faults.popleft() if self.faults else None
            if isinstance(fault, int):
                fault = (fault, dict[str, str]())
            if isinstance(fault, tuple):
                await Response(b"out of order", *fault)(scope, receive, send)
                return
            if fault == "drop":
                await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
                raise ConnectionResetError
            if isinstance(fault, float):
                await asyncio.sleep(fault)

            async def again() -> Message:
                return {"type": "http.request", "body": body, "more_body": False}

            await app(scope, again, send)

        return answer


@asynccontextmanager
async def run_faulty_server(folder: Path, **options: Any) -> AsyncGenerator[FaultyServer]:
    faulty_server = FaultyServer(folder, **options)
    await faulty_server.start()
    try:
        yield faulty_server
    finally:
        await faulty_server.stop()


class PublishingSetup:
    """A store with sessions, and a publisher for them."""

    def __init__(self, root: Path, server: str, **terms: Any) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.sample = Sample(root)
        self.bus = Bus()
        path = ProjectLocation(
            id="proj", worktree="/srv/dev/shop", sandbox="/srv/dev/shop", directory="/srv/dev/shop", vcs="git"
        )
        self.sessions = Sessions(JsonTree(root), path, bus=self.bus)
        self.terms = ShareSettings(server=server, server_source="a test", chosen_by_user=True)._replace(**terms)

    def service(self, **options: Any) -> ShareService:
        arguments: Json = {"retry": QUICK, **options}
        return ShareService(self.sessions, self.terms, **arguments)


async def until(condition: Callable[[], object], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)
