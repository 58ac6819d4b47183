"""Removing and archiving many sessions at once, with a dry run and an undo.

Removed sessions go to the trash below the state folder, one folder an operation, and :func:`restore` brings them back
byte for byte. Emptying the trash deletes them. The share of a removed session is recorded for revocation only then:
until then the session may be restored.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, NamedTuple

from .. import ids
from ..errors import ReadOnlyStoreError, RecordError
from ..records import Session, Share, codec, dumps, object_at, view
from ..storage import revocations
from ..storage.disk import names_in, read_file
from ..storage.families import children_by_parent, descendants
from ..storage.json_tree.store import JsonTree
from ..storage.leases import leases_of
from ..storage.protocol import ConditionallyWritable, Damage, FileTree, ignore_damage, member_stores, store_ids
from ..storage.record_ids import session_at, views_of
from ..storage.session_state import KINDS, store_folder
from .record_files import record_files, record_path
from .undo import (
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
    undo_note,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

    from ..storage.protocol import Store

    Plan = Callable[[Store, Mapping[str, Sequence[str]], Sequence[Session]], list[Change]]
    """Returns the changes to one store, from the paths of its sessions' records and the sessions to change."""

IN_DATABASE = "in a database that is only read"
"""How the reason begins if a session cannot be changed because of its store."""
_STATE_KEPT = "beside"
"""The subfolder of a trash folder that the state of a session (:mod:`~opensesh.storage.session_state`) is moved to."""


class Bulk(NamedTuple):
    """The result of an operation on many sessions, or of its dry run."""

    sessions: list[Session]
    files: int
    bytes: int
    left: list[Damage]
    """Sessions that were skipped, and why."""
    undo: str = ""
    """The undo file of the first store that was changed; empty for a dry run, and if nothing was done."""


class Trashed(NamedTuple):
    """A removal in the trash: one folder for each store that had the sessions."""

    files: tuple[tuple[str, Header], ...]
    """The undo files, with their headers."""

    @property
    def undo(self) -> str:
        """The undo file of the first store."""
        return self.files[0][0]

    @property
    def time(self) -> int:
        """When it began, in milliseconds."""
        return self.files[0][1].time

    @property
    def titles(self) -> dict[str, str]:
        """The titles of the sessions that are still in it, by id."""
        titles: dict[str, str] = {}
        for path, header in self.files:
            present = record_paths(JsonTree(os.path.join(os.path.dirname(path), FILES)))
            known = object_at(header.about, "sessions")
            titles |= {name: str(title) for name, title in known.items() if name in present}
        return titles


def writable_store(store: Store) -> Store:
    """Return the store that a store writes to: itself, or its first writable member."""
    for member in member_stores(store):
        if member.writable:
            return member
    refusals = [member.refusal for member in member_stores(store) if isinstance(member, ConditionallyWritable)]
    reason = f": {refusals[0]}" if refusals else ""
    raise ReadOnlyStoreError(f"{store.place} is read-only{reason}; name a folder with --store", place=store.place)


def writable_tree(store: Store) -> FileTree:
    """Return the writable JSON tree of a store, for maintenance that works on files."""
    for member in member_stores(store):
        if isinstance(member, FileTree) and member.writable:
            return member
    raise ReadOnlyStoreError(f"{store.place} has no JSON tree; name a folder with --store", place=store.place)


def remove(store: Store, sessions: Sequence[Session], *, dry_run: bool = False) -> Bulk:
    """Move sessions, with their descendants and everything that belongs to them, to the trash.

    A session that is in several stores, as after an upgrade of OpenCode, is removed from each that can be written.
    """

    def plan(member: Store, filed: Mapping[str, Sequence[str]], chosen: Sequence[Session]) -> list[Change]:
        records = record_files(member)
        files = [path for session in chosen for path in (*records.session_paths(session.id), *filed[session.id])]
        return [Change(path=path, aside=True) for path in files]

    return change_members(store, "remove", with_descendants(store, sessions), plan, dry_run=dry_run)


def archive(store: Store, sessions: Sequence[Session], *, dry_run: bool = False) -> Bulk:
    """Archive sessions; those that are archived already stay as they are."""

    def plan(member: Store, filed: Mapping[str, Sequence[str]], chosen: Sequence[Session]) -> list[Change]:
        records = record_files(member)
        changes: list[Change] = []
        for path in (path for session in chosen for path in filed[session.id]):
            document = codec.loads_object(records.read(path), path)
            document["time"] = object_at(document, "time") | {"archived": ids.now_ms()}
            changes.append(Change(path=path, data=dumps(document)))
        return changes

    return change_members(
        store, "archive", [session for session in sessions if not session.archived], plan, dry_run=dry_run
    )


