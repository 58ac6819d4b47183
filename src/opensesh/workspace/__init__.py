"""The files a session changes: snapshots, patches, diffs, revert and un-revert.

:class:`Snapshots` keeps what the files of a place were, :mod:`.summary` what a session made of them, :class:`Reverts`
goes back and forth, and :mod:`.quota` keeps the whole within its room. All of it is synchronous and meant to be called
from a thread, but for :meth:`Snapshots.begin`, which never waits.
"""

from __future__ import annotations

from .originals import Originals
from .plan import Plan, Planned
from .quota import Tidied, tidy
from .repository import data_of
from .revert import Done, Preview, Reverts
from .scan import Limits
from .snapshots import Patch, Snapshots, Taking
from .summary import diffs_of, span, summarize, totals, turn
from .tidying import DiskUse, Tidying, disk_use, tidy_in_background, tidy_up
from .trash import Thrown, Trash

__all__ = [
    "DiskUse",
    "Done",
    "Limits",
    "Originals",
    "Patch",
    "Plan",
    "Planned",
    "Preview",
    "Reverts",
    "Snapshots",
    "Taking",
    "Thrown",
    "Tidied",
    "Tidying",
    "Trash",
    "data_of",
    "diffs_of",
    "disk_use",
    "span",
    "summarize",
    "tidy",
    "tidy_in_background",
    "tidy_up",
    "totals",
    "turn",
]
