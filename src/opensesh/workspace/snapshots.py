"""Snapshots of the files a session works on, stored outside the user's repository.

A snapshot is a git tree: the files below the project's directory, byte for byte. Ignored files are left out, and so are
large files that git does not track and nested repositories. Links are stored as links. Empty folders are not stored.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from ..errors import OpenseshError, SnapshotError
from ..storage import paths
from . import diffs
from .git import Git, SnapshotObjects, git_environment, join, split
from .repository import Repository

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence
    from concurrent.futures import Future, ThreadPoolExecutor

    from ..project import ProjectLocation
    from ..records import Document

log = logging.getLogger("opensesh.workspace")
_DAY_SECONDS = 86_400
_MAX_REMEMBERED = 256
_CLOCK_TOLERANCE_SECONDS = 0.1
"""How far a disk's clock may be behind."""
_MAX_ARGUMENT_CHARACTERS = 50_000


class Patch(NamedTuple):
    """The files that changed since a snapshot, as a patch part has them."""

    hash: str
    files: tuple[str, ...] = ()
    """Absolute paths."""


class _Taken(NamedTuple):
    """What this process remembers of a snapshot it took: when, and which files were too large for it."""

    moment: float
    large: frozenset[str]


class PendingSnapshot:
    """A snapshot that is being taken in a thread: begin it early, await it before the first tool runs.

    The result is ``None`` if none was taken: the attempt failed, or it took too long.
    """

    def __init__(self, future: Future[str | None]) -> None:
        self._future: Future[str | None] | None = future

    @property
    def done(self) -> bool:
        """Whether awaiting it returns at once."""
        return self._future is None or self._future.done()

    async def wait(self, seconds: float) -> None:
        """Wait until it is done, ``seconds`` at most. It can be awaited afterwards in any case."""
        import asyncio

        if self._future is not None and seconds > 0:
            await asyncio.wait([asyncio.wrap_future(self._future)], timeout=seconds)

    async def result(self, timeout_seconds: float | None = None) -> str | None:
        """Return the snapshot; ``None`` after ``timeout_seconds``, and from then on, because files may have changed.

        Cancelling a caller does not cancel the snapshot.
        """
        if self._future is None:
            return None
        import asyncio

        waiting = asyncio.wrap_future(self._future)
        try:
            # Not wait_for, which in Python 3.11 loses a cancellation that arrives together with the result.
            async with asyncio.timeout(timeout_seconds):
                return await asyncio.shield(waiting)
        except TimeoutError:
            log.warning("a snapshot took longer than %g s; continuing without it", timeout_seconds)
            self._future = None
            return None

    def __await__(self) -> Generator[object, None, str | None]:
        return self.result().__await__()


