"""Runs git so that nothing of the user's own settings, hooks or surroundings takes part."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from ..errors import SnapshotError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
