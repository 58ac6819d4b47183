"""What going back would do to each file, worked out before any is touched."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, NamedTuple

from ..errors import NotFoundError, RevertConflictError
from ..storage.protocol import StoredMessage
from .changes import stories
from .edits import encoded
from .files import ABSENT, FileState, file_state, read_file_or_link

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..records import Document, Revert
    from .changes import FileChange, FileHistory, Known
    from .files import ProjectFolder
    from .journal import FileContents

Verdict = Literal["change", "same", "conflict", "lost"]
"""``lost`` is what cannot be brought back, whoever insists."""
_SUBMODULE = "160000"
_CLOCK_MS = 2_000
_BY_COMMAND = "a command changed it, and what it held before was not recorded"


class PlannedFile(NamedTuple):
    """One file that the session changed."""

    name: str
    """Relative to the checkout."""
    verdict: Verdict
    was: FileState
    """As it is now."""
    becomes: FileState
    """As it will be."""
    origin: FileState
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


class RevertedFile(NamedTuple):
    """What a revert that still stands did to a file."""

    origin: FileState
    becomes: FileState


class RevertPlan(NamedTuple):
    """What happens to the files."""

    files: tuple[PlannedFile, ...] = ()

    @property
    def changes(self) -> list[PlannedFile]:
        """Those that will be touched, conflicts included."""
        return [each for each in self.files if each.verdict in ("change", "conflict")]

    @property
    def conflicts(self) -> list[PlannedFile]:
        """Those that someone else changed since."""
        return [each for each in self.files if each.verdict == "conflict"]

    @property
    def lost(self) -> list[PlannedFile]:
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


class RevertPlanner:
    """Compares what the records say with what is on the disk."""

    def __init__(self, folder: ProjectFolder, contents: FileContents, *, modes: bool = True) -> None:
        self._folder = folder
        self._contents = contents
        self._modes = modes

    def back(self, changes: Iterable[FileChange], pending: Mapping[str, RevertedFile]) -> RevertPlan:
        """Undo the changes. Where a revert stands already, start from what it left, and bring back what it should not
        have taken."""
        told = stories(changes)
        files = [self._undo(name, story, pending.get(name)) for name, story in sorted(told.items())]
        files += [self._redo(name, each) for name, each in sorted(pending.items()) if name not in told]
        return self._plan(files)

    def forth(self, pending: Mapping[str, RevertedFile]) -> RevertPlan:
        """Bring back everything that a revert took."""
        return self._plan([self._redo(name, each) for name, each in sorted(pending.items())])

    def _plan(self, files: Sequence[PlannedFile]) -> RevertPlan:
        """A folder that is in the place of a file is no obstacle if everything in it goes."""
        going = {each.name for each in files if not each.becomes.oid and each.verdict in ("change", "same")}
        cleared = [
            each._replace(verdict="change", was=ABSENT, reason="")
            if each.was.is_folder and each.becomes.oid and self._inside(each.name) <= going
            else each
            for each in files
        ]
        return RevertPlan(tuple(cleared))

    def _inside(self, name: str) -> set[str]:
        """All that is in a folder."""
        found: set[str] = set()
        for folder, folders, names in os.walk(self._folder.path(name)):
            below = os.path.relpath(folder, self._folder.root).replace(os.sep, "/")
            links = [each for each in folders if os.path.islink(os.path.join(folder, each))]
            found.update(f"{below}/{each}" for each in (*names, *links))
        return found

    def _undo(self, name: str, story: FileHistory, pending: RevertedFile | None) -> PlannedFile:
        path = self._folder.path(name)
        was = self._look(path)
        origin = pending.origin if pending else ABSENT if was.is_folder else was
        becomes = self.settle(story.before, path)
        if becomes is None:
            reason = _BY_COMMAND if story.first.by_command else "what it held before was not recorded, or is gone"
            return PlannedFile(name, "lost", was, was, origin, reason)
        left = pending.becomes if pending else self.settle(story.after, path)
        verdict, reason = self._judge(was, becomes, left)
        if verdict == "change" and pending is None:
            verdict, reason = _second_thoughts(path, story, becomes, left)
        return PlannedFile(name, verdict, was, becomes, origin, reason)

    def _redo(self, name: str, pending: RevertedFile) -> PlannedFile:
        path = self._folder.path(name)
        was = self._look(path)
        verdict, reason = self._judge(was, pending.origin, pending.becomes)
        return PlannedFile(name, verdict, was, pending.origin, pending.origin, reason)

    def _judge(self, was: FileState, becomes: FileState, left: FileState | None) -> tuple[Verdict, str]:
        if was.fits(becomes):
            return "same", ""
        if was.obstacle or becomes.mode == _SUBMODULE:
            return "lost", was.obstacle or "it was a repository of its own"
        if becomes.oid and self._contents.get(becomes.oid) is None:
            return "lost", "its content is no longer in the snapshots"
        if left is None or was.fits(left):
            return "change", ""
        return "conflict", "changed since" if was.oid else "deleted since"

    def settle(self, known: Known, path: str) -> FileState | None:
        """A recorded text becomes the file it would make."""
        if not isinstance(known, str):
            return known
        data = encoded(known, read_file_or_link(path))
        return FileState(self._contents.add(data)) if data is not None else None

    def _look(self, path: str) -> FileState:
        return file_state(path, modes=self._modes)


def listed(files: Sequence[PlannedFile]) -> list[dict[str, str]]:
    """Files for a program to read."""
    return [
        {"file": each.name, "action": each.action, "verdict": each.verdict, "reason": each.reason} for each in files
    ]


def _second_thoughts(path: str, story: FileHistory, becomes: FileState, left: FileState | None) -> tuple[Verdict, str]:
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


_SAYS_SOMETHING = ("text", "tool")


class RevertPoint(NamedTuple):
    """What is taken back: this message and all after it, or from one of its parts on."""

    message: int
    part: int = 0

    def record(self, history: Sequence[StoredMessage]) -> Document:
        """The point as a session's ``revert`` names it."""
        message = history[self.message]
        record: Document = {"messageID": message.info["id"]}
        if self.part:
            record["partID"] = message.parts[self.part]["id"]
        return record

    def before(self, history: Sequence[StoredMessage]) -> list[StoredMessage]:
        """What is not taken back."""
        if not self.part:
            return list(history[: self.message])
        *whole, cut = history[: self.message + 1]
        return [*whole, StoredMessage(cut.info, cut.parts[: self.part])]


