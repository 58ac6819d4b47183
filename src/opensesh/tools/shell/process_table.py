"""The system's process table, and the end of commands whose runner was killed.

Run as a script, by its path and without the package: ``python -I -S process_table.py RUNNER``. It reads lines from
standard input, ``+MARK`` for a command that starts and ``-MARK`` for one that is over. When the input ends or the
process ``RUNNER`` is gone, it ends the processes of the remaining marks. It needs only the standard library.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_GRACE_SECONDS = 2.0
"""Time between SIGTERM and SIGKILL, and the time for which processes are looked for after that."""
_INTERVAL_SECONDS = 0.1


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


def descendants(root: int) -> dict[int, str]:
    """Return the descendants of ``root`` with their start times, including those that left its group."""
    table = processes()
    tree = {root}
    while children := {pid for pid, entry in table.items() if entry.parent in tree} - tree:
        tree |= children
    return {pid: table[pid].started for pid in tree - {root}}


def marked_processes(mark: str) -> dict[int, str]:
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


def same_processes(targets: Mapping[int, str]) -> list[int]:
    """Return the ids in ``targets`` whose processes still run: an id with another start time was reused."""
    table = processes() if targets else {}
    return [pid for pid, started in targets.items() if pid in table and table[pid].started == started]


def _end_commands(marks: set[str]) -> None:
    """End the processes of ``marks``, their descendants and their groups. A process that is just being started has its
    mark only a moment later, so they are looked for more than once."""
    start = time.monotonic()
    targets: dict[int, str] = {}
    signaled: set[tuple[int, int]] = set()
    while (elapsed := time.monotonic() - start) < 2 * _GRACE_SECONDS:
        marked = {pid: started for mark in marks for pid, started in marked_processes(mark).items()}
        table = processes()
        groups = {table[pid].group for pid in marked if pid in table}
        targets |= marked | {pid: entry.started for pid, entry in table.items() if entry.group in groups}
        targets |= {pid: started for root in marked for pid, started in descendants(root).items()}
        number = signal.SIGTERM if elapsed < _GRACE_SECONDS else signal.SIGKILL
        remaining = same_processes(targets)
        for pid in remaining:
            if (pid, number) not in signaled:
                signaled.add((pid, number))
                try:
                    os.kill(pid, number)
                except OSError:
                    continue  # it ended in the meantime, or belongs to another user
        if not remaining and elapsed > _GRACE_SECONDS / 2:
            return
        time.sleep(_INTERVAL_SECONDS)


def main() -> None:
    """Wait for the end of the runner, then end its commands."""
    os.setsid()  # what a terminal sends to the runner's group is not for this process
    os.chdir("/")
    try:
        runner = os.pidfd_open(int(sys.argv[1]))
    except OSError:
        runner = 0  # it is gone or the kernel is too old: its end closes the input as well
    marks: set[str] = set()
    rest = b""
    while True:
        ready = select.select([0, runner], [], [])[0]
        if 0 in ready:
            data = os.read(0, 65536)
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                mark = line[1:].decode()
                (marks.add if line.startswith(b"+") else marks.discard)(mark)
            if data:
                continue
        break
    if marks:
        _end_commands(marks)


if __name__ == "__main__":
    main()
