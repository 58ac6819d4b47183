"""Sessions that run: their events, what waits for a user, and changes with a preview or an undo. An extension of
opensesh."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field
from starlette.responses import StreamingResponse

from ...engine.cancellation import run_in_thread_uncancellable
from ...errors import NotFoundError
from ...records.view import js_name
from ...storage.leases import leases_of
from ...tools.diff import compare
from ..operations import Call, MessageID, PartID, Routes
from ..page_streams import PageStream
from ..responses import RequestError
from ..web.browsers import MAX_STREAMS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ...records import Document
    from ...workspace.revert import RevertPreview
    from ..state import ServerState

routes = Routes()
MAX_VIEWED_SESSIONS = 40
_ENDING_SECONDS = 5.0
_STREAM_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


class LiveEventsQuery(Struct, frozen=True, rename=js_name):
    """Options of the event stream."""

    session: str = ""
    """The ids of sessions whose turns and parts are sent, separated by commas."""
    form: Literal["json", "html"] = field(default="json", name="as")
    """``html`` for the operations of the web pages."""
    last_event_id: str = ""
    """The event after which to begin, for clients that cannot send the header ``Last-Event-ID``."""


class RevertPreviewBody(Struct, frozen=True, rename=js_name):
    """The target of a revert: before this message, or before a part of it."""

    message_id: MessageID
    part_id: PartID | None = None


class PreviewedRevertBody(Struct, frozen=True, rename=js_name):
    """A revert that was previewed."""

    message_id: MessageID
    token: str
    """The token of the preview. If something has changed since, nothing is reverted."""
    part_id: PartID | None = None
    files: bool = True
    """Also change files; otherwise only the conversation is reverted."""
    force: bool = False
    """Overwrite files that were changed outside the session, and keep a copy of their content."""


class ArchiveBody(Struct, frozen=True):
    """The new state of the session: archived or not."""

    archived: bool


@routes.get("/history/events", "history.events", response=dict[str, Any], errors=(400, 404))
async def stream_events(call: Call, query: LiveEventsQuery) -> object:
    """Get the events of sessions of all projects as server-sent events.

    With the header ``Last-Event-ID``, the stream continues after that event. Requests that wait for a user come first.
    A signed-in browser can read four streams at the same time.
    """
    sessions = [name for name in query.session.split(",") if name][:MAX_VIEWED_SESSIONS]
    last_event_id = call.request.headers.get("last-event-id") or query.last_event_id or None
    browser = call.state.browsers.identify(call.request.headers)
    # A page that shows other sessions ends its stream and begins another; the end is noticed a moment later.
    deadline = time.monotonic() + _ENDING_SECONDS
    while browser is not None and browser.streams >= MAX_STREAMS and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    if browser is not None and browser.streams >= MAX_STREAMS:
        message = f"this browser reads {MAX_STREAMS} event streams already; it cannot load pages with many more"
        raise RequestError(429, "TooManyRequests", message)

    async def body() -> AsyncIterator[bytes]:
        async with AsyncExitStack() as stack:
            # An open engine publishes what other programs write into a session that is viewed.
            for session_id in sessions:
                try:
                    await stack.enter_async_context(call.state.session_engine(session_id, call.directory))
                except NotFoundError:
                    continue  # removed; the viewer has been sent that
            if browser is not None:
                stack.enter_context(browser.stream())  # last: it must not count while engines are being released
            stream = PageStream(
                call.state.page_rendering,
                sessions,
                last_event_id=last_event_id,
                as_html=query.form == "html",
                running=lambda: running_requests(call.state),
            )
            async for chunk in stream:
                yield chunk

    return StreamingResponse(body(), headers=_STREAM_HEADERS, media_type="text/event-stream")


@routes.get("/history/running", "history.running", response=dict[str, Any])
async def list_running(call: Call) -> object:
    """List the sessions that run here or wait for a user, with their requests."""
    statuses, requests = running_requests(call.state)
    described = [await call.state.page_rendering.request(request, as_html=False) for request in requests]
    session_ids = list(dict.fromkeys([*statuses, *(request["session"] for request in described)]))

    def read(session_id: str) -> Document:
        sessions = call.state.sessions
        try:
            session = sessions.get(session_id)
        except NotFoundError:
            return {}
        holder = leases_of(sessions.store).holder(session_id)
        return {
            "title": session.title,
            "parent": session.parent_id,
            "directory": session.directory,
            "since": holder.started if holder is not None else None,
            "holder": str(holder) if holder is not None else None,
        }

    items: list[Document] = []
    for session_id in session_ids:
        asks = [request for request in described if request["session"] == session_id]
        status = statuses.get(session_id, {"type": "busy"})
        facts = await run_in_thread_uncancellable(read, session_id)
        items.append({"session": session_id, "status": status, "asks": asks} | facts)
    return {"items": items}


@routes.post(
    "/history/sessions/{sessionID}/revert-preview",
    "history.revertPreview",
    response=dict[str, Any],
    errors=(400, 404, 409),
)
async def preview_revert(call: Call, body: RevertPreviewBody) -> object:
    """Get what a revert would do: to messages, and to each file, with its difference."""
    async with call.session_engine() as engine:
        preview = await engine.preview_revert(call.session_id, body.message_id, body.part_id)
    return await run_in_thread_uncancellable(preview_document, preview)


@routes.post("/history/sessions/{sessionID}/revert", "history.revert", response=dict[str, Any], errors=(400, 404, 409))
async def revert_as_previewed(call: Call, body: PreviewedRevertBody) -> object:
    """Revert a session as it was previewed; nothing is changed if something else would happen now."""
    async with call.session_engine() as engine:
        result = await engine.revert(
            call.session_id, body.message_id, body.part_id, force=body.force, files=body.files, token=body.token
        )
    return {
        "session": result.session.document,
        "left": [file.document for file in result.left_alone],
        "kept": result.kept or None,
    }


@routes.post(
    "/history/sessions/{sessionID}/undo-compaction", "history.undoCompaction", response=bool, errors=(400, 404, 409)
)
async def undo_last_compaction(call: Call) -> object:
    """Undo the last compaction of a session, so that everything before it is visible again."""
    async with call.session_engine() as engine:
        if not await engine.undo_compaction(call.session_id):
            raise RequestError(404, "NotFoundError", f"session {call.session_id} has no compaction to undo")
    return True


@routes.post(
    "/history/sessions/{sessionID}/redo-compaction", "history.redoCompaction", response=bool, errors=(400, 404, 409)
)
async def redo_last_compaction(call: Call) -> object:
    """Redo the compaction of a session that was undone last."""
    async with call.session_engine() as engine:
        if not await engine.redo_compaction(call.session_id):
            raise RequestError(404, "NotFoundError", f"session {call.session_id} has no undone compaction")
    return True


@routes.delete(
    "/history/sessions/{sessionID}/queue/{messageID}", "history.withdraw", response=bool, errors=(400, 404, 409)
)
async def withdraw_prompt(call: Call) -> object:
    """Remove a prompt that waits until the model takes it up."""
    async with call.session_engine() as engine:
        if not await engine.withdraw(call.session_id, call.parameters["messageID"]):
            raise RequestError(409, "ConflictError", "the model has taken this prompt up already")
    return True


@routes.post(
    "/history/sessions/{sessionID}/archive", "history.archive", response=dict[str, Any], errors=(400, 404, 409)
)
async def archive_session(call: Call, body: ArchiveBody) -> object:
    """Archive a session, or bring it back."""
    async with call.session_engine() as engine:
        archive = engine.sessions.archive
        return (await run_in_thread_uncancellable(archive, call.session_id, archived=body.archived)).document


def preview_document(preview: RevertPreview) -> Document:
    """Return the preview of a revert with the difference of each file, and its token."""
    files: list[Document] = []
    for file in preview.plan.files:
        change = compare(file.name, *preview.texts[file.name]) if file.name in preview.texts else None
        files.append(
            {
                "path": file.name,
                "action": file.action,
                "verdict": file.verdict,
                "diff": change.text if change is not None else None,
                "additions": change.additions if change is not None else None,
                "deletions": change.deletions if change is not None else None,
                "conflict": file.verdict == "conflict",
                "reason": file.reason or None,
            }
        )
    return preview.document | {"files": files, "token": preview.token}


def running_requests(state: ServerState) -> tuple[Document, list[Document]]:
    """Return the statuses of the sessions that run here, by id, and the requests that wait for a user."""
    engines = list(state.pool.engines().values())
    statuses = {session_id: status for engine in engines for session_id, status in engine.status().items()}
    return statuses, [request for engine in engines for request in (*engine.permissions(), *engine.questions())]
