"""What is wrong around the records: leases and files of dead programs, permissions, projects and folders that moved."""

from __future__ import annotations

import os
import shlex
from collections import Counter, defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING

from ...errors import BusyError
from ...project import other_ids, resolve
from ...sessions.undo import Change
from ...storage.json_tree.migrations import LAYOUT, pending, version
from ...storage.keys import GLOBAL
from ...storage.leases import FileLeases
from ...text import pluralize
from .findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...storage.protocol import FileTree
    from .inventory import Inventory


def check_places(tree: FileTree, found: Inventory) -> Iterator[Finding]:
    """Everything that is wrong around a tree's records."""
    yield from _leases(tree)
    yield from _leftovers(found)
    yield from _permissions(found)
    yield from _projects(found)
    yield from _folders(found)
    yield from _migration(tree)


def running(tree: FileTree, found: Inventory) -> frozenset[str]:
    """The sessions that somebody runs at this moment."""
    leases = FileLeases.of(tree)
    names = {item.name for item in found.of("session")}
    try:
        held = names & set(os.listdir(leases.folder))
    except OSError:
        return frozenset()
    return frozenset(name for name in held if leases.holder(name) is not None)


def _leases(tree: FileTree) -> Iterator[Finding]:
    leases = FileLeases.of(tree)
    for session, holder in leases.abandoned():

        def let_go(session: str = session) -> None:
            with suppress(BusyError):  # somebody has taken it over meanwhile
                leases.acquire(session, "opensesh doctor").release()

        path = os.path.join(leases.folder, session)
        text = f"the lease of {session} was never given back by {holder.owner} (pid {holder.pid}), which is gone"
        yield Finding("lease", path, text, "odd", act=let_go)


def _leftovers(found: Inventory) -> Iterator[Finding]:
    for path, process in found.leftovers:
        if not _is_alive(process):
            text = f"begun by a program that is gone (pid {process}) and never finished"
            yield Finding("leftover", path, text, "odd", [Change(path=path, aside=True)])


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _permissions(found: Inventory) -> Iterator[Finding]:
    others = frozenset(found.strangers if os.name != "nt" and os.geteuid() != 0 else ())
    for path, mode, is_folder in found.modes:
        needed = 0o700 if is_folder else 0o600
        who = "anybody may write to it" if mode & 0o002 else "its owner may not read or write it"
        better = [] if path in others else [Change(path=path, mode=(mode | needed) & ~0o002)]
        yield Finding("permissions", path or found.root, f"{who} ({mode:04o})", "odd", better)
    owners: Counter[str] = Counter(os.path.dirname(path) or path for path in found.strangers)
    for folder, count in sorted(owners.items()):
        remedy = f"chown it: sudo chown -R $USER {os.path.join(found.root, folder)}"
        text = f"{pluralize(count, 'file')} of another user"
        yield Finding("permissions", folder or found.root, text, "odd", remedy=remedy)


def _projects(found: Inventory) -> Iterator[Finding]:
    """Sessions that are filed under a name their repository no longer goes by."""
    sessions: Counter[str] = Counter(item.folder for item in found.of("session"))
    worktrees: defaultdict[str, set[str]] = defaultdict(set)
    for item in found.of("project"):
        worktree = item.says.get("worktree")
        if isinstance(worktree, str) and worktree != "/" and item.name != GLOBAL:
            worktrees[worktree].add(item.name)
    for worktree, names in sorted(worktrees.items()):
        if not os.path.isdir(worktree):
            continue
        place = resolve(worktree)
        now = place.id
        if now == GLOBAL:
            continue
        for name in sorted((names | (set(other_ids(place)) & sessions.keys())) - {now}):
            if sessions[name]:
                text = f"filed under {name}, which is now {now}: {pluralize(sessions[name], 'session')} of {worktree}"
                remedy = "opensesh finds them under both; 'opensesh session move' files them anew"
                yield Finding("project", os.path.join("session", name), text, "note", remedy=remedy)


def _folders(found: Inventory) -> Iterator[Finding]:
    folders: dict[str, set[str]] = {}
    for item in found.of("session"):
        directory = item.says.get("directory")
        if isinstance(directory, str) and directory:
            folders.setdefault(directory, set()).add(item.name)  # a second copy is no second session
    for folder, names in sorted(folders.items()):
        if not os.path.isdir(folder):
            remedy = f"opensesh session move --from {shlex.quote(folder)} NEW tells them where it is now"
            count = pluralize(len(names), "session")
            yield Finding("folder", folder, f"{count} worked here, and it is gone", "note", remedy=remedy)


def _migration(tree: FileTree) -> Iterator[Finding]:
    if pending(tree):
        text = f"layout {version(tree)} of {LAYOUT}: written by an older OpenCode, and never brought forward"
        yield Finding("migration", tree.root, text, "odd", remedy="opensesh doctor --migrate brings it forward")
