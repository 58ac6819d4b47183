"""Lists of sessions of all projects, and changes of several sessions at once. An extension of opensesh."""

from __future__ import annotations

import base64
from contextlib import suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct

from ...engine.cancellation import run_in_thread_uncancellable
from ...errors import NotFoundError, OpenseshError, RecordError
from ...events import SessionDeleted, SessionUpdated
from ...history.session_table import RowFilter, SessionRow, SessionTable, Sort, sort_key, store_label
from ...history.stats.money import DOLLAR
from ...history.user_times import parse_time
from ...project import resolve
from ...records import Session, as_object, object_at
from ...sessions import Sessions, trash
from ...storage.keys import GLOBAL
from ...storage.record_ids import session_at
from ..operations import Call, Routes
from ..responses import RequestError, answer_with_etag

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...records import Document
    from ...sessions.trash import Bulk
    from ..state import ServerState

routes = Routes()
PageSize = Annotated[int, Meta(ge=1, le=500)]
_FRESH_SECONDS = 60.0
"""How long a program waits for the changes that other programs made."""


class SessionsQuery(Struct, frozen=True):
    """Filters and order of a list of sessions."""

    project: str = ""
    """A name, folder, remote or id; need not be exact."""
    q: str = ""
    """A part of the title or of the id."""
    since: str = ""
    """Active at this time or later: milliseconds since 1970, or as in ``opensesh list --since``."""
    until: str = ""
    model: str = ""
    """Part of ``provider/model``."""
    agent: str = ""
    state: Literal["", "running", "waiting"] = ""
    archived: bool = False
    """Include archived sessions."""
    children: bool = False
    """Include the sessions of subagents."""
    sort: Sort = "updated"
    limit: PageSize = 100
    after: str = ""
    """The ``next`` of an earlier answer."""


class SessionList(NamedTuple):
    """A page of the list."""

    items: list[Document]
    """Money as decimal strings in US dollars, times in milliseconds."""
    total: int
    """How many sessions are selected, on all pages."""
    all: int
    """How many sessions there are."""
    children: int
    """How many more there would be with those of subagents."""
    archived: int
    next: str | None


class ArchiveSessionsBody(Struct, frozen=True):
    """The sessions to archive or to unarchive."""

    sessions: list[str]
    archived: bool = True


class RemoveBody(Struct, frozen=True):
    """The sessions to move to the trash."""

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
                time, share = object_at(record, "time"), object_at(record, "share")
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
    async with call.state.stopped_sessions(set(body.sessions)):
        result = await run_in_thread_uncancellable(_remove, call.state, body.sessions)
    return {
        "sessions": [session.id for session in result.sessions],
        "left": [{"id": left.path, "reason": left.reason} for left in result.left],
        "undo": [result.undo] if result.undo else [],
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


def list_sessions(table: SessionTable, query: SessionsQuery, states: Mapping[str, Document]) -> SessionList:
    """Return a page of the sessions that match."""
    ids = {session for session, state in states.items() if state["status"] == query.state} if query.state else None
    row_filter = RowFilter(
        table.resolve_project(query.project) if query.project.strip() else None,
        query.q.strip(),
        read_time(query.since),
        read_time(query.until),
        query.model,
        query.agent,
        ids,
        query.children,
        query.archived,
    )
    selected = table.select(row_filter, query.sort)
    rows = selected.rows
    key = sort_key(query.sort)
    if query.after:
        position = _decode_cursor(query.after, query.sort)
        rows = [row for row in rows if key(row) > position]
    page = rows[: query.limit]
    following = None
    if len(rows) > len(page):
        following = base64.urlsafe_b64encode(msgspec.json.encode([query.sort, *key(page[-1])])).decode()
    items = [row_document(table, row, states.get(row.info.id)) for row in page]
    return SessionList(items, len(selected.rows), len(table.rows), selected.children, selected.archived, following)


def row_document(table: SessionTable, row: SessionRow, state: Document | None) -> Document:
    """Return a row as JSON data."""
    info = row.info
    fork = table.by_id.get(info.fork)
    return {
        "id": info.id,
        "title": info.title,
        "project": info.project,
        "projectName": table.project_name(info.project, info.directory),
        "directory": info.directory,
        "parent": info.parent or None,
        "fork": info.fork or None,
        "forkTitle": fork.info.title if fork is not None else None,
        "isFork": row.is_fork,
        "created": info.created,
        "updated": info.updated,
        "archived": info.archived,
        "messages": row.messages,
        "cost": dollars_text(row.cost),
        "inclusive": dollars_text(row.inclusive),
        "models": list(row.models),
        "agents": list(row.agents),
        "state": state,
        "stores": [store_label(store_id) for store_id in row.stores],
    }


def session_states(state: ServerState) -> dict[str, Document]:
    """Return the sessions that run here: whether they wait for a user, and for what."""
    states: dict[str, Document] = {}
    for directory, engine in state.pool.engines().items():
        asks = [*engine.permissions(), *engine.questions()]
        for session_id in engine.status():
            own = [ask for ask in asks if ask.get("sessionID") == session_id]
            status = "waiting" if own else "running"
            states[session_id] = {"status": status, "directory": directory, "asks": own}
    return states


def dollars_text(units: int) -> str:
    """Return an amount in US dollars, exact and without zeros at the end."""
    return f"{(Decimal(units) / DOLLAR).normalize():f}"


def read_time(text: str) -> int:
    """Return a time in milliseconds; 0 if there is none."""
    text = text.strip()
    return int(text) if text.isdecimal() and len(text) > 8 else parse_time(text or None)


def _decode_cursor(cursor: str, sort: str) -> tuple[Any, str]:
    try:
        stored, value, session_id = msgspec.json.decode(base64.urlsafe_b64decode(cursor), type=tuple[str, Any, str])
        if stored == sort and isinstance(value, str if sort == "title" else int):
            return value, session_id
    except ValueError:
        pass
    raise RequestError(400, "BadRequest", "'after' must be the 'next' of an earlier answer in the same order")
