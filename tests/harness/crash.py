"""Disks that fail, and processes that die on them.

:func:`sweep` runs a scenario once for every disk operation in it and ends the process there, without warning and with
half of the data written. What the scenario reported before was acknowledged; the check looks at what the next process
finds.
"""

from __future__ import annotations

import errno
import os
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

from opensesh.storage.disk import Disk

from .processes import ProcessGroup, find, name_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from .processes import ChildProcess, Report

    Scenario = Callable[[Disk, str, Report], None]
    """Works on a store in a folder through a disk, and reports what was acknowledged."""
    Check = Callable[[str, list[Any], str], None]
    """Checks the folder. Gets what was acknowledged, and the operation at which the process died (or "")."""

CRASH_EXIT_CODE = 86
"""The exit status of a process that died on a :class:`CrashingDisk`."""


class CrashingDisk(Disk):
    """Ends the process at its ``point``-th operation, before that operation has any effect; never for 0.

    A write counts as two: before anything is written, and when half of it is.
    """

    def __init__(self, point: int, *, durable: bool = True, on_crash: Callable[[str], None] | None = None) -> None:
        super().__init__(durable=durable)
        self.point = point
        self.count = 0
        """How many operations there have been."""
        self._on_crash = on_crash

    def open_new(self, path: str) -> int:
        self._reach("open_new")
        return super().open_new(path)

    def write(self, descriptor: int, data: bytes) -> None:
        half = len(data) // 2
        self._reach("write")
        super().write(descriptor, data[:half])
        self._reach("half a write")
        super().write(descriptor, data[half:])

    def sync(self, descriptor: int) -> None:
        self._reach("sync")
        super().sync(descriptor)

    def rename(self, old: str, new: str) -> None:
        self._reach("rename")
        super().rename(old, new)

    def sync_folder(self, folder: str) -> None:
        self._reach("sync_folder")
        super().sync_folder(folder)

    def unlink(self, path: str) -> None:
        self._reach("unlink")
        super().unlink(path)

    def new_folder(self, folder: str) -> None:
        self._reach("new_folder")
        super().new_folder(folder)

    def remove_folder(self, folder: str) -> None:
        self._reach("remove_folder")
        super().remove_folder(folder)

    def _reach(self, operation: str) -> None:
        self.count += 1
        if self.count == self.point:
            if self._on_crash is not None:
                self._on_crash(operation)
            os._exit(CRASH_EXIT_CODE)


class FullDisk(Disk):
    """A disk with ``free_bytes`` left. A write that does not fit is cut off there and raises ENOSPC.

    Removing files frees nothing; :meth:`add_space` does. A ``late`` disk accepts every write and raises on ``sync``,
    as file systems with delayed allocation do.
    """

    def __init__(self, free_bytes: int, *, durable: bool = True, late: bool = False) -> None:
        super().__init__(durable=durable)
        self.free_bytes = free_bytes
        self._late = late

    def add_space(self, size: int) -> None:
        self.free_bytes = max(self.free_bytes, 0) + size

    def open_new(self, path: str) -> int:
        self._raise_if(not self._late and self.free_bytes <= 0)
        return super().open_new(path)

    def new_folder(self, folder: str) -> None:
        self._raise_if(not self._late and self.free_bytes <= 0)
        super().new_folder(folder)

    def write(self, descriptor: int, data: bytes) -> None:
        fits = len(data) <= self.free_bytes
        super().write(descriptor, data if fits or self._late else data[: max(self.free_bytes, 0)])
        self.free_bytes -= len(data)
        self._raise_if(not fits and not self._late)

    def sync(self, descriptor: int) -> None:
        self._raise_if(self.free_bytes < 0)
        super().sync(descriptor)

    def _raise_if(self, full: bool) -> None:
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Sweep(NamedTuple):
    """The result of :func:`sweep`."""

    points: int
    """At how many points the process died; it also ran to the end once."""
    operations: dict[str, int]
    """How many of those points fell on each operation."""


def sweep(scenario: Scenario, check: Check, folder: str | os.PathLike[str]) -> Sweep:
    """Kill a process at every disk operation of ``scenario``, and ``check`` what it leaves each time.

    Both get a folder of their own below ``folder`` for each point. The scenario must be a module-level function, since
    it runs in another process, and deterministic, or points are missed.
    """
    operations: dict[str, int] = {}
    with ProcessGroup() as processes:
        processes.prepare(scenario)
        point = 0
        following = _start(processes, scenario, folder, 1)
        while True:
            point += 1
            # The next process runs while the check examines what this one left.
            (work_dir, child), following = following, _start(processes, scenario, folder, point + 1)
            result = child.wait()
            if result.code not in (0, CRASH_EXIT_CODE):
                raise AssertionError(f"the scenario failed before point {point}:\n{result.traceback or result.code}")
            died_at = str(result.reports.pop()["died at"]) if result.code else ""
            try:
                check(work_dir, result.reports, died_at)
            except Exception as error:
                where = f"died at point {point} ({died_at})" if died_at else "ran to the end"
                raise AssertionError(f"after a process that {where}: {error}") from error
            shutil.rmtree(work_dir)
            if not died_at:
                following[1].wait()
                shutil.rmtree(following[0])
                return Sweep(point - 1, operations)
            operations[died_at] = operations.get(died_at, 0) + 1


def _start(
    processes: ProcessGroup, scenario: Scenario, folder: str | os.PathLike[str], point: int
) -> tuple[str, ChildProcess]:
    work_dir = os.path.join(folder, f"point-{point}")
    os.mkdir(work_dir)
    return work_dir, processes.start(_run, name_of(scenario), work_dir, point)


def _run(report: Report, scenario: str, work_dir: str, point: int) -> None:
    disk = CrashingDisk(point, on_crash=lambda operation: report({"died at": operation}))
    find(scenario)(disk, work_dir, report)
