"""Search in the texts of all sessions, and suggestions while a name is typed. An extension of opensesh."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct

from ...engine.cancellation import run_in_thread_uncancellable
from ...history.search.search_filters import Filters
from ...history.search.text_search import Query
from ..operations import Call, Routes
from ..responses import RequestError, answer_with_etag
from .session_list_routes import PageSize, SessionsQuery, list_sessions, read_time

if TYPE_CHECKING:
    from ...records import Document
    from ..history_index import SearchAnswer
    from ..state import ServerState

routes = Routes()
_FRESH_SECONDS = 600.0
_SUGGESTIONS = 8


class SearchQuery(Struct, frozen=True):
    """The words of a search, and its filters."""

    q: str = ""
    mode: Literal["words", "text", "regex"] = "words"
    fields: str = ""
    """Fields as in ``opensesh search --in``, separated by commas."""
    project: str = ""
    session: str = ""
    role: str = ""
    tool: str = ""
    file: str = ""
    model: str = ""
    agent: str = ""
    since: str = ""
    """Milliseconds since 1970, or as in ``opensesh search --since``."""
    until: str = ""
    roots: bool = False
    newest: bool = False
    limit: PageSize = 20
    offset: Annotated[int, Meta(ge=0)] = 0


class SuggestQuery(Struct, frozen=True):
    """The beginning of a name."""

    q: str = ""


def search_history(state: ServerState, query: SearchQuery, *, wait: float, typing: bool = False) -> SearchAnswer:
    """Search for what a query says; wait at most so long for what has changed since."""
    matches = None
    if query.project.strip():
        table, _ = state.history.sessions(wait=_FRESH_SECONDS if not state.history.table_progress.is_ready else wait)
        matches = table.resolve_project(query.project).matches
    filters = Filters(
        session=query.session,
        since=read_time(query.since),
        until=read_time(query.until),
        role=query.role,
        tool=query.tool,
        model=query.model,
        agent=query.agent,
        file=query.file,
        fields=tuple(name for name in query.fields.split(",") if name),
        children=not query.roots,
        session_matches=matches,
    )
    asked = Query(query.q, query.mode, filters, query.limit, query.offset, query.newest)
    return state.history.search(asked, wait, typing=typing)


@routes.get("/history/search", "history.search", response=dict[str, Any], errors=(400, 404))
async def search_texts(call: Call, query: SearchQuery) -> object:
    """Search the texts of all sessions."""

    def read() -> Document:
        results, facets, progress, _ = search_history(call.state, query, wait=_FRESH_SECONDS)
        return {
            "total": results.total,
            "sessions": results.sessions,
            "widened": results.widened,
            "note": results.note or None,
            "index": {"ready": progress.is_ready, "done": progress.done, "of": progress.of},
            "facets": {name: dict(counts.most_common()) for name, counts in facets.items()},
            "hits": [hit.document() for hit in results.hits],
        }

    if not query.q.strip() and not query.file:
        raise RequestError(400, "BadRequest", "nothing to search for: q or file is needed")
    return answer_with_etag(call, await run_in_thread_uncancellable(read))


@routes.get("/history/suggest", "history.suggest", response=dict[str, Any], errors=(400,))
async def suggest(call: Call, query: SuggestQuery) -> object:
    """Suggest projects by name, and sessions by title or id."""

    def read() -> Document:
        table, _ = call.state.history.sessions()
        text = query.q.casefold().strip()
        names = [name for name in table.project_names if text in name.casefold()]
        page = list_sessions(table, SessionsQuery(q=query.q, archived=True, limit=_SUGGESTIONS), {})
        return {
            "projects": names[:_SUGGESTIONS],
            "sessions": [
                {name: item[name] for name in ("id", "title", "projectName", "updated", "archived")}
                for item in page.items
            ],
        }

    return answer_with_etag(call, await run_in_thread_uncancellable(read))
