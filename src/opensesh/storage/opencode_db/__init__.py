"""The SQLite database of OpenCode 1.2 and later. It is only read."""

from __future__ import annotations

from .store import OpencodeDB

__all__ = ["OpencodeDB"]
