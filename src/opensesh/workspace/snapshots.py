"""Snapshots of the files a session works on: taken beside the user's repository, never in it.

A snapshot is a git tree: the files below the project's directory as they are on disk, byte for byte. What the project
ignores is left out, and so are large files that git does not track and repositories within the repository. Links are
kept as links. Folders are known by the files in them, so an empty one is not.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from ..errors import OpenseshError, SnapshotError
from ..storage import paths
from . import diffs
from .git import Git, SnapshotObjects, join, split, surroundings
from .repository import Repository

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence
    from concurrent.futures import Future, ThreadPoolExecutor

    from ..project import ProjectLocation
    from ..records import Document

log = logging.getLogger("opensesh.workspace")
_DAY = 86_400
_REMEMBERED = 256
_CLOCK = 0.1
"""Seconds by which a disk's clock may be behind."""


class Patch(NamedTuple):
    """The files that changed since a snapshot, as a patch part has them."""

    hash: str
    files: tuple[str, ...] = ()
    """By absolute path."""


class _Taken(NamedTuple):
    """What a snapshot could not hold, for as long as this process remembers."""

    moment: float
    large: frozenset[str]


class PendingSnapshot:
    """A snapshot being taken, in a thread of its own: begin it early, await it when the first tool is about to run.

    Its tree is ``None`` if there is none: snapshots are off, the attempt failed, or nobody had the patience.
    """

    def __init__(self, future: Future[str | None] | None) -> None:
        self._future = future

    @property
    def done(self) -> bool:
        """Whether awaiting it takes no time."""
        return self._future is None or self._future.done()

    async def result(self, seconds: float | None = None) -> str | None:
        """The snapshot; ``None`` after so many seconds, and from then on: files may have changed under it.

        A caller that is cancelled leaves the snapshot to whoever else awaits it.
        """
        if self._future is None:
            return None
        import asyncio

        waiting = asyncio.wrap_future(self._future)
        try:
            return await asyncio.wait_for(asyncio.shield(waiting), seconds)
        except TimeoutError:
            log.warning("a snapshot took longer than %g s; going on without", seconds)
            self._future = None
            return None

    def __await__(self) -> Generator[object, None, str | None]:
        return self.result().__await__()


