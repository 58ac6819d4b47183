"""The files that SQLite keeps beside a database."""

from __future__ import annotations

import os


def companion(path: str, ending: str) -> str:
    """Return the path of the ``-wal``, ``-shm`` or ``-journal`` file: beside the database that a link leads to."""
    return os.path.realpath(path) + ending
