"""Giving back the room of what no session can want any more: snapshots, contents put aside, journals of sessions gone.

Nothing that a session names goes, nor what one in the trash names: it may come back. What is dropped has lain unnamed
for a week. Runs in the background at most once a day, and whenever someone asks for it.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from ..errors import NotFoundError, OpenseshError, RecordError, SnapshotError
from ..project import GLOBAL, ProjectLocation
from ..records import as_object
from ..storage import paths
from ..storage.json_tree import JsonTree
from ..storage.paths import digest
from .git import split
from .originals import Originals, contents_in
from .repository import PINS, Repository, data_folder
from .summary import snapshots_in
from .trash import RevertTrash

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from ..records import Document
    from ..sessions import Sessions
    from ..storage.protocol import Key, Store, StoredMessage

log = logging.getLogger("opensesh.workspace")
KEEP_DAYS = 7
_DAY = 86_400


class DiskUse(NamedTuple):
    """The bytes that are taken beside the sessions themselves."""

    snapshots: int
    kept: int
    """What tools wrote over."""
    journals: int
    """Reverts that stand, and messages that were taken out."""


class TidyResult(NamedTuple):
    """What was given back."""

    before: DiskUse
    after: DiskUse
    snapshots: int
    """How many were let go."""
    notes: tuple[str, ...] = ()
    """Why no more could be done."""


def disk_use(store: Store, *, state: str | None = None) -> DiskUse:
    """What is taken now."""
    name = digest(store.id)
    state = state or paths.state()
    journals = sum(folder_size(os.path.join(state, kind, name)) for kind in ("reverts", "trash"))
    return DiskUse(
        folder_size(os.path.join(data_folder(store), "snapshot")), Originals(store, state=state).size(), journals
    )


def tidy_store(
    sessions: Sessions, *, project: str | None = None, state: str | None = None, days: int = KEEP_DAYS
) -> TidyResult:
    """Give back what can be, of one project's snapshots or of all."""
    store = sessions.store
    before = disk_use(store, state=state)
    named = _named(sessions, state)
    dropped, notes = 0, list[str]()
    for repository in _repositories(store, project, state):
        done = tidy_snapshots(repository, named.snapshots, days=days)
        dropped += done.dropped
        notes += [done.note] if done.note else []
    Originals(store, state=state).drop(named.contents, days=days)
    _drop_journals(store, named.sessions, state, days)
    return TidyResult(before, disk_use(store, state=state), dropped, tuple(notes))


def tidy_in_background(sessions: Sessions, *, state: str | None = None) -> threading.Thread | None:
    """See to it that this project is tidied once a day; the thread that does, if it is time.

    Returns at once. The thread ends with the process, and whatever it did not get to is done another day.
    """
    stamp = os.path.join(state or paths.state(), "tidied", sessions.location.id)
    try:
        is_time = time.time() - os.stat(stamp).st_mtime > _DAY
    except FileNotFoundError:
        is_time = None  # nothing can be a week old where nobody has been yet
    if is_time is False or not _stamped(stamp) or is_time is None:
        return None
    thread = threading.Thread(target=_quietly, args=(sessions, state), name="opensesh-tidying", daemon=True)
    thread.start()
    return thread


def _stamped(stamp: str) -> bool:
    """Say that it is seen to, for whoever comes next."""
    try:
        os.makedirs(os.path.dirname(stamp), mode=0o700, exist_ok=True)
        with open(stamp, "ab"):
            os.utime(stamp)
    except OSError:
        return False
    return True


def _quietly(sessions: Sessions, state: str | None) -> None:
    try:
        done = tidy_store(sessions, project=sessions.location.id, state=state)
        log.info("tidied up: %d snapshots let go, %d bytes before, %d after", done.snapshots, *map(sum, done[:2]))
    except (OpenseshError, OSError) as error:
        log.info("not tidied up: %s", error)


class _Named(NamedTuple):
    sessions: set[str]
    snapshots: set[str]
    contents: set[str]

    def note(self, revert: Document, messages: Sequence[StoredMessage]) -> None:
        self.snapshots.update(snapshots_in(revert, messages))
        self.contents.update(contents_in(part for message in messages for part in message.parts))


def _named(sessions: Sessions, state: str | None) -> _Named:
    """All that someone may still ask for."""
    named = _Named(set(), set(), set())
    for thrown in RevertTrash(sessions, state=state).everything():
        named.note(thrown.revert, thrown.messages)
    for store in (sessions.store, *_removed(state)):
        known = {key[-1]: key for key in store.list(("session",))}
        # A session whose record is damaged or gone may be mended yet; its messages are what it has done.
        for session_id in known.keys() | {key[1] for key in store.list(("message",))}:
            named.sessions.add(session_id)
            revert = _revert(store, known.get(session_id))
            named.note(revert, store.messages(session_id, report=lambda damage: None))
    return named


def _revert(store: Store, key: Key | None) -> Document:
    """What a session's record says of its revert, if there is a record that can be read."""
    try:
        info = as_object(store.read(key)) if key is not None else None
    except (NotFoundError, RecordError):
        return {}
    return as_object((info or {}).get("revert")) or {}


