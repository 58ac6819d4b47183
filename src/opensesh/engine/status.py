"""Whether a session is idle, busy, or waiting to try again: known to this process, told to everyone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import events

if TYPE_CHECKING:
    from ..records import Document


class Statuses:
    """The sessions at work in this process."""

    def __init__(self, publish: events.Publish) -> None:
        self._publish = publish
        self._known: dict[str, Document] = {}

    def all(self) -> dict[str, Document]:
        """Every session that is not idle."""
        return dict(self._known)

    def of(self, session_id: str) -> Status:
        """One session's status, to be set."""
        return Status(self, session_id)

    def set(self, session_id: str, status: Document) -> None:
        """Remember and tell; idle ones are not remembered."""
        if status["type"] == "idle":
            self._known.pop(session_id, None)
        else:
            self._known[session_id] = status
        self._publish(events.SessionStatus(session_id=session_id, status=status))
        if status["type"] == "idle":
            self._publish(events.SessionIdle(session_id=session_id))


class Status:
    """The status of one session."""

    def __init__(self, statuses: Statuses, session_id: str) -> None:
        self._statuses = statuses
        self._session_id = session_id

    def busy(self) -> None:
        """At work."""
        self._set(type="busy")

    def idle(self) -> None:
        """Done."""
        self._set(type="idle")

    def retrying(self, attempt: int, message: str, at: int) -> None:
        """Waiting; the next try is at ``at``, in milliseconds."""
        self._set(type="retry", attempt=attempt, message=message, next=at)

    def _set(self, **status: Any) -> None:
        self._statuses.set(self._session_id, status)
