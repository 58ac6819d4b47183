"""Where the state folder keeps what opensesh knows of a session beside its store: ``<kind>/<store>/<session>``.

``<store>`` is the digest of a store's id. A data folder, its tree and its databases have an id each, so the id that a
session is reached by changes when OpenCode adds a database, or its tree is opened alone. Everything that keeps such
state therefore asks here, and finds what is there under any of these ids.
"""

from __future__ import annotations

import os
from shutil import rmtree
from typing import TYPE_CHECKING

from . import paths
from .disk import Disk
from .keys import check_key
from .protocol import store_ids

if TYPE_CHECKING:
    from .protocol import Store

KINDS = ("reverts", "trash", "undone_compactions", "removed_calls", "imported")
"""What belongs to a session and goes to the trash with it. ``imported`` is a file, the others are folders."""


def session_state(kind: str, store: Store, session_id: str) -> str:
    """Return the path of what a session has of a kind; if it has nothing, where that will be."""
    [name] = check_key((session_id,))
    candidates = [os.path.join(folder, name) for folder in searched_folders(kind, store)]
    return next(filter(os.path.exists, candidates), candidates[0])


def store_folder(kind: str, store_id: str) -> str:
    """Return the folder with what the sessions of a store have of a kind, under one of the store's ids."""
    return os.path.join(paths.state(), kind, paths.digest(store_id))


def store_folders(kind: str, store: Store) -> list[str]:
    """Return the folders of a kind that belong to a store alone: its own first, then those of its members."""
    return [store_folder(kind, store_id) for store_id in dict.fromkeys((store.id, *store_ids(store)))]


def searched_folders(kind: str, store: Store) -> list[str]:
    """Return these, and those of the data folders that the store may be a part of, which others may use too."""
    known = store_ids(store)
    data_folders = [os.path.dirname(store_id) for store_id in known if os.path.isabs(store_id)]
    return [store_folder(kind, store_id) for store_id in dict.fromkeys((store.id, *known, *data_folders))]


def remove_session_state(store: Store, session_id: str) -> None:
    """Delete everything that is kept of a session beside its store."""
    [name] = check_key((session_id,))
    for folder in (folder for kind in KINDS for folder in store_folders(kind, store)):
        remove_path(os.path.join(folder, name))


def remove_path(path: str) -> None:
    """Delete one file or folder of session state. What is not there or cannot be deleted is left."""
    if os.path.isdir(path):
        rmtree(path, ignore_errors=True)
    else:
        Disk(durable=False).discard(path)


def mark_imported(store: Store, session_id: str) -> None:
    """Record that a session, or a part of it, was imported here: what it tells may have happened elsewhere."""
    disk = Disk(durable=False)
    path = session_state("imported", store, session_id)
    disk.make_folder(os.path.dirname(path))
    disk.replace(path, b"")


def is_imported(store: Store, session_id: str) -> bool:
    """Return whether a session was imported."""
    return os.path.exists(session_state("imported", store, session_id))
