"""Running a command: its output as it comes, an end when the command ends, and an end to all it started.

The command is over when its shell exits, not when its output is closed: a child left in the background may hold that
open for ever. It runs in a process group of its own, so that all of it can be ended at once; what left the group is
found by :mod:`.started`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from . import started

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

GRACE = 3.0
"""Seconds between asking processes to end and ending them."""

DRAIN = 0.25
"""Seconds to wait, after the command has exited, for output that is still in the pipe."""


class Process(asyncio.SubprocessProtocol):
    """A running command. Made by :func:`start`; whoever made it must :meth:`close` it."""

    def __init__(self, received: Callable[[bytes], None], mark: str) -> None:
        """``mark`` is in the environment of all that it starts."""
        loop = asyncio.get_running_loop()
        self._received = received
        self._mark = mark
        self._exited: asyncio.Future[None] = loop.create_future()
        self._silent: asyncio.Future[None] = loop.create_future()
        self._transport: asyncio.SubprocessTransport | None = None

    @property
    def exit_code(self) -> int | None:
        """``None`` while it runs; negative, the number of the signal that ended it."""
        return None if self._transport is None else self._transport.get_returncode()

    @property
    def pid(self) -> int:
        """Of the shell, and of the process group."""
        return 0 if self._transport is None else self._transport.get_pid()

    async def wait(self, seconds: float) -> bool:
        """Wait at most that long for the command to exit; whether it has."""
        await asyncio.wait([self._exited], timeout=seconds)
        return self._exited.done()

    async def drain(self) -> bool:
        """After the exit: take what output is left; false if someone in the background still holds it open."""
        await asyncio.wait([self._silent], timeout=DRAIN)
        return self._silent.done()

    async def stop(self, grace: float = GRACE) -> None:
        """End the command and everything it started: first by asking, and after ``grace`` seconds for good.

        If this is itself cancelled, they are ended for good at once.
        """
        # The number of one that has exited may be another's by now.
        targets = started.descendants(self.pid) if self.exit_code is None else {}
        targets |= started.bearers(self._mark)
        try:
            _signal(self.pid, targets, forced=False)
            await self._gone(targets, grace)
        finally:
            targets |= started.bearers(self._mark)  # those that were born meanwhile
            if self._runs(targets):
                _signal(self.pid, targets, forced=True)
        await self._gone(targets, GRACE)

    async def _gone(self, targets: Mapping[int, str], seconds: float) -> None:
        """Wait at most that long for all of them to end."""
        deadline = time.monotonic() + seconds
        while self._runs(targets) and time.monotonic() < deadline:
            await asyncio.sleep(0.02)

    def _runs(self, targets: Mapping[int, str]) -> bool:
        return self.exit_code is None or _alive(self.pid, targets)

    def close(self) -> None:
        """Let go of the output. Does not wait, and ends nothing but a command that is still running."""
        if self._transport is not None:
            self._transport.close()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.SubprocessTransport):
            self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._received(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if not self._silent.done():
            self._silent.set_result(None)

    def process_exited(self) -> None:
        if not self._exited.done():
            self._exited.set_result(None)


async def start(
    arguments: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    received: Callable[[bytes], None],
    errors: bool = True,
) -> Process:
    """Run a program without input; its output, and its ``errors`` among it, is handed to ``received`` as it comes.

    If this is cancelled, nothing of the program is left.
    """
    loop = asyncio.get_running_loop()
    options: dict[str, Any] = {"start_new_session": True}
    if os.name == "nt":
        options = {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}
    mark = started.new_mark()
    process = Process(received, mark)
    starting = loop.subprocess_exec(
        lambda: process,
        *arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if errors else subprocess.DEVNULL,
        cwd=cwd,
        env=started.marked(env, mark),
        **options,
    )
    # asyncio, cancelled here, would end the program but not what it has started by then.
    begun = asyncio.ensure_future(starting)
    try:
        await asyncio.shield(begun)
    except asyncio.CancelledError:
        while not begun.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([begun])
        await process.stop(0)
        process.close()
        raise
    return process


def _signal(group: int, targets: Mapping[int, str], *, forced: bool) -> None:
    if os.name == "nt":
        force = ["/f"] if forced else []
        subprocess.run(["taskkill", "/pid", str(group), "/t", *force], capture_output=True, check=False)
        return
    number = signal.SIGKILL if forced else signal.SIGTERM
    # Numbers are given out again: only those that still belong to the same process are signalled.
    table = started.processes() if targets else {}
    left = [pid for pid, born in targets.items() if pid in table and table[pid].born == born]
    for send, target in [(os.killpg, group), *((os.kill, pid) for pid in left)]:
        try:
            send(target, number)
        except (ProcessLookupError, PermissionError):
            continue


def _alive(group: int, targets: Mapping[int, str]) -> bool:
    """Whether any of them still runs. Those that have ended, and that nobody has asked about since, do not count."""
    if started.is_listed():
        table = started.processes()
        members = any(entry.group == group for entry in table.values())
        return members or any(pid in table and table[pid].born == born for pid, born in targets.items())
    try:
        os.killpg(group, 0)
    except (AttributeError, OSError):
        return False
    return True
