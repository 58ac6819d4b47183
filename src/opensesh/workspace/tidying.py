"""Deletes what sessions no longer refer to: snapshots, kept contents, journals of deleted sessions.

Nothing that a session refers to is deleted, nor what a session in the trash refers to, because it may be restored.
What is deleted has been unreferenced for a week. Runs in the background at most once a day, or on request.

Every snapshot that we take is pinned, so that OpenCode's hourly cleanup does not delete it while a session may still
be reverted to it. Pins that no session refers to end after a week; git then deletes what nothing else needs.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from ..errors import OpenseshError, SnapshotError
from ..project import ProjectLocation
from ..records import as_object, object_at
from ..storage import paths
from ..storage.disk import names_in, read_or_empty
from ..storage.json_tree.store import JsonTree
from ..storage.protocol import ignore_damage, read_or_none
from ..storage.session_state import KINDS, remove_path, store_folders
from .diffs import snapshots_in
from .git import split
from .originals import Originals, contents_in
from .repository import PINS, Repository, data_folder
from .revert_journal import RevertTrash

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ..records import Document
    from ..sessions import Sessions
    from ..storage.protocol import Store, StoredMessage

log = logging.getLogger("opensesh.workspace")
KEEP_DAYS = 7
_DAY_SECONDS = 86_400
_HOUR_SECONDS = 3_600
_MIN_PACKED_OBJECTS = 200


class DiskUse(NamedTuple):
    """Bytes used besides the sessions themselves."""

    snapshots: int
    kept: int
    """Contents that tools overwrote."""
    journals: int
    """Reverts in effect, and messages that committed reverts and undone compactions removed."""


class TidyResult(NamedTuple):
    """What :func:`tidy_store` deleted."""

    before: DiskUse
    after: DiskUse
    snapshots: int
    """How many snapshots were unpinned."""
    notes: tuple[str, ...] = ()
    """Why not more could be deleted."""


class _References(NamedTuple):
    """What sessions refer to."""

    sessions: set[str]
    snapshots: set[str]
    contents: set[str]

    def add(self, revert: Document, messages: Sequence[StoredMessage]) -> None:
        self.snapshots.update(snapshots_in(revert, messages))
        self.contents.update(contents_in(part for message in messages for part in message.parts))


def disk_use(store: Store) -> DiskUse:
    """Return the bytes in use now."""
    journals = sum(folder_size(folder) for kind in KINDS for folder in store_folders(kind, store))
    snapshots = folder_size(os.path.join(data_folder(store), "snapshot"))
    return DiskUse(snapshots, Originals(store).size(), journals)


def folder_size(folder: str) -> int:
    """Return the bytes of all files below a folder."""
    total = 0
    for base, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(base, name)).st_size
            except OSError:
                continue
    return total


def tidy_store(sessions: Sessions, *, project: str | None = None, days: int = KEEP_DAYS) -> TidyResult:
    """Delete what is unreferenced, of one project's snapshots or of all."""
    store = sessions.store
    before = disk_use(store)
    references = _references(sessions)
    dropped, notes = 0, list[str]()
    data = data_folder(store)
    for name in names_in(os.path.join(data, "snapshot")):
        folder = os.path.join(data, "snapshot", name)
        # Since OpenCode 1.3.3 each worktree has a store below that of the project.
        for path in (folder, *(os.path.join(folder, worktree) for worktree in names_in(folder))):
            if project not in (None, name) or not os.path.exists(os.path.join(path, "HEAD")):
                continue
            repository = Repository(ProjectLocation(path, name, path, path, "git"), data=data)
            repository.store = path
            unpinned, note = tidy_snapshots(repository, references.snapshots, days=days)
            dropped += unpinned
            notes += [note] if note else []
    Originals(store).drop(references.contents, days=days)
    _drop_journals(store, references.sessions, days)
    return TidyResult(before, disk_use(store), dropped, tuple(notes))


def tidy_in_background(sessions: Sessions) -> threading.Thread | None:
    """Tidy this project in a daemon thread, at most once a day; returns the thread, if one was started.

    Returns at once. If the process ends first, the rest is done another day.
    """
    stamp = os.path.join(paths.state(), "tidied", sessions.location.id)
    try:
        is_due = time.time() - os.stat(stamp).st_mtime > _DAY_SECONDS
    except FileNotFoundError:
        is_due = None  # the first time, when nothing can be a week old
    if is_due is False:
        return None
    try:
        # Stamped before the work begins, so that other processes do not start it too.
        os.makedirs(os.path.dirname(stamp), mode=0o700, exist_ok=True)
        with open(stamp, "ab"):
            os.utime(stamp)
    except OSError:
        return None
    if is_due is None:
        return None

    def run() -> None:
        try:
            done = tidy_store(sessions, project=sessions.location.id)
            log.info("tidied: %d snapshots dropped, %d bytes before, %d after", done.snapshots, *map(sum, done[:2]))
        except (OpenseshError, OSError) as error:
            log.info("not tidied: %s", error)

    thread = threading.Thread(target=run, name="opensesh-tidying", daemon=True)
    thread.start()
    return thread


