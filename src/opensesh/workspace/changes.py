"""What a session did to files from a point on: by its steps' snapshots, and by its tools' own records for the rest."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple
from unicodedata import normalize

from ..records import as_list, as_object
from .edits import RecordedEdit, accounts_for_all, is_unwatched, of_call
from .files import FileState, blob_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ..records import Document
    from ..storage.protocol import StoredMessage
    from .edits import Children
    from .files import ProjectFolder
    from .git import SnapshotObjects
    from .originals import Originals
    from .revert_plan import RevertPoint

Known = FileState | str | None
"""A file in a snapshot, a text that a tool recorded, or nothing known."""


class FileChange(NamedTuple):
    """One file before and after a step, or a tool call."""

    name: str
    before: Known
    after: Known
    began: int
    """When the message that did it was begun, in milliseconds."""
    ended: int
    """When it was done."""
    in_snapshot: bool = False
    """Whether a patch part lists it, so that the snapshot before knows the file."""
    by_command: bool = False
    """Whether a command did it that nobody watched closely."""
    rules_changed: bool = False
    """Whether the step also changed what is ignored, so that a file may only seem to be new."""


class ChangeCollector:
    """Goes through a history and tells what happened to files."""

    def __init__(
        self,
        folder: ProjectFolder,
        objects: SnapshotObjects | None,
        children: Children | None = None,
        originals: Originals | None = None,
    ) -> None:
        """Without ``objects`` there are no snapshots to look into; without ``children``, no subagents; without
        ``originals``, only texts that tools recorded."""
        self._folder = folder
        self._objects = objects
        self._children = children
        self._originals = originals
        self.outside: list[str] = []
        """Files that were changed but are not in the session's folder."""
        self.unwatched: list[str] = []
        """Commands of which nobody knows what they changed."""

    def since(self, history: Sequence[StoredMessage], point: RevertPoint) -> Iterator[FileChange]:
        """Every change at or after the point, in order."""
        for place, message in enumerate(history[point.message :]):
            if message.info.get("role") == "assistant":
                self._folder.check(message.info)
                yield from self._of_message(message, point.part if place == 0 else 0)

    def _of_message(self, message: StoredMessage, start: int) -> Iterator[FileChange]:
        self.unwatched += self._unwatched_in(message, start)
        made: list[RecordedEdit] = []
        for number, part in enumerate(message.parts):
            if number < start:
                continue
            if part.get("type") == "patch":
                yield from self._of_step(message, number, start, made)
                made = []
            else:
                made += self._edits([part], message.info)
        yield from _recorded(message, made)

    def _unwatched_in(self, message: StoredMessage, start: int) -> Iterator[str]:
        """The commands that ran without a snapshot on both sides: there was none, or nobody came to take the second."""
        cut_off, has_snapshot = _cut_off(message), False
        for number, part in enumerate(message.parts):
            if part.get("type") == "step-start":
                has_snapshot = self._objects is not None and bool(part.get("snapshot"))
            elif number >= start and (not has_snapshot or number > cut_off) and is_unwatched(part):
                yield str(_given(part).get("command", ""))

    def _of_step(
        self, message: StoredMessage, number: int, start: int, made: list[RecordedEdit]
    ) -> Iterator[FileChange]:
        """What a patch part lists; its tools are looked at for files it does not know, and for half a step."""
        parts, patch = message.parts, message.parts[number]
        began = _last(parts[:number], "step-start")
        kept = self._edits(parts[began:start], message.info) if began < start else []
        whole = not any(part.get("type") == "tool" for part in parts[began:start])
        names = self._names(patch, message.info)
        if all(accounts_for_all(part) for part in parts[began:number] if part.get("type") == "tool"):
            names = self._told_of(names, parts[began:number], [*kept, *made])
        after = _snapshot_after(parts[:number])
        rules_changed = any(os.path.basename(name) == ".gitignore" for name in names)
        for name in names:
            left = self._in(after, name) if after else _last_text(made, name)
            first = next((edit.before for edit in made if edit.path == name), None)
            if not whole and first is None and left is not None and same(_last_text(kept, name), left):
                continue  # it happened before the point
            before = self._in(patch.get("hash"), name) if whole or first is None else first
            change = _change(message, name, before, left)
            yield change._replace(in_snapshot=True, rules_changed=rules_changed)
        yield from _recorded(message, [edit for edit in made if edit.path not in names])

    def _edits(self, parts: Iterable[Document], info: Document) -> list[RecordedEdit]:
        """The edits of these parts, by name instead of path."""
        found: list[RecordedEdit] = []
        for part in parts:
            for edit in of_call(part, self._children, self._originals):
                name = self._name(edit.path, info)
                if name is not None:
                    found.append(edit._replace(path=name))
        return found

    def _names(self, patch: Document, info: Document) -> dict[str, None]:
        files = [str(file) for file in as_list(patch.get("files")) or []]
        return dict.fromkeys(name for file in files if (name := self._name(file, info)) is not None)

    def _told_of(
        self, names: dict[str, None], parts: Sequence[Document], edits: Sequence[RecordedEdit]
    ) -> dict[str, None]:
        """The files that calls have on record as theirs. Whatever else has changed meanwhile, the user has changed."""
        paths = [edit.path for part in parts for edit in of_call(part, self._children, self._originals)]
        told = {_alike(edit.path) for edit in edits} | {_alike(os.path.realpath(path)) for path in paths}
        real = {name: _alike(os.path.realpath(self._folder.path(name))) for name in names}
        return {name: None for name in names if _alike(name) in told or real[name] in told}

    def _name(self, path: str, info: Document) -> str | None:
        name = self._folder.name(path, info)
        if name is None and path not in self.outside:
            self.outside.append(path)
        return name

    def _in(self, tree: object, name: str) -> FileState | None:
        if self._objects is None or not isinstance(tree, str):
            return None
        return self._objects.state(tree, name)


