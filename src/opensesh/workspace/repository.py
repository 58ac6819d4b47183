"""The git repository that holds snapshots, and our working folder for it.

Two folders are used. The *store* is OpenCode's, ``<data>/snapshot/<projectID>``, since OpenCode 1.3.3 with a folder in
it for each worktree: the trees and files of all snapshots, so that OpenCode can restore ours and we can restore its.
The *work dir* is ours, one for each checkout, below the state folder: the index, and settings that make git keep every
file byte for byte. Nothing in it is needed to restore a snapshot, and no index is shared with OpenCode or with another
checkout.
"""

from __future__ import annotations

import os
from hashlib import sha1
from typing import TYPE_CHECKING, NamedTuple

from ..errors import SnapshotError
from ..storage import paths
from ..storage.disk import Disk, read_or_empty
from ..storage.locations import databases
from ..storage.locks import Locks
from ..storage.paths import digest
from .git import TIMEOUT_SECONDS, Git, git_environment, split

if TYPE_CHECKING:
    from ..project import ProjectLocation
    from ..storage.protocol import Store

PINS = "refs/opensesh"
"""References that keep snapshots from being garbage-collected: ``<day>/<tree>``."""

_RAW = b"* -text !eol !filter !ident !working-tree-encoding\n"
"""Takes precedence over the project's own attributes: no file is converted on its way in or out."""
_DISK_SETTINGS = ("filemode", "ignorecase", "symlinks", "precomposeunicode")
"""Settings in which git recorded the properties of the disk when the user's repository was created."""
_SIZES = ("size", "size-pack", "size-garbage")


class RepoSettings(NamedTuple):
    """Settings of the user's own repository that snapshots depend on."""

    objects: str = ""
    """Its object folder, if it uses the same format as ours."""
    exclude: str = ""
    """Its ``info/exclude``, which is not checked in."""
    excludes_file: str = ""
    """The user's ``core.excludesFile``, if set."""
    disk: tuple[tuple[str, str], ...] = ()


