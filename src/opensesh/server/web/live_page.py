"""Sessions that run or wait for the user, and beginning a new one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal

from markupsafe import Markup
from msgspec import Struct

from ...engine.cancellation import run_in_thread_uncancellable
from ...errors import NotFoundError, ReadOnlyStoreError, RecordError
from ...records import as_object, dumps_compact, object_at
from ...storage.leases import leases_of
from ..operations import Call, Routes
from ..responses import RequestError
from ..routes.history_live_routes import running_requests
from .pages import render

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...history.library import Library
    from ...records import Document, Session
    from ...storage.protocol import StoredMessage
    from ..state import ServerState

pages = Routes()
_SUGGESTED_DIRECTORIES = 30


class NewSessionQuery(Struct, frozen=True):
    """The directory of the new session."""

    directory: str = ""


class LiveQuery(Struct, frozen=True):
    """The page, or only its items."""

    fragment: Literal["", "items"] = ""


@pages.get("/ui/live", "ui.live", response=None)
async def live_page(call: Call, query: LiveQuery) -> object:
    """Show the sessions that run, here or in other processes, or wait for the user, with their requests."""
    state = call.state
    statuses, requests = running_requests(state)
    described = [await state.page_rendering.request(request, as_html=True) for request in requests]

    def read() -> list[dict[str, Any]]:
        holders = dict(leases_of(state.store).held())
        waiting = [str(request["session"]) for request in described]
        items: list[dict[str, Any]] = []
        for session_id in dict.fromkeys([*statuses, *waiting, *holders]):
            try:
                session = state.sessions.get(session_id)
            except (NotFoundError, RecordError):
                continue
            status, holder = statuses.get(session_id), holders.get(session_id)
            asks = [Markup(request["html"]) for request in described if request["session"] == session_id]  # noqa: S704
            is_elsewhere = status is None and not asks
            is_retried = object_at(statuses, session_id).get("type") == "retry"
            word = "waits for you" if asks else "trying again" if is_retried else "running"
            items.append(
                {
                    "session": session,
                    "state": word,
                    "asks": asks,
                    "since": holder.started if holder is not None else None,
                    "holder": str(holder) if holder is not None and is_elsewhere else "",
                }
            )
        return items

    template = "live_items.html" if query.fragment else "live.html"
    items = await run_in_thread_uncancellable(read)
    return render(call, template, items=items, event=state.streams.event_id(state.bus.last))


@pages.get("/ui/new", "ui.new", response=None)
async def new_session_page(call: Call, query: NewSessionQuery) -> object:
    """Choose the folder of a new session."""

    def read(library: Library) -> list[str]:
        # The folder that the server was started in comes first, if there are sessions in it: an icon of a desktop
        # starts it in the home folder.
        latest: dict[str, int] = {}
        for _, session in library.records():
            if session.directory and session.updated > latest.get(session.directory, 0):
                latest[session.directory] = session.updated
        here = call.state.directory
        recent = sorted(latest, key=lambda directory: (directory != here, -latest[directory]))
        return [directory for directory in recent[:_SUGGESTED_DIRECTORIES] if os.path.isdir(directory)]

    directories = await call.state.read_history(read)
    if query.directory and not os.path.isabs(query.directory):
        raise RequestError(400, "BadRequest", "the directory must be an absolute path")
    chosen = query.directory or (directories[0] if directories else call.state.directory)
    return render(call, "new.html", directories=directories, chosen=chosen)


def live_facts(state: ServerState, session: Session, last: Sequence[StoredMessage]) -> Document:
    """Return what the script of a session's page begins with. ``last`` are the newest messages. Synchronous."""
    statuses, _ = running_requests(state)
    holder = leases_of(state.store).holder(session.id)
    is_elsewhere = holder is not None and session.id not in statuses
    prompts = [message.info for message in last if message.info.get("role") == "user"]
    prompt: Document = prompts[-1] if prompts else {}
    model = object_at(prompt, "model")
    read_only = ""
    try:
        state.sessions.ensure_writable(session.id)
    except ReadOnlyStoreError as error:
        read_only = str(error.data["path"])
    failure = as_object(last[-1].info.get("error")) if last and session.revert is None else None
    is_aborted = failure is not None and failure.get("name") == "MessageAbortedError"
    return {
        "status": dumps_compact(statuses.get(session.id)).decode(),
        "since": holder.started if holder is not None else "",
        "holder": str(holder) if is_elsewhere else "",
        "failure": dumps_compact(None if is_aborted else failure).decode(),
        "revert": dumps_compact(session.document.get("revert")).decode(),
        "agent": prompt.get("agent") or "",
        "model": f"{model['providerID']}/{model['modelID']}" if "modelID" in model and "providerID" in model else "",
        "variant": prompt.get("variant") or model.get("variant") or "",
        "read_only": read_only,
        "has_folder": "\0" not in session.directory and os.path.isdir(session.directory),
    }
