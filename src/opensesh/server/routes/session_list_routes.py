"""Lists of sessions of all projects, and changes of several sessions at once. An extension of opensesh."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ...engine.cancellation import run_in_thread_uncancellable
from ...errors import NotFoundError, OpenseshError, RecordError
from ...events import SessionDeleted, SessionUpdated
from ...project import resolve
from ...records import Session, as_object
from ...sessions import Sessions, trash
from ...storage.keys import GLOBAL
from ...storage.record_ids import session_at
from ..operations import Call, Routes
from ..responses import answer_with_etag
from ..session_list import SessionsQuery, list_sessions, session_states

if TYPE_CHECKING:
    from ...records import Document
    from ...sessions.trash import Bulk
    from ..state import ServerState

routes = Routes()
_FRESH_SECONDS = 60.0
"""How long a program waits for the changes that other programs made."""


class ArchiveSessionsBody(Struct, frozen=True):
    """Which sessions to archive, or to bring back."""

    sessions: list[str]
    archived: bool = True


class RemoveBody(Struct, frozen=True):
    """Which sessions to move to the trash."""

    sessions: list[str]


@routes.get("/history/sessions", "history.sessions", response=dict[str, Any], errors=(400, 404))
async def list_history(call: Call, query: SessionsQuery) -> object:
    """List the sessions of all projects, those with the latest activity first."""
    state = call.state
    states = session_states(state)

    def read() -> Document:
        table, _ = state.history.sessions(wait=_FRESH_SECONDS)
        page = list_sessions(table, query, states)
        for item in page.items:
            with suppress(NotFoundError, RecordError):
                record = as_object(state.store.read(("session", item["project"] or GLOBAL, item["id"]))) or {}
                time, share = as_object(record.get("time")) or {}, as_object(record.get("share")) or {}
                item["slug"] = record.get("slug")
                item["archived"] = time.get("archived")
                item["share"] = share.get("url") or None
        return page._asdict()

    return answer_with_etag(call, await run_in_thread_uncancellable(read))


@routes.post("/history/sessions/archive", "history.sessions.archive", response=dict[str, Any], errors=(400,))
async def archive_sessions(call: Call, body: ArchiveSessionsBody) -> object:
    """Archive sessions, or bring them back."""
    state = call.state

    def change() -> Document:
        service = Sessions(state.store, resolve(state.directory, store=state.store))
        changed: list[str] = []
        left: list[Document] = []
        for session_id in body.sessions:
            try:
                session = service.archive(session_id, archived=body.archived)
            except OpenseshError as error:
                left.append({"id": session_id, "reason": error.message})
                continue
            changed.append(session_id)
            state.bus.publish(SessionUpdated(info=session.document), directory=session.directory)
        return {"sessions": changed, "left": left}

    return await run_in_thread_uncancellable(change)


@routes.post("/history/sessions/remove", "history.sessions.remove", response=dict[str, Any], errors=(400,))
async def remove_sessions(call: Call, body: RemoveBody) -> object:
    """Move sessions and those of their subagents to the trash; a running one is aborted first."""
    for session_id in body.sessions:
        await call.state.stop_session(session_id)
    result = await run_in_thread_uncancellable(_remove, call.state, body.sessions)
    return {
        "sessions": [session.id for session in result.sessions],
        "left": [{"id": left.path, "reason": left.reason} for left in result.left],
        "undo": [undo for undo in (result.undo, *result.more_undo) if undo],
    }


def _remove(state: ServerState, session_ids: list[str]) -> Bulk:
    chosen_ids = set(session_ids)
    chosen: list[Session] = []
    for key in state.store.list(("session",)):
        if key[-1] in chosen_ids:
            chosen_ids.discard(key[-1])
            with suppress(NotFoundError, RecordError):
                chosen.append(session_at(key, state.store.read(key)))
    result = trash.remove(state.store, chosen)
    for removed in result.sessions:
        state.bus.publish(SessionDeleted(info=removed.document), directory=removed.directory)
    return result
