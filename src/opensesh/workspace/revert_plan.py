"""What a revert would do to each file, planned before any file is touched."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, NamedTuple

from ..errors import NotFoundError, RevertConflictError
from ..storage.protocol import StoredMessage
from .changes import encode_like, file_histories
from .files import ABSENT, FileState, file_state, read_file_or_link

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..records import Document, Revert
    from .changes import FileChange, FileHistory, Known
    from .files import ProjectFolder
    from .revert_journal import FileContents

Verdict = Literal["change", "same", "conflict", "lost"]
"""``lost`` cannot be restored, not even by force."""
_SUBMODULE = "160000"
_CLOCK_TOLERANCE_MS = 2_000
_VISIBLE_PARTS = ("text", "tool")
_MAX_LISTED_CONFLICTS = 5


class RevertPoint(NamedTuple):
    """Where a revert begins: a message, or one of its parts. Positions in the list, not comparisons of ids."""

    message: int
    part: int = 0

    def record(self, history: Sequence[StoredMessage]) -> Document:
        """Return the point as a session's ``revert`` stores it."""
        message = history[self.message]
        record: Document = {"messageID": message.info["id"]}
        if self.part:
            record["partID"] = message.parts[self.part]["id"]
        return record

    def before(self, history: Sequence[StoredMessage]) -> list[StoredMessage]:
        """Return the messages that are not reverted."""
        if not self.part:
            return list(history[: self.message])
        *whole, cut = history[: self.message + 1]
        return [*whole, StoredMessage(cut.info, cut.parts[: self.part])]

    def after(self, history: Sequence[StoredMessage]) -> list[StoredMessage]:
        """Return the messages that are reverted; of the first, only the reverted parts."""
        first, *rest = history[self.message :]
        if not self.part:
            return [first, *rest]
        parts = first.parts[self.part :]
        return [StoredMessage(first.info, parts), *rest] if parts else rest


def find_point(history: Sequence[StoredMessage], message_id: str, part_id: str | None = None) -> RevertPoint:
    """Return the point that a user means by a message, or a part of one.

    A message stands for the prompt it belongs to: part of an answer is kept only where a part is named. A part before
    which the message has no text and no tool call stands for the whole message.
    """
    if part_id is None:
        return _prompt_point(history, message_index(history, message_id))
    for number, message in enumerate(history):
        for part_number, part in enumerate(message.parts):
            if part.get("id") == part_id:
                is_partial = any(earlier.get("type") in _VISIBLE_PARTS for earlier in message.parts[:part_number])
                return RevertPoint(number, part_number) if is_partial else _prompt_point(history, number)
    raise NotFoundError(f"the session has no part {part_id}", id=part_id)


def recorded_point(history: Sequence[StoredMessage], revert: Revert) -> RevertPoint | None:
    """Return the point that a session's record names; ``None`` if the message was removed from the history."""
    for number, message in enumerate(history):
        if message.info.get("id") == revert.message_id:
            matching = [index for index, part in enumerate(message.parts) if part.get("id") == revert.part_id]
            if revert.part_id is not None and not matching:
                # The part is removed already: what is left to revert comes after this message.
                return RevertPoint(number, len(message.parts))
            return RevertPoint(number, matching[0] if matching else 0)
    return None


def message_index(history: Sequence[StoredMessage], message_id: str) -> int:
    """Return the position of a message. Raises :class:`~opensesh.errors.NotFoundError`."""
    for number, message in enumerate(history):
        if message.info.get("id") == message_id:
            return number
    raise NotFoundError(f"the session has no message {message_id}", id=message_id)


def _prompt_point(history: Sequence[StoredMessage], number: int) -> RevertPoint:
    for earlier in range(number, -1, -1):
        if history[earlier].info.get("role") == "user":
            return RevertPoint(earlier)
    return RevertPoint(number)


class PlannedFile(NamedTuple):
    """A file that the session changed, and what happens to it."""

    name: str
    """Relative to the checkout."""
    verdict: Verdict
    was: FileState
    """Its state now."""
    becomes: FileState
    """Its state afterwards."""
    origin: FileState
    """Its state before the session was reverted at all."""
    reason: str = ""
    """Why it is a conflict, or lost."""

    @property
    def action(self) -> str:
        """What happens to it: ``keep``, ``delete``, ``restore`` or ``create``."""
        if self.verdict in ("same", "lost"):
            return "keep"
        if not self.becomes.oid:
            return "delete"
        return "restore" if self.was.oid else "create"

    @property
    def document(self) -> dict[str, str]:
        """For JSON output."""
        return {"file": self.name, "action": self.action, "verdict": self.verdict, "reason": self.reason}


class RevertedFile(NamedTuple):
    """What a revert that is in effect did to a file."""

    origin: FileState
    becomes: FileState


