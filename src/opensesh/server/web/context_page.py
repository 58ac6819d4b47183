"""The page of a request: what was sent to the model in a step of a session, and what was left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ...errors import NotFoundError
from ..operations import Call, Routes
from .pages import render
from .session_page import SessionView, session_head

if TYPE_CHECKING:
    from ...history.library import Library

pages = Routes()


class ContextPageQuery(Struct, frozen=True):
    """A request to a model: a message or the number of a step; the next request if absent."""

    message: str = ""
    step: str = ""


@pages.get("/ui/session/{sessionID}/context", "ui.session.context", response=None)
async def context_page(call: Call, query: ContextPageQuery) -> object:
    """Show the pieces of a request by kind, with their tokens, and what was left out and why."""

    def read(library: Library) -> dict[str, Any]:
        view = SessionView(call, library)
        infos = [message.info for message in library.store.messages(view.id, report=library.report)]
        answers = [str(info.get("id")) for info in infos if info.get("role") == "assistant"]
        return session_head(view) | {"steps": answers}

    values = await call.state.read_history(read)
    step = query.message or query.step or None
    if not values["steps"] and step is not None:
        raise NotFoundError("this session has no step yet", step=step)
    async with call.state.session_engine(values["session"].id, call.directory) as engine:
        inspection = await engine.context(values["session"].id, step)
        growth = None
        if inspection.step > 1:
            growth = inspection.growth(await engine.context(values["session"].id, str(inspection.step - 1)))
    return render(call, "context.html", inspection=inspection, growth=growth, **values)
