"""Finished sums, kept until anything changes that they were made from.

What they were made from is told by marks: names, times of change and sizes of every session's record and every folder
of messages, of the answers that were not finished, of databases, and of the price tables. The marks are taken before
anything is read, and are relied on only if they are older than a clock's tick: whatever changes afterwards leaves other
marks. So the next question finds every new or changed session, as with a ledger, of which these sums are the last step.

This takes no import but of what Python has loaded anyway.
"""

from __future__ import annotations

import os
import time

from ... import __version__
from .cache_files import JUST_NOW_NS, cache_file, database_marks, load, mark, save
from .repricing import table_mark
from .results import day_of, month_of, restored

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...storage.locations import StoreLocations
    from .cache_files import Mark
    from .results import Statistics

    Told = Sequence[tuple[str, str]]

_VERSION = 3


class SumsCache:
    """The sums of the stores at a place, by one kind of group and without any filter."""

    def __init__(self, found: StoreLocations, by: str, *, utc: bool = False) -> None:
        self._found = found
        self._by = by
        self._utc = utc
        self._path = cache_file(f"sums-{by}{'-utc' if utc else ''}", found.place)
        self._taken = time.time_ns()
        self._sure = True
        self._newest = 0
        """The latest time of change of anything in the tree; databases look at theirs themselves."""
        tree = [] if found.tree is None else self._of_tree(found.tree)
        self._marks = (_VERSION, __version__, table_mark(), tree, self._of_databases())

    def load(self) -> tuple[Statistics, Told] | None:
        """The sums, and what could not be read for them; ``None`` if they are to be made anew."""
        found = load(self._path, self._found.place) if self._sure else None
        if found is None or found[0] != self._marks:
            return None
        _, watched, damage, plain = found
        if any(mark(path) != (when, size) for path, when, size in watched):
            return None
        answer = restored(plain)
        return (answer, damage) if self._by not in ("day", "month") or self._days_are_right(answer) else None

    def save(self, answer: Statistics, watched: Sequence[Mark], damage: Told) -> None:
        """Keep sums that were made after this was. ``watched`` are files that may change where nobody would look.

        Not without a database that could not be read: that it can be again leaves no mark.
        """
        if any(path in self._found.databases for path, _ in damage):
            return
        newest = max((self._newest, *(when for _, when, _ in watched)))
        if self._sure and newest < self._taken - JUST_NOW_NS:
            told = [(path, reason) for path, reason in damage]
            save(self._path, self._found.place, (self._marks, [*watched], told, answer.plain))

    def _days_are_right(self, answer: Statistics) -> bool:
        """Whether each row's first and last quarter of an hour still fall on its day, or month: the zone may be another
        now."""
        edges = ((row.key, edge) for row in answer.rows for edge in (row.first, row.last) if edge is not None)
        name = month_of if self._by == "month" else str
        return all(name(day_of(edge, utc=self._utc)) == key for key, edge in edges)

    def _of_tree(self, root: str) -> list[tuple[str, str]]:
        sessions = os.path.join(root, "session")
        try:
            projects = sorted(os.listdir(sessions))
        except OSError:
            projects = []
        places = [("", os.path.join(root, "message")), *((name, os.path.join(sessions, name)) for name in projects)]
        return [(name, self._of_folder(path)) for name, path in places]

    def _of_folder(self, path: str) -> str:
        """A line for each thing in a folder. Where one of them cannot be looked at, nothing is sure."""
        try:
            entries = os.scandir(path)
        except (FileNotFoundError, NotADirectoryError):
            return ""
        except OSError:
            self._sure = False
            return ""
        lines: list[str] = []
        with entries:
            try:
                for each in entries:
                    found = each.stat()
                    lines.append(f"{each.name} {found.st_mtime_ns} {found.st_size}")
                    self._newest = max(self._newest, found.st_mtime_ns)
            except OSError:
                self._sure = False
                return ""
        lines.sort()
        return "\n".join(lines)

    def _of_databases(self) -> list[list[Mark]]:
        marks = [database_marks(path) for path in self._found.databases]
        self._sure = self._sure and all(marks)
        return marks
