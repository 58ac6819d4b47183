"""Revert and unrevert: go back to before a message, with the files that were changed since, and undo that.

A revert hides everything from a message (or a part of one) on, and restores the files that the session changed since.
It stays in effect until it is undone, moved to another point, or committed by the next prompt. No other file is
touched, and no file that was changed outside the session unless the caller forces it.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
from contextlib import nullcontext
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ..errors import PreviewChangedError, SnapshotError, WriteError
from ..records import dumps_compact
from ..storage.disk import Disk
from ..storage.session_state import is_imported
from ..text import pluralize
from .changes import ChangeCollector, file_histories
from .diffs import history_diffs_or_empty, record_summary
from .files import ABSENT, ProjectFolder, delete_file, file_state, read_file_or_link, temp_path_for, write_file
from .originals import Originals
from .other_changes import OtherSessions, ignored_changes
from .revert_journal import (
    MESSAGES_FILE,
    FileContents,
    JournalEntry,
    JournalRecord,
    RevertedFile,
    RevertJournal,
    RevertTrash,
)
from .revert_plan import PlannedFile, RevertPlan, RevertPlanner, find_point, last_todos, message_index, recorded_point

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from ..events import Publish
    from ..records import Document, Session
    from ..sessions import Sessions
    from ..storage.protocol import Leases, StoredMessage
    from .revert_plan import RevertPoint
    from .snapshots import Snapshots

log = logging.getLogger("opensesh.workspace")
_MAX_TEXT_BYTES = 1 << 20
_PERMANENT_ERRORS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ETXTBSY)
"""Errors that trying again does not solve. Such a file is left alone, so that it does not block all others."""


class RevertPreview(NamedTuple):
    """What a revert, or the undoing of one, would do."""

    session_id: str
    revert: Document | None
    """The point, as the session's record will store it; ``None`` when a revert is undone."""
    hidden: tuple[str, ...]
    """The ids of the messages that will be hidden; the first may stay in part."""
    plan: RevertPlan
    outside: tuple[str, ...] = ()
    """Files that the session changed outside its project. They are left alone."""
    unwatched: tuple[str, ...] = ()
    """Shell commands whose changes are unknown and stay."""
    unattributed: Mapping[str, str] = MappingProxyType({})
    """Files that changed while a command of the session ran, by an unknown program or by the session named here. They
    are left alone."""
    ignored: tuple[str, ...] = ()
    """Files that git ignores and that changed while a command of the session ran. They are left alone."""
    texts: Mapping[str, tuple[str, str]] = MappingProxyType({})
    """The texts of the files that change, now and afterwards, where they were asked for. Binary and large files are
    not there."""

    @property
    def token(self) -> str:
        """A digest of everything that would happen: two previews with the same token do the same."""
        states = [(file.name, file.was, file.becomes) for file in self.plan.files]
        return hashlib.blake2b(dumps_compact([self.document, states]), digest_size=16).hexdigest()

    @property
    def document(self) -> Document:
        """For JSON output."""
        return {
            "sessionID": self.session_id,
            "revert": self.revert,
            "messages": list(self.hidden),
            "files": [file.document for file in self.plan.files],
            "outside": list(self.outside),
            "commands": list(self.unwatched),
            "unattributed": [{"file": name, "session": other or None} for name, other in self.unattributed.items()],
            "ignored": list(self.ignored),
        }


class RevertResult(NamedTuple):
    """What a revert did."""

    session: Session
    preview: RevertPreview
    left_alone: tuple[PlannedFile, ...] = ()
    """Files that could not be brought to the point, with the reason. They are as before, or, if an earlier revert
    changed them, as they were before that one."""
    kept: str = ""
    """The folder with copies of files that were overwritten by force; empty if there are none."""


