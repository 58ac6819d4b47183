"""What a revert would do to each file, planned before any file is touched."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, NamedTuple

from ..errors import NotFoundError, RevertConflictError
from ..records import as_list, as_object, object_at
from ..storage.protocol import StoredMessage
from .changes import encode_like, file_histories
from .files import ABSENT, EXECUTABLE, FILE, FileState, file_state, read_file_or_link

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..records import Document, Revert
    from .changes import FileChange, FileHistory, Known
    from .files import ProjectFolder
    from .revert_journal import FileContents, RevertedFile

Verdict = Literal["change", "same", "conflict", "lost"]
"""``lost`` cannot be brought to the point, not even by force: it stays at, or returns to, its origin."""
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
    blocked: bool = False
    """Whether it stays as it is, because something is in the way or a content is gone."""

    @property
    def action(self) -> str:
        """What happens to it: ``keep``, ``delete``, ``restore`` or ``create``."""
        if self.blocked or self.was.fits(self.becomes):
            return "keep"
        if not self.becomes.oid:
            return "delete"
        return "restore" if self.was.oid else "create"

    @property
    def document(self) -> dict[str, str]:
        """For JSON output."""
        return {"file": self.name, "action": self.action, "verdict": self.verdict, "reason": self.reason}


class RevertPlan(NamedTuple):
    """What a revert does to files."""

    files: tuple[PlannedFile, ...] = ()

    @property
    def changes(self) -> list[PlannedFile]:
        """Files that will be written or deleted, conflicts included."""
        return [file for file in self.files if file.action != "keep"]

    @property
    def conflicts(self) -> list[PlannedFile]:
        """Files that were changed since, but not by the session."""
        return [file for file in self.files if file.verdict == "conflict"]

    @property
    def lost(self) -> list[PlannedFile]:
        """Files that cannot be brought to the point."""
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

    def __init__(
        self, folder: ProjectFolder, contents: FileContents, *, modes: bool = True, is_imported: bool = False
    ) -> None:
        """An imported session may have written its files on another machine: they are left alone unless the time of the
        last change shows that it was this session's."""
        self._folder = folder
        self._contents = contents
        self._modes = modes
        self._is_imported = is_imported

    def plan_revert(self, changes: Iterable[FileChange], reverted: Mapping[str, RevertedFile]) -> RevertPlan:
        """Plan to undo ``changes``. ``reverted`` is what the revert that is in effect did.

        What a file becomes follows from its origin and from ``changes`` alone, never from the reverts before this one.
        So the order of reverts does not matter, and a file is either at its origin or in the journal with its origin.
        """
        histories = file_histories(changes)
        names = sorted(histories.keys() | reverted.keys())
        return self._clear_folders([self._plan_file(name, histories.get(name), reverted.get(name)) for name in names])

    def plan_unrevert(self, reverted: Mapping[str, RevertedFile]) -> RevertPlan:
        """Plan to restore everything that a revert took."""
        return self.plan_revert((), reverted)

    def resolve(self, known: Known, origin: FileState, path: str) -> FileState | None:
        """Return the state of a file; for a recorded text, that of the file it would make, encoded as at ``origin``."""
        if not isinstance(known, str):
            return known
        sample = self._contents.get(origin.oid)
        data = encode_like(known, read_file_or_link(path) if sample is None else sample)
        mode = origin.mode if origin.mode in (FILE, EXECUTABLE) else ""
        return FileState(self._contents.add(data), mode) if data is not None else None

    def _clear_folders(self, files: Sequence[PlannedFile]) -> RevertPlan:
        """A folder where a file belongs is not an obstacle if the plan deletes everything in it, and thereby itself."""
        deleted = {file.name for file in files if not file.becomes.oid and file.verdict in ("change", "same")}
        return RevertPlan(
            tuple(
                file._replace(verdict="change", was=ABSENT, reason="", blocked=False)
                if file.was.is_folder and file.becomes.oid and set() < self._files_in(file.name) <= deleted
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

    def _plan_file(self, name: str, history: FileHistory | None, reverted: RevertedFile | None) -> PlannedFile:
        # The order counts: --force cannot help where an obstacle or a lost content makes a change impossible, and signs
        # in the history are looked at only where the states alone show no conflict.
        path = self._folder.path(name)
        was = file_state(path, modes=self._modes)
        origin = reverted.origin if reverted else ABSENT if was.is_folder else was
        becomes, problem = self._target(history, origin, path)
        if problem and not was.fits(becomes):
            problem = f"{problem}; it returns to what it was before the session was reverted"
        planned = PlannedFile(name, "lost" if problem else "change", was, becomes, origin, problem)
        if was.fits(becomes):
            return planned if problem else planned._replace(verdict="same")
        if was.obstacle:
            return planned._replace(verdict="lost", reason=was.obstacle, blocked=True)
        if becomes.oid and self._contents.get(becomes.oid) is None:
            return planned._replace(verdict="lost", reason="its content is no longer in the snapshots", blocked=True)
        left = reverted.becomes if reverted else self.resolve(history.after, origin, path) if history else origin
        # A file at its origin is as the session left it, also if a revert should have changed it.
        if left is not None and not was.fits(left) and not (reverted and was.fits(origin)):
            return planned._replace(verdict="conflict", reason="changed since" if was.oid else "deleted since")
        if history and not problem:
            verdict, reason = self._check_history(path, history, becomes, left, is_reverted=reverted is not None)
            return planned._replace(verdict=verdict, reason=reason, blocked=verdict == "lost")
        return planned

    def _target(self, history: FileHistory | None, origin: FileState, path: str) -> tuple[FileState, str]:
        """Return what a file is to become; if that is unknown or impossible, its origin and the reason."""
        if history is None:
            return origin, ""
        becomes = self.resolve(history.before, origin, path)
        if becomes is None and history.first.by_command:
            return origin, "a command changed it, and what it held before was not recorded"
        if becomes is None:
            return origin, "what it held before was not recorded, or is gone"
        if becomes.mode == _SUBMODULE:
            return origin, "it was a repository of its own"
        if becomes.oid and not becomes.fits(origin) and self._contents.get(becomes.oid) is None:
            return origin, "its content is no longer in the snapshots"
        return becomes, ""

    def _check_history(
        self, path: str, history: FileHistory, becomes: FileState, left: FileState | None, *, is_reverted: bool
    ) -> tuple[Verdict, str]:
        """Look for signs that a change by the session was not the last one, where states alone do not tell."""
        if history.interrupted:
            return "conflict", "changed outside the session while it ran"
        if is_reverted:
            return "change", ""  # a revert wrote it last, so its time shows nothing
        try:
            modified_ms = os.lstat(path).st_mtime * 1000
        except OSError:
            modified_ms = 0
        first, last, tolerance = history.first, history.last, _CLOCK_TOLERANCE_MS
        if self._is_imported and not last.began - tolerance <= modified_ms <= last.ended + tolerance:
            return "lost", "the session was imported, and nothing shows that it changed this file here"
        if left is None and modified_ms > last.ended + tolerance:
            return "conflict", "written to after the session changed it"
        if becomes == ABSENT and first.rules_changed and modified_ms < first.began - tolerance:
            return "lost", "it existed before but was ignored by git, so it is left alone"
        return "change", ""


def last_todos(messages: Sequence[StoredMessage]) -> list[Document] | None:
    """Return the todo list that was written last; ``None`` if there is none."""
    for message in reversed(messages):
        for part in reversed(message.parts):
            todos = as_list(object_at(part, "state", "metadata").get("todos"))
            is_completed = object_at(part, "state").get("status") == "completed"
            if part.get("tool") == "todowrite" and is_completed and todos is not None:
                return [todo for todo in map(as_object, todos) if todo is not None]
    return None