def tidy_snapshots(
    repository: Repository, referenced: Collection[str], *, days: int = KEEP_DAYS
) -> tuple[int, str | None]:
    """Delete snapshots older than ``days`` that are not ``referenced``.

    Returns how many were unpinned and, if not more could be deleted, the reason. Git needs the space twice while it
    repacks; where the disk does not have it, only loose objects are deleted.
    """
    if not os.path.isdir(repository.store):
        return 0, None
    alternates = os.path.join(repository.store, "objects", "info", "alternates")
    with repository.locks.hold("store"):
        lines = read_or_empty(alternates).splitlines(keepends=True)
        existing = [line for line in lines if os.path.isdir(line.rstrip(b"\n"))]
        if existing != lines:
            repository.disk.replace(alternates, b"".join(existing))
    oldest = int(time.time()) // _DAY_SECONDS - days
    expired = [ref for ref, day, tree in _pins(repository) if day <= oldest and tree not in referenced]
    _unpin(repository, expired)
    _drop_temporary_packs(repository)
    return len(expired), _collect_garbage(repository, days)


def _collect_garbage(repository: Repository, days: int) -> str | None:
    git = repository.store_git(timeout_seconds=_HOUR_SECONDS)
    counts = repository.counts()
    prune = ("prune", f"--expire={days}.days.ago")
    # The index of a pack, and the files that git writes beside it, take more than a few loose objects.
    is_small = not counts["packs"] and counts["count"] < _MIN_PACKED_OBJECTS
    collect = prune if is_small else ("gc", "--quiet", f"--prune={days}.days.ago")
    if shutil.disk_usage(repository.store).free < 2 * repository.size():
        git.run(*prune)
        return "the disk is too full to repack the snapshots; only loose objects were deleted"
    try:
        git.run(*collect)
    except SnapshotError as error:
        # A pinned snapshot with objects that the user's repository has deleted makes git fail altogether.
        broken = [ref for ref, _, tree in _pins(repository) if not _is_complete(repository, tree)]
        if not broken:
            return str(error)
        _unpin(repository, broken)
        git.run(*collect)
        return f"{len(broken)} snapshots are no longer complete: the user's repository has deleted files of theirs"
    return None


def _pins(repository: Repository) -> list[tuple[str, int, str]]:
    """Return each pin with its day and its snapshot."""
    names = split(repository.store_git().run("for-each-ref", "--format=%(refname)%00", PINS))
    refs = [name.strip() for name in names]
    return [(ref, int(ref.split("/")[2]), ref.split("/")[3]) for ref in refs]


def _is_complete(repository: Repository, tree: str) -> bool:
    try:
        repository.store_git().run("rev-list", "--objects", "--quiet", tree)
    except SnapshotError:
        return False
    return True


def _unpin(repository: Repository, refs: list[str]) -> None:
    if refs:
        commands = "".join(f"delete {ref}\n" for ref in refs)
        repository.store_git().run("update-ref", "--stdin", stdin=commands.encode())


def _drop_temporary_packs(repository: Repository) -> None:
    """Delete what an interrupted ``git gc`` left; after OpenCode's it can be large."""
    folder = os.path.join(repository.store, "objects", "pack")
    for name in names_in(folder):
        path = os.path.join(folder, name)
        try:
            if name.startswith("tmp_") and time.time() - os.stat(path).st_mtime > _HOUR_SECONDS:
                os.unlink(path)
        except OSError as error:
            log.info("%s: %s", path, error.strerror)


def _references(sessions: Sessions) -> _References:
    references = _References(set(), set(), set())
    for trashed in RevertTrash(sessions).of_all_sessions():
        references.add(trashed.revert, trashed.messages)
    # Removed sessions that can be restored are stores too: one in each folder of the trash.
    trash = os.path.join(paths.state(), "trash")
    removed = [os.path.join(trash, name, "files") for name in names_in(trash)]
    stores: list[Store] = [sessions.store, *(JsonTree(folder) for folder in removed if os.path.isdir(folder))]
    for store in stores:
        keys = {key[-1]: key for key in store.list(("session",))}
        # A session whose record is damaged or missing may be repaired, so its messages count too.
        for session_id in keys.keys() | {key[1] for key in store.list(("message",))}:
            references.sessions.add(session_id)
            info = as_object(read_or_none(store, keys[session_id])) if session_id in keys else None
            references.add(object_at(info or {}, "revert"), store.messages(session_id, report=ignore_damage))
    return references


def _drop_journals(store: Store, session_ids: set[str], days: int) -> None:
    """Delete what was kept of sessions that no longer exist."""
    oldest = time.time() - days * _DAY_SECONDS
    for parent in (folder for kind in KINDS for folder in store_folders(kind, store)):
        for name in names_in(parent):
            path = os.path.join(parent, name)
            if name.startswith("ses") and name not in session_ids and os.stat(path).st_mtime < oldest:
                remove_path(path)
