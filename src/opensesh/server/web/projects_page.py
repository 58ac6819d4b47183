"""The projects of this machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from ...history.stats.session_usage import UsageTotals
from ...history.stats.usage_layer import UsageTable
from ...history.stats.usage_stats import UsageFilter, add_up
from ...storage.keys import GLOBAL
from ..operations import Call, Routes
from .pages import render

if TYPE_CHECKING:
    from ...history.library import Library, ProjectUse

pages = Routes()


class ProjectsPageQuery(Struct, frozen=True):
    """A search for projects."""

    q: str = ""
    """A name, folder or remote; need not be exact."""


class ProjectRow(NamedTuple):
    """A project with its costs."""

    use: ProjectUse
    name: str
    """What the list of sessions is filtered by."""
    exists: bool
    totals: UsageTotals


@pages.get("/ui/projects", "ui.projects", response=None)
async def projects_page(call: Call, query: ProjectsPageQuery) -> object:
    """Show the projects, their folders, sessions and costs."""

    def read(library: Library) -> list[ProjectRow]:
        statistics = add_up(UsageTable(library.cache), "project", UsageFilter())
        costs = {row.key: row.totals for row in statistics.rows}
        rows: list[ProjectRow] = []
        for use in library.project_uses(query.q):
            group = use.group
            key = group.folder if group.project.id == GLOBAL else group.project.id
            rows.append(ProjectRow(use, key, os.path.isdir(group.folder), costs.get(key, UsageTotals())))
        if not query.q:
            rows.sort(key=lambda row: -(row.use.latest or 0))  # by the times that the page shows
        return rows

    rows = await call.state.read_history(read)
    return render(call, "projects.html", query=query, rows=rows)
