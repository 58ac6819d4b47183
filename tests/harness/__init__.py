"""Disks that fail and processes that are killed, for tests of durability."""

from __future__ import annotations

from .crash import CRASH_EXIT_CODE, CrashingDisk, FullDisk, Sweep, sweep
from .processes import ChildProcess, ProcessGroup, ProcessResult, Report

__all__ = [
    "CRASH_EXIT_CODE",
    "ChildProcess",
    "CrashingDisk",
    "FullDisk",
    "ProcessGroup",
    "ProcessResult",
    "Report",
    "Sweep",
    "sweep",
]
