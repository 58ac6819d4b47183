"""Event streams, and ending them."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, nullcontext
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from starlette.responses import Response

from ..client_streams import ClientStream
from ..operations import Call, Routes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import Receive, Scope, Send

    from ...records import Document

routes = Routes()
_HEADERS = {"content-type": "text/event-stream", "cache-control": "no-cache", "connection": "keep-alive"}
_CLIENTS_WITH_IDS = ("opencode/", "Mozilla/")
"""User agents that are sent event ids without asking: terminal clients of OpenCode 1.1, and browsers, resume a stream
by themselves."""


class EventQuery(Struct, frozen=True):
    """Options of an event stream."""

    ids: bool = False
    """Send the id of every event, with which a client can resume the stream."""


@routes.get("/event", "event.subscribe", response=dict[str, Any])
async def subscribe(call: Call, query: EventQuery) -> object:
    """Get the events of the directory as server-sent events.

    With the header ``Last-Event-ID``, the stream continues after that event.
    """
    async with call.engine() as engine:  # raises before the response begins
        directory = engine.location.directory
    return EventResponse(call, query, directory)


@routes.get("/global/event", "global.event", response=dict[str, Any])
async def subscribe_globally(call: Call, query: EventQuery) -> object:
    """Get the events of all directories as server-sent events."""
    return EventResponse(call, query, None)


@routes.post("/instance/dispose", "instance.dispose", response=bool)
async def dispose_instance(call: Call) -> object:
    """Close everything that is open for the directory; the next request opens it again."""
    await call.state.dispose(call.directory)
    return True


@routes.post("/global/dispose", "global.dispose", response=bool)
async def dispose_all(call: Call) -> object:
    """Close everything that is open, of all directories."""
    await call.state.dispose_all()
    return True


class EventResponse(Response):
    """A response with an event stream. Starlette's ``StreamingResponse`` has two tasks and three iterators a chunk."""

    def __init__(self, call: Call, query: EventQuery, directory: str | None) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._state = call.state
        self._directory = directory
        headers = call.request.headers
        self._last_event_id = headers.get("last-event-id")
        is_known = headers.get("user-agent", "").startswith(_CLIENTS_WITH_IDS)
        self._with_ids = query.ids or self._last_event_id is not None or is_known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pool = self._state.pool
        async with pool.use(self._directory) if self._directory is not None else nullcontext():
            stream = ClientStream(
                self._state.client_channels,
                self._directory,
                last_event_id=self._last_event_id,
                with_ids=self._with_ids,
                first=self._pending,
            )
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            watching = asyncio.create_task(_close_when_disconnected(stream, receive))
            try:
                async with aclosing(aiter(stream)) as chunks:
                    async for chunk in chunks:
                        await send({"type": "http.response.body", "body": chunk, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
            finally:
                watching.cancel()

    def _pending(self) -> Iterable[Document]:
        """Yield the pending permission requests and questions, which were published before the stream began."""
        for engine in self._state.pool.engines().values():
            if self._directory in (None, engine.location.directory):
                yield from ({"type": "permission.asked", "properties": one} for one in engine.permissions())
                yield from ({"type": "question.asked", "properties": one} for one in engine.questions())


async def _close_when_disconnected(stream: ClientStream, receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    stream.close()
