"""The keys OpenCode uses, and the check that keeps a key from leaving the store."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..errors import InvalidKeyError

if TYPE_CHECKING:
    from .protocol import Key

GLOBAL = "global"
"""The project of sessions outside of any repository."""

SUMMARY = "-summary"
"""The suffix of the id of the second message that is derived from a compaction of OpenCode 2.x."""

PER_SESSION = ("session_diff", "todo", "session_share", "share")
"""Kinds of which a session has one record, named by its id."""

_PLAIN = re.compile(r"(?!(?i:con|prn|aux|nul|com\d|lpt\d)\Z)[A-Za-z0-9_-]{1,200}")
"""Letters, digits, ``_`` and ``-``, except names of Windows devices."""


def check_key(key: Key) -> Key:
    """Return ``key`` if every component consists of letters, digits, ``_`` and ``-``, as every identifier does."""
    for component in key:
        if not isinstance(component, str):
            kind = type(component).__name__
            raise InvalidKeyError(f"a storage key is made of texts; this is a {kind}, so try its .id", key=[])
        if not is_plain(component):
            raise InvalidKeyError(f"{component!r} cannot be part of a storage key", key=list(key))
    if not key:
        raise InvalidKeyError("a storage key cannot be empty", key=[])
    return key


def is_plain(component: str) -> bool:
    """Return whether a name can be a component of a key."""
    return _PLAIN.fullmatch(component) is not None


def project(project_id: str) -> Key:
    """Return the key of a project."""
    return ("project", project_id)


def session(project_id: str, session_id: str) -> Key:
    """Return the key of a session."""
    return ("session", project_id, session_id)


def message(session_id: str, message_id: str) -> Key:
    """Return the key of a message."""
    return ("message", session_id, message_id)


def part(message_id: str, part_id: str) -> Key:
    """Return the key of a part."""
    return ("part", message_id, part_id)


def made_part(message_id: str, number: int) -> str:
    """Return the id of a part that is derived from numbered content of a message of OpenCode 2.x."""
    return f"{_made_of(message_id)}{number:05d}"


def is_made_part(part_id: str, message_id: str) -> bool:
    """Return whether a part's id is a derived one."""
    return part_id.startswith(_made_of(message_id))


def _made_of(message_id: str) -> str:
    return f"prt_{message_id.removeprefix('msg_')}-"


def diff(session_id: str) -> Key:
    """Return the key of the list of files that a session changed."""
    return ("session_diff", session_id)


def todo(session_id: str) -> Key:
    """Return the key of the agent's todo list."""
    return ("todo", session_id)


def share(session_id: str) -> Key:
    """Return the key of a share, which has its secret."""
    return ("session_share", session_id)