class Reverts:
    """Reverts of the sessions of one project. Synchronous: call it from a thread if an event loop runs."""

    def __init__(
        self,
        sessions: Sessions,
        snapshots: Snapshots,
        *,
        publish: Publish | None = None,
        leases: Leases | None = None,
        disk: Disk | None = None,
        keeps_totals: bool = False,
    ) -> None:
        """With ``leases``, a session that is being run raises :class:`~opensesh.errors.BusyError`. A caller that runs
        the session itself passes none. With ``keeps_totals``, undoing a revert leaves the totals of the session's
        changes to the next prompt, as in OpenCode."""
        self.sessions = sessions
        self.snapshots = snapshots
        self.publish: Publish = publish or (lambda event: None)
        self.disk = disk or Disk()
        self.keeps_totals = keeps_totals
        self._leases = leases

    def preview(
        self,
        session_id: str,
        message_id: str,
        part_id: str | None = None,
        *,
        unattributed: bool = False,
        texts: bool = False,
    ) -> RevertPreview:
        """Return what :meth:`revert` would do, with the texts of the files if they are asked for. Changes nothing."""
        with _RevertOperation(self, session_id) as operation:
            point = find_point(operation.history, message_id, part_id)
            preview = operation.plan_revert(point, unattributed=unattributed)
            return preview._replace(texts=operation.texts(preview.plan)) if texts else preview

    def preview_unrevert(self, session_id: str) -> RevertPreview:
        """Return what :meth:`unrevert` would do. Changes nothing."""
        with _RevertOperation(self, session_id) as operation:
            return operation.plan_unrevert()

    def revert(
        self,
        session_id: str,
        message_id: str,
        part_id: str | None = None,
        *,
        force: bool = False,
        files: bool = True,
        unattributed: bool = False,
        token: str | None = None,
    ) -> RevertResult:
        """Go back to before a message, or a part of one. A session that is already reverted moves to the new point.

        Raises :class:`~opensesh.errors.RevertConflictError`, and changes nothing, if a file was changed outside the
        session; ``force`` overwrites it, and what it held can be restored. Without ``files`` only the conversation is
        reverted, unless a revert that changed files is in effect. Files that changed while a command of the session
        ran, and that nothing shows it to have changed, are left alone unless ``unattributed`` is set; what other
        sessions wrote always is. With the ``token`` of a preview, :class:`~opensesh.errors.PreviewChangedError` is
        raised if this would do something else.
        """
        with self._leased(session_id), _RevertOperation(self, session_id) as operation:
            operation.recover()
            point = find_point(operation.history, message_id, part_id)
            preview = operation.plan_revert(point, unattributed=unattributed)
            if token is not None and token != preview.token:
                raise PreviewChangedError(
                    "the session or its files changed since the preview; nothing was reverted. Preview it again",
                    session_id=session_id,
                )
            if not files and not operation.reverted_files():
                session = self.sessions.update(session_id, lambda info: info.update(revert=preview.revert or {}))
                return RevertResult(session, preview._replace(plan=RevertPlan()))
            if not force:
                preview.plan.refuse_conflicts()
            return operation.apply(preview)

    def unrevert(self, session_id: str, *, force: bool = False) -> RevertResult:
        """Undo a revert: restore messages and files. A session that is not reverted stays as it is.

        Raises :class:`~opensesh.errors.RevertConflictError` as :meth:`revert` does.
        """
        with self._leased(session_id), _RevertOperation(self, session_id) as operation:
            operation.recover()
            preview = operation.plan_unrevert()
            if operation.session.revert is None:
                return RevertResult(operation.session, preview)
            if not force:
                preview.plan.refuse_conflicts()
            return operation.apply(preview)

    def recover(self, session_id: str) -> bool:
        """Complete a revert that a dead process began; returns whether there was one.

        A runner of the session calls this first.
        """
        if RevertJournal(self.sessions.store, session_id, self.disk).next is None:
            return False
        with self._leased(session_id), _RevertOperation(self, session_id) as operation:
            return operation.recover()

    def remaining(self, session: Session) -> Sequence[StoredMessage]:
        """Return a session's messages without those that a revert hides: what :meth:`cleanup` would leave."""
        history = self.sessions.messages(session.id)
        point = recorded_point(history, session.revert) if session.revert is not None else None
        return history if point is None else point.before(history)

    def cleanup(self, session_id: str) -> list[str]:
        """Commit a revert, as the next prompt does: move what it hides to the trash. Returns the ids of the messages.

        For the runner of the session. Can be repeated after an interruption. Cheap without a revert.
        """
        journal = RevertJournal(self.sessions.store, session_id, self.disk)
        if self.sessions.get(session_id).revert is None and journal.next is None:
            return []
        with _RevertOperation(self, session_id) as operation:
            operation.recover()
            return operation.commit()

    def _leased(self, session_id: str) -> AbstractContextManager[object]:
        return self._leases.acquire(session_id, "opensesh revert") if self._leases is not None else nullcontext()


