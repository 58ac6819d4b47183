"""One session while it is reverted: what is known of it, what is planned, and how that is carried out."""

from __future__ import annotations

import errno
import logging
import os
from typing import TYPE_CHECKING, NamedTuple

from ..errors import SnapshotError, WriteError
from ..records import as_list, as_object
from ..storage.protocol import StoredMessage
from . import summary
from .changes import ChangeCollector, stories
from .files import ProjectFolder, delete_file, file_state, read_file_or_link, temp_path_for, write_file
from .journal import FileContents, JournalEntry, JournalRecord, RevertJournal
from .originals import Originals
from .revert_plan import PlannedFile, RevertedFile, RevertPlan, RevertPlanner, listed, message_index, recorded_point
from .trash import FILE, RevertTrash

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from ..events import Publish
    from ..records import Document, Session
    from ..sessions import Sessions
    from ..storage.disk import Disk
    from .revert_plan import RevertPoint
    from .snapshots import Snapshots


log = logging.getLogger("opensesh.workspace")
_NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ETXTBSY)
"""What trying again does not mend."""


class RevertPreview(NamedTuple):
    """What a revert, or the undoing of one, would do."""

    session_id: str
    revert: Document | None
    """The point, as the session's record will name it; ``None`` when a revert is undone."""
    hidden: tuple[str, ...]
    """The messages that will be hidden, by id; the first may stay in part."""
    plan: RevertPlan
    outside: tuple[str, ...] = ()
    """Files that the session changed outside of its project. They are left alone."""
    unwatched: tuple[str, ...] = ()
    """Commands of which nobody knows what they changed; whatever it was, it stays."""

    @property
    def document(self) -> Document:
        """For a program to read."""
        return {
            "sessionID": self.session_id,
            "revert": self.revert,
            "messages": list(self.hidden),
            "files": listed(self.plan.files),
            "outside": list(self.outside),
            "commands": list(self.unwatched),
        }


class RevertResult(NamedTuple):
    """What was done."""

    session: Session
    preview: RevertPreview
    left_alone: tuple[PlannedFile, ...] = ()
    """Files that could not be brought back, and why."""
    kept: str = ""
    """The folder with copies of what someone else had written and force wrote over; empty if there was nothing."""


class RevertDeps(NamedTuple):
    """What all reverts of a place work with."""

    sessions: Sessions
    snapshots: Snapshots
    publish: Publish
    disk: Disk
    state: str | None


