"""Which project a directory belongs to.

A project is a git repository, named by its first root commit so that every clone and worktree of it agrees; everything
outside of one is the project ``global``. Nothing is written into a repository unless asked: OpenCode keeps the name in
``.git/opencode``, and we read it there.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from . import ids
from .errors import InvalidKeyError, NotFoundError, OpenseshError, RecordError
from .flags import Flags
from .records import Document, Project, as_list, as_object, view
from .storage import keys
from .storage.keys import GLOBAL, check_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .storage.protocol import Store

_GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.quotepath=false")


class ProjectLocation(Struct, frozen=True):
    """A directory, and where it belongs."""

    directory: str
    """As it was asked for."""
    id: str
    """The project's name: a commit hash, what a newer OpenCode left in its place, or ``global``."""
    worktree: str
    """The main checkout; ``/`` outside of version control."""
    sandbox: str
    """This checkout: the same as ``worktree``, unless it is a linked one."""
    vcs: str | None
    note: str | None = None
    """Why the answer is less than one would expect, if it is."""


def resolve(directory: str | os.PathLike[str], *, remember: bool = False) -> ProjectLocation:
    """Find the project of ``directory``. With ``remember``, leave its id in ``.git/opencode`` as OpenCode does."""
    directory = os.path.abspath(directory)
    marker = _git_marker(directory)
    if marker is None:
        return ProjectLocation(directory, GLOBAL, "/", "/", _fake_vcs(os.environ))
    sandbox = os.path.dirname(marker)
    cached = _cached_id(marker)
    git = _Git(sandbox)
    roots = () if cached else git.lines("rev-list", "--max-parents=0", "--all")
    top = os.path.abspath(os.path.join(sandbox, git.line("rev-parse", "--show-toplevel")))
    if git.missing:
        note = "git is not installed, so the repository could not be looked at"
        return ProjectLocation(directory, cached or GLOBAL, sandbox, sandbox, _fake_vcs(os.environ), note)
    identity = cached or min(roots, default="")
    if not identity:
        return ProjectLocation(
            directory, GLOBAL, sandbox, sandbox, "git", git.complaint or "the repository has no commits yet"
        )
    if remember and not cached:
        _remember(marker, identity)
    common = os.path.dirname(git.line("rev-parse", "--git-common-dir", cwd=top))
    worktree = top if common in ("", ".") else os.path.abspath(os.path.join(top, common))
    return ProjectLocation(directory, identity, worktree, top, "git", git.complaint)


def other_ids(location: ProjectLocation) -> tuple[str, ...]:
    """Other names under which this project's sessions may be filed: by root commit, and by remote as newer versions
    do."""
    if location.vcs != "git" or location.id == GLOBAL:
        return ()
    git = _Git(location.sandbox)
    names = {*git.lines("rev-list", "--max-parents=0", "--all"), remote_id(git.line("remote", "get-url", "origin"))}
    return tuple(sorted(names - {location.id, ""}))


def remote_id(url: str) -> str:
    """The id that OpenCode 1.15.11 and later give to a repository with this ``origin``; empty for a local one."""
    import re
    from hashlib import sha1

    found = re.fullmatch(r"(?:https?|ssh|git)://(?:[^@/]*@)?([^/:]+)(?::\d+)?/(.+)", url) or re.fullmatch(
        r"(?:[^@/]+@)?([^/:]+):(?!/)(.+)", url
    )
    if not found:
        return ""
    path = found[2].strip("/").removesuffix(".git")
    return sha1(f"git-remote:{found[1].lower()}/{path}".encode(), usedforsecurity=False).hexdigest()


def register(store: Store, location: ProjectLocation) -> Project:
    """Record that the project is in use, and take in the sessions of ``global`` that belong to it.

    Adoption happens once, when the project is first seen: the sessions whose directory is the project's worktree.
    """
    key = keys.project(location.id)
    now = ids.now_ms()
    try:
        record: Document = store.update(key, lambda known: _refresh(known, location, now))
    except (NotFoundError, RecordError):
        record = {
            "id": location.id,
            "worktree": location.worktree,
            "vcs": location.vcs,
            "sandboxes": [],
            "time": {"created": now},
        }
        if location.id != GLOBAL:
            adopt(store, location)
        _refresh(record, location, now)
        store.write(key, record)
    return view(record, Project, store.locate(key))


