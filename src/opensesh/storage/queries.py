"""Queries for sessions, for stores that implement :class:`~opensesh.storage.protocol.SessionQueries`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..records import as_whole, object_at

if TYPE_CHECKING:
    from ..records import Document
    from .protocol import Key


class SessionQuery(NamedTuple):
    """Which sessions to return. The defaults select all of them."""

    projects: frozenset[str] | None = None
    """Project ids; ``None`` for every project."""
    children: bool = True
    """Whether to include sessions that another session started."""
    archived: bool = True
    """Whether to include archived sessions."""
    since: int = 0
    """Only sessions updated at that time or later, in milliseconds."""
    until: int = 0
    """Only sessions updated before that time; 0 for no limit."""
    limit: int = 0
    """The maximum number of sessions; 0 for all."""

    def matches(self, record: Document) -> bool:
        """Return whether a session record is selected, ignoring the limit."""
        updated = session_updated(record)
        return (
            (self.projects is None or record.get("projectID") in self.projects)
            and (self.children or record.get("parentID") is None)
            and (self.archived or object_at(record, "time").get("archived") is None)
            and updated >= self.since
            and (not self.until or updated < self.until)
        )


def session_updated(record: Document) -> int:
    """Return when a session was last updated; when it was created, in records too old to say."""
    time = object_at(record, "time")
    return as_whole(time.get("updated")) or as_whole(time.get("created"))


def newest_first(entry: tuple[Key, Document]) -> tuple[int, str]:
    """Return the sort key of a query's results: the latest update first, then by id."""
    key, record = entry
    return -session_updated(record), key[-1]
