"""Run one shell command: select the shell, capture the output, enforce the timeout.

Process groups and the search for detached children are in :mod:`.process`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import shlex
import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from ...errors import ToolFailedError
from ..truncation import OutputPreview
from . import process
from .known_commands import shell_language

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from io import FileIO

    from ..truncation import Outputs
    from .lexer import ShellLanguage

log = logging.getLogger("opensesh.tools")

MAX_CAPTURE_FILE_BYTES = 64 * 1024 * 1024
PROGRESS_CHARACTERS = 30_000
_PROGRESS_INTERVAL_SECONDS = 0.2

_NON_POSIX = frozenset(("fish", "nu", "elvish", "xonsh", "csh", "tcsh", "pwsh", "powershell"))

# A shell reads aliases from these files only when it is interactive, and applies them only to lines parsed afterwards.
_START_UP = {
    "bash": "[ -f ~/.bashrc ] && . ~/.bashrc >/dev/null 2>&1\nshopt -s expand_aliases",
    "zsh": '[ -f "${ZDOTDIR:-$HOME}/.zshrc" ] && . "${ZDOTDIR:-$HOME}/.zshrc" >/dev/null 2>&1',
}


class Shell(NamedTuple):
    """A program that runs command lines."""

    path: str
    language: ShellLanguage

    def arguments(self, command: str) -> list[str]:
        """Return the program and arguments that run ``command``."""
        if os.path.basename(self.path).lower().startswith("cmd"):
            return [self.path, "/d", "/s", "/c", command]
        return [self.path, "-c", command]

    def interactive_arguments(self, command: str) -> list[str]:
        """Return the arguments for a command typed by the user, with the aliases and functions of an interactive
        shell."""
        name = _shell_name(self.path)
        if name in _START_UP:
            return [self.path, "-l", "-c", f"{_START_UP[name]}\neval {shlex.quote(command)}"]
        if name in ("pwsh", "powershell"):
            return [self.path, "-NoProfile", "-Command", command]
        return self.arguments(command)


def user_shell(environment: Mapping[str, str]) -> Shell:
    """Return the user's own shell, including those that are not POSIX."""
    own = environment.get("SHELL", "")
    path = shutil.which(own, path=environment.get("PATH")) if own else None
    return Shell(path, "other") if path and _shell_name(own) in _NON_POSIX else select_shell(environment)


def select_shell(environment: Mapping[str, str]) -> Shell:
    """Return the user's shell if it understands POSIX syntax; otherwise bash, otherwise any available shell."""
    own = environment.get("SHELL", "")
    search_path = environment.get("PATH")
    if own and _shell_name(own) not in _NON_POSIX and (path := shutil.which(own, path=search_path)):
        return _posix_shell(path)
    if os.name == "nt":
        # Git's bash, located through git itself: the bash.exe on the PATH may be WSL's.
        git = shutil.which("git", path=search_path)
        bash = os.path.join(os.path.dirname(os.path.dirname(git)), "bin", "bash.exe") if git else ""
        if bash and os.path.exists(bash):
            return Shell(bash, "bash")
        return Shell(environment.get("COMSPEC", "cmd.exe"), "other")
    for candidate in ("bash", "/bin/bash", "sh"):
        if path := shutil.which(candidate, path=search_path):
            return _posix_shell(path)
    return Shell("/bin/sh", "posix")


def _posix_shell(path: str) -> Shell:
    return Shell(path, shell_language(_shell_name(path)))


def _shell_name(path: str) -> str:
    return os.path.basename(path).lower().removesuffix(".exe")