def _alike(path: str) -> str:
    """A path as a disk may compare it that knows neither case nor how a letter is put together."""
    return normalize("NFC", path).casefold()


def _cut_off(message: StoredMessage) -> int:
    """Where a step begins whose process died before it could note what had changed; beyond the end if none did."""
    began = _last(message.parts, "step-start")
    ended = any(part.get("type") in ("step-finish", "patch") for part in message.parts[began:])
    return len(message.parts) if ended or "error" in message.info else began


def _given(part: Document) -> Document:
    return as_object((as_object(part.get("state")) or {}).get("input")) or {}


def _recorded(message: StoredMessage, made: Sequence[RecordedEdit]) -> Iterator[FileChange]:
    """What tools say they did. A command beside which a tool changed a file is not the one who did."""
    said = {edit.path for edit in made if not edit.by_command}
    for edit in made:
        if not edit.by_command:
            yield _change(message, edit.path, edit.before, edit.after)
        elif edit.path not in said:
            yield _change(message, edit.path, edit.before, edit.after)._replace(by_command=True)


def _change(message: StoredMessage, name: str, before: Known, after: Known) -> FileChange:
    time = as_object(message.info.get("time")) or {}
    began = int(time.get("created") or 0)
    # A step that nobody brought to an end was at work at least as long as its tools were.
    ended = int(time.get("completed") or max([began, *_times(message.parts)]))
    return FileChange(name, before, after, began, ended)


def _times(parts: Sequence[Document]) -> Iterator[int]:
    for part in parts:
        time = as_object((as_object(part.get("state")) or {}).get("time")) or {}
        yield int(time.get("end") or time.get("start") or 0)


class FileHistory(NamedTuple):
    """All that happened to one file."""

    before: Known
    """Before the first change."""
    after: Known
    """After the last one."""
    interrupted: bool
    """Whether someone else changed it between two changes of the session's own."""
    first: FileChange
    last: FileChange


def stories(changes: Iterable[FileChange]) -> dict[str, FileHistory]:
    """The changes of each file as one."""
    told: dict[str, FileHistory] = {}
    for change in changes:
        story = told.get(change.name)
        if story is None:
            told[change.name] = FileHistory(change.before, change.after, False, change, change)
        else:
            known = story.after is not None and change.before is not None
            interrupted = story.interrupted or (known and not same(story.after, change.before))
            told[change.name] = FileHistory(story.before, change.after, interrupted, story.first, change)
    return told


def same(one: Known, other: Known) -> bool:
    """Whether two accounts of a file agree. A text is compared by its bytes in UTF-8."""
    if one is None or other is None:
        return False
    return _named(one).fits(_named(other))


def _named(known: FileState | str) -> FileState:
    return FileState(blob_id(known.encode("utf-8", "surrogatepass"))) if isinstance(known, str) else known


def _last(parts: Sequence[Document], kind: str) -> int:
    """Where the last part of a kind is; the beginning if there is none."""
    return max((number for number, part in enumerate(parts) if part.get("type") == kind), default=0)


def _snapshot_after(parts: Sequence[Document]) -> str | None:
    """The snapshot at the end of the step that the last of these parts belongs to; none if it was broken off."""
    for part in reversed(parts):
        match part.get("type"):
            case "step-finish":
                snapshot = part.get("snapshot")
                return snapshot if isinstance(snapshot, str) and snapshot else None
            case "step-start" | "patch":
                return None
            case _:
                continue
    return None


def _last_text(edits: Sequence[RecordedEdit], name: str) -> Known:
    return next((edit.after for edit in reversed(edits) if edit.path == name), None)