def _removed(state: str | None) -> Iterator[Store]:
    """Sessions that were removed and can be restored: each folder of the trash has a tree of them."""
    above = os.path.join(state or paths.state(), "trash")
    for name in sorted(os.listdir(above)) if os.path.isdir(above) else ():
        folder = os.path.join(above, name, "files")
        if os.path.isdir(folder):
            yield JsonTree(folder)


def _repositories(store: Store, project: str | None, state: str | None) -> Iterator[Repository]:
    data = data_folder(store)
    above = os.path.join(data, "snapshot")
    for name in sorted(os.listdir(above)) if os.path.isdir(above) else ():
        folder = os.path.join(above, name)
        if project in (None, name) and os.path.exists(os.path.join(folder, "HEAD")):
            yield Repository(ProjectLocation(folder, name or GLOBAL, folder, folder, "git"), data=data, state=state)


def _drop_journals(store: Store, known: set[str], state: str | None, days: int) -> None:
    """Those of sessions that are gone for good."""
    oldest = time.time() - days * _DAY
    for kind in ("reverts", "trash"):
        above = os.path.join(state or paths.state(), kind, digest(store.id))
        for name in os.listdir(above) if os.path.isdir(above) else ():
            folder = os.path.join(above, name)
            if name.startswith("ses") and name not in known and os.stat(folder).st_mtime < oldest:
                shutil.rmtree(folder, ignore_errors=True)


def folder_size(folder: str) -> int:
    """The bytes of all files below a folder."""
    total = 0
    for base, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(base, name)).st_size
            except OSError:
                continue
    return total


_HOUR = 3_600


class SnapshotTidyResult(NamedTuple):
    """What tidying up has done."""

    before: int
    """Bytes."""
    after: int
    dropped: int
    """How many snapshots were let go."""
    note: str | None = None
    """Why no more could be done, if so."""


def tidy_snapshots(repository: Repository, wanted: Collection[str], *, days: int = KEEP_DAYS) -> SnapshotTidyResult:
    """Let go of snapshots older than ``days`` that are not ``wanted``, and give back their room.

    Git needs the room twice while it packs anew; where the disk does not have it, only loose files are dropped.
    """
    if not os.path.isdir(repository.store):
        return SnapshotTidyResult(0, 0, 0)
    before = repository.size()
    with repository.locks.exclusive("store"):
        _forget_moved(repository)
    oldest = int(time.time()) // _DAY - days
    dropped = _unpin(repository, [ref for ref, day, tree in _pins(repository) if day <= oldest and tree not in wanted])
    _drop_leftovers(repository)
    note = _collect(repository, before, days)
    return SnapshotTidyResult(before, repository.size(), dropped, note)


def _collect(repository: Repository, size: int, days: int) -> str | None:
    git = repository.store_git(seconds=_HOUR)
    expiry = f"{days}.days.ago"
    if shutil.disk_usage(repository.store).free < 2 * size:
        git.run("prune", f"--expire={expiry}")
        return "the disk is too full to pack the snapshots; only loose files were dropped"
    try:
        git.run("gc", "--quiet", f"--prune={expiry}")
    except SnapshotError as error:
        # A pin whose files the user's own repository has dropped keeps git from tidying anything.
        broken = [ref for ref, _, tree in _pins(repository) if not _is_whole(repository, tree)]
        if not broken:
            return str(error)
        _unpin(repository, broken)
        git.run("gc", "--quiet", f"--prune={expiry}")
        return f"{len(broken)} snapshots are no longer complete: the user's repository has dropped files of theirs"
    return None


def _pins(repository: Repository) -> list[tuple[str, int, str]]:
    """Each pin, the day it was made, and the snapshot it holds."""
    names = split(repository.store_git().run("for-each-ref", "--format=%(refname)%00", PINS))
    refs = [name.strip() for name in names]
    return [(ref, int(ref.split("/")[2]), ref.split("/")[3]) for ref in refs]


def _is_whole(repository: Repository, tree: str) -> bool:
    try:
        repository.store_git().run("rev-list", "--objects", "--quiet", tree)
    except SnapshotError:
        return False
    return True


def _unpin(repository: Repository, refs: list[str]) -> int:
    if refs:
        commands = "".join(f"delete {ref}\n" for ref in refs)
        repository.store_git().run("update-ref", "--stdin", given=commands.encode())
    return len(refs)


def _forget_moved(repository: Repository) -> None:
    """Repositories that files were borrowed from and that are gone need not be looked for."""
    path = os.path.join(repository.store, "objects", "info", "alternates")
    try:
        with open(path, "rb") as file:
            lines = file.read().splitlines(keepends=True)
    except FileNotFoundError:
        return
    kept = [line for line in lines if os.path.isdir(line.rstrip(b"\n"))]
    if kept != lines:
        repository.disk.replace(path, b"".join(kept))


def _drop_leftovers(repository: Repository) -> None:
    """What a git that was ended while it packed has left; OpenCode's can be large."""
    folder = os.path.join(repository.store, "objects", "pack")
    try:
        names = [name for name in os.listdir(folder) if name.startswith("tmp_")]
    except FileNotFoundError:
        return
    for name in names:
        path = os.path.join(folder, name)
        try:
            if time.time() - os.stat(path).st_mtime > _HOUR:
                os.unlink(path)
        except OSError as error:
            log.info("%s: %s", path, error.strerror)
