"""The project of a directory.

A project is a git repository; everything outside a repository is the project ``global``. All clones and worktrees
share its id. OpenCode up to 1.15.10 takes the first root commit, or the id that is cached in ``.git/opencode``; later
versions take the remote ``origin``, if there is one, before both. A session must be filed as the OpenCode that is to
show it would file it, so :func:`resolve` goes by the conventions of a store.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from . import ids
from .errors import NotFoundError, OpenseshError, RecordError
from .flags import Flags
from .records import Document, Project, as_list, as_object
from .storage import keys
from .storage.disk import read_file
from .storage.keys import GLOBAL
from .storage.project_ids import GitCommand, cached_id, git_marker
from .storage.protocol import Conventions, Store, conventions_of
from .storage.record_ids import project_at

if TYPE_CHECKING:
    from collections.abc import Mapping


class ProjectLocation(Struct, frozen=True):
    """A directory, and where it belongs."""

    directory: str
    """As it was asked for."""
    id: str
    """The project's id: a commit hash, the id that a newer OpenCode cached, or ``global``."""
    worktree: str
    """The main checkout; ``/`` outside version control."""
    sandbox: str
    """This checkout: the same as ``worktree``, unless it is a linked one."""
    vcs: str | None
    note: str | None = None
    """Why the project could not be identified, if so."""

    @property
    def path(self) -> str | None:
        """The directory relative to the checkout, empty at its top; ``None`` if it is reached through a link."""
        top = os.path.join(self.sandbox, "")
        inside = os.path.join(self.directory, "")
        return inside.removeprefix(top).rstrip(os.sep) if inside.startswith(top) else None

    def contains(self, real_path: str) -> bool:
        """Return whether a real path is in this checkout, or in the directory."""
        roots = [self.directory, *([self.sandbox] if self.sandbox != os.sep else [])]
        return any(
            os.path.join(real_path, "").startswith(os.path.join(root, "")) for root in map(os.path.realpath, roots)
        )


def resolve(
    directory: str | os.PathLike[str], *, store: Store | None = None, remember: bool = False
) -> ProjectLocation:
    """Return the project of ``directory``, as the OpenCode that uses ``store`` identifies it (without one: as 1.1).

    With ``remember``, cache its id in ``.git/opencode`` as OpenCode does. A name that no file system can have, as in an
    odd record, becomes one that does not exist.
    """
    name = os.fspath(directory).replace("\0", "\N{REPLACEMENT CHARACTER}")
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        name = name.encode(errors="replace").decode()
    directory = os.path.abspath(name)
    marker = git_marker(directory)
    if marker is None:
        return ProjectLocation(directory, GLOBAL, "/", "/", _fake_vcs(os.environ))
    sandbox = os.path.dirname(marker)
    git = GitCommand(sandbox)
    conventions = Conventions() if store is None else conventions_of(store)
    by_remote = conventions.projects_by_remote
    remote = remote_id(git.line("remote", "get-url", "origin")) if by_remote else ""
    cached = cached_id(_common_folder(marker) if by_remote else marker)
    known = store.list(("project",)) if store is not None and conventions.keeps_cached_projects else ()
    if remote and (keys.project(remote) in known or not cached or keys.project(cached) not in known):
        cached = remote
    roots = () if cached else git.lines("rev-list", "--max-parents=0", "HEAD" if by_remote else "--all")
    top = os.path.abspath(os.path.join(sandbox, git.line("rev-parse", "--show-toplevel")))
    if os.path.realpath(top) != os.path.realpath(sandbox):
        # By core.worktree, a repository would make any folder a part of its project, to which tools have access.
        top = sandbox
    if git.problem and _is_foreign(marker, directory):
        return ProjectLocation(directory, GLOBAL, "/", "/", _fake_vcs(os.environ), git.problem)
    if git.missing:
        note = "git is not installed, so the repository could not be examined"
        return ProjectLocation(directory, cached or GLOBAL, sandbox, sandbox, _fake_vcs(os.environ), note)
    identity = cached or min(roots, default="")
    if not identity:
        return ProjectLocation(
            directory, GLOBAL, sandbox, sandbox, "git", git.problem or "the repository has no commits yet"
        )
    if remember and not cached:
        # A linked worktree, or a read-only repository, cannot cache it.
        with suppress(OSError), open(os.path.join(marker, "opencode"), "wb", opener=_open_here) as file:
            file.write(identity.encode())
    common = os.path.dirname(git.line("rev-parse", "--git-common-dir", cwd=top))
    worktree = top if common in ("", ".") else os.path.abspath(os.path.join(top, common))
    return ProjectLocation(directory, identity, worktree, top, "git", git.problem)


