"""State that all requests share: the engines, the bus, the event streams; and the options of the server."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from .. import project
from ..engine.cancellation import run_in_thread_uncancellable
from ..events import Other
from ..history.library import Library
from ..history.session_outline import FirstPrompts
from ..history.session_turns import TurnOrders
from ..sessions import Sessions
from .client_streams import ClientChannels
from .event_streams import EventStreams
from .history_index import HistoryIndex
from .page_streams import PageRendering
from .terminals import Terminals
from .web.browsers import Browsers
from .web.fragments import FRAGMENTS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable

    from ..bus import Bus
    from ..config import Origin
    from ..engine.engine import Engine
    from ..engine.pool import EnginePool
    from ..records import Document, Rule
    from ..storage.protocol import Store
    from .access import Credentials

T = TypeVar("T")
_HISTORY_SLOTS = 4
_ABORT_SECONDS = 5.0
_DELIVERY_SECONDS = 2.0


class ServerOptions(NamedTuple):
    """The options of a server."""

    hostname: str = "127.0.0.1"
    port: int = 4096
    """0 for 4096, or any free port if that is taken, as in OpenCode."""
    password: str = ""
    """Empty for none, which is possible on loopback only."""
    username: str = "opencode"
    cors: tuple[str, ...] = ()
    """Origins of web pages that may use the API, beside those on this machine."""
    allowed_hosts: tuple[str, ...] = ()
    """Further accepted values of the Host header, such as the name of a reverse proxy."""
    store: str | None = None
    web_ui: str | None = None
    """The folder of a built web interface."""
    directory: str = "."
    """The directory of requests that name none."""
    max_connections: int = 2000
    head_seconds: float = 15.0
    """How long a client may take to send the head of a request."""
    grace_seconds: float = 10.0
    """How long running sessions may take to end when the server is stopped."""


class ServerState:
    """The shared state of one server."""

    def __init__(
        self, pool: EnginePool, bus: Bus, store: Store, directory: str, credentials: Credentials | None
    ) -> None:
        self.pool = pool
        self.credentials = credentials
        """The password of the server, if it has one."""
        self.browsers = Browsers()
        self.changes = 0
        """Counts the requests that may have changed the store, for what is derived from it."""
        self.history = HistoryIndex(store, lambda: bus.last + self.changes)
        self.store = store
        self.history_slots = asyncio.Semaphore(_HISTORY_SLOTS)
        """How many queries of the history run at the same time."""
        self.turn_orders = TurnOrders()
        self.first_prompts = FirstPrompts(self.store)
        self.bus = bus
        self.streams = EventStreams(bus)
        self.client_channels = ClientChannels(self.streams)
        self.page_rendering = PageRendering(self.streams, FRAGMENTS, lambda: self.sessions, self.permission_rule)
        self.directory = directory
        self._is_local = "://" not in store.place
        self.is_stopping = False
        self.terminals = Terminals(self.publish)

    def permission_rule(self, request_id: str) -> tuple[Rule, Origin | None] | None:
        """Return the rule that makes a permission request of any project ask, and where it was set."""
        rules = (engine.permission_rule(request_id) for engine in self.pool.engines().values())
        return next(filter(None, rules), None)

    async def read_history(self, read: Callable[[Library], T]) -> T:
        """Return what ``read`` reads in a thread, from a library of its own."""

        def run() -> T:
            library = Library(store=self.store)
            try:
                return read(library)
            finally:
                if "cache" in vars(library):
                    library.cache.close()

        async with self.history_slots:
            return await run_in_thread_uncancellable(run)

    @cached_property
    def sessions(self) -> Sessions:
        """All sessions, for reading; changes go through the engine of a directory."""
        return Sessions(self.store, project.resolve(self.directory, store=self.store))

    def publish(self, kind: str, properties: Document, directory: str | None) -> None:
        """Publish an event that only clients of the server know."""
        self.bus.publish(Other(name=kind, payload=properties), directory=directory)

    @asynccontextmanager
    async def session_engine(self, session_id: str, directory: str) -> AsyncGenerator[Engine]:
        """Open or share the engine of the directory that a session belongs to; that of ``directory`` if the session or
        its directory does not exist."""
        async with self.pool.use(directory) as engine:
            if self._is_local:  # one small file, or one row
                session = engine.sessions.get(session_id)
            else:
                session = await run_in_thread_uncancellable(engine.sessions.get, session_id)
            home = session.directory
            if not os.path.isdir(home) or os.path.realpath(home) == engine.location.directory:
                yield engine
                return
        async with self.pool.use(home) as engine:
            yield engine

    def running_engine(self, session_id: str) -> Engine | None:
        """Return the engine that runs a session, if one does."""
        return next((engine for engine in self.pool.engines().values() if session_id in engine.status()), None)

    @asynccontextmanager
    async def stopped_sessions(self, session_ids: Iterable[str]) -> AsyncGenerator[None]:
        """Abort the runs of sessions that are being removed, wait for their ends, and let no other run begin until the
        body ends."""
        chosen = sorted(session_ids)  # all requests take the locks in one order
        async with AsyncExitStack() as locks:
            for engine in self.pool.engines().values():
                for session_id in chosen:
                    await locks.enter_async_context(engine.starting_lock(session_id))
            for session_id in chosen:
                # A prompt that waits in a run begins when the one before it is aborted.
                while any(engine.abort(session_id, announced=False) for engine in self.pool.engines().values()):
                    await asyncio.sleep(0.01)
            yield

    async def stop(self, grace_seconds: float) -> None:
        """Accept no more changes, let running sessions end, abort those that still run after ``grace_seconds``, and end
        all streams."""
        self.is_stopping = True
        deadline = time.monotonic() + grace_seconds
        has_aborted = False
        while any(engine.status() for engine in self.pool.engines().values()):
            engines = self.pool.engines().values()
            is_asking = any(engine.permissions() or engine.questions() for engine in engines)
            if not has_aborted and (time.monotonic() >= deadline or is_asking):
                has_aborted = True
                deadline = time.monotonic() + _ABORT_SECONDS
                for engine in engines:
                    for session_id in engine.status():
                        engine.abort(session_id)
            elif has_aborted and time.monotonic() >= deadline:
                break
            await asyncio.sleep(0.02)
        self.client_channels.flush()
        await self.streams.delivered(None, _DELIVERY_SECONDS)  # clients see how their sessions ended
        self.streams.close()

    async def dispose(self, directory: str) -> None:
        """Close the engine of a directory, which aborts its sessions, and end the directory's event streams."""
        path = os.path.realpath(directory)
        await self.terminals.close(path)
        # Before the sessions end: the streams end with this event in OpenCode, and show no end of a session.
        self.publish("server.instance.disposed", {"directory": path}, path)
        await self.pool.close(path)

    async def dispose_all(self) -> None:
        """Close all engines."""
        await asyncio.gather(*(self.dispose(path) for path in self.pool.engines()))
        self.publish("global.disposed", {}, "global")
