"""Where records are kept. :func:`open_store` turns what a user typed into a :class:`Store`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..errors import StoreError
from . import paths
from .store import Damage, Key, Store, StoredMessage, log_damage

if TYPE_CHECKING:
    from .json_tree import JsonTree

__all__ = ["Damage", "Key", "Store", "StoredMessage", "log_damage", "open_store", "open_tree"]

_TREE_FOLDERS = ("project", "session", "message", "part", "migration")


def open_store(place: str | None = None) -> Store:
    """The store at ``place``: a storage folder, an OpenCode data folder, or a database file.

    A data folder (the default is OpenCode's own) opens as everything found in it: the JSON tree and every database.
    """
    place = place or os.environ.get("OPENSESH_STORE") or paths.data()
    if "://" in place:
        scheme = place.partition("://")[0]
        raise StoreError(f"there is no store for {scheme}:// addresses; give a folder or an opencode.db", place=place)
    place = os.path.abspath(os.path.expanduser(place))
    if os.path.isfile(place):
        from .opencode_db import OpencodeDB

        return OpencodeDB(place)
    if _is_tree(place):
        return open_tree(place)
    return _open_data_folder(place)


def open_tree(root: str) -> JsonTree:
    """The JSON tree at ``root``, which need not exist yet."""
    from .json_tree import JsonTree

    return JsonTree(root)


def _is_tree(place: str) -> bool:
    if os.path.isdir(os.path.join(place, "storage")):
        return False
    return any(os.path.exists(os.path.join(place, name)) for name in _TREE_FOLDERS)


def _open_data_folder(place: str) -> Store:
    tree = open_tree(os.path.join(place, "storage"))
    databases = _databases(place)
    if not databases:
        return tree
    from .opencode_db import OpencodeDB
    from .union import Union

    return Union(place, [tree, *(OpencodeDB(path) for path in databases)])


def _databases(place: str) -> list[str]:
    """Looked for by name first, so that a folder without any never loads SQLite."""
    try:
        found = any(name.startswith("opencode") and name.endswith(".db") for name in os.listdir(place))
    except OSError:
        found = False
    if not found and "OPENCODE_DB" not in os.environ:
        return []
    from .opencode_db import databases

    return databases(place)