class Snapshots:
    """The snapshots of one place. Safe to use from several threads and, on one checkout, from several processes.

    Where there can be none (no repository, no git, turned off), every method answers as if nothing ever changed, and
    :attr:`note` says why.
    """

    def __init__(
        self,
        place: ProjectLocation,
        *,
        data: str | None = None,
        state: str | None = None,
        limits: SnapshotLimits | None = None,
        enabled: bool = True,
    ) -> None:
        """``data`` is OpenCode's data folder, ``state`` our own state folder; ``enabled`` the user's wish."""
        self.place = place
        self.repository = Repository(place, data=data, state=state)
        self.limits = limits or SnapshotLimits()
        self.note = _why_not(place)
        """Why there are none, or what the last one leaves out; ``None`` if all is well."""
        self.readable = self.note is None
        """Whether snapshots that were taken can be looked into."""
        self.enabled = self.readable and enabled
        """Whether new ones are taken."""
        if self.readable and not enabled:
            self.note = "snapshots are turned off"
        self._turn = threading.RLock()
        self._hiring = threading.Lock()
        self._git: Git | None = None
        self._last: tuple[object, str] | None = None
        self._taken: OrderedDict[str, _Taken] = OrderedDict()
        self._ignored: set[str] = set()
        self._pinned: set[tuple[int, str]] = set()
        self._worker: ThreadPoolExecutor | None = None

    # -- taking --------------------------------------------------------------------------------------------------------

    def begin(self) -> PendingSnapshot:
        """Start taking a snapshot and return at once."""
        if not self.enabled:
            return PendingSnapshot(None)
        with self._hiring:
            if self._worker is None:
                from concurrent.futures import ThreadPoolExecutor

                self._worker = ThreadPoolExecutor(1, "opensesh-snapshot")
            return PendingSnapshot(self._worker.submit(self.track))

    def track(self) -> str | None:
        """Take a snapshot; its tree, or ``None`` and a :attr:`note`. Never raises for what git or the disk refuse."""
        if not self.enabled:
            return None
        try:
            with self._turn:
                return self._take()
        except (OpenseshError, OSError) as error:
            self.note = f"no snapshot was taken: {error}"
            log.warning("%s", self.note)
            return None

    def close(self) -> None:
        """Wait for what was begun."""
        with self._hiring:
            worker, self._worker = self._worker, None
        if worker is not None:
            worker.shutdown()

    # -- comparing -----------------------------------------------------------------------------------------------------

    def changed(self, before: str, after: str) -> Patch:
        """The files that differ between two snapshots; none if one of them is no longer there.

        A file that the first snapshot could not see, though it was there, does not count: to go back to that snapshot
        would be to delete it.
        """
        if before == after or not self.readable:
            return Patch(before)
        try:
            found = diffs.changes(self.repository.reader(), before, after, self.scope)
        except SnapshotError as error:
            log.warning("%s", error)
            return Patch(before)
        unseen = self._unseen(before, after, found)
        names = [each.name for each in found if each.name not in unseen]
        return Patch(before, tuple(os.path.join(self.place.sandbox, name) for name in names))

    def diff(self, before: str, after: str) -> list[Document]:
        """The files that differ between two snapshots, with both texts, as OpenCode keeps them."""
        if before == after or not self.readable:
            return []
        return diffs.file_diffs(
            self.repository.reader(), before, after, self.scope, without=self._left_out(before, after)
        )

    def text(self, before: str, after: str) -> str:
        """The difference between two snapshots as a unified diff."""
        if before == after or not self.readable:
            return ""
        return diffs.unified(self.repository.reader(), before, after, self.scope)

    def objects(self) -> SnapshotObjects:
        """A look into the snapshots."""
        return SnapshotObjects(self.repository.reader(), empty=not os.path.isdir(self.repository.store))

    @property
    def git(self) -> Git:
        """Git on our bench, set up when first needed."""
        with self._turn:
            if self._git is None:
                self._git = self.repository.prepare()
            return self._git

    @property
    def scope(self) -> str:
        """The directory, relative to the checkout: ``.`` for all of it."""
        directory, sandbox = os.path.realpath(self.place.directory), os.path.realpath(self.place.sandbox)
        return os.path.relpath(directory, sandbox).replace(os.sep, "/")

    # -- inside --------------------------------------------------------------------------------------------------------

    def _take(self) -> str:
        first = self._git is None
        git = self.git
        if first:
            self._refuse_over_quota()
        moment = time.time()
        with self.repository.index_lock().exclusive("index"):
            self.repository.drop_stale_lock()
            first = self.repository.refresh_rules() or first
            try:
                tree, scan = self._tree(git, first=first)
            except SnapshotError as error:
                if "status" not in error.data:
                    raise
                # Git failed: the index may be damaged, or name files that the user's repository has dropped since.
                log.info("the index is made anew: %s", error)
                self.repository.drop_index()
                tree, scan = self._tree(git, first=True)
        self._pin(tree, int(moment) // _DAY)
        self._ignored = (self._ignored | set(scan.ignored)).difference(scan.changed)
        self._remember(tree, _Taken(moment, frozenset(scan.large)))
        self.note = _left_out(scan, self.limits)
        return tree

    def _tree(self, git: Git, *, first: bool) -> tuple[str, WorkTreeScan]:
        scan = scan_work_tree(git, self.place, self.limits, first=first)
        if scan.changed or scan.gone or self._last is None or self._last[0] != self._mark():
            update_index(git, scan, self.place.sandbox)
            tree = git.line("write-tree")
            self._last = (self._mark(), tree)
        return self._last[1], scan

    def _mark(self) -> object:
        """Tells whether the index is the one this process left."""
        try:
            found = os.stat(self.repository.index)
        except FileNotFoundError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _pin(self, tree: str, day: int) -> None:
        if (day, tree) not in self._pinned:
            self.repository.pin(tree, day)
            self._pinned.add((day, tree))

    def _remember(self, tree: str, taken: _Taken) -> None:
        self._taken[tree] = taken
        self._taken.move_to_end(tree)
        while len(self._taken) > _REMEMBERED:
            self._taken.popitem(last=False)

    def _left_out(self, before: str, after: str) -> set[str]:
        """Files that are on disk but not in one of the snapshots, as far as this process knows: they are too large, or
        ignored by now."""
        large = {name for tree in (before, after) if tree in self._taken for name in self._taken[tree].large}
        return large | self._ignored

    def _unseen(self, before: str, after: str, found: Sequence[diffs.ChangedFile]) -> set[str]:
        unseen = self._left_out(before, after)
        taken = self._taken.get(before)
        if taken and any(os.path.basename(each.name) == ".gitignore" for each in found):
            added = [each.name for each in found if each.letter == "A"]
            unseen.update(name for name in added if self._older(name, taken.moment))
        return unseen

    def _older(self, name: str, moment: float) -> bool:
        try:
            return os.lstat(os.path.join(self.place.sandbox, name)).st_mtime < moment - _CLOCK
        except OSError:
            return False

    def _refuse_over_quota(self) -> None:
        size = self.repository.size()
        if size > self.limits.store:
            self.enabled = False
            raise SnapshotError(
                f"the snapshots of this project take {size / 1e9:.1f} GB, more than the {self.limits.store / 1e9:.1f} "
                "GB they may; 'opensesh doctor --tidy' gives back what no session needs any more"
            )


def _why_not(place: ProjectLocation) -> str | None:
    from shutil import which

    if place.vcs != "git" or not os.path.lexists(os.path.join(place.sandbox, ".git")):
        return "there are no snapshots outside of a git repository"
    if which("git") is None:
        return "there are no snapshots without git, which is not installed"
    if os.path.realpath(place.sandbox) in (os.path.realpath(paths.home()), os.path.realpath(os.sep)):
        return f"there are no snapshots of a whole home folder or disk ({place.sandbox})"
    return None


def _left_out(scan: WorkTreeScan, limits: SnapshotLimits) -> str | None:
    said: list[str] = []
    if scan.large:
        size = limits.file / (1 << 20)
        said.append(f"{len(scan.large)} over {size:g} MiB that git does not track ({_few(scan.large)})")
    if scan.nested:
        said.append(f"{len(scan.nested)} that are repositories of their own ({_few(scan.nested)})")
    return f"not in the snapshots: {'; '.join(said)}" if said else None


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


MEBIBYTE = 1 << 20


class SnapshotLimits(NamedTuple):
    """How much is too much, in bytes."""

    file: int = 2 * MEBIBYTE
    """A larger file is left out, unless the user's own repository has it."""
    new: int = 1024 * MEBIBYTE
    """With more than this in new files that the user's repository does not have, no snapshot is taken."""
    store: int = 4096 * MEBIBYTE
    """With more than this in the project's snapshots, no more are taken."""
    watched_files: int = 20_000
    """Where there are no snapshots, files around a command are compared only up to this number (a count, not bytes)."""


class WorkTreeScan(NamedTuple):
    """What is to be noted in the index, by names relative to the checkout."""

    changed: Sequence[str]
    gone: Sequence[str]
    large: Sequence[str]
    """Left out because of their size."""
    nested: Sequence[str]
    """Left out because they are repositories of their own."""
    ignored: Sequence[str]
    """Left out from now on; also among those that are gone."""


def scan_work_tree(git: Git, place: ProjectLocation, limits: SnapshotLimits, *, first: bool) -> WorkTreeScan:
    """Compare the folder with the index. ``first`` has it also find files that are ignored by now."""
    finding = Git(place.directory, git.environment).start("ls-files", "-z", "-o", "--exclude-standard", "--full-name")
    try:
        noticed = git.run("diff-files", "-z", "--name-status", "--no-renames", "--ignore-submodules=all")
        modified, gone = _modified(noticed)
    finally:
        found = git.finish(finding)
    others = split(found)
    ignored: list[str] = []
    if first or any(os.path.basename(name) == ".gitignore" for name in (*modified, *gone, *others)):
        ignored = git.names("ls-files", "-z", "-c", "-i", "--exclude-standard")
    sizes = _sizes(place.sandbox, [name for name in (*modified, *others) if not name.endswith("/")])
    large = _too_large(place, sizes, limits)
    _refuse_too_much(place, {name: sizes[name] for name in others if name in sizes and name not in large}, limits)
    left_out = large.union(ignored)
    return WorkTreeScan(
        changed=[name for name in sizes if name not in left_out],
        gone=[*dict.fromkeys((*gone, *ignored, *(name for name in modified if name in large)))],
        large=sorted(large),
        nested=[name for name in others if name.endswith("/")],
        ignored=ignored,
    )


def update_index(git: Git, scan: WorkTreeScan, sandbox: str) -> None:
    """Bring the index up to date."""
    if scan.gone:
        git.run("update-index", "-z", "--force-remove", "--stdin", given=join(scan.gone))
    if not scan.changed:
        return
    try:
        _add(git, scan.changed)
    except SnapshotError:
        # A file that we may not read costs only itself.
        readable = [name for name in scan.changed if _readable(os.path.join(sandbox, name))]
        if len(readable) == len(scan.changed):
            raise
        _add(git, readable)


def tracked(sandbox: str, names: Iterable[str]) -> set[str]:
    """Those of ``names`` that the user's own repository has."""
    wanted = set(names)
    if not wanted:
        return set()
    git = Git(sandbox, surroundings(alone=False))
    few = sorted(wanted) if sum(map(len, wanted)) < 50_000 else []
    try:
        return wanted.intersection(git.names("ls-files", "-z", "--", *few))
    except SnapshotError:
        return set()


def _add(git: Git, names: Sequence[str]) -> None:
    git.run("update-index", "--add", "--remove", "--replace", "-z", "--stdin", given=join(names))


def _modified(printed: bytes) -> tuple[list[str], list[str]]:
    words = split(printed)
    pairs = list(zip(words[::2], words[1::2], strict=True))
    changed = [name for letter, name in pairs if letter != "D"]
    return changed, [name for letter, name in pairs if letter == "D"]


def _sizes(sandbox: str, names: Iterable[str]) -> dict[str, int]:
    """How large each file is; those that are gone by now are left out."""
    sizes: dict[str, int] = {}
    for name in names:
        try:
            found = os.lstat(os.path.join(sandbox, name))
        except OSError:
            continue
        sizes[name] = found.st_size if stat.S_ISREG(found.st_mode) else 0
    return sizes


def _too_large(place: ProjectLocation, sizes: dict[str, int], limits: SnapshotLimits) -> set[str]:
    large = {name for name, size in sizes.items() if size > limits.file}
    return large - tracked(place.sandbox, large)


def _refuse_too_much(place: ProjectLocation, sizes: dict[str, int], limits: SnapshotLimits) -> None:
    if sum(sizes.values()) <= limits.new:
        return
    total = sum(sizes[name] for name in sizes.keys() - tracked(place.sandbox, sizes))
    if total > limits.new:
        raise SnapshotError(
            f"{total / 1e9:.1f} GB of new files in {place.directory} that git does not track are too much for a "
            "snapshot; have .gitignore name what need not be kept"
        )


def _readable(path: str) -> bool:
    return os.path.islink(path) or os.access(path, os.R_OK)
