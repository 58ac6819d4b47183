"""Tokens, cost and projects of the whole history. An extension of opensesh."""

from __future__ import annotations

import os
from io import StringIO
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from starlette.responses import Response

from ...history.stats.tool_stats import by_tool
from ...history.stats.usage_layer import UsageTable
from ...history.stats.usage_stats import UsageFilter, add_up, of_project, write_csv, write_tool_csv
from ..operations import Call, Routes
from ..responses import history_answer

if TYPE_CHECKING:
    from ...history.library import Library
    from ...history.stats.usage_stats import By
    from ...records import Document

routes = Routes()


class StatsQuery(Struct, frozen=True):
    """Grouping and filters of statistics."""

    by: Literal["day", "month", "project", "model", "agent", "session", "tool"] = "day"
    since: int | None = None
    """Calls made at this time or later, in milliseconds since 1970."""
    until: int | None = None
    project: str | None = None
    """A name, folder, remote or id; need not be exact."""
    format: Literal["json", "csv"] = "json"


class ProjectsQuery(Struct, frozen=True):
    """A search for projects."""

    q: str = ""
    """A name, folder or remote; need not be exact."""


@routes.get("/history/stats", "history.stats", response=dict[str, Any], errors=(400, 404))
async def get_stats(call: Call, query: StatsQuery) -> object:
    """Add up tokens and cost, or the calls of each tool. Days are those of the server's time zone."""
    if query.format == "csv":
        table = await call.state.read_history(
            lambda library: csv_table(UsageTable(library.cache), query.by, _usage_filter(library, query))
        )
        return csv_response(table, f"stats-by-{query.by}.csv")
    return await history_answer(call, lambda library: _stats_document(library, query))


def _stats_document(library: Library, query: StatsQuery) -> Document:
    usage, usage_filter = UsageTable(library.cache), _usage_filter(library, query)
    if query.by == "tool":
        return {"by": "tool", "rows": [row.document() for row in by_tool(usage, usage_filter)]}
    return add_up(usage, query.by, usage_filter).document()


def csv_table(usage: UsageTable, by: By | Literal["tool"], usage_filter: UsageFilter) -> str:
    """Return the rows of a grouping, or the calls of each tool, as comma-separated values."""
    table = StringIO()
    if by == "tool":
        write_tool_csv((row.document() for row in by_tool(usage, usage_filter)), table)
    else:
        write_csv(add_up(usage, by, usage_filter), table)
    return table.getvalue()


def csv_response(table: str, name: str) -> Response:
    """Return a table as a download."""
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(table, headers=headers, media_type="text/csv; charset=utf-8")


def _usage_filter(library: Library, query: StatsQuery) -> UsageFilter:
    session = of_project(library.resolve_project(query.project)) if query.project else None
    return UsageFilter(query.since, query.until, session)


@routes.get("/history/projects", "history.projects", response=dict[str, Any])
async def list_all_projects(call: Call, query: ProjectsQuery) -> object:
    """List the projects of this machine with their folders and sessions."""

    def read(library: Library) -> Document:
        items: list[Document] = [
            {
                "id": group.project.id,
                "name": group.title,
                "folder": group.folder,
                "exists": os.path.isdir(group.folder),
                "sessions": sessions,
                "last": latest,
            }
            for group, sessions, latest in library.project_uses(query.q)
        ]
        return {"items": items, "total": len(items)}

    return await history_answer(call, read)
