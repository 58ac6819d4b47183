"""Where records are kept. :func:`open_store` turns what a user typed into a :class:`Store`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .found import find_stores
from .store import Damage, Key, Store, StoredMessage, log_damage

if TYPE_CHECKING:
    from .json_tree import JsonTree

__all__ = ["Damage", "Key", "Store", "StoredMessage", "find_stores", "log_damage", "open_store", "open_tree"]


def open_store(place: str | None = None) -> Store:
    """The store at ``place``: a storage folder, an OpenCode data folder, or a database file.

    A data folder (the default is OpenCode's own) opens as everything found in it: the JSON tree and every database.
    """
    found = find_stores(place)
    if not found.databases:
        return open_tree(found.tree or found.place)
    from .opencode_db import OpencodeDB  # only here: a folder without a database never loads SQLite

    if found.tree is None:
        return OpencodeDB(found.place)
    from .union import Union

    return Union(found.place, [open_tree(found.tree), *(OpencodeDB(path) for path in found.databases)])


def open_tree(root: str) -> JsonTree:
    """The JSON tree at ``root``, which need not exist yet."""
    from .json_tree import JsonTree

    return JsonTree(root)
