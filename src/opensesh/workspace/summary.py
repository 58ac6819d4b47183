"""What a session changed, and each prompt in it: from the snapshots at both ends of a stretch of its history."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from .. import events
from ..errors import NotFoundError, SnapshotError
from ..records import as_object
from ..storage import keys
from . import edits
from .originals import Originals

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..events import Publish
    from ..records import Document, Session
    from ..sessions import Sessions
    from ..storage.protocol import Key, StoredMessage
    from .snapshots import Snapshots


log = logging.getLogger("opensesh.workspace")


class SnapshotRange(NamedTuple):
    """The snapshots between which a stretch of history happened."""

    before: str
    after: str


def snapshot_range(messages: Sequence[StoredMessage]) -> SnapshotRange | None:
    """From the first snapshot before a step to the last one after a step; ``None`` where one of them is missing."""
    before = after = ""
    for message in messages:
        for part in message.parts:
            snapshot = part.get("snapshot")
            if not isinstance(snapshot, str) or not snapshot:
                continue
            if part.get("type") == "step-start" and not before:
                before = snapshot
            elif part.get("type") == "step-finish":
                after = snapshot
    return SnapshotRange(before, after) if before and after else None


def turn(messages: Sequence[StoredMessage], prompt_id: str) -> list[StoredMessage]:
    """A prompt and its answers."""
    return [
        message
        for message in messages
        if message.info.get("id") == prompt_id
        or (message.info.get("role") == "assistant" and message.info.get("parentID") == prompt_id)
    ]


def snapshots_in(revert: Document, messages: Sequence[StoredMessage]) -> set[str]:
    """Every snapshot that messages, and a revert of them, name."""
    records = [revert, *(part for message in messages for part in message.parts)]
    named = (record.get(field) for record in records for field in ("snapshot", "hash"))
    return {name for name in named if isinstance(name, str)}


def totals(diffs: Sequence[Document]) -> Document:
    """A session's ``summary``."""
    return {
        "additions": sum(diff.get("additions", 0) for diff in diffs),
        "deletions": sum(diff.get("deletions", 0) for diff in diffs),
        "files": len(diffs),
    }


def history_diffs(
    messages: Sequence[StoredMessage], snapshots: Snapshots, originals: Originals | None = None
) -> list[Document]:
    """The files that a stretch of history changed.

    From the snapshots at its ends; where there are none, from what the tools recorded of their own edits and, if
    ``originals`` is given, put aside.
    """
    ends = snapshot_range(messages)
    if ends is None or not snapshots.readable:
        return edits.file_diffs(messages, snapshots.place, originals)
    return snapshots.diff(*ends)


def summarize(
    sessions: Sessions,
    snapshots: Snapshots,
    session_id: str,
    *prompt_ids: str,
    publish: Publish,
    messages: Sequence[StoredMessage] | None = None,
) -> list[Document]:
    """Store what the session changed, and what the prompts ``prompt_ids`` did, and tell of it; the session's files.

    Done at the end of every step; who has the ``messages`` at hand passes them, and saves reading them again. A
    snapshot that is gone costs the list of files, nothing else.
    """
    messages = sessions.messages(session_id) if messages is None else messages
    originals = Originals(sessions.store)
    found = known_diffs(messages, snapshots, originals)
    record(sessions, session_id, found, publish=publish)
    for prompt_id in prompt_ids:
        of_turn = known_diffs(turn(messages, prompt_id), snapshots, originals)
        _record_turn(sessions, keys.message(session_id, prompt_id), of_turn, publish)
    return found


def record(
    sessions: Sessions,
    session_id: str,
    diffs: list[Document],
    *,
    publish: Publish,
    change: Callable[[Document], object] | None = None,
) -> Session:
    """Store a session's files and their totals, with a ``change`` of its record if one is given, and tell of it."""
    sessions.store.write(keys.diff(session_id), diffs)
    publish(events.SessionDiff(session_id=session_id, diff=diffs))

    def edit(info: Document) -> None:
        if change is not None:
            change(info)
        info["summary"] = totals(diffs)

    return sessions.update(session_id, edit)


def known_diffs(
    messages: Sequence[StoredMessage], snapshots: Snapshots, originals: Originals | None = None
) -> list[Document]:
    """:func:`history_diffs`, or nothing if a snapshot is no longer there."""
    try:
        return history_diffs(messages, snapshots, originals)
    except SnapshotError as error:
        log.info("%s", error)
        return []


def _record_turn(sessions: Sessions, key: Key, diffs: list[Document], publish: Publish) -> None:
    def edit(info: Document) -> None:
        info["summary"] = (as_object(info.get("summary")) or {}) | {"diffs": diffs}

    try:
        info = sessions.store.update(key, edit)
    except NotFoundError:
        return  # a prompt that was taken back in the meantime
    publish(events.MessageUpdated(info=info))