def current_branch(location: ProjectLocation) -> str:
    """Return the branch that is checked out; empty outside version control, and for a detached HEAD."""
    return GitCommand(location.sandbox).line("branch", "--show-current") if location.vcs == "git" else ""


def other_ids(location: ProjectLocation) -> tuple[str, ...]:
    """Return other ids that OpenCode versions use for this project: by root commit, and by remote."""
    if location.vcs != "git" or location.id == GLOBAL:
        return ()
    git = GitCommand(location.sandbox)
    names = {*git.lines("rev-list", "--max-parents=0", "--all"), remote_id(git.line("remote", "get-url", "origin"))}
    return tuple(sorted(names - {location.id, ""}))


def remote_id(url: str) -> str:
    """Return the project id of OpenCode 1.15.11 and later for this ``origin``; empty for a local remote."""
    from hashlib import sha1

    remote = re.fullmatch(r"(?:https?|ssh|git)://(?:[^@/]*@)?([^/:]+)(?::\d+)?/(.+)", url) or re.fullmatch(
        r"(?:[^@/]+@)?([^/:]+):(?!/)(.+)", url
    )
    if not remote:
        return ""
    path = remote[2].strip("/").removesuffix(".git")
    return sha1(f"git-remote:{remote[1].lower()}/{path}".encode(), usedforsecurity=False).hexdigest()


def register(store: Store, location: ProjectLocation) -> Project:
    """Store or update the project's record.

    A new project adopts the sessions of ``global`` whose directory is its worktree.
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
    return project_at(key, record, store.locate(key))


def initialized(store: Store, location: ProjectLocation) -> None:
    """Record that the command ``init`` was executed in the project."""
    now = ids.now_ms()

    def edit(record: Document) -> None:
        record["time"] = (as_object(record.get("time")) or {}) | {"initialized": now}

    with suppress(OpenseshError):  # the command has succeeded and must not fail for this
        store.update(keys.project(location.id), edit)


def adopt(store: Store, location: ProjectLocation) -> list[str]:
    """Move the sessions of ``global`` in ``location.worktree`` to the project; return their ids."""
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


def _common_folder(marker: str) -> str:
    """Return the git folder that a linked worktree shares with its main checkout; the marker itself otherwise."""
    try:
        name = read_file(marker, limit=4096).decode().strip().removeprefix("gitdir: ")
        folder = os.path.join(os.path.dirname(marker), name)
        common = read_file(os.path.join(folder, "commondir"), limit=4096).decode().strip()
        return os.path.normpath(os.path.join(folder, common))
    except (OSError, ValueError):  # ValueError: not UTF-8, or a NUL in it
        return marker


def _is_foreign(marker: str, directory: str) -> bool:
    """Return whether a ``.git`` above a directory belongs to a user who has neither the directory nor this process.

    Such a user could make everything below ``/tmp`` one project, to all of which tools have access.
    """
    if not hasattr(os, "getuid"):
        return False
    try:
        return os.lstat(marker).st_uid not in (0, os.getuid(), os.stat(directory).st_uid)
    except OSError:
        return True


def _open_here(path: str, flags: int) -> int:
    """Open a file, but neither the target of a link, which a repository may have placed there, nor a named pipe."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o666)


def _fake_vcs(environment: Mapping[str, str]) -> str | None:
    flags = Flags(environment)
    fake = flags.fake_vcs
    if fake not in (None, "git"):
        raise OpenseshError(f"{flags.variable('FAKE_VCS')} can only be 'git', not {fake!r}")
    return fake
