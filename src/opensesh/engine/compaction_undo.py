"""Undoing a compaction, and doing it again without another model call.

The two messages of an undone compaction are kept in the state folder, ``undone_compactions/<store>/<session>/``, one
file each, named by the time. What the compaction cost stays spent either way.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from .. import ids
from ..errors import RecordError, UsageError
from ..records import as_list, as_object, dumps, loads_object, order
from ..storage.disk import Disk, names_in, read_file
from ..storage.leases import leases_of
from ..storage.protocol import StoredMessage
from ..storage.session_state import session_state
from .context_window import compaction_part, is_summary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..sessions import Sessions

_OWNER = "opensesh session compact"


class _UndoneCompaction(NamedTuple):
    path: str
    messages: list[StoredMessage]
    """The summary, then its request: a request without a summary would be answered by the next run."""
    summarised: list[str]
    """The ids of the messages before it."""


def undo_compaction(sessions: Sessions, session_id: str) -> bool:
    """Undo the newest compaction, so that everything before it is visible again; whether there was one.

    The session is unchanged, and :class:`~opensesh.errors.BusyError` raised, while it is being run.
    """
    with leases_of(sessions.store).acquire(session_id, _OWNER):
        messages = sessions.messages(session_id)
        undone = _undone(sessions, session_id)
        interrupted = {message.info["id"] for message in undone[-1].messages} if undone else set[str]()
        if removed := [message.info["id"] for message in messages if message.info["id"] in interrupted]:
            sessions.remove_messages(session_id, removed)  # an undo that a dead process began
            return True
        request = newest_compaction(messages)
        if request is None:
            return False
        answers = [message for message in messages if message.info.get("parentID") == request.info["id"]]
        before = messages[: messages.index(request)]
        compaction = [*answers, request]
        folder = session_state("undone_compactions", sessions.store, session_id)
        moment = ids.now_ms()
        while os.path.exists(path := os.path.join(folder, f"{moment}.json")):
            moment += 1
        kept = {
            "messages": [{"info": message.info, "parts": message.parts} for message in compaction],
            "summarised": [message.info["id"] for message in before],
        }
        Disk().replace(path, dumps(kept))
        sessions.remove_messages(session_id, [message.info["id"] for message in compaction])
        return True


def redo_compaction(sessions: Sessions, session_id: str) -> bool:
    """Redo the compaction that was undone last; whether there was one.

    Raises :class:`~opensesh.errors.UsageError` if the session has been compacted again since, or messages that the
    summary replaces have been removed, and :class:`~opensesh.errors.BusyError` while the session is being run.
    """
    with leases_of(sessions.store).acquire(session_id, _OWNER):
        undone = _undone(sessions, session_id)
        if not undone:
            return False
        compaction = undone[-1]
        messages = sessions.messages(session_id)
        request = compaction.messages[-1]
        newest = newest_compaction(messages)
        if newest is not None and order.position(newest.info) > order.position(request.info):
            raise UsageError(f"session {session_id} has been compacted again since; that compaction is in effect")
        if missing := set(compaction.summarised) - {message.info["id"] for message in messages}:
            raise UsageError(
                f"the compaction of session {session_id} summarises messages that have been removed since: "
                f"{', '.join(sorted(missing)[:3])}. 'opensesh session compact' makes a new summary"
            )
        for message in compaction.messages:
            sessions.add_message(message)
        Disk().remove(compaction.path)
        return True


def newest_compaction(messages: Sequence[StoredMessage]) -> StoredMessage | None:
    """Return the message that requested the newest compaction that has a summary."""
    summarised = {message.info.get("parentID") for message in messages if is_summary(message.info)}
    requests = [message for message in messages if compaction_part(message) and message.info["id"] in summarised]
    return requests[-1] if requests else None


def _undone(sessions: Sessions, session_id: str) -> list[_UndoneCompaction]:
    """Return the undone compactions of a session, the one that was undone last at the end."""
    folder = session_state("undone_compactions", sessions.store, session_id)
    compactions: list[_UndoneCompaction] = []
    for name in sorted(names_in(folder)):
        path = os.path.join(folder, name)
        try:
            document = loads_object(read_file(path), path)
        except (OSError, RecordError):
            continue
        records = [as_object(record) or {} for record in as_list(document.get("messages")) or ()]
        messages = [
            StoredMessage(info, [part for part in map(as_object, as_list(record.get("parts")) or ()) if part])
            for record in records
            if (info := as_object(record.get("info"))) is not None
        ]
        if messages:
            compactions.append(_UndoneCompaction(path, messages, as_list(document.get("summarised")) or []))
    return compactions
