"""Where records are kept. :func:`open_store` turns what a user typed into a :class:`Store`."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .json_tree import JsonTree
    from .locations import find_stores
    from .protocol import Damage, Key, Store, StoredMessage, log_damage

__all__ = ["Damage", "Key", "Store", "StoredMessage", "find_stores", "log_damage", "open_store", "open_tree"]

_STORE = ("Damage", "Key", "Store", "StoredMessage", "log_damage")


def __getattr__(name: str) -> Any:
    """Names of other modules, which are loaded when they are asked for: finding stores takes none of them."""
    if name == "find_stores":
        from . import locations as module
    elif name in _STORE:
        from . import protocol as module
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(module, name)
    return value


def open_store(place: str | None = None, *, report: Callable[[Damage], None] | None = None) -> Store:
    """The store at ``place``: a storage folder, an OpenCode data folder, or a database file.

    A data folder (the default is OpenCode's own) opens as everything found in it: the JSON tree and every database. One
    of these that cannot be read is a :class:`~opensesh.errors.StoreError`, for who writes must know what there is. Who
    reads gives ``report``, is told, and gets the others, if there are any.
    """
    from .locations import find_stores

    found = find_stores(place)
    if not found.databases:
        return open_tree(found.tree or found.place)
    from .opencode_db.store import OpencodeDB  # only here: a folder without a database never loads SQLite

    if found.tree is None:
        return OpencodeDB(found.place)
    from ..errors import StoreError
    from .merged import MergedStore
    from .protocol import unreadable

    opened: list[Store] = []
    failed: list[tuple[str, StoreError]] = []
    for path in found.databases:
        try:
            opened.append(OpencodeDB(path))
        except StoreError as error:
            failed.append((path, error))
    if failed and not (opened or os.path.isdir(found.tree)):
        raise failed[0][1]
    for path, error in failed:
        if report is None:
            raise StoreError(
                f"{error.message.removesuffix('.')}; to go on without it, say --store {found.tree}", path=path
            )
        report(unreadable(path, error))
    return MergedStore(found.place, [open_tree(found.tree), *opened])


def open_tree(root: str) -> JsonTree:
    """The JSON tree at ``root``, which need not exist yet."""
    from .json_tree import JsonTree

    return JsonTree(root)
