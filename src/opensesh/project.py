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
from .records import Document, Project, as_list, as_object, object_at
from .storage import keys
from .storage.disk import read_file
from .storage.keys import GLOBAL
from .storage.project_ids import GitCommand, cached_id, git_marker
from .storage.protocol import Conventions, Store, conventions_of
from .storage.record_ids import project_at

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SPECIAL_SCHEMES = ("http", "https", "ftp", "ws", "wss")
_URL = re.compile(
    r"//(?:[^/?#]*@)?(?P<host>\[[^\]/?#]*\]|[^\[\]:/?#@]*)(?::(?P<port>[0-9]*))?(?P<path>/[^?#]*)?(?:[?#].*)?",
    re.DOTALL,
)
_ESCAPED = frozenset(b'"<>`{}^')


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
    conventions = Conventions() if store is None else conventions_of(store)
    directory = os.path.realpath(name) if conventions.projects_by_head else os.path.abspath(name)
    marker = git_marker(directory)
    if marker is None:
        return _outside(directory)
    sandbox = os.path.dirname(marker)
    git = GitCommand(sandbox)
    cached, roots = _identities(git, marker, store, conventions)
    identity = cached or min(roots, default="")
    top = os.path.abspath(os.path.join(sandbox, git.line("rev-parse", "--show-toplevel")))
    if os.path.realpath(top) != os.path.realpath(sandbox):
        # By core.worktree, a repository would make any folder a part of its project, to which tools have access.
        top = sandbox
    common = git.line("rev-parse", "--git-common-dir", cwd=top)
    is_read = bool(common) or not (git.missing or conventions.projects_by_head)
    note = git.problem
    if git.missing:
        note = "git is not installed, so the repository could not be examined"
    elif not is_read:
        note = note or f"git cannot read the repository in {sandbox}"
    if (git.problem and _is_foreign(marker, directory)) or (conventions.projects_by_remote and not is_read):
        return _outside(directory, note)
    if not (is_read and identity):
        vcs = "git" if is_read else _fake_vcs(os.environ)
        note = note or "the repository has no commits yet"
        return ProjectLocation(directory, cached or GLOBAL, sandbox, sandbox, vcs, note)
    if remember and not cached:
        # A linked worktree, or a read-only repository, cannot cache it.
        with suppress(OSError), open(os.path.join(marker, "opencode"), "wb", opener=_open_here) as file:
            file.write(identity.encode())
    return ProjectLocation(directory, identity, _main_checkout(top, common, conventions), top, "git", git.problem)


def _identities(
    git: GitCommand, marker: str, store: Store | None, conventions: Conventions
) -> tuple[str, Sequence[str]]:
    """Return the id of a repository's remote, or the one that it caches; without either, its root commits."""
    cached = cached_id(_common_folder(marker) if conventions.projects_by_head else marker)
    remote = remote_id(git.line("remote", "get-url", "origin")) if conventions.projects_by_remote else ""
    known = store.list(("project",)) if store is not None and conventions.keeps_cached_projects else ()
    if remote and (keys.project(remote) in known or not cached or keys.project(cached) not in known):
        cached = remote
    branches = "HEAD" if conventions.projects_by_head else "--all"
    return cached, () if cached else git.lines("rev-list", "--max-parents=0", branches)


def _main_checkout(top: str, common: str, conventions: Conventions) -> str:
    """Return the checkout beside the git folder that a linked worktree shares with others; ``top`` if there is none."""
    above = os.path.dirname(common)
    if above in ("", ".") or (conventions.projects_by_remote and os.path.basename(common) != ".git"):
        return top  # the folder above the git folder of a submodule, or a bare repository, is no checkout
    return os.path.abspath(os.path.join(top, above))


def _outside(directory: str, note: str | None = None) -> ProjectLocation:
    """Return the location of a directory outside of any repository, or in one that is not used."""
    return ProjectLocation(directory, GLOBAL, "/", "/", _fake_vcs(os.environ), note)


def current_branch(location: ProjectLocation) -> str:
    """Return the branch that is checked out, or ``HEAD`` if it is detached; empty outside version control."""
    return (GitCommand(location.sandbox).line("branch", "--show-current") or "HEAD") if location.vcs == "git" else ""


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

    host, path = _host_and_path(url.strip())
    path = re.sub(r"\.git/?$", "", path.lstrip("/")).rstrip("/")
    return (
        sha1(f"git-remote:{host.lower()}/{path}".encode(), usedforsecurity=False).hexdigest() if host and path else ""
    )


def _host_and_path(url: str) -> tuple[str, str]:
    """Return the host and the path of a remote, as JavaScript reads it if it is a URL; empty without a host.

    ``host:path`` is a URL without a host, unlike ``user@host:path``.
    """
    named = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", url)
    scheme, rest = (named[1].lower(), url[named.end() :]) if named else ("", "")
    is_special = scheme in _SPECIAL_SCHEMES
    if is_special:  # these have a host, however many slashes are before it
        rest = "//" + rest.replace("\\", "/").lstrip("/")
    if scheme == "file" or (scheme and not rest.startswith("//")):
        return "", ""
    match = _URL.fullmatch(rest) if scheme else None
    if match and int(match["port"] or 0) < 65_536 and (match["host"] or not is_special):
        host = _ascii_host(match["host"]) if is_special else match["host"]
        return host, _normalized(match["path"] or "/")
    match = re.fullmatch(r"(?:[^@/:]+@)?([^/:]+):(.+)", url)
    return (match[1], match[2]) if match else ("", "")


def _ascii_host(host: str) -> str:
    try:
        return host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:  # a name that no host can have
        return host


def _normalized(path: str) -> str:
    """Return the path of a URL without ``.`` and ``..``, and with its special characters as escapes."""
    names: list[str] = []
    for name in path.split("/")[1:]:
        dots = name.replace("%2e", ".").replace("%2E", ".")
        if dots == "..":
            names = names[:-1]
        elif dots != ".":
            names.append(name)
    text = "".join(f"/{name}" for name in names).encode(errors="replace")
    return "".join(chr(byte) if 32 < byte < 127 and byte not in _ESCAPED else f"%{byte:02X}" for byte in text)


def register(store: Store, location: ProjectLocation) -> Project:
    """Store or update the project's record.

    A new project adopts the sessions of ``global`` whose directory is its worktree.
    """
    key = keys.project(location.id)
    now = ids.now_ms()
    # All clones of a remote are one project, whose worktree stays the first of them.
    keeps_worktree = location.id != GLOBAL and conventions_of(store).projects_by_remote
    try:
        record: Document = store.update(key, lambda known: _refresh(known, location, now, keeps_worktree))
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
        _refresh(record, location, now, keeps_worktree)
        store.write(key, record)
    return project_at(key, record, store.locate(key))


def initialized(store: Store, location: ProjectLocation) -> None:
    """Record that the command ``init`` was executed in the project."""
    now = ids.now_ms()

    def edit(record: Document) -> None:
        record["time"] = object_at(record, "time") | {"initialized": now}

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


def _refresh(record: Document, location: ProjectLocation, now: int, keeps_worktree: bool) -> None:
    if as_object(record) is None:
        raise RecordError("a project's record is an object", place="$")
    if not (keeps_worktree and record.get("worktree")):
        record["worktree"] = location.worktree
    if location.vcs:
        record["vcs"] = location.vcs
    else:
        record.pop("vcs", None)
    sandboxes: list[Any] = as_list(record.get("sandboxes")) or []
    if location.sandbox not in (record["worktree"], *sandboxes):
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