class Snapshots:
    """The snapshots of one project. Safe for several threads and, on one checkout, for several processes.

    Where there can be none (no repository, no git, turned off), all methods behave as if nothing ever changed, and
    :attr:`note` gives the reason.
    """

    def __init__(
        self,
        location: ProjectLocation,
        *,
        data: str | None = None,
        limits: SnapshotLimits | None = None,
        enabled: bool = True,
        by_worktree: bool = False,
    ) -> None:
        """``data`` is OpenCode's data folder; ``enabled`` is the user's setting.

        ``by_worktree`` is the convention of OpenCode 1.3.3 and later.
        """
        self.location = location
        self.repository = Repository(location, data=data, by_worktree=by_worktree)
        self.limits = limits or SnapshotLimits()
        self.note = _unavailable_reason(location)
        """Why there are none, or what the last one leaves out; ``None`` if nothing is wrong."""
        self.readable = self.note is None
        """Whether existing snapshots can be read."""
        self.enabled = self.readable and enabled
        """Whether new snapshots are taken."""
        if self.readable and not enabled:
            self.note = "snapshots are turned off"
        self._lock = threading.RLock()
        self._executor_lock = threading.Lock()
        self._git: Git | None = None
        self._last: tuple[object, str] | None = None
        self._taken: OrderedDict[str, _Taken] = OrderedDict()
        self._ignored: set[str] = set()
        self._pinned: set[tuple[int, str]] = set()
        self._executor: ThreadPoolExecutor | None = None

    # -- taking --------------------------------------------------------------------------------------------------------

    def begin(self) -> PendingSnapshot | None:
        """Start taking a snapshot and return at once; ``None`` if there are none."""
        if not self.enabled:
            return None
        with self._executor_lock:
            if self._executor is None:
                from concurrent.futures import ThreadPoolExecutor

                self._executor = ThreadPoolExecutor(1, "opensesh-snapshot")
            return PendingSnapshot(self._executor.submit(self.track))

    def track(self) -> str | None:
        """Take a snapshot and return its tree; on any failure of git or the disk, ``None`` and a :attr:`note`."""
        if not self.enabled:
            return None
        try:
            with self._lock:
                return self._take()
        except (OpenseshError, OSError) as error:
            self.note = f"no snapshot was taken: {error}"
            log.warning("%s", self.note)
            return None

    def close(self) -> None:
        """Wait for snapshots that were begun."""
        with self._executor_lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown()

    # -- comparing -----------------------------------------------------------------------------------------------------

    def changed(self, before: str, after: str) -> Patch:
        """Return the files that differ between two snapshots; none if either no longer exists.

        A file that existed but was left out of the first snapshot is not listed: reverting would delete it.
        """
        if before == after or not self.readable:
            return Patch(before)
        try:
            files = diffs.changed_files(self.repository.reader(), before, after, self.scope)
        except SnapshotError as error:
            log.warning("%s", error)
            return Patch(before)
        unseen = self._unseen(before, after, files)
        names = [file.name for file in files if file.name not in unseen]
        return Patch(before, tuple(os.path.join(self.location.sandbox, name) for name in names))

    def diff(self, before: str, after: str) -> list[Document]:
        """Return the files that differ between two snapshots, with both texts, as OpenCode stores them."""
        if before == after or not self.readable:
            return []
        return diffs.file_diffs(
            self.repository.reader(), before, after, self.scope, without=self._left_out(before, after)
        )

    def text(self, before: str, after: str) -> str:
        """Return the difference between two snapshots as a unified diff."""
        if before == after or not self.readable:
            return ""
        return diffs.unified_diff(self.repository.reader(), before, after, self.scope)

    def objects(self) -> SnapshotObjects:
        """Return a reader for the content of snapshots."""
        return SnapshotObjects(self.repository.reader(), empty=not os.path.isdir(self.repository.store))

    @property
    def git(self) -> Git:
        """Git with our index, set up on first use."""
        with self._lock:
            if self._git is None:
                self._git = self.repository.prepare()
            return self._git

    @property
    def scope(self) -> str:
        """The directory relative to the checkout; ``.`` for all of it."""
        directory, sandbox = os.path.realpath(self.location.directory), os.path.realpath(self.location.sandbox)
        return os.path.relpath(directory, sandbox).replace(os.sep, "/")

    # -- inside --------------------------------------------------------------------------------------------------------

    def _take(self) -> str:
        first = self._git is None
        git = self.git
        if first:
            size = self.repository.size()
            if size > self.limits.store:
                self.enabled = False
                raise SnapshotError(
                    f"the snapshots of this project take {size / 1e9:.1f} GB of at most {self.limits.store / 1e9:.1f} "
                    "GB; 'opensesh doctor --tidy' deletes those that no session needs"
                )
        moment = time.time()
        with self.repository.index_lock().hold("index"):
            self.repository.drop_stale_lock()
            first = self.repository.refresh_rules() or first
            try:
                tree, scan = self._tree(git, first=first)
            except SnapshotError as error:
                if "status" not in error.data:
                    raise
                # Git failed: the index may be damaged, or name files that the user's repository has dropped since.
                log.info("the index is rebuilt: %s", error)
                self.repository.drop_index()
                tree, scan = self._tree(git, first=True)
        pin = (int(moment) // _DAY_SECONDS, tree)
        if pin not in self._pinned:
            self.repository.pin(tree, pin[0])
            self._pinned.add(pin)
        self._ignored = (self._ignored | set(scan.ignored)).difference(scan.changed)
        self._taken[tree] = _Taken(moment, frozenset(scan.large))
        self._taken.move_to_end(tree)
        while len(self._taken) > _MAX_REMEMBERED:
            self._taken.popitem(last=False)
        self.note = _note(scan, self.limits)
        return tree

    def _tree(self, git: Git, *, first: bool) -> tuple[str, WorkTreeScan]:
        scan = scan_work_tree(git, self.location, self.limits, first=first)
        if scan.changed or scan.gone or self._last is None or self._last[0] != self._index_mark():
            update_index(git, scan, self.location.sandbox)
            tree = git.line("write-tree")
            self._last = (self._index_mark(), tree)
        return self._last[1], scan

    def _index_mark(self) -> object:
        """Return a value that changes when another process writes the index."""
        try:
            info = os.stat(self.repository.index)
        except FileNotFoundError:
            return None
        return info.st_mtime_ns, info.st_size, info.st_ino

    def _left_out(self, before: str, after: str) -> set[str]:
        """Return files that exist but were left out of a snapshot, as far as this process knows: too large, or ignored
        since."""
        large = {name for tree in (before, after) if tree in self._taken for name in self._taken[tree].large}
        return large | self._ignored

    def _unseen(self, before: str, after: str, files: Sequence[diffs.ChangedFile]) -> set[str]:
        """Return files that were left out of the first snapshot. One that is no longer ignored only seems to be new."""
        unseen = self._left_out(before, after)
        taken = self._taken.get(before)
        if taken and any(os.path.basename(file.name) == ".gitignore" for file in files):
            for name in [file.name for file in files if file.letter == "A"]:
                with suppress(OSError):
                    modified = os.lstat(os.path.join(self.location.sandbox, name)).st_mtime
                    if modified < taken.moment - _CLOCK_TOLERANCE_SECONDS:
                        unseen.add(name)
        return unseen


def _unavailable_reason(location: ProjectLocation) -> str | None:
    from shutil import which

    if location.vcs != "git" or not os.path.lexists(os.path.join(location.sandbox, ".git")):
        return "there are no snapshots outside of a git repository"
    if which("git") is None:
        return "there are no snapshots without git, which is not installed"
    if os.path.realpath(location.sandbox) in (os.path.realpath(paths.home()), os.path.realpath(os.sep)):
        return f"there are no snapshots of a whole home folder or disk ({location.sandbox})"
    return None


def _note(scan: WorkTreeScan, limits: SnapshotLimits) -> str | None:
    """Return what a snapshot leaves out, as text; ``None`` if nothing."""
    groups: list[str] = []
    if scan.large:
        size = limits.file / MEBIBYTE
        groups.append(f"{len(scan.large)} over {size:g} MiB that git does not track ({_first_names(scan.large)})")
    if scan.nested:
        groups.append(f"{len(scan.nested)} nested repositories ({_first_names(scan.nested)})")
    return f"not in the snapshots: {'; '.join(groups)}" if groups else None


def _first_names(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


MEBIBYTE = 1 << 20


class SnapshotLimits(NamedTuple):
    """Limits in bytes, unless another unit is given."""

    file: int = 2 * MEBIBYTE
    """A larger file is left out, unless the user's own repository has it."""
    new: int = 1024 * MEBIBYTE
    """With more than this in new files that the user's repository does not have, no snapshot is taken."""
    store: int = 4096 * MEBIBYTE
    """With more than this in the project's snapshots, no more are taken."""
    watched_files: int = 20_000
    """Where there are no snapshots, files around a command are compared only up to this number (a count, not bytes)."""


class WorkTreeScan(NamedTuple):
    """How the files differ from the index, by names relative to the checkout."""

    changed: Sequence[str]
    gone: Sequence[str]
    large: Sequence[str]
    """Left out because of their size."""
    nested: Sequence[str]
    """Left out because they are nested repositories."""
    ignored: Sequence[str]
    """Left out from now on; also listed in ``gone``."""


def scan_work_tree(git: Git, location: ProjectLocation, limits: SnapshotLimits, *, first: bool) -> WorkTreeScan:
    """Compare the folder with the index, in two concurrent git processes. ``first`` also finds files ignored since."""
    untracked = Git(location.directory, git.environment).start(
        "ls-files", "-z", "-o", "--exclude-standard", "--full-name"
    )
    try:
        statuses = split(git.run("diff-files", "-z", "--name-status", "--no-renames", "--ignore-submodules=all"))
        pairs = list(zip(statuses[::2], statuses[1::2], strict=True))
        modified = [name for letter, name in pairs if letter != "D"]
        gone = [name for letter, name in pairs if letter == "D"]
    finally:
        output = git.finish(untracked)
    others = split(output)
    ignored: list[str] = []
    if first or any(os.path.basename(name) == ".gitignore" for name in (*modified, *gone, *others)):
        ignored = git.names("ls-files", "-z", "-c", "-i", "--exclude-standard")
    sizes = _sizes(location.sandbox, [name for name in (*modified, *others) if not name.endswith("/")])
    large = {name for name, size in sizes.items() if size > limits.file}
    large -= tracked_files(location.sandbox, large)
    new = {name: sizes[name] for name in others if name in sizes and name not in large}
    if sum(new.values()) > limits.new:
        total = sum(new[name] for name in new.keys() - tracked_files(location.sandbox, new))
        if total > limits.new:
            raise SnapshotError(
                f"{total / 1e9:.1f} GB of new files in {location.directory} that git does not track are too much for a "
                "snapshot; list what need not be stored in .gitignore"
            )
    left_out = large.union(ignored)
    return WorkTreeScan(
        changed=[name for name in sizes if name not in left_out],
        gone=[*dict.fromkeys((*gone, *ignored, *(name for name in modified if name in large)))],
        large=sorted(large),
        nested=[name for name in others if name.endswith("/")],
        ignored=ignored,
    )


def update_index(git: Git, scan: WorkTreeScan, sandbox: str) -> None:
    """Record the scanned changes in the index."""
    if scan.gone:
        git.run("update-index", "-z", "--force-remove", "--stdin", stdin=join(scan.gone))
    if not scan.changed:
        return
    try:
        _add(git, scan.changed)
    except SnapshotError:
        # An unreadable file is left out, without failing the snapshot.
        paths_by_name = {name: os.path.join(sandbox, name) for name in scan.changed}
        readable = [name for name, path in paths_by_name.items() if os.path.islink(path) or os.access(path, os.R_OK)]
        if len(readable) == len(scan.changed):
            raise
        _add(git, readable)


def tracked_files(sandbox: str, names: Iterable[str]) -> set[str]:
    """Return those of ``names`` that the user's own repository tracks."""
    candidates = set(names)
    if not candidates:
        return set()
    git = Git(sandbox, git_environment(isolated=False))
    arguments = sorted(candidates) if sum(map(len, candidates)) < _MAX_ARGUMENT_CHARACTERS else []
    try:
        return candidates.intersection(git.names("ls-files", "-z", "--", *arguments))
    except SnapshotError:
        return set()


def _add(git: Git, names: Sequence[str]) -> None:
    git.run("update-index", "--add", "--remove", "--replace", "-z", "--stdin", stdin=join(names))


def _sizes(sandbox: str, names: Iterable[str]) -> dict[str, int]:
    """Return the size of each file; deleted ones are left out."""
    sizes: dict[str, int] = {}
    for name in names:
        try:
            info = os.lstat(os.path.join(sandbox, name))
        except OSError:
            continue
        sizes[name] = info.st_size if stat.S_ISREG(info.st_mode) else 0
    return sizes
