"""Event streams, and ending them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct
from starlette.responses import StreamingResponse

from ..event_streams import ClientStream
from ..operations import Call, Routes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from starlette.responses import Response

    from ...engine.engine import Engine
    from ...records import Document

routes = Routes()
_HEADERS = {"content-type": "text/event-stream", "cache-control": "no-cache", "connection": "keep-alive"}
_CLIENTS_WITH_IDS = ("opencode/", "Mozilla/")
"""User agents that are sent event ids without asking: they resume a stream by themselves."""


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

    async def body() -> AsyncIterator[bytes]:
        async with call.state.pool.use(directory) as engine:
            stream = _open(call, query, directory, (engine,))
            async for chunk in stream:
                yield chunk

    return _stream_response(body())


@routes.get("/global/event", "global.event", response=dict[str, Any])
async def subscribe_globally(call: Call, query: EventQuery) -> object:
    """Get the events of all directories as server-sent events."""
    engines = tuple(call.state.pool.engines().values())
    return _stream_response(aiter(_open(call, query, None, engines)))


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


def _open(call: Call, query: EventQuery, directory: str | None, engines: tuple[Engine, ...]) -> ClientStream:
    headers = call.request.headers
    last_event_id = headers.get("last-event-id")
    is_known = headers.get("user-agent", "").startswith(_CLIENTS_WITH_IDS)

    def pending() -> Iterable[Document]:
        """Requests that wait for a user who was not there when they were made."""
        for engine in engines:
            yield from ({"type": "permission.asked", "properties": one} for one in engine.permissions())
            yield from ({"type": "question.asked", "properties": one} for one in engine.questions())

    with_ids = query.ids or last_event_id is not None or is_known
    return ClientStream(call.state.streams, directory, last_event_id=last_event_id, with_ids=with_ids, first=pending)


def _stream_response(chunks: AsyncIterator[bytes]) -> Response:
    response = StreamingResponse(chunks)
    for name, value in _HEADERS.items():
        response.headers[name] = value
    return response