class RevertOperation:
    """One session, from the moment it is looked at to the end of the ``with`` block."""

    def __init__(self, tools: RevertDeps, session_id: str) -> None:
        self._tools = tools
        self._sessions = tools.sessions
        self._snapshots = tools.snapshots
        self._folder = ProjectFolder(tools.snapshots.place)
        self._journal = RevertJournal(tools.sessions.store, session_id, state=tools.state, disk=tools.disk)
        has_any = tools.snapshots.readable and os.path.isdir(tools.snapshots.repository.store)
        self._objects = tools.snapshots.objects() if has_any else None
        self._originals = Originals(tools.sessions.store, state=tools.state)
        self._trash = RevertTrash(tools.sessions, state=tools.state, disk=tools.disk)
        self._contents = FileContents(self._objects, self._journal, self._originals)
        modes = tools.snapshots.repository.trusts_modes() if tools.snapshots.readable else os.name != "nt"
        self._modes = modes
        self._planner = RevertPlanner(self._folder, self._contents, modes=modes)
        self.session = tools.sessions.get(session_id)
        self.history: Sequence[StoredMessage] = tools.sessions.messages(session_id)

    def __enter__(self) -> RevertOperation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._objects is not None:
            self._objects.close()

    @property
    def took_files(self) -> bool:
        """Whether the revert that stands changed files."""
        return bool(self._pending())

    # -- planning ------------------------------------------------------------------------------------------------------

    def back(self, point: RevertPoint) -> RevertPreview:
        """What going back to ``point`` would do."""
        collector = self._collector()
        plan = self._planner.back(collector.since(self.history, point), self._pending())
        hidden = tuple(str(message.info["id"]) for message in self.history[point.message :])
        record = point.record(self.history)
        outside, unwatched = tuple(collector.outside), tuple(collector.unwatched)
        return RevertPreview(self.session.id, record, hidden, plan, outside, unwatched)

    def forth(self) -> RevertPreview:
        """What undoing the revert would do."""
        return RevertPreview(self.session.id, None, (), self._planner.forth(self._pending()))

    def _collector(self) -> ChangeCollector:
        return ChangeCollector(self._folder, self._objects, self._sessions.messages, self._originals)

    def _pending(self) -> Mapping[str, RevertedFile]:
        """What the revert that stands did: as we noted it or, if OpenCode did it, as it must have been."""
        revert, standing = self.session.revert, self._journal.standing
        if standing is not None and standing.matches(revert):
            return {entry.name: RevertedFile(entry.origin, entry.becomes) for entry in standing.files}
        point = recorded_point(self.history, revert) if revert is not None else None
        if revert is None or revert.snapshot is None or point is None or self._objects is None:
            return {}
        changes = [each for each in self._collector().since(self.history, point) if each.in_snapshot]
        pending: dict[str, RevertedFile] = {}
        for name, story in stories(changes).items():
            origin = self._objects.state(revert.snapshot, name)
            becomes = self._planner.settle(story.before, self._folder.path(name))
            if origin is not None and becomes is not None:
                pending[name] = RevertedFile(origin, becomes)
        return pending

    # -- doing ---------------------------------------------------------------------------------------------------------

    def mark(self, preview: RevertPreview) -> Session:
        """Hide the messages, and leave the files alone."""
        record = preview.revert or {}
        return self._sessions.update(self.session.id, lambda info: info.update(revert=record))

    def carry_out(self, preview: RevertPreview) -> RevertResult:
        """Do it: first say so in the journal, then in the session's record, then touch the files."""
        intention = self._intention(preview)
        kept = self._keep(preview.plan.conflicts)
        self._journal.begin(intention, self._contents, self._folder.root)
        if intention.kind == "revert":
            # From here on whoever looks at the session, OpenCode too, knows which snapshot has everything.
            self._sessions.update(self.session.id, lambda info: info.update(revert=intention.record))
        missed = self._apply(intention)
        return RevertResult(self._finish(intention), preview, (*preview.plan.lost, *missed), kept)

    def _keep(self, conflicts: Sequence[PlannedFile]) -> str:
        """Copy what someone else wrote, for undoing a revert brings back only what was there before it."""
        files = {each.name: read_file_or_link(self._folder.path(each.name)) for each in conflicts if each.was.oid}
        return self._trash.keep(self.session.id, files) if files else ""

    def recover(self) -> bool:
        """Finish what was begun; whether anything was."""
        intention = self._journal.next
        if intention is None:
            return False
        if intention.matches(self.session.revert):
            self._apply(intention)
            self.session = self._finish(intention)
        elif intention.kind == "unrevert" and self.session.revert is None:
            self._journal.clear()
        else:
            self._journal.abandon()  # the record was not written yet, so no file was touched
        return True

    def _intention(self, preview: RevertPreview) -> JournalRecord:
        files = tuple(
            JournalEntry(name=each.name, was=each.was, becomes=each.becomes, origin=each.origin)
            for each in preview.plan.files
            if each.verdict != "lost"
        )
        revert = self.session.revert
        if preview.revert is None and revert is not None:
            return JournalRecord(
                kind="unrevert",
                message_id=revert.message_id,
                part_id=revert.part_id,
                snapshot=revert.snapshot,
                files=files,
            )
        point = preview.revert or {}
        snapshot = revert.snapshot if revert is not None and revert.snapshot else self._snapshots.track()
        return JournalRecord(
            kind="revert",
            message_id=point["messageID"],
            part_id=point.get("partID"),
            snapshot=snapshot,
            files=files,
        )

    def _apply(self, intention: JournalRecord) -> list[PlannedFile]:
        """Bring every file to what it becomes; those that someone changed at this very moment are left alone."""
        missed: list[PlannedFile] = []
        # What goes makes room for what comes: a folder may have been a file, and a file a folder.
        for entry in sorted(intention.files, key=lambda each: bool(each.becomes.oid)):
            path = self._folder.path(entry.name)
            now = file_state(path, modes=self._modes)
            if now.fits(entry.becomes):
                continue
            data = self._contents.get(entry.becomes.oid) if entry.becomes.oid else b""
            if not now.fits(entry.was) or data is None:
                self._tools.disk.discard(temp_path_for(path, entry.becomes))
                reason = "changed at this very moment" if data is not None else "its content is gone"
                missed.append(PlannedFile(entry.name, "lost", now, now, entry.origin, reason))
            elif refusal := self._change(entry, data):
                missed.append(PlannedFile(entry.name, "lost", now, now, entry.origin, refusal))
        return missed

    def _change(self, entry: JournalEntry, data: bytes) -> str:
        """Write one file, or take it away; why that is not allowed, if so. Nobody would be helped if one file that is
        out of reach kept all others, and the session, from going anywhere."""
        disk, folder = self._tools.disk, self._folder
        try:
            if entry.becomes.oid:
                write_file(disk, folder.path(entry.name), entry.becomes, data)
            else:
                delete_file(disk, folder.root, entry.name, keep=folder.directory)
        except WriteError as error:
            if error.data.get("errno") not in _NOT_ALLOWED:
                raise
            return f"it may not be written: {os.strerror(error.data['errno'])}"
        return ""

    def _finish(self, intention: JournalRecord) -> Session:
        """The files are done: now the records that follow from them."""
        if intention.kind == "unrevert":
            found = summary.known_diffs(self.history, self._snapshots, self._originals)
            session = self._record(found, lambda info: info.pop("revert", None))
            self._journal.clear()
            return session
        record = intention.record
        if intention.snapshot:
            record["diff"] = self._diff_since(intention.snapshot)
        point = message_index(self.history, intention.message_id)
        found = summary.known_diffs(self.history[point:], self._snapshots, self._originals)
        session = self._record(found, lambda info: info.update(revert=record))
        self._journal.finish()
        return session

    def _diff_since(self, snapshot: str) -> str:
        """What is different now, for clients to show; nothing if that cannot be told."""
        try:
            now = self._snapshots.track()
            return self._snapshots.text(snapshot, now) if now else ""
        except SnapshotError as error:
            log.warning("%s", error)
            return ""

    def _record(self, found: list[Document], change: Callable[[Document], object]) -> Session:
        return summary.record(self._sessions, self.session.id, found, change=change, publish=self._tools.publish)

    # -- making it final -----------------------------------------------------------------------------------------------

    def make_final(self) -> list[str]:
        """Take out what the revert hides; the messages that are gone."""
        revert = self.session.revert
        if revert is None:
            return []
        point = recorded_point(self.history, revert)
        hidden = _hidden(self.history, point) if point is not None else []
        gone: list[str] = []
        if hidden:
            folder = self._trash.throw(self.session.id, self.session.document["revert"], hidden)
            gone = self._take_out(hidden, keep_first=bool(point and point.part))
            self._journal.move_to(folder)
            log.warning(
                "the revert of %s is final: put aside %d message%s, in %s "
                "('opensesh session fork %s --reverted' makes a session of what was)",
                self.session.id,
                len(hidden),
                "" if len(hidden) == 1 else "s",
                os.path.join(folder, FILE),
                self.session.id,
            )
        self._tell_what_is_left(hidden)
        self._journal.clear()
        return gone

    def _tell_what_is_left(self, hidden: Sequence[StoredMessage]) -> None:
        """The revert is no more: what the session changed, and has to do, is what the rest of it says."""
        rest = self._sessions.messages(self.session.id)
        if _todos(hidden) is not None:
            self._sessions.set_todos(self.session.id, _todos(rest) or [])
        if "summary" in self.session.document:
            self._record(
                summary.known_diffs(rest, self._snapshots, self._originals), lambda info: info.pop("revert", None)
            )
        else:
            self._sessions.update(self.session.id, lambda info: info.pop("revert", None))

    def _take_out(self, hidden: Sequence[StoredMessage], *, keep_first: bool) -> list[str]:
        """The last first: while the first is there, it is known where to go on after an interruption."""
        gone: list[str] = []
        for number, message in reversed(list(enumerate(hidden))):
            message_id = str(message.info["id"])
            if number == 0 and keep_first:
                for part in reversed(message.parts):
                    self._sessions.remove_part(self.session.id, message_id, part["id"])
            else:
                self._sessions.remove_message(self.session.id, message_id)
                gone.append(message_id)
        return gone[::-1]


def _hidden(history: Sequence[StoredMessage], point: RevertPoint) -> list[StoredMessage]:
    """What comes at and after the point; of the first message, only the parts that go."""
    first, *rest = history[point.message :]
    if not point.part:
        return [first, *rest]
    parts = first.parts[point.part :]
    return [StoredMessage(first.info, parts), *rest] if parts else rest


def _todos(messages: Sequence[StoredMessage]) -> list[Document] | None:
    """The list of things to do that was written last; ``None`` if none was."""
    for message in reversed(messages):
        for part in reversed(message.parts):
            state = as_object(part.get("state")) or {}
            todos = as_list((as_object(state.get("metadata")) or {}).get("todos"))
            if part.get("tool") == "todowrite" and state.get("status") == "completed" and todos is not None:
                return [todo for todo in map(as_object, todos) if todo is not None]
    return None
