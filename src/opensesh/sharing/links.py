"""A shared session by its link, to be brought in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import NotFoundError, ShareError, UsageError
from ..history.import_export.import_sources import session_from_document
from ..storage import keys
from ..storage.protocol import Damage, log_damage
from .client import LINK, ShareServer
from .items import assemble

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..history.import_export.import_sources import SourceSession


def is_link(place: str) -> bool:
    """Whether a place is an address rather than a path."""
    return place.startswith(("https://", "http://"))


async def fetch_shared_session(link: str, *, report: Callable[[Damage], None] = log_damage) -> SourceSession:
    """The session behind a link, from the server that the link names."""
    found = LINK.fullmatch(link)
    if found is None:
        raise UsageError(f"{link} is no link to a shared session; one looks like https://example.org/share/NAME")
    async with ShareServer(found["server"]) as server:
        try:
            items = await server.data(found["id"])
        except ShareError as error:
            if error.is_gone:
                raise NotFoundError(f"nothing is shared at {link}, or not any more", url=link) from None
            raise
    session = assemble(items, report=report)
    if session is None:
        raise NotFoundError(f"there is no session at {link} yet", url=link)
    messages = [{"info": message.info, "parts": message.parts} for message in session.messages]
    incoming = session_from_document({"info": session.info, "messages": messages}, link, report=report)
    if incoming is None:
        raise NotFoundError(f"there is no session at {link}", url=link)
    beside = [(keys.diff(incoming.id), session.diff)] if session.diff else []
    return incoming._replace(beside=beside)
