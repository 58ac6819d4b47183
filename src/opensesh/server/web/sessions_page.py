"""The list of sessions of all projects, and exports of several of them."""

from __future__ import annotations

import zipfile
from datetime import datetime, timedelta
from hashlib import blake2b
from io import BytesIO
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct
from starlette.responses import Response, StreamingResponse

from ...engine.cancellation import run_in_thread_uncancellable
from ...errors import NotFoundError, UsageError
from ...history.formats import FormatOptions
from ...history.import_export.exporting import Export, Selection
from ..history_index import PATIENT_SECONDS, WAIT_SECONDS
from ..operations import Call, Routes
from ..responses import call_redactor
from ..routes.session_list_routes import SessionsQuery, list_sessions, session_states
from .display import day, page_address
from .pages import render

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ...history.session_table import SessionTable
    from ...records import Document

pages = Routes()
_MAX_CHOICES = 60
_PROMPT_SECONDS = 0.03
"""How long a list waits for prompts that were not read yet; the page asks again for the others."""
_INCOMPLETE = 'W/"incomplete"'
SORTS = {
    "updated": "latest activity",
    "created": "newest",
    "cost": "most expensive",
    "messages": "most messages",
    "title": "title",
}


class ListQuery(SessionsQuery, frozen=True):
    """The list, and how much of the page."""

    fragment: Literal["", "rows"] = ""


class ExportsQuery(Struct, frozen=True):
    """The sessions to export, separated by commas, the format, and whether secrets are redacted."""

    ids: Annotated[str, Meta(pattern=r"^ses[0-9A-Za-z_.-]{0,200}(,ses[0-9A-Za-z_.-]{0,200}){0,499}$")]
    format: Literal["jsonl", "opencode", "markdown", "html"] = "markdown"
    redact: bool = False


@pages.get("/ui/", "ui.sessions", response=None)
async def sessions_page(call: Call, query: ListQuery) -> object:
    """List the sessions."""
    history = call.state.history
    states = session_states(call.state)

    # A page that names its version already shows rows: it can wait for the newest state.
    known = call.request.headers.get("if-none-match", "")
    wait = PATIENT_SECONDS if known else WAIT_SECONDS

    def read() -> dict[str, Any] | None:
        table, is_fresh = history.sessions(wait)
        if not history.table_progress.is_ready:
            return None
        version = _version(call.state.streams.run_id, table, states, query)
        if known == version:
            return {"version": version, "is_known": True}
        failure, near = "", list[str]()
        try:
            page = list_sessions(table, query, states)
        except (NotFoundError, UsageError) as error:
            failure, near = error.message, list(table.project_names)[:8]
            page = list_sessions(table, SessionsQuery(q="\0"), states)
        choices = {"projects": list(table.project_names), "models": table.models, "agents": table.agents}
        ids = [str(item["id"]) for item in page.items]
        prompts, is_complete = call.state.first_prompts.of(ids, _PROMPT_SECONDS)
        return {
            "version": version if is_complete else _INCOMPLETE,
            "is_known": False,
            "page": page,
            "prompts": prompts,
            "groups": _by_day(page.items, query.sort),
            "choices": {name: values[:_MAX_CHOICES] for name, values in choices.items()},
            "is_fresh": is_fresh and is_complete,
            "failure": failure,
            "near": near,
            "damage": len(table.damage),
            "has_stores": len(table.stores) > 1,
        }

    values = await run_in_thread_uncancellable(read)
    if values is None:
        return render(call, "preparing.html", progress=history.table_progress)
    if values["is_known"]:
        return Response(status_code=304, headers={"etag": values["version"]})
    template = "session_rows.html" if query.fragment else "sessions.html"
    response = render(
        call,
        template,
        query=query,
        sorts=SORTS,
        next_address=page_address("/ui/", query, after=values["page"].next, fragment="") if values["page"].next else "",
        **values,
    )
    response.headers["etag"] = values["version"]
    return response


@pages.get("/ui/export", "ui.exports", response=None)
async def export_sessions(call: Call, query: ExportsQuery) -> object:
    """Download sessions: one as a file, several as one file or as an archive of files."""

    def prepare() -> tuple[str, Iterable[bytes]]:
        selection = Selection(ids=tuple(query.ids.split(",")))
        export = Export(call.state.store, selection, query.format, FormatOptions(), redactor=redactor)
        if not export.selected:
            raise NotFoundError("none of these sessions exists")
        suffix = export.format.suffix
        if len(export.selected) == 1:
            return f"{export.selected[0].id}{suffix}", export.chunks(export.selected[0])
        if export.format.delimiters is not None:
            return f"sessions{suffix}", export.file_chunks()
        archive = BytesIO()
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as files:
            for selected in export.selected:
                files.writestr(f"{selected.id}{suffix}", b"".join(export.chunks(selected)))
        return "sessions.zip", [archive.getvalue()]

    redactor = await call_redactor(call) if query.redact else None
    name, chunks = await run_in_thread_uncancellable(prepare)
    headers = {
        "content-disposition": f'attachment; filename="{name}"',
        "content-security-policy": "sandbox; default-src 'none'",
    }
    return StreamingResponse(iter(chunks), headers=headers, media_type="application/octet-stream")


def _by_day(items: Iterable[Document], sort: str) -> list[tuple[str, list[Document]]]:
    """Return the items in groups of one day, in lists that are sorted by time."""
    if sort not in ("updated", "created"):
        return [("", list(items))]
    now = datetime.now().astimezone()
    names = {f"{now:%Y-%m-%d}": "Today", f"{now - timedelta(days=1):%Y-%m-%d}": "Yesterday"}
    groups: list[tuple[str, list[Document]]] = []
    for item in items:
        date = day(item[sort])
        name = names.get(date, date)
        if not groups or groups[-1][0] != name:
            groups.append((name, []))
        groups[-1][1].append(item)
    return groups


def _version(run_id: str, table: SessionTable, states: Mapping[str, Document], query: ListQuery) -> str:
    """Return an entity tag that changes with everything that a list shows."""
    shown = sorted((name, *state.values()) for name, state in states.items())
    parts = run_id, table.version, f"{datetime.now():%Y-%m-%d}", shown, page_address("/ui/", query, fragment="")
    return f'"{blake2b(repr(parts).encode(errors="replace"), digest_size=12).hexdigest()}"'
