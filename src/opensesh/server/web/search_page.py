"""Full-text search in all sessions while the user types."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from msgspec.structs import replace

from ...engine.cancellation import run_in_thread_uncancellable
from ...errors import NotFoundError, UsageError
from ...history.discovery import folder_name
from ...history.search.facets import COUNTED_PARTS
from ...history.search.search_filters import FIELDS
from ..history_index import WAIT_SECONDS
from ..operations import Call, Routes
from ..routes.search_routes import SearchQuery, search_history
from .display import marked, page_address, session_address
from .pages import render

if TYPE_CHECKING:
    from collections import Counter

    from ...history.search.text_search import Hit, Results

pages = Routes()
_HITS = 60
_HITS_OF_SESSION = 3
_FACET_VALUES = 8
_WAIT_SECONDS = 1.0
_UNFINISHED_WORD = re.compile(r"(^|.*\s)[^\W_]{3,}")
_FACETS = {"folder": "Project", "role": "Role", "tool": "Tool", "model": "Model", "month": "Month"}
_MODES = {"words": "words", "text": "as typed", "regex": "regex"}
_KINDS = {"text": "text", "tool": "tool call", "title": "title", "reasoning": "thinking", "error": "error"}


class TypedQuery(SearchQuery, frozen=True):
    """A search, and how much of the page."""

    fragment: Literal["", "results"] = ""
    typing: bool = False
    """Whether the last word may be the beginning of a longer one."""


@pages.get("/ui/search", "ui.search", response=None)
async def search_page(call: Call, query: TypedQuery) -> object:
    """Show what matches a search."""
    template = "search_results.html" if query.fragment else "search.html"
    common: dict[str, Any] = {"query": query, "modes": _MODES, "fields": list(FIELDS), "counted": COUNTED_PARTS}
    if not query.q.strip() and not query.file:
        return render(call, template, results=None, failure="", **common)
    is_unfinished = query.typing and query.mode == "words" and _UNFINISHED_WORD.fullmatch(query.q)
    text = query.q.rstrip("*") + "*" if is_unfinished else query.q
    asked = replace(query, q=text, limit=_HITS)
    try:
        results, facets, progress, is_total = await run_in_thread_uncancellable(
            lambda: search_history(
                call.state, asked, wait=WAIT_SECONDS if query.typing else _WAIT_SECONDS, typing=query.typing
            )
        )
    except (UsageError, NotFoundError) as error:
        return render(call, template, results=None, failure=error.message, **common)
    following = query.offset + _HITS
    return render(
        call,
        template,
        results=results,
        failure="",
        groups=_by_session(results),
        facets=_facet_links(query, facets),
        progress=progress,
        is_total=is_total,
        next_address=search_address(query, offset=following) if following < results.total else "",
        **common,
    )


def search_address(query: SearchQuery, **changes: Any) -> str:
    """Return the address of a search with other parameters."""
    return page_address("/ui/search", query, **{"limit": "", "fragment": "", "typing": False} | changes)


def _by_session(results: Results) -> list[dict[str, Any]]:
    groups: dict[str, list[Hit]] = {}
    for hit in results.hits:
        groups.setdefault(hit.session, []).append(hit)
    return [
        {
            "session": session,
            "title": hits[0].title,
            "directory": hits[0].directory,
            "project": folder_name(hits[0].directory),
            "time": max(hit.time for hit in hits),
            "hits": [_shown(hit) for hit in hits[:_HITS_OF_SESSION]],
            "more": len(hits) - _HITS_OF_SESSION,
        }
        for session, hits in groups.items()
    ]


def _shown(hit: Hit) -> dict[str, Any]:
    address = session_address(hit.session)
    if hit.message:
        anchor = f"p-{hit.part}" if hit.part else f"t-{hit.message}"
        words = " ".join(dict.fromkeys(hit.snippet.text[start:end] for start, end in hit.snippet.marks))
        address += f"?at={hit.message}&q={quote(words, errors='replace')}#{anchor}"
    kind = {"user": "prompt", "assistant": "answer"}.get(hit.role, "") if hit.type == "text" else ""
    return {
        "address": address,
        "kind": kind or _KINDS.get(hit.type, hit.type),
        "tool": hit.tool,
        "field": hit.snippet.field if hit.tool and hit.snippet.field != "tool" else "",
        "time": hit.time,
        "snippet": marked(hit.snippet),
    }


def _facet_links(query: SearchQuery, facets: dict[str, Counter[str]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return the facets that divide the matches, each value with the address that selects it, or no longer does."""
    groups: list[tuple[str, list[dict[str, Any]]]] = []
    for name, title in _FACETS.items():
        counts = facets[name].most_common() if name != "month" else sorted(facets[name].items(), reverse=True)
        values = [_facet_value(query, name, value, count) for value, count in counts[:_FACET_VALUES]]
        if len(values) > 1 or any(value["is_selected"] for value in values):
            groups.append((title, values))
    return groups


def _facet_value(query: SearchQuery, name: str, value: str, count: int) -> dict[str, Any]:
    if name == "month":
        year, month = map(int, value.split("-"))
        until = f"{year + month // 12:04}-{month % 12 + 1:02}"
        is_selected = (query.since, query.until) == (value, until)
        changes = {"since": "", "until": ""} if is_selected else {"since": value, "until": until}
    else:
        parameter = "project" if name == "folder" else name
        is_selected = getattr(query, parameter) == value
        changes = {parameter: "" if is_selected else value}
    label = folder_name(value) if name == "folder" else value
    address = search_address(query, offset=0, **changes)
    return {"label": label, "count": count, "is_selected": is_selected, "address": address}
