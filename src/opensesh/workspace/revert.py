"""Going back in a session, and forth again: its messages and the files it changed.

A revert hides everything from a message (or a part of one) on, and puts the files that were changed since back to what
they were. It stands until it is undone, moved to another point, or made final by the next prompt. No other file is
touched, and none that someone else has changed in the meantime unless the caller insists.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from ..storage.disk import Disk
from .journal import RevertJournal
from .reversal import RevertDeps, RevertOperation, RevertPreview, RevertResult
from .revert_plan import RevertPlan, find_point, recorded_point

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from ..events import Event, Publish
    from ..sessions import Sessions
    from ..storage.protocol import Leases, StoredMessage
    from .snapshots import Snapshots

__all__ = ["RevertPreview", "RevertResult", "Reverts"]


class Reverts:
    """Reverts of the sessions of one place. Synchronous; whoever runs an event loop calls it from a thread."""

    def __init__(
        self,
        sessions: Sessions,
        snapshots: Snapshots,
        *,
        publish: Publish | None = None,
        leases: Leases | None = None,
        disk: Disk | None = None,
        state: str | None = None,
    ) -> None:
        """With ``leases``, a session that someone runs is :class:`~opensesh.errors.BusyError`; a caller who runs it
        himself
        passes none."""
        self._tools = RevertDeps(sessions, snapshots, publish or _nobody, disk or Disk(), state)
        self._leases = leases

    def preview(self, session_id: str, message_id: str, part_id: str | None = None) -> RevertPreview:
        """What :meth:`revert` would do. Touches nothing."""
        with RevertOperation(self._tools, session_id) as reversal:
            return reversal.back(find_point(reversal.history, message_id, part_id))

    def preview_unrevert(self, session_id: str) -> RevertPreview:
        """What :meth:`unrevert` would do. Touches nothing."""
        with RevertOperation(self._tools, session_id) as reversal:
            return reversal.forth()

    def revert(
        self, session_id: str, message_id: str, part_id: str | None = None, *, force: bool = False, files: bool = True
    ) -> RevertResult:
        """Go back to before a message, or a part of one. From a revert that stands this moves on, in either direction.

        Raises :class:`~opensesh.errors.RevertConflictError`, and touches nothing, when someone else changed one of
        the files;
        ``force`` goes on all the same: what they held is then part of what can be brought back. Without ``files`` only
        the conversation goes back; a revert that took files along goes on doing so.
        """
        with self._owned(session_id), RevertOperation(self._tools, session_id) as reversal:
            reversal.recover()
            preview = reversal.back(find_point(reversal.history, message_id, part_id))
            if not files and not reversal.took_files:
                return RevertResult(reversal.mark(preview), preview._replace(plan=RevertPlan()))
            if not force:
                preview.plan.refuse_conflicts()
            return reversal.carry_out(preview)

    def unrevert(self, session_id: str, *, force: bool = False) -> RevertResult:
        """Undo a revert: the messages and the files are back. A session that is not reverted stays as it is.

        Raises :class:`~opensesh.errors.RevertConflictError` as :meth:`revert` does.
        """
        with self._owned(session_id), RevertOperation(self._tools, session_id) as reversal:
            reversal.recover()
            preview = reversal.forth()
            if reversal.session.revert is None:
                return RevertResult(reversal.session, preview)
            if not force:
                preview.plan.refuse_conflicts()
            return reversal.carry_out(preview)

    def recover(self, session_id: str) -> bool:
        """Finish what a process that died had begun; whether there was anything.

        Whoever runs the session calls this first.
        """
        if self._journal(session_id).next is None:
            return False
        with self._owned(session_id), RevertOperation(self._tools, session_id) as reversal:
            return reversal.recover()

    def remaining(self, session_id: str) -> Sequence[StoredMessage]:
        """A session's messages without those that a revert hides, if one stands: what :meth:`cleanup` would leave."""
        standing = self._tools.sessions.get(session_id).revert
        history = self._tools.sessions.messages(session_id)
        point = recorded_point(history, standing) if standing is not None else None
        return history if point is None else point.before(history)

    def cleanup(self, session_id: str) -> list[str]:
        """Make a revert final, as the next prompt does: what it hides is moved to the trash. The messages' ids.

        For whoever runs the session. Interrupted, it can be run again. Costs next to nothing where there is no revert.
        """
        standing = self._tools.sessions.get(session_id).revert
        if standing is None and self._journal(session_id).next is None:
            return []
        with RevertOperation(self._tools, session_id) as reversal:
            reversal.recover()
            return reversal.make_final()

    def _journal(self, session_id: str) -> RevertJournal:
        return RevertJournal(self._tools.sessions.store, session_id, state=self._tools.state, disk=self._tools.disk)

    def _owned(self, session_id: str) -> AbstractContextManager[object]:
        return self._leases.acquire(session_id, "opensesh revert") if self._leases is not None else nullcontext()


def _nobody(_: Event) -> None:
    """Without a bus there is nobody to tell."""
