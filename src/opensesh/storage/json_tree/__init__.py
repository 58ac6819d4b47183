"""The JSON tree of OpenCode 1.1 and before: one file a record."""

from __future__ import annotations

from .store import JsonTree

__all__ = ["JsonTree"]
