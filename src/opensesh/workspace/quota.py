"""How much room the snapshots of a project take, and how some of it is got back.

Every snapshot we take is pinned, so that neither OpenCode's hourly tidying nor ours drops it while a session may still
want to go back to it. Pins that no session names any more end after a week; git then drops what nothing else holds.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from typing import TYPE_CHECKING, NamedTuple

from ..errors import SnapshotError
from .git import split
from .repository import PINS

if TYPE_CHECKING:
    from collections.abc import Collection

    from .repository import Repository

log = logging.getLogger("opensesh.workspace")
KEEP_DAYS = 7
_DAY = 86_400
_HOUR = 3_600


class Tidied(NamedTuple):
    """What tidying up has done."""

    before: int
    """Bytes."""
    after: int
    dropped: int
    """How many snapshots were let go."""
    note: str | None = None
    """Why no more could be done, if so."""


def tidy(repository: Repository, wanted: Collection[str], *, days: int = KEEP_DAYS) -> Tidied:
    """Let go of snapshots older than ``days`` that are not ``wanted``, and give back their room.

    Git needs the room twice while it packs anew; where the disk does not have it, only loose files are dropped.
    """
    if not os.path.isdir(repository.store):
        return Tidied(0, 0, 0)
    before = repository.size()
    with repository.locks.exclusive("store"):
        _forget_moved(repository)
    oldest = int(time.time()) // _DAY - days
    dropped = _unpin(repository, [ref for ref, day, tree in _pins(repository) if day <= oldest and tree not in wanted])
    _drop_leftovers(repository)
    note = _collect(repository, before, days)
    return Tidied(before, repository.size(), dropped, note)


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
