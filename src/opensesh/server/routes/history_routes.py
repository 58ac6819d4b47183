"""The history of all projects: sessions, transcripts, search. An extension of opensesh.

Answers have an ``ETag``; a request with ``If-None-Match`` gets 304 if nothing has changed. Lists have at most ``limit``
items; ``next`` is passed as ``after`` to get the following ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from starlette.responses import StreamingResponse

from ...engine.cancellation import run_in_thread_uncancellable
from ...history.filters import Selection
from ...history.formats import FormatOptions
from ...history.import_export.exporting import Export
from ...history.library import Library
from ..history_answers import answer_with_etag, call_redactor, history_answer
from ..operations import Call, Routes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...records import Document, Session

routes = Routes()
_MEDIA_TYPES = {
    "html": "text/html",
    "markdown": "text/markdown",
    "prompts": "text/plain",
    "jsonl": "application/x-ndjson",
}


class ContextQuery(Struct, frozen=True):
    """Which request: a step from 1 or a message; the next one if absent."""

    step: str | None = None


class ExportQuery(Struct, frozen=True):
    """In which form."""

    format: Literal["jsonl", "json", "opencode", "markdown", "html", "prompts", "hf"] = "json"
    redact: bool = False
    children: bool = False


@routes.get("/history/sessions/{name}", "history.session", response=dict[str, Any], errors=(400, 404))
async def get_history(call: Call) -> object:
    """Get a session with its totals. It is named by id, the beginning or end of an id, a slug, or ``last``."""

    def read(library: Library) -> Document:
        entry = library.session(call.parameters["name"])
        totals = entry.totals
        return _row(entry.record) | {
            "messages": totals.messages,
            "prompts": totals.prompts,
            "cost": {"stored": str(totals.cost), "inclusive": str(entry.inclusive_cost)},
            "subagents": [child.id for child in entry.children()],
            "origins": entry.origins,
            "record": entry.record.document,
        }

    return await history_answer(call, read)


@routes.get("/history/sessions/{name}/context", "history.context", response=dict[str, Any], errors=(400, 404))
async def get_context(call: Call, query: ContextQuery) -> object:
    """Get what a model is sent in a step of a session, and its size in tokens."""
    library = Library(store=call.state.store)
    session = (await run_in_thread_uncancellable(library.session, call.parameters["name"])).record
    async with call.state.session_engine(session.id, call.directory) as engine:
        inspection = await engine.context(session.id, query.step)
    return answer_with_etag(call, inspection.document())


@routes.get("/history/sessions/{name}/export", "history.export", response=dict[str, Any], errors=(400, 404))
async def export_session(call: Call, query: ExportQuery) -> object:
    """Export a session."""

    def prepare() -> tuple[str, Iterator[bytes]]:
        store = call.state.store
        session_id = Library(store=store).session(call.parameters["name"]).id
        selection = Selection(ids=(session_id,), children=query.children)
        export = Export(store, selection, query.format, FormatOptions(), redactor=redactor)
        chunks = (chunk for selected in export.selected for chunk in export.chunks(selected))
        return f"{session_id}{export.format.suffix}", chunks

    redactor = await call_redactor(call) if query.redact else None
    name, chunks = await run_in_thread_uncancellable(prepare)
    headers = {
        "content-disposition": f'attachment; filename="{name}"',
        "content-security-policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:",
    }
    return StreamingResponse(chunks, headers=headers, media_type=_MEDIA_TYPES.get(query.format, "application/json"))


def _row(session: Session) -> Document:
    return {
        "id": session.id,
        "slug": session.slug or None,
        "title": session.title,
        "project": session.project_id,
        "directory": session.directory,
        "parent": session.parent_id,
        "created": session.time.created,
        "updated": session.updated,
        "archived": session.time.archived,
        "share": session.share.url if session.share is not None and session.share.url else None,
    }
