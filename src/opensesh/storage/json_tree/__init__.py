"""The JSON tree of OpenCode 1.1 and before: one file a record."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .store import JsonTree

__all__ = ["JsonTree"]


def __getattr__(name: str) -> type[JsonTree]:
    # A warm search or statistics uses the change feed alone; the store and its codec take 35 ms to import.
    if name != "JsonTree":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .store import JsonTree

    return JsonTree
