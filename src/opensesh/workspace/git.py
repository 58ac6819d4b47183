"""Runs git isolated from the user's own settings, hooks and environment, and reads objects from snapshots."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from .. import safe_git
from ..errors import SnapshotError
from .files import ABSENT, FileState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TIMEOUT_SECONDS = 300.0

_SETTINGS = {
    "core.autocrlf": "false",
    "core.safecrlf": "false",
    "core.quotepath": "false",
    "core.fsmonitor": "false",
    "core.untrackedCache": "false",
    "core.splitIndex": "false",
    "core.longpaths": "true",
    "core.hooksPath": os.devnull,
    "core.attributesFile": os.devnull,
    "gc.auto": "0",
    "maintenance.auto": "false",
}
_COMMAND = ("git", *(word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}")))
_ISOLATED = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
}
_ALWAYS = {
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "LC_ALL": "C",
    **safe_git.VARIABLES,
}


def git_environment(*, isolated: bool = True, **variables: str) -> dict[str, str]:
    """Return an environment for git: without inherited ``GIT_`` variables (of a hook, say), plus ``variables``.

    ``isolated`` keeps out the user's and the system's configuration as well.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.upper().startswith("GIT_")}
    return inherited | _ALWAYS | (_ISOLATED if isolated else {}) | variables


class Git:
    """git in one folder, with one environment."""

    def __init__(
        self, folder: str, environment: Mapping[str, str], *, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        self.folder = folder
        self.environment = dict(environment)
        self._timeout_seconds = timeout_seconds

    def run(self, *arguments: str, stdin: bytes | None = None) -> bytes:
        """Run git and return its output. Raises :class:`SnapshotError` with its error output if it fails."""
        return self.finish(self.start(*arguments, pipe_stdin=stdin is not None), stdin)

    def line(self, *arguments: str) -> str:
        """Run git and return the one line that it prints."""
        return os.fsdecode(self.run(*arguments)).rstrip("\n")

    def names(self, *arguments: str) -> list[str]:
        """Run git and return its output, split at NUL characters."""
        return split(self.run(*arguments))

    def start(self, *arguments: str, pipe_stdin: bool = False) -> subprocess.Popen[bytes]:
        """Start git; :meth:`finish` waits for it."""
        try:
            return subprocess.Popen(
                [*_COMMAND, *arguments],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.PIPE if pipe_stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        except FileNotFoundError:
            missing = "git is not installed" if os.path.isdir(self.folder) else f"{self.folder} does not exist"
            raise SnapshotError(missing) from None
        except OSError as error:
            raise SnapshotError(f"git cannot be run in {self.folder}: {error.strerror or error}") from error

    def finish(self, process: subprocess.Popen[bytes], stdin: bytes | None = None) -> bytes:
        """Wait for a git process and return its output."""
        with process:
            try:
                output, errors = process.communicate(stdin, timeout=self._timeout_seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                raise SnapshotError(f"git did not end within {self._timeout_seconds:g} s: {_shown(process)}") from None
            except BaseException:
                process.kill()
                raise
        if process.returncode:
            reason = errors.decode("utf-8", "replace").strip() or f"exit status {process.returncode}"
            raise SnapshotError(f"{_shown(process)}: {reason}", status=process.returncode)
        return output


def split(output: bytes) -> list[str]:
    """Split names that git printed with ``-z``. Bytes that are not UTF-8 become surrogates."""
    return [os.fsdecode(name) for name in output.split(b"\0")[:-1]]


def join(names: Iterable[str]) -> bytes:
    """Join names as git reads them with ``-z``."""
    return b"".join(os.fsencode(name) + b"\0" for name in names)


def _shown(process: subprocess.Popen[bytes]) -> str:
    words = [str(word) for word in process.args[len(_COMMAND) :]] if isinstance(process.args, list) else []
    return " ".join(["git", *words[:3]])


_TREE = "40000"


class SnapshotObjects:
    """Reads files from snapshots through one ``git cat-file --batch``, until the end of the ``with`` block."""

    def __init__(self, git: Git, *, empty: bool = False) -> None:
        """``empty`` means that the repository does not exist yet, so that git must not be started."""
        self._git = git
        self._empty = empty
        self._process: subprocess.Popen[bytes] | None = None
        self._trees: dict[str, dict[bytes, FileState] | None] = {}

    def __enter__(self) -> SnapshotObjects:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the git process."""
        if self._process is not None:
            self._process.communicate()
            self._process = None

    def state(self, tree: str, name: str) -> FileState | None:
        """Return the state of a file in a snapshot; ``None`` if the snapshot is incomplete."""
        *above, last = name.encode("utf-8", "surrogateescape").split(b"/")
        for step in above:
            entries = self._tree(tree)
            if entries is None:
                return None
            entry = entries.get(step, ABSENT)
            if entry.mode != _TREE:
                return ABSENT
            tree = entry.oid
        entries = self._tree(tree)
        if entries is None:
            return None
        entry = entries.get(last, ABSENT)
        return ABSENT if entry.mode == _TREE else entry

    def content(self, oid: str) -> bytes | None:
        """Return the content of a blob; ``None`` if the repository does not have it."""
        git_object = self._read(oid)
        return git_object[1] if git_object is not None and git_object[0] == b"blob" else None

    def _tree(self, oid: str) -> dict[bytes, FileState] | None:
        if oid not in self._trees:
            git_object = self._read(oid)
            if git_object is None or git_object[0] != b"tree":
                self._trees[oid] = None
                return None
            data, at = git_object[1], 0
            entries: dict[bytes, FileState] = {}
            while at < len(data):
                space = data.index(b" ", at)
                end = data.index(b"\0", space)
                entries[data[space + 1 : end]] = FileState(data[end + 1 : end + 21].hex(), data[at:space].decode())
                at = end + 21
            self._trees[oid] = entries
        return self._trees[oid]

    def _read(self, oid: str) -> tuple[bytes, bytes] | None:
        """Return the type and the bytes of an object."""
        if self._empty or not oid.isalnum() or not oid.isascii():
            return None
        if self._process is None:
            self._process = self._git.start("cat-file", "--batch", pipe_stdin=True)
        requests, replies = self._process.stdin, self._process.stdout
        if requests is None or replies is None:
            raise SnapshotError("git was started without pipes")
        try:
            requests.write(oid.encode() + b"\n")
            requests.flush()
        except OSError as error:
            raise SnapshotError("git ended unexpectedly") from error
        head = replies.readline().split()
        if len(head) != 3:
            return None
        data = replies.read(int(head[2]))
        replies.read(1)
        return head[1], data