class Repository:
    """The snapshot repository of one checkout."""

    def __init__(self, location: ProjectLocation, *, data: str | None = None, by_worktree: bool = False) -> None:
        self.location = location
        self._project_store = os.path.join(data or paths.data(), "snapshot", location.id)
        worktree = sha1(os.fsencode(location.sandbox), usedforsecurity=False).hexdigest()
        self.store = os.path.join(self._project_store, worktree) if by_worktree else self._project_store
        home = os.path.join(paths.state(), "snapshots", location.id)
        self.work_dir = os.path.join(home, digest(os.path.realpath(location.directory)))
        self.locks = Locks(os.path.join(home, "locks"))
        self.disk = Disk(durable=False)
        self._settings: RepoSettings | None = None

    @property
    def settings(self) -> RepoSettings:
        """The settings of the user's own repository, read once."""
        if self._settings is None:
            self._settings = repo_settings(self.location.sandbox)
        return self._settings

    @property
    def index(self) -> str:
        """The path of our git index."""
        return os.path.join(self.work_dir, "index")

    def prepare(self) -> Git:
        """Create what is missing, and return git for :meth:`git`."""
        own_objects = self.settings.objects
        with self.locks.hold("store"):
            self._make_store()
            if own_objects and "\n" not in own_objects:
                # Git then uses the objects of the user's repository instead of storing them again.
                path = os.path.join(self.store, "objects", "info", "alternates")
                known = [os.fsdecode(line) for line in read_or_empty(path).split(b"\n") if line]
                if own_objects not in known:
                    self.disk.replace(path, b"".join(os.fsencode(line) + b"\n" for line in (*known, own_objects)))
        settings = [("repositoryformatversion", "0"), ("bare", "false"), *self.settings.disk]
        if self.settings.excludes_file:
            settings.append(("excludesfile", _quoted(self.settings.excludes_file)))
        config = "[core]\n" + "".join(f"\t{name} = {value}\n" for name, value in settings)
        self.disk.make_folder(os.path.join(self.work_dir, "refs"))
        self._put("HEAD", b"ref: refs/heads/none\n")
        self._put("config", os.fsencode(config))
        self._put("info/attributes", _RAW)
        self.refresh_rules()
        return self.git()

    def git(self) -> Git:
        """Return git with our index and the store's objects."""
        environment = git_environment(
            GIT_DIR=self.work_dir,
            GIT_WORK_TREE=self.location.sandbox,
            GIT_OBJECT_DIRECTORY=os.path.join(self.store, "objects"),
        )
        return Git(self.location.sandbox, environment)

    def reader(self) -> Git:
        """Return git for reading the store. It creates nothing, and finds nothing without a store."""
        environment = git_environment(GIT_DIR=self.store, GIT_WORK_TREE=self.location.sandbox)
        # The store may have recorded the user's repository under a path that it has moved from. Older snapshots of the
        # project may be in the store of all its worktrees.
        older = os.path.join(self._project_store, "objects") if self.store != self._project_store else ""
        others = [_quoted(path) for path in (self.settings.objects, older) if path and os.path.isdir(path)]
        if others:
            environment["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = os.pathsep.join(others)
        return Git(self.location.sandbox, environment)

    def store_git(self, *, timeout_seconds: float = TIMEOUT_SECONDS) -> Git:
        """Return git for the store itself: its references and its size."""
        # The store's config names a work tree, and git refuses to work once the parent of that folder is gone.
        return Git(
            self.store, git_environment(GIT_DIR=self.store, GIT_WORK_TREE=self.store), timeout_seconds=timeout_seconds
        )

    def size(self) -> int:
        """Return the size of the project's snapshots in bytes, without the user's own repository."""
        if not os.path.isdir(self.store):
            return 0
        counts = self.counts()
        return sum(counts.get(name, 0) for name in _SIZES) * 1024

    def counts(self) -> dict[str, int]:
        """Return the numbers and sizes of loose objects and packs, as git names them."""
        lines = self.store_git().run("count-objects", "-v").decode().splitlines()
        return {name: int(value) for name, _, value in (line.partition(": ") for line in lines) if value.isdecimal()}

    def pin(self, tree: str, day: int) -> None:
        """Protect a snapshot from garbage collection, by OpenCode or by us, from ``day`` (since 1970) on."""
        self.store_git().run("update-ref", f"{PINS}/{day}/{tree}", tree)

    def index_lock(self) -> Locks:
        """Return the lock that is held while the index is in use."""
        return Locks(os.path.join(self.work_dir, "locks"))

    def trusts_modes(self) -> bool:
        """Return whether the disk supports the executable bit."""
        return os.name != "nt" and ("filemode", "false") not in self.settings.disk

    def drop_index(self) -> None:
        """Delete the index. The next snapshot reads all files again."""
        self.disk.remove(self.index)

    def drop_stale_lock(self) -> None:
        """Delete git's lock file. The holder of our lock knows that the git process that left it is dead."""
        self.disk.remove(f"{self.index}.lock")

    def _make_store(self) -> None:
        """Create the store as OpenCode does, under a temporary name: OpenCode takes any folder for complete."""
        if os.path.exists(os.path.join(self.store, "HEAD")):
            if b"objectformat" in read_or_empty(os.path.join(self.store, "config")).lower():
                raise SnapshotError(f"{self.store} does not use SHA-1 object names")
        elif os.path.isdir(self.store):
            self._initialise(self.store)
        else:
            unfinished = os.path.join(os.path.dirname(self.store), f".{os.path.basename(self.store)}.{os.getpid()}")
            os.makedirs(unfinished, exist_ok=True)
            self._initialise(unfinished)
            os.rename(unfinished, self.store)

    def _initialise(self, folder: str) -> None:
        git = Git(folder, git_environment(GIT_DIR=folder, GIT_WORK_TREE=self.location.sandbox))
        git.run("init", "--quiet", "--template=", "--object-format=sha1")
        git.run("config", "core.autocrlf", "false")

    def refresh_rules(self) -> bool:
        """Copy ``info/exclude`` of the user's repository; returns whether it has changed."""
        return self._put("info/exclude", read_or_empty(self.settings.exclude))

    def _put(self, name: str, data: bytes) -> bool:
        path = os.path.join(self.work_dir, *name.split("/"))
        if os.path.exists(path) and read_or_empty(path) == data:
            return False
        self.disk.replace(path, data)
        return True


def data_folder(store: Store) -> str:
    """Return the data folder that a store belongs to.

    A store outside any data folder gets a folder below our state folder: in the folder of another store, tidying would
    delete its snapshots as unreferenced.
    """
    if os.path.basename(store.place) == "storage" or os.path.isfile(store.place):
        return os.path.dirname(store.place)
    if os.path.isdir(os.path.join(store.place, "storage")) or databases(store.place):
        return store.place
    return os.path.join(paths.state(), "stores", digest(store.id))


def repo_settings(sandbox: str) -> RepoSettings:
    """Read the settings of the user's repository; empty if git refuses to read it."""
    git = Git(sandbox, git_environment(isolated=False))
    try:
        shown = git.run("rev-parse", "--show-object-format", "--git-path", "objects", "--git-path", "info/exclude")
    except SnapshotError:
        return RepoSettings()
    kind, objects, exclude = (os.fsdecode(line) for line in shown.split(b"\n")[:3])
    settings = _core_settings(git)
    disk = tuple((name, settings[name]) for name in _DISK_SETTINGS if settings.get(name) in ("true", "false"))
    return RepoSettings(
        objects=os.path.abspath(os.path.join(sandbox, objects)) if kind == "sha1" else "",
        exclude=os.path.abspath(os.path.join(sandbox, exclude)),
        excludes_file=os.path.expanduser(settings.get("excludesfile", "")),
        disk=disk,
    )


def _core_settings(git: Git) -> dict[str, str]:
    """Return the user's ``core.*`` settings; of several values, the last."""
    try:
        shown = split(git.run("config", "-z", "--get-regexp", r"^core\."))
    except SnapshotError:
        return {}
    pairs = (entry.partition("\n") for entry in shown)
    return {name.removeprefix("core."): value for name, _, value in pairs}


def _quoted(path: str) -> str:
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'
