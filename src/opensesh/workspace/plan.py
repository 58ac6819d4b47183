"""What going back would do to each file, worked out before any is touched."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, NamedTuple

from ..errors import RevertConflictError
from . import states
from .changes import stories
from .edits import encoded
from .states import ABSENT, State

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .changes import Change, Known, Story
    from .journal import Contents
    from .project_folder import ProjectFolder

Verdict = Literal["change", "same", "conflict", "lost"]
"""``lost`` is what cannot be brought back, whoever insists."""
_SUBMODULE = "160000"
_CLOCK_MS = 2_000
_BY_COMMAND = "a command changed it, and what it held before was not recorded"


class Planned(NamedTuple):
    """One file that the session changed."""

    name: str
    """Relative to the checkout."""
    verdict: Verdict
    was: State
    """As it is now."""
    becomes: State
    """As it will be."""
    origin: State
    """As it was before the session was reverted at all."""
    reason: str = ""
    """Why it is a conflict, or lost."""

    @property
    def action(self) -> str:
        """What happens to it, in a word."""
        if self.verdict in ("same", "lost"):
            return "keep"
        if not self.becomes.oid:
            return "delete"
        return "restore" if self.was.oid else "create"


class Pending(NamedTuple):
    """What a revert that still stands did to a file."""

    origin: State
    becomes: State


class Plan(NamedTuple):
    """What happens to the files."""

    files: tuple[Planned, ...] = ()

    @property
    def changes(self) -> list[Planned]:
        """Those that will be touched, conflicts included."""
        return [each for each in self.files if each.verdict in ("change", "conflict")]

    @property
    def conflicts(self) -> list[Planned]:
        """Those that someone else changed since."""
        return [each for each in self.files if each.verdict == "conflict"]

    @property
    def lost(self) -> list[Planned]:
        """Those that cannot be brought back."""
        return [each for each in self.files if each.verdict == "lost"]

    def refuse_conflicts(self) -> None:
        """Raise :class:`RevertConflictError` if someone else changed one of the files."""
        found = self.conflicts
        if found:
            few = "; ".join(f"{each.name} ({each.reason})" for each in found[:5])
            more = f"; and {len(found) - 5} more" if len(found) > 5 else ""
            how = "--force goes on all the same, and keeps a copy of what they hold now"
            raise RevertConflictError(
                f"someone else changed {len(found)} of the files: {few}{more}. Nothing was touched; {how}.",
                files=[each.name for each in found],
            )


class Planner:
    """Compares what the records say with what is on the disk."""

    def __init__(self, folder: ProjectFolder, contents: Contents, *, modes: bool = True) -> None:
        self._folder = folder
        self._contents = contents
        self._modes = modes

    def back(self, changes: Iterable[Change], pending: Mapping[str, Pending]) -> Plan:
        """Undo the changes. Where a revert stands already, start from what it left, and bring back what it should not
        have taken."""
        told = stories(changes)
        files = [self._undo(name, story, pending.get(name)) for name, story in sorted(told.items())]
        files += [self._redo(name, each) for name, each in sorted(pending.items()) if name not in told]
        return self._plan(files)

    def forth(self, pending: Mapping[str, Pending]) -> Plan:
        """Bring back everything that a revert took."""
        return self._plan([self._redo(name, each) for name, each in sorted(pending.items())])

    def _plan(self, files: Sequence[Planned]) -> Plan:
        """A folder that is in the place of a file is no obstacle if everything in it goes."""
        going = {each.name for each in files if not each.becomes.oid and each.verdict in ("change", "same")}
        cleared = [
            each._replace(verdict="change", was=ABSENT, reason="")
            if each.was.is_folder and each.becomes.oid and self._inside(each.name) <= going
            else each
            for each in files
        ]
        return Plan(tuple(cleared))

    def _inside(self, name: str) -> set[str]:
        """All that is in a folder."""
        found: set[str] = set()
        for folder, folders, names in os.walk(self._folder.path(name)):
            below = os.path.relpath(folder, self._folder.root).replace(os.sep, "/")
            links = [each for each in folders if os.path.islink(os.path.join(folder, each))]
            found.update(f"{below}/{each}" for each in (*names, *links))
        return found

    def _undo(self, name: str, story: Story, pending: Pending | None) -> Planned:
        path = self._folder.path(name)
        was = self._look(path)
        origin = pending.origin if pending else ABSENT if was.is_folder else was
        becomes = self.settle(story.before, path)
        if becomes is None:
            reason = _BY_COMMAND if story.first.by_command else "what it held before was not recorded, or is gone"
            return Planned(name, "lost", was, was, origin, reason)
        left = pending.becomes if pending else self.settle(story.after, path)
        verdict, reason = self._judge(was, becomes, left)
        if verdict == "change" and pending is None:
            verdict, reason = _second_thoughts(path, story, becomes, left)
        return Planned(name, verdict, was, becomes, origin, reason)

    def _redo(self, name: str, pending: Pending) -> Planned:
        path = self._folder.path(name)
        was = self._look(path)
        verdict, reason = self._judge(was, pending.origin, pending.becomes)
        return Planned(name, verdict, was, pending.origin, pending.origin, reason)

    def _judge(self, was: State, becomes: State, left: State | None) -> tuple[Verdict, str]:
        if was.fits(becomes):
            return "same", ""
        if was.obstacle or becomes.mode == _SUBMODULE:
            return "lost", was.obstacle or "it was a repository of its own"
        if becomes.oid and self._contents.get(becomes.oid) is None:
            return "lost", "its content is no longer in the snapshots"
        if left is None or was.fits(left):
            return "change", ""
        return "conflict", "changed since" if was.oid else "deleted since"

    def settle(self, known: Known, path: str) -> State | None:
        """A recorded text becomes the file it would make."""
        if not isinstance(known, str):
            return known
        data = encoded(known, states.read(path))
        return State(self._contents.add(data)) if data is not None else None

    def _look(self, path: str) -> State:
        return states.look(path, modes=self._modes)


def listed(files: Sequence[Planned]) -> list[dict[str, str]]:
    """Files for a program to read."""
    return [
        {"file": each.name, "action": each.action, "verdict": each.verdict, "reason": each.reason} for each in files
    ]


def _second_thoughts(path: str, story: Story, becomes: State, left: State | None) -> tuple[Verdict, str]:
    """What speaks against a change that looks harmless."""
    if story.interrupted:
        return "conflict", "changed by someone else while the session went on"
    modified = _modified(path)
    if left is None and modified > story.last.ended + _CLOCK_MS:
        return "conflict", "written to after the session was done with it"
    if becomes == ABSENT and story.first.rules_changed and modified < story.first.began - _CLOCK_MS:
        return "lost", "it was there before, but ignored, so it is left alone"
    return "change", ""


def _modified(path: str) -> float:
    """When a file was last written to, in milliseconds; 0 for none."""
    try:
        return os.lstat(path).st_mtime * 1000
    except OSError:
        return 0
