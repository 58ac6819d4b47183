"""The list of sessions of all projects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...history.library import Library, SessionFilter
from ..operations import Call, Routes
from .pages import render

if TYPE_CHECKING:
    from ...history.library import Overview

pages = Routes()
_PAGE_SIZE = 100


@pages.get("/ui/", "ui.sessions", response=None)
async def sessions_page(call: Call) -> object:
    """List the sessions."""

    def read(library: Library) -> Overview:
        return library.overview(SessionFilter(), _PAGE_SIZE)

    overview = await call.state.read_history(read)
    return render(call, "sessions.html", overview=overview)