def change_members(store: Store, what: str, sessions: Sequence[Session], plan: Plan, *, dry_run: bool) -> Bulk:
    """Apply the planned changes to the records of sessions, in every writable store that has them."""
    writable_store(store)
    for member in member_stores(store):
        if isinstance(member, JsonTree) and not dry_run:
            member.prepare()
    members = [(member, record_paths(member)) for member in member_stores(store) if member.writable]
    chosen, skipped = available(store, sessions, {name for _, filed in members for name in filed})
    changed: dict[str, Session] = {}
    removed: list[tuple[str, str, str]] = []
    files, size, undo, operation = 0, 0, list[str](), os.urandom(8).hex()
    with undo_note() as note:
        for member, filed in members:
            own = [session for session in chosen if session.id in filed]
            changes = plan(member, filed, own)
            records = record_files(member)
            # A session counts as changed if a file that is named after it is: most others are named after messages.
            names = {os.path.basename(path).removesuffix(".json") for change in changes for path in (change.path,)}
            touched = [session for session in own if session.id in names]
            changed |= {session.id: session for session in touched}
            files += files_changed(changes)
            size += sum(records.size(change.path) if change.aside else len(change.data or b"") for change in changes)
            if changes and not dry_run:
                titles = {session.id: session.title for session in touched}
                undo.append(perform(member, what, changes, {"sessions": titles}, note=note, operation=operation))
                if what == "remove":
                    removed += [(os.path.dirname(undo[-1]), session.id, member.id) for session in touched]
    # When nothing can undo the removal any more, because that leaves them where they are.
    for folder, session_id, store_id in removed:
        for own_id in dict.fromkeys((store_id, *store_ids(store))):
            _move_state(folder, session_id, own_id, back=False)
    result = [session for session in chosen if session.id in changed]
    return Bulk(result, files, size, skipped, undo[0] if undo else "")


def contents(store: Store | None = None) -> list[Trashed]:
    """Return what is in the trash, oldest first: what was removed from a store, or from any."""
    removals: dict[str, list[tuple[str, Header]]] = {}
    for path, header in undo_files_of("remove", store):
        removals.setdefault(header.operation or path, []).append((path, header))
    return [Trashed(tuple(files)) for files in removals.values()]


def changes_made(store: Store) -> list[str]:
    """Return the undo files of removals, archivings and moves in a store that are not undone, newest first."""
    files = [file for what in ("remove", "archive", "move") for file in undo_files_of(what, store)]
    return [path for path, _ in sorted(files, key=lambda file: file[1].time, reverse=True)]


def restore(undo: str, session: str = "", *, store: Store | None = None) -> Undone:
    """Undo an operation in every store that it changed; of a removal, only those changes that concern ``session`` and
    its descendants if it is given.

    ``undo`` is one of the undo files of the operation, or its folder. ``store`` is needed for a store that cannot be
    opened by its id, such as one in memory.
    """
    undo = os.path.join(undo, UNDO_FILE) if os.path.isdir(undo) else undo
    header, _ = read_undo_file(undo)
    files = [(undo, header)]
    if header.operation:
        files = [file for file in undo_files(header.what) if file[1].operation == header.operation] or files
    trees = [JsonTree(os.path.join(os.path.dirname(path), FILES)) for path, _ in files]
    names: list[str] = []
    if session:
        parents = {child.id: child.parent_id for tree in trees for child in _families(tree)[0].values()}
        children = children_by_parent(parents.items())
        names = [session, *descendants(session, children)]
    result = Undone()
    for (path, changed), tree in zip(files, trees, strict=True):
        filed, records = record_paths(tree), record_files(tree)
        only = {path for name in names if name in filed for path in (*filed[name], *records.session_paths(name))}
        if session and not only:
            continue
        _restore_state(os.path.dirname(path), changed.root, names)
        undone = take_back(path, only, store=store)
        result.restored += undone.restored
        result.left += undone.left
    return result


def _restore_state(folder: str, root: str, names: Sequence[str]) -> None:
    """Move back what the state folder had of these sessions, or of all if none are named."""
    kept = os.path.join(folder, _STATE_KEPT)
    store_id = os.path.realpath(root) if os.path.isabs(root) else root
    for name in names or names_in(kept):
        _move_state(folder, name, store_id, back=True)