class RevertPlan(NamedTuple):
    """What a revert does to files."""

    files: tuple[PlannedFile, ...] = ()

    @property
    def changes(self) -> list[PlannedFile]:
        """Files that will be written or deleted, conflicts included."""
        return [file for file in self.files if file.verdict in ("change", "conflict")]

    @property
    def conflicts(self) -> list[PlannedFile]:
        """Files that were changed since, but not by the session."""
        return [file for file in self.files if file.verdict == "conflict"]

    @property
    def lost(self) -> list[PlannedFile]:
        """Files that cannot be restored."""
        return [file for file in self.files if file.verdict == "lost"]

    def refuse_conflicts(self) -> None:
        """Raise :class:`~opensesh.errors.RevertConflictError` if there are conflicts."""
        conflicts = self.conflicts
        if conflicts:
            listed = conflicts[:_MAX_LISTED_CONFLICTS]
            names = "; ".join(f"{file.name} ({file.reason})" for file in listed)
            more = f"; and {len(conflicts) - len(listed)} more" if len(conflicts) > len(listed) else ""
            raise RevertConflictError(
                f"{len(conflicts)} of the files were changed outside the session: {names}{more}. Nothing was reverted; "
                "--force overwrites them and keeps a copy of what they hold now.",
                files=[file.name for file in conflicts],
            )


class RevertPlanner:
    """Compares what the records say with what is on disk."""

    def __init__(self, folder: ProjectFolder, contents: FileContents, *, modes: bool = True) -> None:
        self._folder = folder
        self._contents = contents
        self._modes = modes

    def plan_revert(self, changes: Iterable[FileChange], reverted: Mapping[str, RevertedFile]) -> RevertPlan:
        """Plan to undo ``changes``. If a revert is in effect, ``reverted`` is what it did: start from there, and
        restore what the new revert does not cover."""
        histories = file_histories(changes)
        files = [self._undo(name, history, reverted.get(name)) for name, history in sorted(histories.items())]
        files += [self._redo(name, file) for name, file in sorted(reverted.items()) if name not in histories]
        return self._clear_folders(files)

    def plan_unrevert(self, reverted: Mapping[str, RevertedFile]) -> RevertPlan:
        """Plan to restore everything that a revert took."""
        return self._clear_folders([self._redo(name, file) for name, file in sorted(reverted.items())])

    def resolve(self, known: Known, path: str) -> FileState | None:
        """Return the state of a file; for a recorded text, the state of the file it would make."""
        if not isinstance(known, str):
            return known
        data = encode_like(known, read_file_or_link(path))
        return FileState(self._contents.add(data)) if data is not None else None

    def _clear_folders(self, files: Sequence[PlannedFile]) -> RevertPlan:
        """A folder where a file belongs is not an obstacle if the plan deletes everything in it."""
        deleted = {file.name for file in files if not file.becomes.oid and file.verdict in ("change", "same")}
        return RevertPlan(
            tuple(
                file._replace(verdict="change", was=ABSENT, reason="")
                if file.was.is_folder and file.becomes.oid and self._files_in(file.name) <= deleted
                else file
                for file in files
            )
        )

    def _files_in(self, name: str) -> set[str]:
        """Return the names of all files and links in a folder."""
        names: set[str] = set()
        for folder, folders, files in os.walk(self._folder.path(name)):
            below = os.path.relpath(folder, self._folder.root).replace(os.sep, "/")
            links = [link for link in folders if os.path.islink(os.path.join(folder, link))]
            names.update(f"{below}/{entry}" for entry in (*files, *links))
        return names

    def _undo(self, name: str, history: FileHistory, reverted: RevertedFile | None) -> PlannedFile:
        path = self._folder.path(name)
        was = file_state(path, modes=self._modes)
        origin = reverted.origin if reverted else ABSENT if was.is_folder else was
        becomes = self.resolve(history.before, path)
        if becomes is None:
            reason = "what it held before was not recorded, or is gone"
            if history.first.by_command:
                reason = "a command changed it, and what it held before was not recorded"
            return PlannedFile(name, "lost", was, was, origin, reason)
        left = reverted.becomes if reverted else self.resolve(history.after, path)
        verdict, reason = self._judge(was, becomes, left)
        if verdict == "change" and reverted is None:
            verdict, reason = _check_times(path, history, becomes, left)
        return PlannedFile(name, verdict, was, becomes, origin, reason)

    def _redo(self, name: str, reverted: RevertedFile) -> PlannedFile:
        was = file_state(self._folder.path(name), modes=self._modes)
        verdict, reason = self._judge(was, reverted.origin, reverted.becomes)
        return PlannedFile(name, verdict, was, reverted.origin, reverted.origin, reason)

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


def _check_times(path: str, history: FileHistory, becomes: FileState, left: FileState | None) -> tuple[Verdict, str]:
    """Look for signs that a change by the session was not the last one, where states alone do not tell."""
    if history.interrupted:
        return "conflict", "changed outside the session while it ran"
    try:
        modified_ms = os.lstat(path).st_mtime * 1000
    except OSError:
        modified_ms = 0
    if left is None and modified_ms > history.last.ended + _CLOCK_TOLERANCE_MS:
        return "conflict", "written to after the session changed it"
    if becomes == ABSENT and history.first.rules_changed and modified_ms < history.first.began - _CLOCK_TOLERANCE_MS:
        return "lost", "it existed before but was ignored by git, so it is left alone"
    return "change", ""
