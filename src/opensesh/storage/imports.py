"""Marks of sessions that were imported, on this machine: what they record may have happened elsewhere."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .disk import Disk
from .session_state import session_state

if TYPE_CHECKING:
    from .protocol import Store


def mark(store: Store, session_id: str) -> None:
    """Record that a session, or a part of it, was imported into ``store``."""
    disk = Disk(durable=False)
    path = session_state("imported", store, session_id)
    disk.make_folder(os.path.dirname(path))
    disk.replace(path, b"")


def is_marked(store: Store, session_id: str) -> bool:
    """Return whether a session was imported."""
    return os.path.exists(session_state("imported", store, session_id))
