"""Forks of sessions: their titles, and copies of messages with new ids."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..records import EXTENSION_KEY, as_list, object_at
from ..storage.protocol import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..records import Document

_FORK_TITLE = r"(?a)(.+) \(fork #(\d+)\)"


def fork_title(title: str) -> str:
    """Return the title of the next fork of a session with this title."""
    match = re.fullmatch(_FORK_TITLE, title)
    return f"{match[1]} (fork #{int(match[2]) + 1})" if match else f"{title} (fork #1)"


def copy_messages(
    history: Sequence[StoredMessage], session_id: str, new_id: Callable[[str, str], str]
) -> list[StoredMessage]:
    """Return the messages for a fork, with new ids and references to each other.

    ``new_id`` returns the id of a copy, from the id of the original and that of what the copy belongs to: the session,
    or the copy of the message.
    """
    new_ids: dict[str, str] = {}
    for message in history:
        message_id = new_ids[message.info["id"]] = new_id(message.info["id"], session_id)
        new_ids.update((part["id"], new_id(part["id"], message_id)) for part in message.parts)
    copies: list[StoredMessage] = []
    for message in history:
        owner = {"sessionID": session_id, "messageID": new_ids[message.info["id"]]}
        parts = [_with_new_references(part, new_ids) | {"id": new_ids[part["id"]]} | owner for part in message.parts]
        info = _with_new_references(message.info, new_ids) | {"id": owner["messageID"], "sessionID": session_id}
        copies.append(StoredMessage(info, parts))
    return copies


def _with_new_references(record: Document, new_ids: dict[str, str]) -> Document:
    """Return a copy that refers to the copies of other messages and parts.

    These are the prompt of an answer, the message at which the kept tail of a compaction starts, and the parts that a
    provider rejected.
    """
    old_ids = {field: str(record.get(field)) for field in ("parentID", "tail_start_id")}
    changed: Document = {field: new_ids[name] for field, name in old_ids.items() if name in new_ids}
    extension = object_at(record, EXTENSION_KEY)
    if masked := as_list(extension.get("masked")):
        changed[EXTENSION_KEY] = extension | {"masked": [new_ids.get(str(part), part) for part in masked]}
    return record | changed
