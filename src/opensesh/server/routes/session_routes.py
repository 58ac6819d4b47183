"""Sessions: listing, creating, changing, forking, reverting, removing."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from msgspec import Struct, to_builtins

from ...engine.cancellation import run_in_thread_uncancellable
from ...errors import NotFoundError
from ...events import SessionDeleted
from ...records import EXTENSION_KEY, Document, FileDiff, Rule, Session, Todo, as_list
from ...records.view import js_name
from ...sessions import trash
from ...storage.protocol import conventions_of
from ..client_documents import client_info
from ..operations import Call, MessageID, PartID, Routes, SessionID, count_of
from ..responses import RequestError

if TYPE_CHECKING:
    from ...engine.engine import Engine
    from ...sessions import Sessions

routes = Routes()


class SessionListQuery(Struct, frozen=True):
    """Filters of the list of sessions."""

    directory: str | None = None
    """Only sessions of exactly this directory."""
    roots: bool = False
    """Without the sessions of subagents."""
    start: float | None = None
    """Only sessions that were active since, in milliseconds since 1970."""
    search: str | None = None
    """Only sessions with this in their title."""
    path: str | None = None
    """Instead of ``directory``: only sessions of this folder of the project, by its path in it, and those below it; all
    of the project if it is empty (OpenCode 1.18)."""
    scope: Literal["project"] | None = None
    """Sessions of the whole project, regardless of ``directory`` (OpenCode 1.18)."""
    limit: float | None = None


class ChosenModel(Struct, frozen=True, omit_defaults=True, rename=js_name):
    """The model that a client will use in a session (OpenCode 1.18)."""

    id: str
    provider_id: str
    variant: str | None = None


class SessionCreate(Struct, frozen=True, omit_defaults=True, rename=js_name):
    """Optional fields of a new session. Agent, model and metadata are fields of OpenCode 1.18."""

    parent_id: SessionID | None = None
    title: str | None = None
    permission: list[Rule] | None = None
    agent: str | None = None
    model: ChosenModel | None = None
    metadata: dict[str, Any] | None = None


class ArchiveTime(Struct, frozen=True):
    """The time at which the session was archived, in milliseconds since 1970."""

    archived: float | None = None


class SessionUpdate(Struct, frozen=True):
    """Changes to a session; absent fields stay as they are."""

    NULLABLE: ClassVar = ("permission", "metadata")
    """Fields of OpenCode 1.18, which accepts ``null`` in them. OpenCode 1.1 does not read them."""
    title: str | None = None
    time: ArchiveTime | None = None
    permission: list[Rule] | None = None
    metadata: dict[str, Any] | None = None


class SessionFork(Struct, frozen=True, rename=js_name):
    """The end of the copy: before this message."""

    message_id: MessageID | None = None


class SessionRevert(Struct, frozen=True, rename=js_name):
    """The target of a revert: before this message, or before a part of it."""

    message_id: MessageID
    part_id: PartID | None = None


class DiffQuery(Struct, frozen=True, rename=js_name):
    """Only the changes of one prompt and its answers."""

    message_id: MessageID | None = None


@routes.get("/session", "session.list", response=list[Session])
async def list_sessions(call: Call, query: SessionListQuery) -> object:
    """List the sessions of the project, newest first."""

    is_of_project = query.path is not None or query.scope is not None

    def is_selected(session: Session, worktree: str) -> bool:
        return (
            (query.directory is None or is_of_project or session.directory == call.directory)
            and (not query.path or _is_below(session.directory, os.path.join(worktree, query.path)))
            and not (query.roots and session.parent_id)
            and (query.start is None or session.updated >= query.start)
            and (query.search or "").lower() in session.title.lower()
        )

    def read(engine: Engine) -> list[Document]:
        limit = None if query.limit is None else max(count_of(query.limit), 1)  # as in OpenCode
        sessions = engine.sessions.newest_first(engine.location.id)
        selected = (session for session in sessions if is_selected(session, engine.location.worktree))
        return [client_info(session.document) for session in islice(selected, limit)]

    return await call.in_thread(read)


@routes.post("/session", "session.create", response=Session, errors=(400,))
async def create_session(call: Call, body: SessionCreate) -> object:
    """Create a session.

    The model is used for its prompts until one names another. The agent is only stored, as in OpenCode 1.18.
    """
    sent: Document = to_builtins(body)
    chosen: Document = {name: sent[name] for name in ("agent", "model") if name in sent}
    metadata: Document = {} if body.metadata is None else {"metadata": body.metadata}
    async with call.engine() as engine:
        if chosen and not conventions_of(engine.sessions.store).sessions_have_paths:
            chosen = {EXTENSION_KEY: chosen}  # OpenCode 1.1's records have no such fields
        session = await engine.components.writer.create(
            title=body.title, parent_id=body.parent_id, permission=body.permission, fields=chosen | metadata
        )
        return client_info(session.document)


@routes.get("/session/status", "session.status", response=dict[str, Any], errors=(400,))
async def session_status(call: Call) -> object:
    """Get the status of every session that is not idle."""
    async with call.engine() as engine:
        return engine.status()


@routes.get("/session/{sessionID}", "session.get", response=Session, errors=(400, 404))
async def get_session(call: Call) -> object:
    """Get a session."""
    async with call.engine() as engine:
        return await _stored(engine, call)


@routes.delete("/session/{sessionID}", "session.delete", response=bool, errors=(400, 404))
async def delete_session(call: Call) -> object:
    """Move a session and its children to the trash.

    A session that is running is aborted first. ``opensesh session restore`` brings it back.
    """

    def remove(engine: Engine) -> list[Session]:
        session = engine.sessions.get(call.session_id)
        result = trash.remove(engine.sessions.store, [session])
        if all(removed.id != call.session_id for removed in result.sessions):
            raise RequestError(409, "SessionBusyError", result.left[0].reason)
        return result.sessions

    async with call.session_engine() as engine:
        descendants = await run_in_thread_uncancellable(engine.sessions.descendants, call.session_id)
        async with call.state.stopped_sessions([call.session_id, *(session.id for session in descendants)]):
            for removed in reversed(await run_in_thread_uncancellable(remove, engine)):
                call.state.bus.publish(SessionDeleted(info=removed.document), directory=engine.location.directory)
    return True


@routes.patch("/session/{sessionID}", "session.update", response=Session, errors=(400, 404))
async def update_session(call: Call, body: SessionUpdate) -> object:
    """Change the title of a session, archive it, set its metadata, or add rules to its permissions."""
    changes: Document = {}
    if body.title is not None:
        changes["title"] = body.title
    if body.metadata is not None:
        changes["metadata"] = body.metadata
    archived = None if body.time is None or body.time.archived is None else int(body.time.archived)
    touch = body.metadata is not None or body.permission is not None

    def edit(info: Document) -> None:
        info.update(changes)
        if body.permission is not None:
            info["permission"] = [*(as_list(info.get("permission")) or ()), *call.document["permission"]]
        if archived is not None:
            info.setdefault("time", {})["archived"] = archived

    async with call.session_engine() as engine:
        session = await run_in_thread_uncancellable(engine.sessions.update, call.session_id, edit, touch=touch)
        return client_info(session.document)


@routes.get("/session/{sessionID}/children", "session.children", response=list[Session], errors=(400, 404))
async def session_children(call: Call) -> object:
    """List the sessions of the subagents of a session, newest first."""

    def read(engine: Engine) -> list[Document]:
        try:
            return [client_info(session.document) for session in reversed(engine.sessions.children(call.session_id))]
        except NotFoundError:
            return []

    return await call.in_thread(read)


@routes.get("/session/{sessionID}/todo", "session.todo", response=list[Todo], errors=(400, 404))
async def session_todo(call: Call) -> object:
    """Get the todo list of a session."""
    async with call.engine() as engine:
        return await engine.todo(call.session_id)


@routes.get("/session/{sessionID}/diff", "session.diff", response=list[FileDiff])
async def session_diff(call: Call, query: DiffQuery) -> object:
    """Get the files that a session changed."""
    return await call.in_thread(lambda engine: engine.sessions.diff(call.session_id))


@routes.post("/session/{sessionID}/fork", "session.fork", response=Session)
async def fork_session(call: Call, body: SessionFork) -> object:
    """Copy a session, or the part of it before a message.

    The message may have been removed: what would come before it is copied, as in OpenCode.
    """

    def fork(sessions: Sessions) -> Session:
        before = body.message_id
        if before is not None:
            message_ids = [str(message.info.get("id")) for message in sessions.messages(call.session_id)]
            if before not in message_ids:
                before = next((message_id for message_id in message_ids if message_id > before), None)
        return sessions.fork(call.session_id, before=before)

    async with call.session_engine() as engine:
        return client_info((await run_in_thread_uncancellable(fork, engine.sessions)).document)


@routes.post("/session/{sessionID}/abort", "session.abort", response=bool, errors=(400, 404))
async def abort_session(call: Call) -> object:
    """Stop the run of a session."""
    running = call.state.running_engine(call.session_id)
    if running is not None:
        running.abort(call.session_id)
    else:  # clients expect the event that it is idle
        async with call.engine() as engine:
            engine.abort(call.session_id)
    return True


@routes.post("/session/{sessionID}/revert", "session.revert", response=Session, errors=(400, 404, 409))
async def revert_session(call: Call, body: SessionRevert) -> object:
    """Revert a session and its files to before a message or a part."""
    async with call.session_engine() as engine:
        with suppress(NotFoundError):  # a message that does not exist reverts nothing, as in OpenCode
            await engine.revert(call.session_id, body.message_id, body.part_id)
        return await _stored(engine, call)


@routes.post("/session/{sessionID}/unrevert", "session.unrevert", response=Session, errors=(400, 404, 409))
async def unrevert_session(call: Call) -> object:
    """Undo a revert."""
    async with call.session_engine() as engine:
        await engine.unrevert(call.session_id)
        return await _stored(engine, call)


@routes.post("/session/{sessionID}/share", "session.share", response=Session, errors=(400, 404))
async def share_session(call: Call) -> object:
    """Share a session, or update its share."""
    async with call.session_engine() as engine:
        await engine.share(call.session_id)
        return await _stored(engine, call)


@routes.delete("/session/{sessionID}/share", "session.unshare", response=Session, errors=(400, 404))
async def unshare_session(call: Call) -> object:
    """Take down the share of a session."""
    async with call.session_engine() as engine:
        await engine.unshare(call.session_id)
        return await _stored(engine, call)


async def _stored(engine: Engine, call: Call) -> Document:
    return client_info((await run_in_thread_uncancellable(engine.sessions.get, call.session_id)).document)


def _is_below(directory: str, folder: str) -> bool:
    return directory == folder or directory.startswith(os.path.join(folder, ""))
