"""The SQLite database of OpenCode 1.2 and later."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .store import OpencodeDB

__all__ = ["OpencodeDB"]


def __getattr__(name: str) -> type[OpencodeDB]:
    # As in json_tree: change feeds are used without the store.
    if name != "OpencodeDB":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .store import OpencodeDB

    return OpencodeDB
