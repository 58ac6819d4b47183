"""Runs git so that nothing of the user's own settings, hooks or surroundings takes part."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from ..errors import SnapshotError
from .files import ABSENT, FileState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

SECONDS = 300.0
"""After so long a git that has not answered is ended."""

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
_ALONE = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
}
_ALWAYS = {
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}


def surroundings(*, alone: bool = True, **variables: str) -> dict[str, str]:
    """An environment for git: without any ``GIT_`` variable that a hook or a shell may have left, then ``variables``.

    ``alone`` keeps the user's and the system's configuration out as well.
    """
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith("GIT_")}
    return kept | _ALWAYS | (_ALONE if alone else {}) | variables


class Git:
    """git in one folder, with one environment."""

    def __init__(self, folder: str, environment: Mapping[str, str], *, seconds: float = SECONDS) -> None:
        self.folder = folder
        self.environment = dict(environment)
        self._seconds = seconds

    def run(self, *arguments: str, given: bytes | None = None) -> bytes:
        """What git prints; :class:`SnapshotError` with what it complained of, if it does not succeed."""
        return self.finish(self.start(*arguments, feed=given is not None), given)

    def line(self, *arguments: str) -> str:
        """The one line that git prints."""
        return os.fsdecode(self.run(*arguments)).rstrip("\n")

    def names(self, *arguments: str, given: bytes | None = None) -> list[str]:
        """What git prints, taken apart at its NULs."""
        return split(self.run(*arguments, given=given))

    def start(self, *arguments: str, feed: bool = False) -> subprocess.Popen[bytes]:
        """A git at work; :meth:`finish` waits for it."""
        try:
            return subprocess.Popen(
                [*_COMMAND, *arguments],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.PIPE if feed else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        except FileNotFoundError:
            missing = "git is not installed" if os.path.isdir(self.folder) else f"there is no folder {self.folder}"
            raise SnapshotError(missing) from None
        except OSError as error:
            raise SnapshotError(f"git cannot be run in {self.folder}: {error.strerror or error}") from error

    def finish(self, process: subprocess.Popen[bytes], given: bytes | None = None) -> bytes:
        """What it printed, once it is done."""
        with process:
            try:
                printed, said = process.communicate(given, timeout=self._seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                raise SnapshotError(f"git did not end within {self._seconds:g} s: {_shown(process)}") from None
            except BaseException:
                process.kill()
                raise
        if process.returncode:
            reason = said.decode("utf-8", "replace").strip() or f"exit status {process.returncode}"
            raise SnapshotError(f"{_shown(process)}: {reason}", status=process.returncode)
        return printed


def split(printed: bytes) -> list[str]:
    """Names that git printed with ``-z``; bytes that are no text are carried along."""
    return [os.fsdecode(name) for name in printed.split(b"\0")[:-1]]


def join(names: Iterable[str]) -> bytes:
    """Names as git takes them with ``-z``."""
    return b"".join(os.fsencode(name) + b"\0" for name in names)


def _shown(process: subprocess.Popen[bytes]) -> str:
    words = [str(word) for word in process.args[len(_COMMAND) :]] if isinstance(process.args, list) else []
    return " ".join(["git", *words[:3]])


_TREE = "40000"


class SnapshotObjects:
    """Answers questions about snapshots, from git's store, until the end of the ``with`` block."""

    def __init__(self, git: Git, *, empty: bool = False) -> None:
        """``empty`` is a store that nobody has made yet: git would refuse to look into it."""
        self._git = git
        self._empty = empty
        self._process: subprocess.Popen[bytes] | None = None
        self._trees: dict[str, dict[bytes, FileState] | None] = {}

    def __enter__(self) -> SnapshotObjects:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let git go."""
        if self._process is not None:
            self._process.communicate()
            self._process = None

    def state(self, tree: str, name: str) -> FileState | None:
        """The file called ``name`` in a snapshot; ``None`` if the snapshot cannot tell any more."""
        *above, last = name.encode("utf-8", "surrogateescape").split(b"/")
        for step in above:
            entries = self._tree(tree)
            if entries is None:
                return None
            found = entries.get(step, ABSENT)
            if found.mode != _TREE:
                return ABSENT
            tree = found.oid
        entries = self._tree(tree)
        if entries is None:
            return None
        found = entries.get(last, ABSENT)
        return ABSENT if found.mode == _TREE else found

    def content(self, oid: str) -> bytes | None:
        """What a file holds; ``None`` if the store has lost it."""
        found = self._read(oid)
        return found[1] if found is not None and found[0] == b"blob" else None

    def _tree(self, oid: str) -> dict[bytes, FileState] | None:
        if oid not in self._trees:
            found = self._read(oid)
            self._trees[oid] = _entries(found[1]) if found is not None and found[0] == b"tree" else None
        return self._trees[oid]

    def _read(self, oid: str) -> tuple[bytes, bytes] | None:
        """The kind and the bytes of an object."""
        if self._empty or not oid.isalnum() or not oid.isascii():
            return None
        if self._process is None:
            self._process = self._git.start("cat-file", "--batch", feed=True)
        asking, answering = self._process.stdin, self._process.stdout
        if asking is None or answering is None:
            raise SnapshotError("git cannot be talked to")
        try:
            asking.write(oid.encode() + b"\n")
            asking.flush()
        except OSError as error:
            raise SnapshotError("git ended in the middle of a conversation") from error
        head = answering.readline().split()
        if len(head) != 3:
            return None
        data = answering.read(int(head[2]))
        answering.read(1)
        return head[1], data


def _entries(data: bytes) -> dict[bytes, FileState]:
    entries: dict[bytes, FileState] = {}
    place = 0
    while place < len(data):
        space = data.index(b" ", place)
        end = data.index(b"\0", space)
        entries[data[space + 1 : end]] = FileState(data[end + 1 : end + 21].hex(), data[place:space].decode())
        place = end + 21
    return entries
