"""Marks of sessions that were imported, on this machine: what they record may have happened elsewhere."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from . import paths
from .disk import Disk
from .keys import check_key
from .paths import digest
from .protocol import store_ids

if TYPE_CHECKING:
    from .protocol import Store


def mark(store: Store, session_id: str) -> None:
    """Record that a session, or a part of it, was imported into ``store``."""
    disk = Disk(durable=False)
    path = _path(store_ids(store)[0], session_id)
    disk.make_folder(os.path.dirname(path))
    disk.replace(path, b"")


def is_marked(store: Store, session_id: str) -> bool:
    """Return whether a session was imported."""
    return any(os.path.exists(_path(store_id, session_id)) for store_id in store_ids(store))


def _path(store_id: str, session_id: str) -> str:
    return os.path.join(paths.state(), "imported", digest(store_id), *check_key((session_id,)))
