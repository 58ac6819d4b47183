"""The repository that snapshots are kept in, and what we keep beside it.

Two folders take part. The *store* is OpenCode's, ``<data>/snapshot/<projectID>``: the trees and files of all snapshots,
so that OpenCode can go back to ours and we to its. The *bench* is ours, one for each checkout, below the state folder:
the index we work with, and settings that make git keep every file byte for byte. Nothing there is needed to go back to
a snapshot, and no index is shared with OpenCode or with another checkout.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from ..errors import SnapshotError
from ..storage import paths
from ..storage.disk import Disk, read_or_empty
from ..storage.locks import Locks
from ..storage.paths import digest
from .git import SECONDS, Git, split, surroundings

if TYPE_CHECKING:
    from ..project import ProjectLocation
    from ..storage.protocol import Store

PINS = "refs/opensesh"
"""Where the store keeps what must not be tidied away: ``<day>/<tree>``."""

_RAW = b"* -text !eol !filter !ident !working-tree-encoding\n"
"""Above all that a project's own attributes say: no file is converted on its way in or out."""
_CARRIED = ("filemode", "ignorecase", "symlinks", "precomposeunicode")
"""What git found out about the disk when the user's repository was made."""
_SIZES = ("size", "size-pack", "size-garbage")


class RepoSettings(NamedTuple):
    """What matters of the user's own repository."""

    objects: str = ""
    """Where it keeps its files, if ours can be found there too."""
    exclude: str = ""
    """Its list of ignored files that is not checked in."""
    excludes_file: str = ""
    """The user's list of ignored files for all repositories, if the configuration names one."""
    disk: tuple[tuple[str, str], ...] = ()


