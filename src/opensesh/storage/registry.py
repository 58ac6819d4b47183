"""Opening stores: a path, or a URL whose scheme a plugin package has registered.

A package registers a scheme with an entry point in the group ``opensesh.stores``::

    [project.entry-points."opensesh.stores"]
    postgres = "my_package.stores:open_postgres"

The entry point is called with the whole URL and returns a :class:`~opensesh.storage.protocol.Store`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..errors import StoreError
from ..loading import entry_points
from .locations import databases, default_place, find_stores, old_projects
from .protocol import ConditionallyWritable, FileTree, member_stores, unreadable

if TYPE_CHECKING:
    from .json_tree.store import JsonTree
    from .locations import StoreLocations
    from .opencode_db.store import OpencodeDB
    from .protocol import Report, Store

ENTRY_POINT_GROUP = "opensesh.stores"


def open_store(place: str | os.PathLike[str] | None = None, *, report: Report | None = None) -> Store:
    """Open the store at ``place``: a storage folder, an OpenCode data folder, a database file, or a URL.

    A data folder (the default is OpenCode's own) opens as everything that is in it: the JSON tree and every database.
    If one of these cannot be read, :class:`~opensesh.errors.StoreError` is raised, because a writer must not miss
    records. With ``report``, for readers, it is reported and left out, as long as another one can be opened.
    """
    place = os.fspath(place or default_place())
    if "://" in place:
        return _open_url(place)
    locations = find_stores(place)
    tree = open_tree(locations.tree or locations.path)
    old = _old_projects(locations, tree)
    if not locations.databases and not old:
        return tree
    from .opencode_db.store import OpencodeDB  # loads SQLite, which a folder without a database does not need

    if locations.tree is None:
        return OpencodeDB(locations.path)
    from .merged import MergedStore

    opened: list[OpencodeDB] = []
    failed: list[tuple[str, StoreError]] = []
    for path in locations.databases:
        try:
            opened.append(OpencodeDB(path))
        except StoreError as error:
            failed.append((path, error))
    if failed and not (opened or os.path.isdir(locations.tree)):
        raise failed[0][1]
    for path, error in failed:
        if report is None:
            raise StoreError(
                f"{error.message.removesuffix('.')}; to continue without it, use --store {locations.tree}", path=path
            )
        report(unreadable(path, error))
    # New sessions go to the first store: where the user's OpenCode will look for them. Where it keeps a database, it
    # does not look into the tree; the first database is that of the released program. If that one cannot be written,
    # the tree takes them.
    first = opened[:1] if opened and opened[0].writable else []
    return MergedStore(locations.path, [*first, tree, *opened[len(first) :], *old])


def new_sessions_place(store: Store) -> tuple[str, str]:
    """Return where the new sessions of a store go, and why; the place is empty if the store can only be read."""
    first, *others = member_stores(store)
    if isinstance(first, ConditionallyWritable):
        refusal = first.refusal
        return ("", f"{first.place} is only read: {refusal}") if refusal else (first.place, "OpenCode looks there")
    if not isinstance(first, FileTree):
        return first.place, "it was named"
    problem = _why_read_only(first)
    for other in others:
        if isinstance(other, ConditionallyWritable) and other.refusal:
            return "" if problem else first.place, f"{other.place} is only read: {other.refusal}"
    if problem:
        return "", f"{first.place} is only read: {problem}"
    beside = databases(os.path.dirname(first.place))
    if not beside:
        return first.place, "there is no database of OpenCode"
    return first.place, "it was named" if first is store else f"{beside[0]} cannot be opened"


def _why_read_only(tree: FileTree) -> str:
    """Return why a tree, which need not exist yet, must not or cannot be written; empty if it can be."""
    from .json_tree.migrations import LAYOUT, version

    if version(tree) > LAYOUT:
        return f"it has layout {version(tree)}, of a newer OpenCode"
    folder = tree.place
    while not os.path.exists(folder) and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
    return "" if os.access(folder, os.W_OK) else "the folder is read-only"


def _old_projects(locations: StoreLocations, tree: JsonTree) -> list[Store]:
    """Return the store of the projects of OpenCode before 0.6 in a data folder, if they are not migrated."""
    if locations.tree is None or locations.tree == locations.path or not old_projects(locations.path):
        return []
    from .json_tree.migrations import OldProjects, version

    return [] if version(tree) else [OldProjects(locations.path, tree)]


def open_tree(root: str) -> JsonTree:
    """Open the JSON tree at ``root``, which need not exist yet."""
    from .json_tree.store import JsonTree

    return JsonTree(root)


def _open_url(url: str) -> Store:
    scheme = url.partition("://")[0]
    registered = {entry_point.name: entry_point for entry_point in entry_points(ENTRY_POINT_GROUP)}
    if entry_point := registered.get(scheme):
        try:
            return entry_point.load()(url)
        except (ImportError, AttributeError) as error:
            message = f"the store for {scheme}:// URLs cannot be loaded from {entry_point.value}: {error}"
            raise StoreError(message, place=url) from error
    known = ", ".join(sorted(f"{name}://" for name in registered))
    raise StoreError(
        f"no store is registered for {scheme}:// URLs{f' (registered: {known})' if known else ''}; "
        "use a folder or an opencode.db file",
        place=url,
    )
