"""The files a session changes: snapshots, patches, diffs, revert and un-revert.

:class:`Snapshots` keeps what the files of a place were, :mod:`.summary` what a session made of them, :class:`Reverts`
goes back and forth, and :mod:`.quota` keeps the whole within its room. All of it is synchronous and meant to be called
from a thread, but for :meth:`Snapshots.begin`, which never waits.
"""

from __future__ import annotations

from .originals import Originals
from .repository import data_folder
from .revert import RevertPreview, RevertResult, Reverts
from .revert_plan import PlannedFile, RevertPlan
from .snapshots import Patch, PendingSnapshot, SnapshotLimits, Snapshots
from .summary import history_diffs, snapshot_range, summarize, totals, turn
from .tidying import DiskUse, SnapshotTidyResult, TidyResult, disk_use, tidy_in_background, tidy_snapshots, tidy_store
from .trash import RevertTrash, TrashedMessages

__all__ = [
    "DiskUse",
    "Originals",
    "Patch",
    "PendingSnapshot",
    "PlannedFile",
    "RevertPlan",
    "RevertPreview",
    "RevertResult",
    "RevertTrash",
    "Reverts",
    "SnapshotLimits",
    "SnapshotTidyResult",
    "Snapshots",
    "TidyResult",
    "TrashedMessages",
    "data_folder",
    "disk_use",
    "history_diffs",
    "snapshot_range",
    "summarize",
    "tidy_in_background",
    "tidy_snapshots",
    "tidy_store",
    "totals",
    "turn",
]
