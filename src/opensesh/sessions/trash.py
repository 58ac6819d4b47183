"""Removing and putting away many sessions at once, with a look before and a way back.

What is removed goes to the trash under the state folder, one folder a time, and comes back with :func:`restore` as
it was, to the byte. Emptying the trash is what deletes. A share that its session took along is noted to be revoked
only then: until then the session may come back.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import ids
from ..errors import ReadOnlyStoreError, RecordError
from ..records import Session, Share, as_object, codec, dumps, view
from ..storage import paths, revocations
from ..storage.json_tree.store import JsonTree, read_file, tree_name
from ..storage.json_tree.undo import (
    FILES,
    UNDO_FILE,
    Change,
    Header,
    Undone,
    discard,
    files_changed,
    perform,
    read_undo_file,
    take_back,
    undo_files,
)
from ..storage.keys import PER_SESSION
from ..storage.leases import Leases
from ..storage.merged import MergedStore, store_paths
from ..storage.protocol import Damage

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from ..storage.protocol import Store

IN_DATABASE = "in a database of OpenCode's, which is never written here; do it in OpenCode"
"""Why a session was left alone that is not in the tree."""
_JOURNALS = ("reverts", "trash")
"""What the state folder has of a session, by store and session."""
_JOURNALS_KEPT = "beside"
"""Where they are kept while the session is in the trash, in the folder of its undo file."""


class Bulk(NamedTuple):
    """What was done, or would be."""

    sessions: list[Session]
    files: int
    bytes: int
    left: list[Damage]
    """Sessions that were left alone, and why."""
    undo: str = ""
    """The undo file; empty for a dry run, and when there was nothing to do."""


class Trashed(NamedTuple):
    """One folder in the trash."""

    undo: str
    header: Header

    @property
    def titles(self) -> dict[str, str]:
        """What it still holds: titles by session."""
        held = as_object(self.header.about.get("sessions")) or {}
        here = record_paths(JsonTree(os.path.join(os.path.dirname(self.undo), FILES)))
        return {name: str(title) for name, title in held.items() if name in here}


def writable_tree(store: Store) -> JsonTree:
    """The JSON tree that a store writes to; sessions of a database are never removed from here."""
    for each in store.members if isinstance(store, MergedStore) else (store,):
        if isinstance(each, JsonTree):
            return each
    raise ReadOnlyStoreError(
        f"{store.place} is only read, as every database of OpenCode's; name a folder with --store", place=store.place
    )


def remove(store: Store, sessions: Sequence[Session], *, dry_run: bool = False) -> Bulk:
    """Move sessions, with everything below them and all they hold, to the trash."""
    tree = writable_tree(store)
    filed = record_paths(tree)
    chosen, left = free(tree, with_children(store, sessions), filed)
    files = [path for each in chosen for path in (*session_files(tree, each.id), *filed[each.id])]
    size = sum(os.lstat(os.path.join(tree.root, path)).st_size for path in files)
    if dry_run:
        return Bulk(chosen, len(files), size, left)
    changes = [Change(path=path, aside=True) for path in files]
    about = {"sessions": {each.id: each.title for each in chosen}}
    undo = perform(tree, "remove", changes, about)
    for each in chosen:
        _take_along(tree, each.id, os.path.dirname(undo))
    return Bulk(chosen, len(files), size, left, undo)


def archive(store: Store, sessions: Sequence[Session], *, dry_run: bool = False) -> Bulk:
    """Put sessions away, out of the lists; those that are put away already are left as they are."""
    tree = writable_tree(store)
    filed = record_paths(tree)
    chosen, left = free(tree, [each for each in sessions if not each.archived], filed)
    changes: list[Change] = []
    for path in (path for session in chosen for path in filed[session.id]):
        document = codec.loads_object(read_file(os.path.join(tree.root, path)), path)
        document["time"] = (as_object(document.get("time")) or {}) | {"archived": ids.now_ms()}
        changes.append(Change(path=path, data=dumps(document)))
    return change_records(tree, "archive", chosen, left, changes, dry_run=dry_run)


def change_records(
    tree: JsonTree, what: str, sessions: list[Session], left: list[Damage], changes: list[Change], *, dry_run: bool
) -> Bulk:
    """Make changes to the records of sessions, unless it is a dry run; what that comes to."""
    size = sum(len(change.data or b"") for change in changes)
    about = {"sessions": {each.id: each.title for each in sessions}}
    undo = "" if dry_run else perform(tree, what, changes, about)
    return Bulk(sessions, files_changed(changes), size, left, undo)


def contents(store: Store | None = None) -> list[Trashed]:
    """What is in the trash, oldest first: what was removed from a store, or from any."""
    return [Trashed(path, header) for path, header in _undo_files("remove", store)]


def changes_made(store: Store) -> list[str]:
    """The undo files of what was removed, archived or moved in a store and is not undone, the newest first."""
    every = [each for what in ("remove", "archive", "move") for each in _undo_files(what, store)]
    return [path for path, _ in sorted(every, key=lambda each: each[1].time, reverse=True)]


def restore(undo: str, session: str = "") -> Undone:
    """Bring back what an undo file tells of; of what was removed, ``session`` alone if it is given."""
    folder = os.path.dirname(os.path.join(undo, "") if os.path.isdir(undo) else undo)
    for name in [session] if session else _names_in(os.path.join(folder, _JOURNALS_KEPT)):
        _bring_along(folder, name)
    if not session:
        return take_back(undo)
    kept = JsonTree(os.path.join(folder, FILES))
    return take_back(undo, {*record_paths(kept)[session], *session_files(kept, session)})


def empty(store: Store, before: int | None = None) -> list[Trashed]:
    """Delete what was removed from a store for good, or what was before a moment; what that was."""
    gone = [each for each in contents(store) if before is None or each.header.time < before]
    for each in gone:
        folder = os.path.dirname(each.undo)
        for session, share in _shares(os.path.join(folder, FILES)):
            revocations.note(session, share, store=each.header.root, why="removed")
        discard(folder)
    return gone


def shares() -> dict[str, tuple[Share, str]]:
    """The shares of sessions in the trash, which still stand: by session, the live one of each, and its tree."""
    folders = [(os.path.join(os.path.dirname(each.undo), FILES), each.header.root) for each in contents()]
    found = [(session, (share, root)) for folder, root in folders for session, share in _shares(folder)]
    return {session: held for session, held in found[::-1] if held[0].secret}


def _undo_files(what: str, store: Store | None) -> list[tuple[str, Header]]:
    every = undo_files(what)
    if store is None:
        return list(every)
    known = store_paths(store)
    return [(path, header) for path, header in every if os.path.realpath(header.root) in known]


def _take_along(tree: JsonTree, session: str, folder: str) -> None:
    """Move what we keep of a session beside the tree to where the session went: its revert, what was taken out."""
    for kind in _JOURNALS:
        place = os.path.join(paths.state(), kind, tree_name(tree.root), session)
        if os.path.isdir(place):
            aside = os.path.join(folder, _JOURNALS_KEPT, session, kind)
            os.makedirs(os.path.dirname(aside), mode=0o700, exist_ok=True)
            shutil.move(place, aside)


def _bring_along(folder: str, session: str) -> None:
    """Move it back to where it was, unless something new is there."""
    header, _ = read_undo_file(os.path.join(folder, UNDO_FILE))
    for kind in _JOURNALS:
        aside = os.path.join(folder, _JOURNALS_KEPT, session, kind)
        place = os.path.join(paths.state(), kind, tree_name(header.root), session)
        if os.path.isdir(aside) and not os.path.exists(place):
            os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
            shutil.move(aside, place)


def _names_in(folder: str) -> list[str]:
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def session_files(tree: JsonTree, session: str) -> Iterator[str]:
    """Every file that belongs to a session but its own record, by its path below the root."""
    messages = os.path.join("message", session)
    for name in _names(tree, messages):
        if name.endswith(".json"):
            parts = os.path.join("part", name[:-5])
            yield from (os.path.join(parts, each) for each in _names(tree, parts))
        yield os.path.join(messages, name)
    for kind in PER_SESSION:
        path = os.path.join(kind, f"{session}.json")
        if os.path.lexists(os.path.join(tree.root, path)):
            yield path


def record_paths(tree: JsonTree) -> dict[str, list[str]]:
    """Where the record of each session in the tree is, below the root. A session that is filed under two projects, as
    a move leaves it that was cut short, has two."""
    found: dict[str, list[str]] = {}
    for key in tree.list(("session",)):
        found.setdefault(key[-1], []).append(os.path.relpath(tree.locate(key), tree.root))
    return found


def _names(tree: JsonTree, folder: str) -> list[str]:
    try:
        return sorted(os.listdir(os.path.join(tree.root, folder)))
    except (FileNotFoundError, NotADirectoryError):
        return []


def with_children(store: Store, sessions: Iterable[Session]) -> list[Session]:
    """Sessions, and all below them."""
    below: dict[str, list[Session]] = {}
    for _, value in store.scan(("session",), report=_overlook):
        try:
            session = view(value, Session)
        except RecordError:
            continue
        if session.parent_id:
            below.setdefault(session.parent_id, []).append(session)
    found: dict[str, Session] = {}
    waiting = list(sessions)[::-1]
    while waiting:
        session = waiting.pop()
        if session.id not in found:
            found[session.id] = session
            waiting += below.get(session.id, [])
    return list(found.values())


def free(tree: JsonTree, sessions: Iterable[Session], filed: Container[str]) -> tuple[list[Session], list[Damage]]:
    """Those that are in the tree and that nobody runs; and the others, with the reason."""
    leases = Leases(tree)
    chosen: list[Session] = []
    left: list[Damage] = []
    for session in sessions:
        holder = leases.holder(session.id)
        if session.id not in filed:
            left.append(Damage(session.id, IN_DATABASE))
        elif holder is not None:
            left.append(Damage(session.id, f"being run by {holder}"))
        else:
            chosen.append(session)
    return chosen, left


def _shares(folder: str) -> Iterator[tuple[str, Share]]:
    for kind in ("session_share", "share"):
        above = os.path.join(folder, kind)
        for name in sorted(os.listdir(above)) if os.path.isdir(above) else ():
            path = os.path.join(above, name)
            try:
                value: Any = codec.loads_object(read_file(path), path)
                yield name.removesuffix(".json"), view(value, Share, path)
            except (OSError, RecordError):
                continue


def _overlook(_: Damage) -> None:
    """A session that cannot be read has no children that can be told."""