class Repository:
    """Snapshots of one checkout: where they are kept, and git set up to work on them."""

    def __init__(self, place: ProjectLocation, *, data: str | None = None, state: str | None = None) -> None:
        self.place = place
        self.store = os.path.join(data or paths.data(), "snapshot", place.id)
        home = os.path.join(state or paths.state(), "snapshots", place.id)
        self.bench = os.path.join(home, digest(os.path.realpath(place.directory)))
        self.locks = Locks(os.path.join(home, "locks"))
        self.disk = Disk(durable=False)
        self._facts: RepoSettings | None = None

    @property
    def facts(self) -> RepoSettings:
        """What matters of the user's own repository, as it was when first asked for."""
        if self._facts is None:
            self._facts = facts_of(self.place.sandbox)
        return self._facts

    @property
    def index(self) -> str:
        """What git knows of the files from the last time it looked."""
        return os.path.join(self.bench, "index")

    def prepare(self) -> Git:
        """Git on the bench, with the store to write to. What is missing is made."""
        with self.locks.exclusive("store"):
            self._make_store()
            self._borrow(self.facts.objects)
        self._make_bench(self.facts)
        return self.git()

    def git(self) -> Git:
        """Git on the bench as it is."""
        environment = surroundings(
            GIT_DIR=self.bench,
            GIT_WORK_TREE=self.place.sandbox,
            GIT_OBJECT_DIRECTORY=os.path.join(self.store, "objects"),
        )
        return Git(self.place.sandbox, environment)

    def reader(self) -> Git:
        """Git to look into the store with; it makes nothing, and finds nothing where there is no store."""
        environment = surroundings(GIT_DIR=self.store, GIT_WORK_TREE=self.place.sandbox)
        if self.facts.objects:
            # The store may know the user's repository only where it was before it moved.
            environment["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = _quoted(self.facts.objects)
        return Git(self.place.sandbox, environment)

    def store_git(self, *, seconds: float = SECONDS) -> Git:
        """Git on the store itself, for its references and its size."""
        # The store names the checkout it was made for, and git does nothing at all once the folder above that is gone.
        return Git(self.store, surroundings(GIT_DIR=self.store, GIT_WORK_TREE=self.store), seconds=seconds)

    def size(self) -> int:
        """The bytes that the project's snapshots take. What the user's own repository holds is not among them."""
        if not os.path.isdir(self.store):
            return 0
        lines = self.store_git().run("count-objects", "-v").decode().splitlines()
        counts = dict(line.split(": ", 1) for line in lines if ": " in line)
        return sum(int(counts.get(name, 0)) for name in _SIZES) * 1024

    def pin(self, tree: str, day: int) -> None:
        """Keep a snapshot from being tidied away, by OpenCode or by us; the day says since when."""
        self.store_git().run("update-ref", f"{PINS}/{day}/{tree}", tree)

    def index_lock(self) -> Locks:
        """Held while the index is in use."""
        return Locks(os.path.join(self.bench, "locks"))

    def trusts_modes(self) -> bool:
        """Whether the disk knows which files may be executed."""
        return os.name != "nt" and ("filemode", "false") not in self.facts.disk

    def drop_index(self) -> None:
        """Forget what git knows of the files; the next look is a long one."""
        self.disk.remove(self.index)

    def drop_stale_lock(self) -> None:
        """A lock in the index's name, found by the one who holds ours, is that of a git that died."""
        self.disk.remove(f"{self.index}.lock")

    def _make_store(self) -> None:
        """As OpenCode makes it, under another name until it is whole: OpenCode takes any folder for a finished one."""
        if os.path.exists(os.path.join(self.store, "HEAD")):
            self._check_format()
        elif os.path.isdir(self.store):
            self._initialise(self.store)
        else:
            unfinished = os.path.join(os.path.dirname(self.store), f".{self.place.id}.{os.getpid()}")
            os.makedirs(unfinished, exist_ok=True)
            self._initialise(unfinished)
            os.rename(unfinished, self.store)

    def _initialise(self, folder: str) -> None:
        git = Git(folder, surroundings(GIT_DIR=folder, GIT_WORK_TREE=self.place.sandbox))
        git.run("init", "--quiet", "--template=", "--object-format=sha1")
        git.run("config", "core.autocrlf", "false")

    def _check_format(self) -> None:
        if b"objectformat" in read_or_empty(os.path.join(self.store, "config")).lower():
            raise SnapshotError(f"{self.store} is kept in a format other than SHA-1")

    def _borrow(self, objects: str) -> None:
        """Have git look into the user's repository before it stores a file again."""
        if not objects or "\n" in objects:
            return
        path = os.path.join(self.store, "objects", "info", "alternates")
        known = _lines(path)
        if objects not in known:
            self.disk.replace(path, b"".join(os.fsencode(line) + b"\n" for line in (*known, objects)))

    def _make_bench(self, facts: RepoSettings) -> None:
        settings = [("repositoryformatversion", "0"), ("bare", "false"), *facts.disk]
        if facts.excludes_file:
            settings.append(("excludesfile", _quoted(facts.excludes_file)))
        config = "[core]\n" + "".join(f"\t{name} = {value}\n" for name, value in settings)
        self.disk.make_folder(os.path.join(self.bench, "refs"))
        self._put("HEAD", b"ref: refs/heads/none\n")
        self._put("config", os.fsencode(config))
        self._put("info/attributes", _RAW)
        self.refresh_rules()

    def refresh_rules(self) -> bool:
        """Ignore what the user's repository ignores by a list that is not checked in; whether that has changed."""
        return self._put("info/exclude", read_or_empty(self.facts.exclude))

    def _put(self, name: str, data: bytes) -> bool:
        path = os.path.join(self.bench, *name.split("/"))
        if os.path.exists(path) and read_or_empty(path) == data:
            return False
        self.disk.replace(path, data)
        return True


def data_folder(store: Store) -> str:
    """The data folder that a store belongs to. One that belongs to none has a folder of its own among our state: in
    that of another store, whoever tidies up there would take its snapshots for forgotten ones."""
    if os.path.basename(store.place) == "storage" or os.path.isfile(store.place):
        return os.path.dirname(store.place)
    if os.path.isdir(os.path.join(store.place, "storage")):
        return store.place
    return os.path.join(paths.state(), "stores", digest(store.id))


def facts_of(sandbox: str) -> RepoSettings:
    """Look at the user's repository, without touching it. One that git will not look at has no facts."""
    git = Git(sandbox, surroundings(alone=False))
    try:
        shown = git.run("rev-parse", "--show-object-format", "--git-path", "objects", "--git-path", "info/exclude")
    except SnapshotError:
        return RepoSettings()
    kind, objects, exclude = (os.fsdecode(line) for line in shown.split(b"\n")[:3])
    settings = _settings(git)
    disk = tuple((name, settings[name]) for name in _CARRIED if settings.get(name) in ("true", "false"))
    return RepoSettings(
        objects=os.path.abspath(os.path.join(sandbox, objects)) if kind == "sha1" else "",
        exclude=os.path.abspath(os.path.join(sandbox, exclude)),
        excludes_file=os.path.expanduser(settings.get("excludesfile", "")),
        disk=disk,
    )


def _settings(git: Git) -> dict[str, str]:
    """The user's ``core.*`` settings, the last of each."""
    try:
        shown = split(git.run("config", "-z", "--get-regexp", r"^core\."))
    except SnapshotError:
        return {}
    pairs = (entry.partition("\n") for entry in shown)
    return {name.removeprefix("core."): value for name, _, value in pairs}


def _quoted(path: str) -> str:
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _lines(path: str) -> list[str]:
    return [os.fsdecode(line) for line in read_or_empty(path).split(b"\n") if line]
