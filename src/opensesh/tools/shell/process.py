"""Processes of a shell command: start, wait, and end all of them.

A command is over when its shell exits, not when its output is closed: a background child may keep the output open
forever. The command runs in a process group of its own, so that one signal reaches all of it. A process that made
itself a daemon has left the group and the tree of children; it is found by a mark in its environment, which every
process inherits, where the system lists processes as files (``/proc``). One that clears its environment is not found.

A command does not outlive a runner that is killed: while it runs, its mark is known to a :class:`_Watcher`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from ...flags import SERVER_LOGIN_VARIABLES
from . import process_table
from .process_table import descendants, has_proc, marked_processes, processes, same_processes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

GRACE_SECONDS = 3.0
"""Time between SIGTERM and SIGKILL."""

_DRAIN_SECONDS = 0.25
"""Time to wait, after the command has exited, for output that is still in the pipe."""

MARK_VARIABLE = "OPENSESH_CALL"

log = logging.getLogger("opensesh.tools")


class _Watcher:
    """A process that outlives this one and then ends the commands that still run: ``process_table.py`` as a script.

    Started with the first command. A command is announced before it starts, so that there is no moment at which it
    could escape. Only where the system has ``/proc``.
    """

    def __init__(self) -> None:
        self._input: int | None = None
        self._runner = 0

    def announce(self, mark: str) -> None:
        """Let the processes with ``mark`` end with this one."""
        line = f"+{mark}\n".encode()
        if self._runner == os.getpid() and self._send(line):  # in a fork, it watches the original
            return
        self._runner = os.getpid()
        try:
            self._start()
        except OSError as error:
            self._input = None
            log.warning("commands would outlive this process if it were killed: %s", error)
        self._send(line)

    def forget(self, mark: str) -> None:
        """Let what still runs with ``mark`` go on: it was left in the background."""
        self._send(f"-{mark}\n".encode())

    def _start(self) -> None:
        reading, writing = os.pipe()
        actions: list[tuple[Any, ...]] = [(os.POSIX_SPAWN_DUP2, reading, 0)]
        actions += [(os.POSIX_SPAWN_OPEN, output, os.devnull, os.O_WRONLY, 0) for output in (1, 2)]
        arguments = [sys.executable, "-I", "-S", process_table.__file__, str(os.getpid())]
        environment = {name: value for name, value in os.environ.items() if name != MARK_VARIABLE}
        try:
            os.posix_spawn(sys.executable, arguments, environment, file_actions=actions)
        except OSError:
            os.close(writing)
            raise
        finally:
            os.close(reading)
        self._input = writing

    def _send(self, line: bytes) -> bool:
        """Send a line; return false if it is not running."""
        if self._input is None:
            return False
        try:
            os.write(self._input, line)
        except OSError:
            os.close(self._input)
            self._input = None
            return False
        return True


_watcher = _Watcher()


class Process(asyncio.SubprocessProtocol):
    """A running command. Created by :func:`start`; the caller must :meth:`close` it."""

    def __init__(self, on_data: Callable[[bytes], None], mark: str) -> None:
        """``mark`` is in the environment of every process that the command starts."""
        loop = asyncio.get_running_loop()
        self._on_data = on_data
        self._mark = mark
        self._exited: asyncio.Future[None] = loop.create_future()
        self._output_closed: asyncio.Future[None] = loop.create_future()
        self._transport: asyncio.SubprocessTransport | None = None

    @property
    def exit_code(self) -> int | None:
        """``None`` while the command runs; the negative signal number if a signal ended it."""
        return None if self._transport is None else self._transport.get_returncode()

    @property
    def pid(self) -> int:
        """The process id of the shell, which is also the id of the process group."""
        return 0 if self._transport is None else self._transport.get_pid()

    async def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for the command to exit; return whether it has."""
        await asyncio.wait([self._exited], timeout=seconds)
        return self._exited.done()

    async def drain(self) -> bool:
        """After the exit, read remaining output; return false if a background process still has the output open."""
        await asyncio.wait([self._output_closed], timeout=_DRAIN_SECONDS)
        return self._output_closed.done()

    async def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """End the command and everything it started: SIGTERM first, SIGKILL after ``grace_seconds``.

        Cancelling this sends SIGKILL at once.
        """
        # After the exit, the process id may belong to another process.
        targets = descendants(self.pid) if self.exit_code is None else {}
        targets |= marked_processes(self._mark)
        try:
            _signal(self.pid, targets, signal_name="SIGTERM")
            await self._wait_until_gone(targets, grace_seconds)
        finally:
            targets |= marked_processes(self._mark)  # those started in the meantime
            if self._is_running(targets):
                _signal(self.pid, targets, signal_name="SIGKILL")
        await self._wait_until_gone(targets, GRACE_SECONDS)

    async def _wait_until_gone(self, targets: Mapping[int, str], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._is_running(targets) and time.monotonic() < deadline:
            await asyncio.sleep(0.02)

    def _is_running(self, targets: Mapping[int, str]) -> bool:
        """Whether the command, its group or a target runs. Zombies do not count."""
        if self.exit_code is None:
            return True
        if has_proc():
            return any(entry.group == self.pid for entry in processes().values()) or bool(same_processes(targets))
        try:
            os.killpg(self.pid, 0)
        except (AttributeError, OSError):
            return False
        return True

    def close(self) -> None:
        """Close the output without waiting. Kills the command only if it still runs."""
        if self._transport is not None:
            self._transport.close()
        _watcher.forget(self._mark)

    # asyncio.SubprocessProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.SubprocessTransport):
            self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._on_data(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if not self._output_closed.done():
            self._output_closed.set_result(None)

    def process_exited(self) -> None:
        if not self._exited.done():
            self._exited.set_result(None)


async def start(
    arguments: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    on_data: Callable[[bytes], None],
    stderr: bool = True,
) -> Process:
    """Start a program without input; ``on_data`` receives its output, with standard error unless ``stderr`` is false.
    The login of a server is not passed on.

    Cancelling this leaves no process behind.
    """
    loop = asyncio.get_running_loop()
    options: dict[str, Any] = {"start_new_session": True}
    if os.name == "nt":
        options = {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}
    mark = secrets.token_hex(8)
    environment = {name: value for name, value in env.items() if name not in SERVER_LOGIN_VARIABLES}
    if has_proc():
        # A command that runs inside another one keeps the outer mark too.
        outer = env.get(MARK_VARIABLE)
        environment[MARK_VARIABLE] = f"{outer}:{mark}" if outer else mark
        _watcher.announce(mark)
    process = Process(on_data, mark)
    starting = loop.subprocess_exec(
        lambda: process,
        *arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if stderr else subprocess.DEVNULL,
        cwd=cwd,
        env=environment,
        **options,
    )
    # asyncio, cancelled here, would kill the program but not the processes it has started by then.
    started = asyncio.ensure_future(starting)
    try:
        await asyncio.shield(started)
    except asyncio.CancelledError:
        while not started.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([started])
        await process.stop(0)
        process.close()
        raise
    return process


def _signal(group: int, targets: Mapping[int, str], *, signal_name: Literal["SIGTERM", "SIGKILL"]) -> None:
    if os.name == "nt":
        force = ["/f"] if signal_name == "SIGKILL" else []
        subprocess.run(["taskkill", "/pid", str(group), "/t", *force], capture_output=True, check=False)
        return
    number = getattr(signal, signal_name)
    # Process ids are reused: signal only those that are still the same process.
    for send, target in [(os.killpg, group), *((os.kill, pid) for pid in same_processes(targets))]:
        try:
            send(target, number)
        except (ProcessLookupError, PermissionError):
            continue