class _RevertOperation:
    """One revert, unrevert or commit of a session, until the end of the ``with`` block."""

    def __init__(self, reverts: Reverts, session_id: str) -> None:
        sessions, snapshots, disk = reverts.sessions, reverts.snapshots, reverts.disk
        self._publish = reverts.publish
        self._keeps_totals = reverts.keeps_totals
        self._disk = disk
        self._sessions = sessions
        self._snapshots = snapshots
        self._folder = ProjectFolder(snapshots.location)
        self._journal = RevertJournal(sessions.store, session_id, disk)
        has_snapshots = snapshots.readable and os.path.isdir(snapshots.repository.store)
        self._objects = snapshots.objects() if has_snapshots else None
        self._originals = Originals(sessions.store)
        self._trash = RevertTrash(sessions, disk)
        self._contents = FileContents(self._objects, self._journal, self._originals)
        self._modes = snapshots.repository.trusts_modes() if snapshots.readable else os.name != "nt"
        imported = is_imported(sessions.store, session_id)
        self._planner = RevertPlanner(self._folder, self._contents, modes=self._modes, is_imported=imported)
        self.session = sessions.get(session_id)
        self.history: Sequence[StoredMessage] = sessions.messages(session_id)

    def __enter__(self) -> _RevertOperation:
        return self

    def __exit__(self, *error: object) -> None:
        if self._objects is not None:
            self._objects.close()

    # -- planning ------------------------------------------------------------------------------------------------------

    def plan_revert(self, point: RevertPoint, *, unattributed: bool = False) -> RevertPreview:
        """Plan to go back to ``point``."""
        self._check_checkout(point)
        collector = ChangeCollector(
            self._folder,
            self._objects,
            self._sessions.messages,
            self._originals,
            writer=OtherSessions(self._sessions, self.session.id).writer,
            unattributed=unattributed,
        )
        plan = self._planner.plan_revert(collector.since(self.history, point), self.reverted_files())
        hidden = tuple(str(message.info["id"]) for message in self.history[point.message :])
        ignored = ignored_changes(point.after(self.history), self._snapshots.location, self._sessions.messages)
        reported = {*collector.unattributed, *(file.name for file in plan.files)}
        return RevertPreview(
            self.session.id,
            point.record(self.history),
            hidden,
            plan,
            tuple(collector.outside),
            tuple(collector.unwatched),
            {name: other for name, other in collector.unattributed.items() if name not in collector.own},
            tuple(name for name in ignored if name not in reported),
        )

    def plan_unrevert(self) -> RevertPreview:
        """Plan to undo the revert that is in effect."""
        return RevertPreview(self.session.id, None, (), self._planner.plan_unrevert(self.reverted_files()))

    def texts(self, plan: RevertPlan) -> dict[str, tuple[str, str]]:
        """Return the texts of the files that a plan changes, now and afterwards."""
        texts: dict[str, tuple[str, str]] = {}
        for file in plan.changes:
            now = read_file_or_link(self._folder.path(file.name)) if file.was.oid else b""
            afterwards = self._contents.get(file.becomes.oid) or b""
            if len(now) + len(afterwards) <= _MAX_TEXT_BYTES and b"\0" not in now + afterwards:
                texts[file.name] = now.decode("utf-8", "replace"), afterwards.decode("utf-8", "replace")
        return texts

    def reverted_files(self) -> Mapping[str, RevertedFile]:
        """Return what the revert that is in effect did: from our journal and, if OpenCode moved it, reconstructed."""
        revert, standing = self.session.revert, self._journal.standing
        reverted: dict[str, RevertedFile] = {}
        if revert is not None and standing is not None and standing.snapshot == revert.snapshot:
            reverted = standing.reverted
            if standing.matches(revert):
                return reverted
        point = recorded_point(self.history, revert) if revert is not None else None
        if revert is None or revert.snapshot is None or point is None or self._objects is None:
            return reverted
        self._check_checkout(point)
        # OpenCode takes back everything that changed while a step ran.
        collector = ChangeCollector(self._folder, self._objects, self._sessions.messages, self._originals)
        changes = [change for change in collector.since(self.history, point) if change.in_snapshot]
        for name, history in file_histories(changes).items():
            origin = reverted[name].origin if name in reverted else self._objects.state(revert.snapshot, name)
            becomes = self._planner.resolve(history.before, origin or ABSENT, self._folder.path(name))
            if origin is not None and becomes is not None:
                reverted[name] = RevertedFile(origin, becomes)
        return reverted

    def _check_checkout(self, point: RevertPoint) -> None:
        for message in self.history[point.message :]:
            if message.info.get("role") == "assistant":
                self._folder.check(message.info)

    # -- applying ------------------------------------------------------------------------------------------------------

    def apply(self, preview: RevertPreview) -> RevertResult:
        """Carry out a plan: write the journal, then the session's record, then the files."""
        record = self._journal_record(preview)
        # An unrevert restores only what was there before the revert, so what is overwritten by force is copied.
        overwritten = {
            file.name: read_file_or_link(self._folder.path(file.name))
            for file in preview.plan.conflicts
            if file.was.oid
        }
        kept = self._trash.add_files(self.session.id, overwritten) if overwritten else ""
        self._journal.begin(record, self._contents, self._folder.root)
        if record.kind == "revert":
            # From now on every reader of the session, OpenCode included, knows which snapshot has everything.
            # As in OpenCode, a revert with a snapshot always has a diff; it is empty until the files are changed.
            mark = record.document | ({"diff": ""} if record.snapshot else {})
            self._sessions.update(self.session.id, lambda info: info.update(revert=mark))
        missed = self._change_files(record)
        left_alone = [*preview.plan.lost, *missed]
        if record.kind == "unrevert":
            left_alone = self._keep_unrestored(left_alone)
        return RevertResult(self._finish(record, missed), preview, tuple(left_alone), kept)

    def recover(self) -> bool:
        """Complete what was begun; returns whether there was anything."""
        record = self._journal.next
        if record is None:
            return False
        if record.matches(self.session.revert):
            missed = self._change_files(record)
            if record.kind == "unrevert":
                self._keep_unrestored(missed)
            self.session = self._finish(record, missed)
        elif record.kind == "unrevert" and self.session.revert is None:
            self._journal.clear()
        else:
            self._journal.abandon()  # the session's record was not written yet, so no file was changed
        return True

    def _journal_record(self, preview: RevertPreview) -> JournalRecord:
        reverted = self.reverted_files()
        files: list[JournalEntry] = []
        for file in preview.plan.files:
            was, becomes = file.was, file.becomes
            if file.blocked and file.name in reverted:
                was = becomes = reverted[file.name].becomes  # stays reverted, so its origin must stay known
            if not file.blocked or file.name in reverted:
                files.append(JournalEntry(name=file.name, was=was, becomes=becomes, origin=file.origin))
        revert = self.session.revert
        if preview.revert is None and revert is not None:
            message_id, part_id, snapshot = revert.message_id, revert.part_id, revert.snapshot
            return JournalRecord("unrevert", message_id, part_id, snapshot, tuple(files))
        point = preview.revert or {}
        snapshot = revert.snapshot if revert is not None and revert.snapshot else self._snapshots.track()
        return JournalRecord("revert", point["messageID"], point.get("partID"), snapshot, tuple(files))

    def _change_files(self, record: JournalRecord) -> list[PlannedFile]:
        """Bring every file to its new state; returns those that could not be changed."""
        missed: list[PlannedFile] = []
        # Deletions first: a folder may replace a file, and a file a folder.
        for entry in sorted(record.files, key=lambda entry: bool(entry.becomes.oid)):
            path = self._folder.path(entry.name)
            now = file_state(path, modes=self._modes)
            if now.fits(entry.becomes) or entry.was == entry.becomes:
                continue
            data = self._contents.get(entry.becomes.oid) if entry.becomes.oid else b""
            refusal = ""
            if data is None:
                refusal = "its content is gone"
            elif not now.fits(entry.was):
                refusal = "changed at this very moment"
            else:
                try:
                    if entry.becomes.oid:
                        write_file(self._disk, path, entry.becomes, data)
                    else:
                        delete_file(self._disk, self._folder.root, entry.name, keep=self._folder.directory)
                except WriteError as error:
                    if error.data.get("errno") not in _PERMANENT_ERRORS:
                        raise
                    refusal = f"it cannot be written: {os.strerror(error.data['errno'])}"
            if refusal:
                self._disk.discard(temp_path_for(path, entry.becomes))
                missed.append(PlannedFile(entry.name, "lost", now, now, entry.origin, refusal))
        return missed

    def _keep_unrestored(self, files: Sequence[PlannedFile]) -> list[PlannedFile]:
        """Copy what an unrevert could not restore to the trash, because the journal is about to be deleted."""
        contents = {file.name: self._contents.get(file.origin.oid) for file in files if file.origin.oid}
        copies = {name: data for name, data in contents.items() if data is not None}
        folder = self._trash.add_files(self.session.id, copies) if copies else ""
        return [
            file._replace(reason=f"{file.reason}; what it held is in {folder}") if file.name in copies else file
            for file in files
        ]

    def _finish(self, record: JournalRecord, missed: Sequence[PlannedFile]) -> Session:
        """Update the session's record and summary after the files are changed."""
        if record.kind == "unrevert":
            totals = self.session.document.get("summary") if self._keeps_totals else None
            session = self._summarize(self.history, lambda info: info.pop("revert", None), totals)
            self._journal.clear()
            return session
        document = record.document
        if record.snapshot:
            # The diff that clients show; empty if it cannot be made.
            document["diff"] = ""
            try:
                now = self._snapshots.track()
                document["diff"] = self._snapshots.text(record.snapshot, now) if now else ""
            except SnapshotError as error:
                log.warning("%s", error)
        hidden = self.history[message_index(self.history, record.message_id) :]
        session = self._summarize(hidden, lambda info: info.update(revert=document))
        self._journal.finish(record, {file.name for file in missed})
        return session

    def _summarize(
        self, messages: Sequence[StoredMessage], change: Callable[[Document], object], totals: Document | None = None
    ) -> Session:
        diffs = history_diffs_or_empty(messages, self._snapshots, self._originals, self._sessions.messages)
        return record_summary(
            self._sessions, self.session.id, diffs, change=change, publish=self._publish, summary=totals
        )

    # -- committing ----------------------------------------------------------------------------------------------------

    def commit(self) -> list[str]:
        """Remove what the revert hides; returns the ids of the removed messages."""
        revert = self.session.revert
        if revert is None:
            return []
        point = recorded_point(self.history, revert)
        hidden = point.after(self.history) if point is not None else []
        removed: list[str] = []
        if hidden:
            folder = self._trash.add_messages(self.session.id, self.session.document["revert"], hidden)
            # The last first: as long as the first message is there, an interrupted commit can be repeated.
            keep_first = bool(point and point.part)
            removed = [str(message.info["id"]) for message in (hidden[1:] if keep_first else hidden)]
            self._sessions.remove_messages(self.session.id, removed, last_first=True)
            for part in reversed(hidden[0].parts) if keep_first else ():
                self._sessions.remove_part(self.session.id, str(hidden[0].info["id"]), part["id"])
            self._journal.move_to(folder)
            name, moved = self.session.id, pluralize(len(hidden), "message")
            log.warning(
                f"the revert of {name} is final: moved {moved} to {os.path.join(folder, MESSAGES_FILE)} "
                f"('opensesh session fork {name} --reverted' creates a session with them)"
            )
        # The todo list and the summary follow from the messages that are left.
        rest = self._sessions.messages(self.session.id)
        if last_todos(hidden) is not None:
            self._sessions.set_todos(self.session.id, last_todos(rest) or [])
        if "summary" in self.session.document:
            self._summarize(rest, lambda info: info.pop("revert", None))
        else:
            self._sessions.update(self.session.id, lambda info: info.pop("revert", None))
        self._journal.clear()
        return removed
