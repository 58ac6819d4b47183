"""The files that a session changes: snapshots, patches, diffs, revert and unrevert.

:class:`Snapshots` stores the files of a project, :mod:`.diffs` derives what a session changed, :class:`Reverts` goes
back and undoes that, and :mod:`.tidying` limits the disk space. All of it is synchronous and to be called from a
thread, except :meth:`Snapshots.begin`, which never waits.
"""

from __future__ import annotations

from .diffs import history_diffs, record_no_changes, snapshot_range, summarize, totals, turn_messages
from .originals import Originals
from .repository import data_folder
from .revert import RevertPreview, RevertResult, Reverts
from .revert_journal import RevertTrash, TrashedMessages
from .revert_plan import PlannedFile, RevertPlan
from .snapshots import Patch, PendingSnapshot, SnapshotLimits, Snapshots
from .tidying import DiskUse, SnapshotTidyResult, TidyResult, disk_use, tidy_in_background, tidy_snapshots, tidy_store

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
    "record_no_changes",
    "snapshot_range",
    "summarize",
    "tidy_in_background",
    "tidy_snapshots",
    "tidy_store",
    "totals",
    "turn_messages",
]
