"""Project ids as OpenCode 1.1 derives them from a git repository. Keys of sessions contain them."""

from __future__ import annotations

import os
import subprocess

from .. import safe_git
from ..errors import InvalidKeyError
from .disk import read_file
from .keys import GLOBAL, check_key

_GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.quotepath=false")
_TIMEOUT_SECONDS = 60
_REPOSITORY_VARIABLES = frozenset(
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


def project_id(worktree: str) -> str:
    """Return the id of the project of a worktree: the cached one, or the first root commit; else ``global``."""
    marker = git_marker(worktree) if os.path.isdir(worktree) else None
    if marker is None:
        return GLOBAL
    roots = GitCommand(os.path.dirname(marker)).lines("rev-list", "--max-parents=0", "--all")
    return cached_id(marker) or min(roots, default=GLOBAL)


class GitCommand:
    """Runs git in one folder and records why it failed."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.missing = False
        self.problem: str | None = None
        self._is_stuck = False
        # The GIT_DIR of a hook or a parent process would select another repository.
        inherited = {name: value for name, value in os.environ.items() if name not in _REPOSITORY_VARIABLES}
        self._environment = inherited | safe_git.VARIABLES

    def lines(self, *arguments: str, cwd: str | None = None) -> tuple[str, ...]:
        """Return the lines that git prints; none if it fails, or did not answer before."""
        if self._is_stuck:
            return ()
        try:
            done = subprocess.run(
                [*_GIT, *arguments],
                cwd=cwd or self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=_TIMEOUT_SECONDS,
            )
        except OSError:
            self.missing = True
            return ()
        except subprocess.TimeoutExpired:
            self._is_stuck = True
            self.problem = f"git did not answer within {_TIMEOUT_SECONDS} s in {self.folder}"
            return ()
        if b"dubious ownership" in done.stderr:
            self.problem = f"git does not trust {self.folder}: it belongs to another user (see git's safe.directory)"
        return tuple(line.strip() for line in os.fsdecode(done.stdout).splitlines() if line.strip())

    def line(self, *arguments: str, cwd: str | None = None) -> str:
        """Return the first line that git prints; empty if it fails."""
        return next(iter(self.lines(*arguments, cwd=cwd)), "")


def git_marker(directory: str) -> str | None:
    """Return the ``.git`` of a directory or of the nearest one above it."""
    folder = directory
    while True:
        marker = os.path.join(folder, ".git")
        if os.path.lexists(marker):
            return marker
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above


def cached_id(marker: str) -> str:
    """Return the id in ``.git/opencode``; empty without a valid one."""
    try:
        text = read_file(os.path.join(marker, "opencode"), limit=256).decode().strip()
        return check_key((text,))[0]
    except (OSError, UnicodeDecodeError, InvalidKeyError):
        return ""