def find_point(history: Sequence[StoredMessage], message_id: str, part_id: str | None = None) -> RevertPoint:
    """The point that a user means by a message, or a part of one.

    A message means the prompt it belongs to: half an answer is only kept where a part says so. A part before which the
    message says nothing means the whole message.
    """
    if part_id is None:
        return _prompt_of(history, message_index(history, message_id))
    for place, message in enumerate(history):
        for number, part in enumerate(message.parts):
            if part.get("id") == part_id:
                kept = any(each.get("type") in _SAYS_SOMETHING for each in message.parts[:number])
                return RevertPoint(place, number) if kept else _prompt_of(history, place)
    raise NotFoundError(f"the session has no part {part_id}", id=part_id)


def recorded_point(history: Sequence[StoredMessage], revert: Revert) -> RevertPoint | None:
    """The point that a session's record names, taken by its word; ``None`` if it is gone from the history."""
    for place, message in enumerate(history):
        if message.info.get("id") == revert.message_id:
            numbers = [number for number, part in enumerate(message.parts) if part.get("id") == revert.part_id]
            if revert.part_id is not None and not numbers:
                # The part is gone already: all that is left to take back comes after this message.
                return RevertPoint(place, len(message.parts))
            return RevertPoint(place, numbers[0] if numbers else 0)
    return None


def _prompt_of(history: Sequence[StoredMessage], place: int) -> RevertPoint:
    for above in range(place, -1, -1):
        if history[above].info.get("role") == "user":
            return RevertPoint(above)
    return RevertPoint(place)


def message_index(history: Sequence[StoredMessage], message_id: str) -> int:
    """Where a message stands."""
    for place, message in enumerate(history):
        if message.info.get("id") == message_id:
            return place
    raise NotFoundError(f"the session has no message {message_id}", id=message_id)