class Capture:
    """Output of a running command: the tail in memory, everything in a file once it is too long to show.

    Memory use is bounded, for any amount of output.
    """

    def __init__(self, outputs: Outputs, max_file_bytes: int = MAX_CAPTURE_FILE_BYTES) -> None:
        self._outputs = outputs
        self._max_file_bytes = max_file_bytes
        self._max_memory_bytes = max(4 * outputs.max_bytes, 4 * PROGRESS_CHARACTERS)
        self._tail = bytearray()
        self._too_long = False
        self._file: FileIO | None = None
        self._file_bytes = 0
        self.size = 0
        """Bytes received so far."""
        self._newlines = 0
        self._path: str | None = None

    def feed(self, data: bytes) -> None:
        """Add output."""
        self.size += len(data)
        self._newlines += data.count(b"\n")
        self._tail += data
        if self._too_long:
            self._write(data)
        elif self.size > self._outputs.max_bytes or self._newlines >= self._outputs.max_lines:
            self._too_long = True
            try:
                self._path, self._file = self._outputs.new_file()
            except OSError as error:
                log.warning("cannot save the output of a command: %s", error)
            self._write(bytes(self._tail))
        if len(self._tail) > 2 * self._max_memory_bytes:
            del self._tail[: -self._max_memory_bytes]

    def _write(self, data: bytes) -> None:
        remaining = self._max_file_bytes - self._file_bytes
        if self._file is None or remaining <= 0:
            return
        try:
            self._file_bytes += self._file.write(data[:remaining]) or 0
        except OSError as error:
            log.warning("cannot continue saving the output of a command: %s", error)
            self._file.close()
            self._file = self._path = None

    def recent(self) -> str:
        """Return the end of the output, for display while the command runs."""
        text = self._decoded_tail()
        if len(text) <= PROGRESS_CHARACTERS and self.size == len(self._tail):
            return text
        return "...\n\n" + text[-PROGRESS_CHARACTERS:]

    def finish(self) -> OutputPreview:
        """Return all output if it is short enough, otherwise the last lines and the path of the file with the rest."""
        self.close()
        text = self._decoded_tail()
        if not self._too_long:
            return OutputPreview(text, truncated=False)
        fit = self._outputs.fit(text.split("\n"), "tail")
        cut = f"{self.size - fit.size} bytes" if fit.by_size else f"{self._newlines + 1 - fit.lines} lines"
        return OutputPreview(self._outputs.notice(fit.text, cut, self._path, "tail"), truncated=True, path=self._path)

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._file is None:
            return
        lost = self.size - self._file_bytes
        with suppress(OSError):
            if lost:
                self._file.write(f"\n[{lost} more bytes were not saved]\n".encode())
        self._file.close()
        self._file = None

    def _decoded_tail(self) -> str:
        data = bytes(self._tail)
        if self.size > len(data):  # the tail may begin inside a UTF-8 sequence: skip to the next character
            data = data[next((index for index in range(4) if data[index] & 0xC0 != 0x80), 0) :]
        return data.decode("utf-8", "replace")


async def _ignore_progress(output: str) -> None:
    pass


class CommandRun:
    """A single execution of a command. Call :meth:`run` once."""

    def __init__(
        self,
        outputs: Outputs,
        *,
        timeout_ms: float = math.inf,
        grace_seconds: float = process.GRACE_SECONDS,
        on_output: Callable[[str], Awaitable[None]] = _ignore_progress,
        stop_background: bool = False,
    ) -> None:
        """``on_output`` receives the end of the output when the command starts, while output grows, and when the run is
        cancelled. ``stop_background``: end what the command leaves running."""
        self._timeout_ms = timeout_ms
        self._grace_seconds = grace_seconds
        self._on_output = on_output
        self._stop_background = stop_background
        self._capture = Capture(outputs)
        self.notes: list[str] = []
        """Remarks for the reader of the output: a timeout, a background process."""
        self.exit_code: int | None = None
        """As a shell reports it: 128 plus the signal number if a signal ended the command. ``None`` if the command was
        stopped here."""

    @property
    def recent(self) -> str:
        """The end of the output so far."""
        return self._capture.recent()

    async def run(
        self, arguments: list[str], directory: str, environment: Mapping[str, str], *, stderr: bool = True
    ) -> OutputPreview:
        """Run the command and return its output, truncated to the limits. ``stderr=False`` discards standard error.

        Cancellation ends the command and every process it started.
        """
        await self._on_output(self.recent)
        try:
            running = await process.start(
                arguments, cwd=directory, env=environment, on_data=self._capture.feed, stderr=stderr
            )
        except OSError as error:
            raise ToolFailedError(f"{arguments[0]} could not be started: {error.strerror or error}") from error
        except asyncio.CancelledError:
            self._capture.close()
            await self._on_output(self.recent)
            raise
        try:
            if await self._wait(running):
                code = running.exit_code
                self.exit_code = code if code is None or code >= 0 else 128 - code
        except BaseException as error:
            await running.stop(self._grace_seconds)
            if isinstance(error, asyncio.CancelledError):
                await self._on_output(self.recent)
            raise
        finally:
            running.close()
            self._capture.close()
        return self.finish()

    def finish(self) -> OutputPreview:
        """Return the output so far, truncated to the limits."""
        return self._capture.finish()

    async def _wait(self, running: process.Process) -> bool:
        """Wait for the exit or the timeout; return whether the command exited by itself."""
        deadline = time.monotonic() + self._timeout_ms / 1000
        reported_size = 0
        while not await running.wait(min(_PROGRESS_INTERVAL_SECONDS, max(0.0, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                await running.stop(self._grace_seconds)
                await running.drain()
                self.notes.append(
                    f"The command exceeded its timeout of {self._timeout_ms:g} ms and was stopped. "
                    "If it needs more time, run it again with a larger timeout."
                )
                return False
            if self._capture.size != reported_size:
                reported_size = self._capture.size
                await self._on_output(self.recent)
        if self._stop_background:
            await running.stop(self._grace_seconds)
        if not await running.drain():
            self.notes.append(
                "A background process of the command still has the output open. What it writes from now on is lost, "
                "and writing may end it: redirect its output to a file."
            )
        return True
