"""What statistics, filters and disk usage need of a session's record."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ...records import Document


class SessionInfo(NamedTuple):
    """Fields of a session's record."""

    id: str
    project: str = ""
    parent: str = ""
    title: str = ""
    directory: str = ""
    created: int = 0
    updated: int = 0
    fork: str = ""
    """The session that it was forked from; only 2.x stores it."""
    archived: bool = False


def session_info(document: Document, project: str, name: str) -> SessionInfo:
    """Return the fields of a record that is stored as the session ``name`` of ``project``."""
    from ...records import as_object, as_whole  # loads msgspec, which cached statistics do without

    stamps = as_object(document.get("time")) or {}
    created, updated = as_whole(stamps.get("created")), as_whole(stamps.get("updated"))
    fork = as_object(document.get("fork")) or {}
    texts = {key: value for key in ("parentID", "title", "directory") if isinstance(value := document.get(key), str)}
    return SessionInfo(
        id=name,
        project=project,
        parent=texts.get("parentID", ""),
        title=texts.get("title", ""),
        directory=texts.get("directory", ""),
        created=created,
        updated=updated or created,
        fork=str(fork.get("sessionID") or ""),
        archived=bool(stamps.get("archived")),
    )
