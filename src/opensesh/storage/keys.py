"""The keys OpenCode uses, and the check that keeps a key from leaving the store."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..errors import InvalidKeyError

if TYPE_CHECKING:
    from .protocol import Key

GLOBAL = "global"
"""The project of what lies outside of every repository."""

SUMMARY = "-summary"
"""Ends the name of the second message that a compaction of OpenCode 2.x becomes."""

PER_SESSION = ("session_diff", "todo", "session_share", "share")
"""Kinds of which a session has one record, named by its id."""

_PLAIN = re.compile(r"(?!(?i:con|prn|aux|nul|com\d|lpt\d)\Z)[A-Za-z0-9_-]{1,200}")
"""Letters, digits, ``_`` and ``-``, but no name of a device of Windows."""


def check_key(key: Key) -> Key:
    """``key``, if every component is a plain name: letters, digits, ``_`` and ``-``. Identifiers are made of nothing
    else."""
    for component in key:
        if not is_plain(component):
            raise InvalidKeyError(f"{component!r} cannot be part of a storage key", key=list(key))
    if not key:
        raise InvalidKeyError("a storage key cannot be empty", key=[])
    return key


def is_plain(component: str) -> bool:
    """Whether a name can be part of a key."""
    return _PLAIN.fullmatch(component) is not None


def project(project_id: str) -> Key:
    """Where a project record is."""
    return ("project", project_id)


def session(project_id: str, session_id: str) -> Key:
    """Where a session record is."""
    return ("session", project_id, session_id)


def message(session_id: str, message_id: str) -> Key:
    """Where a message record is."""
    return ("message", session_id, message_id)


def part(message_id: str, part_id: str) -> Key:
    """Where a part record is."""
    return ("part", message_id, part_id)


def made_part(message_id: str, number: int) -> str:
    """The name of a part that has none where it is kept: OpenCode 2.x numbers the content of a message."""
    return f"{_made_of(message_id)}{number:05d}"


def is_made_part(part_id: str, message_id: str) -> bool:
    """Whether a part's name was made in that way."""
    return part_id.startswith(_made_of(message_id))


def _made_of(message_id: str) -> str:
    return f"prt_{message_id.removeprefix('msg_')}-"


def diff(session_id: str) -> Key:
    """Where the files a session changed are listed."""
    return ("session_diff", session_id)


def todo(session_id: str) -> Key:
    """Where the agent's list is."""
    return ("todo", session_id)


def share(session_id: str) -> Key:
    """Where the secret of a share is."""
    return ("session_share", session_id)