def empty(store: Store, before: int | None = None) -> list[Trashed]:
    """Delete for good what was removed from a store, all of it or before that time, and return what it was."""
    deleted = [trashed for trashed in contents(store) if before is None or trashed.time < before]
    for undo, header in (file for trashed in deleted for file in trashed.files):
        folder = os.path.dirname(undo)
        for session, share in _shares(os.path.join(folder, FILES)):
            revocations.note(session, share, store=header.root, why="removed")
        discard(folder)
    return deleted


def shares() -> dict[str, tuple[Share, str]]:
    """Return the shares of sessions in the trash, which are still online, and their stores, by session."""
    shares_by_session: dict[str, tuple[Share, str]] = {}
    for undo, header in reversed(undo_files_of("remove", None)):
        for session, share in reversed(list(_shares(os.path.join(os.path.dirname(undo), FILES)))):
            if share.secret:
                shares_by_session[session] = (share, header.root)
    return shares_by_session


def record_paths(store: Store) -> dict[str, list[str]]:
    """Return the paths of each session's records.

    A session that is filed under two projects, as an interrupted move leaves it, has two.
    """
    paths_by_session: dict[str, list[str]] = {}
    for key in store.list(("session",)):
        paths_by_session.setdefault(key[-1], []).append(record_path(key))
    return paths_by_session


def with_descendants(store: Store, sessions: Iterable[Session]) -> list[Session]:
    """Return sessions and all their descendants."""
    known, children = _families(store)
    family: dict[str, Session] = {}
    for session in sessions:
        family.setdefault(session.id, session)
        for name in descendants(session.id, children):
            family.setdefault(name, known[name])
    return list(family.values())


def _families(store: Store) -> tuple[dict[str, Session], dict[str, list[str]]]:
    """Return the sessions of a store by id, and the ids of each one's children, oldest first."""
    records = store.scan(("session",), report=ignore_damage)
    known = {session.id: session for _, session in views_of(store, records, session_at, ignore_damage)}
    # The newest identifier is the first in the order of keys.
    oldest_first = reversed(known.values())
    return known, children_by_parent((session.id, session.parent_id) for session in oldest_first)


def available(store: Store, sessions: Iterable[Session], filed: Container[str]) -> tuple[list[Session], list[Damage]]:
    """Separate the sessions that are in the store and not running from the others, with the reason."""
    leases = leases_of(store)
    chosen: list[Session] = []
    skipped: list[Damage] = []
    for session in sessions:
        holder = leases.holder(session.id)
        if session.id not in filed:
            refusals = (member.refusal for member in member_stores(store) if isinstance(member, ConditionallyWritable))
            reason = "; ".join(filter(None, refusals))
            skipped.append(Damage(session.id, f"{IN_DATABASE}: {reason}" if reason else IN_DATABASE))
        elif holder is not None:
            skipped.append(Damage(session.id, f"being run by {holder}"))
        else:
            chosen.append(session)
    return chosen, skipped


def undo_files_of(what: str, store: Store | None) -> list[tuple[str, Header]]:
    """Return the undo files of one kind of change (:attr:`Header.what`) to a store, or to any, oldest first."""
    known = store_ids(store) if store is not None else None
    files = [
        (path, header)
        for path, header in undo_files(what)
        if known is None or header.root in known or os.path.realpath(header.root) in known
    ]
    return sorted(files, key=lambda file: file[1].time)  # the names of their folders differ by the second only


def _move_state(folder: str, session: str, store_id: str, *, back: bool) -> None:
    """Move what the state folder has of a session to the trash folder, or back unless something new is there."""
    for kind in KINDS:
        path = os.path.join(store_folder(kind, store_id), session)
        kept = os.path.join(folder, _STATE_KEPT, session, kind)
        source, target = (kept, path) if back else (path, kept)
        if os.path.exists(source) and not os.path.exists(target):
            os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
            shutil.move(source, target)


def _shares(folder: str) -> Iterator[tuple[str, Share]]:
    for kind in ("session_share", "share"):
        parent = os.path.join(folder, kind)
        for name in names_in(parent):
            path = os.path.join(parent, name)
            try:
                yield name.removesuffix(".json"), view(codec.loads_object(read_file(path), path), Share, path)
            except (OSError, RecordError):
                continue