def initialized(store: Store, location: ProjectLocation) -> None:
    """Record that the project has its instructions: the command ``init`` was executed in it."""
    now = ids.now_ms()

    def edit(record: Document) -> None:
        record["time"] = (as_object(record.get("time")) or {}) | {"initialized": now}

    with suppress(OpenseshError):  # which is no reason for the command to fail
        store.update(keys.project(location.id), edit)


def adopt(store: Store, location: ProjectLocation) -> list[str]:
    """Move the sessions of ``global`` that worked in ``location.worktree`` to its project; their ids."""
    moved: list[str] = []
    for key, session in store.scan(("session", GLOBAL)):
        if as_object(session) is None or session.get("directory") not in ("", None, location.worktree):
            continue
        store.write(keys.session(location.id, key[2]), session | {"projectID": location.id})
        store.remove(key)
        moved.append(key[2])
    return moved


def _refresh(record: Document, location: ProjectLocation, now: int) -> None:
    if as_object(record) is None:
        raise RecordError("a project's record is an object", place="$")
    record["worktree"] = location.worktree
    if location.vcs:
        record["vcs"] = location.vcs
    else:
        record.pop("vcs", None)
    sandboxes: list[Any] = as_list(record.get("sandboxes")) or []
    if location.sandbox != location.worktree and location.sandbox not in sandboxes:
        sandboxes = [*sandboxes, location.sandbox]
    record["sandboxes"] = [folder for folder in sandboxes if os.path.isdir(str(folder))]
    record["time"] = (as_object(record.get("time")) or {"created": now}) | {"updated": now}


class _Git:
    """Runs git in one folder, and remembers why it would not answer."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.missing = False
        self.complaint: str | None = None
        # A hook's or a parent's GIT_DIR would answer for another repository.
        self._environment = {name: value for name, value in os.environ.items() if name not in _MISLEADING}

    def lines(self, *arguments: str, cwd: str | None = None) -> tuple[str, ...]:
        try:
            done = subprocess.run(
                [*_GIT, *arguments],
                cwd=cwd or self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            )
        except OSError:
            self.missing = True
            return ()
        if b"dubious ownership" in done.stderr:
            self.complaint = f"git does not trust {self.folder}: it belongs to someone else (see git's safe.directory)"
        return tuple(line.strip() for line in os.fsdecode(done.stdout).splitlines() if line.strip())

    def line(self, *arguments: str, cwd: str | None = None) -> str:
        return next(iter(self.lines(*arguments, cwd=cwd)), "")


_MISLEADING = frozenset(
    (
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_COMMON_DIR",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX",
        "GIT_NAMESPACE",
    )
)


def _git_marker(directory: str) -> str | None:
    folder = directory
    while True:
        marker = os.path.join(folder, ".git")
        if os.path.lexists(marker):
            return marker
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above


def _cached_id(marker: str) -> str:
    """What OpenCode left in ``.git/opencode``, if it can be a name at all."""
    try:
        with open(os.path.join(marker, "opencode"), encoding="utf-8") as file:
            text = file.read(256).strip()
        return check_key((text,))[0]
    except (OSError, UnicodeDecodeError, InvalidKeyError):
        return ""


def _remember(marker: str, identity: str) -> None:
    try:
        with open(os.path.join(marker, "opencode"), "w", encoding="utf-8") as file:
            file.write(identity)
    except OSError:
        return  # a linked worktree, or a repository that is not ours to write in


def _fake_vcs(environment: Mapping[str, str]) -> str | None:
    flags = Flags(environment)
    fake = flags.fake_vcs
    if fake not in (None, "git"):
        raise OpenseshError(f"{flags.variable('FAKE_VCS')} can only be 'git', not {fake!r}")
    return fake
