"""Processes of a shell command: start, wait, and end all of them.

A command is over when its shell exits, not when its output is closed: a background child may keep the output open
forever. The command runs in a process group of its own, so that one signal reaches all of it. A process that made
itself a daemon has left the group and the tree of children; it is found by a mark in its environment, which every
process inherits, where the system lists processes as files (``/proc``). One that clears its environment is not found.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

GRACE_SECONDS = 3.0
"""Time between SIGTERM and SIGKILL."""

_DRAIN_SECONDS = 0.25
"""Time to wait, after the command has exited, for output that is still in the pipe."""

MARK_VARIABLE = "OPENSESH_CALL"


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
        targets = _descendants(self.pid) if self.exit_code is None else {}
        targets |= _marked_processes(self._mark)
        try:
            _signal(self.pid, targets, signal_name="SIGTERM")
            await self._wait_until_gone(targets, grace_seconds)
        finally:
            targets |= _marked_processes(self._mark)  # those started in the meantime
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
            table = processes()
            members = any(entry.group == self.pid for entry in table.values())
            return members or any(pid in table and table[pid].started == started for pid, started in targets.items())
        try:
            os.killpg(self.pid, 0)
        except (AttributeError, OSError):
            return False
        return True

    def close(self) -> None:
        """Close the output without waiting. Kills the command only if it still runs."""
        if self._transport is not None:
            self._transport.close()

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

    Cancelling this leaves no process behind.
    """
    loop = asyncio.get_running_loop()
    options: dict[str, Any] = {"start_new_session": True}
    if os.name == "nt":
        options = {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}
    mark = secrets.token_hex(8)
    environment = dict(env)
    if has_proc():
        # A command that runs inside another one keeps the outer mark too.
        outer = env.get(MARK_VARIABLE)
        environment[MARK_VARIABLE] = f"{outer}:{mark}" if outer else mark
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
    table = processes() if targets else {}
    same = [pid for pid, started in targets.items() if pid in table and table[pid].started == started]
    for send, target in [(os.killpg, group), *((os.kill, pid) for pid in same)]:
        try:
            send(target, number)
        except (ProcessLookupError, PermissionError):
            continue


class ProcessEntry(NamedTuple):
    """A row of the system's process table."""

    parent: int
    group: int
    started: str
    """Start time in clock ticks, as ``/proc`` has it. With the process id it identifies a process."""


def has_proc() -> bool:
    """Return whether the system lists processes as files."""
    return os.path.isdir("/proc/self")


def processes() -> dict[int, ProcessEntry]:
    """Return the running processes by id; empty where the system has no ``/proc``."""
    table: dict[int, ProcessEntry] = {}
    for name in os.listdir("/proc") if has_proc() else ():
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                fields = file.read().rpartition(") ")[2].split()
            if fields[0] not in ("Z", "X"):
                table[int(name)] = ProcessEntry(int(fields[1]), int(fields[2]), fields[19])
        except (OSError, ValueError, IndexError):
            continue  # it ended in the meantime
    return table


def _descendants(root: int) -> dict[int, str]:
    """Return the descendants of ``root`` with their start times, including those that left its group."""
    table = processes()
    tree = {root}
    while children := {pid for pid, entry in table.items() if entry.parent in tree} - tree:
        tree |= children
    return {pid: table[pid].started for pid in tree - {root}}


def _marked_processes(mark: str) -> dict[int, str]:
    """Return the processes of this user that have ``mark`` in their environment, with their start times."""
    marked: dict[int, str] = {}
    for pid, entry in processes().items():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if mark.encode() in file.read():
                    marked[pid] = entry.started
        except OSError:
            continue  # another user's process, or it ended in the meantime
    return marked
