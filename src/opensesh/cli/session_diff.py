"""Show the changes that a session made to files."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain

from ..errors import NotFoundError, SnapshotError
from ..history.library import Library
from ..line_changes import texts_of_patch
from ..project import resolve
from ..records import Document, Session, as_list, object_at
from ..sessions import Sessions
from ..storage import keys
from ..storage.protocol import StoredMessage, conventions_of
from ..text import pluralize
from ..tools.diff import compare
from ..workspace.diffs import history_diffs, snapshot_range, turn_messages
from ..workspace.originals import Originals
from ..workspace.repository import data_folder
from ..workspace.snapshots import Snapshots
from . import output
from .command_arguments import named_session
from .terminal import escape_control


def run(options: Namespace, sessions: Sessions) -> int:
    """Show the changes of a session, or of one prompt."""
    session = named_session(Library(store=sessions.store), options.session).record
    messages = list(sessions.messages(session.id))
    if options.message is not None:
        messages = turn_messages(messages, options.message)
        if not messages:
            raise NotFoundError(f"session {session.id} has no message {options.message}", id=options.message)
    files, text, stored_because = _changes(sessions, session, messages, whole=options.message is None)
    print_changes(files, options, text=text, stored_because=stored_because)
    return 0


def print_changes(files: list[Document], options: Namespace, *, text: str = "", stored_because: str = "") -> None:
    """Print changed files. ``text`` is the diff as git prints it; without it, those of the files are printed."""
    if options.json:
        output.print_json(files)
    elif not files:
        print("No files were changed.", file=sys.stderr)
    elif options.stat:
        rows = [(f"+{f['additions']}", f"-{f['deletions']}", f.get("status", ""), f["file"]) for f in files]
        output.table(("ADDED", "REMOVED", "", "FILE"), rows, paths=True)
        added, removed = (sum(file[name] for file in files) for name in ("additions", "deletions"))
        changed = pluralize(len({file["file"] for file in files}), "file")
        print(f"{changed}, {pluralize(added, 'line')} added, {removed:,} removed")
    else:
        text = (text or "\n".join(map(_file_diff, files))).removesuffix("\n")
        output.page("\n".join(output.paint_diff(escape_control(text))) if sys.stdout.isatty() else text)
    if stored_because:
        print(f"These are the changes stored when the session ran: {stored_because}.", file=sys.stderr)


def _file_diff(file: Document) -> str:
    """Return the diff of a stored change: older versions store both texts, newer ones a patch with the whole file."""
    patch = file.get("patch") or ""
    texts = texts_of_patch(file["file"], patch)
    if patch and texts is None:
        return patch
    before, after = texts or (file.get("before", ""), file.get("after", ""))
    return compare(file["file"], before, after).text


def snapshots_of(sessions: Sessions, session: Session) -> Snapshots:
    """Return the snapshots of the session's directory, which must still exist."""
    if not os.path.isdir(session.directory):
        how = f"if it was moved, run 'opensesh session move {session.id} FOLDER'"
        raise NotFoundError(f"the session's directory {session.directory} does not exist; {how}", id=session.id)
    location = resolve(session.directory, store=sessions.store)
    return Snapshots(
        location, data=data_folder(sessions.store), by_worktree=conventions_of(sessions.store).snapshots_by_worktree
    )


def _changes(
    sessions: Sessions, session: Session, messages: Sequence[StoredMessage], *, whole: bool
) -> tuple[list[Document], str, str]:
    """Return the changed files and, if there are snapshots, the diff as git prints it.

    If snapshots and tool records are gone, the files are those that were stored when the session ran; the third value
    is then the reason.
    """
    reason = f"{session.directory} does not exist any more"
    unknown = True
    if os.path.isdir(session.directory):
        snapshots = snapshots_of(sessions, session)
        ends = snapshot_range(messages)
        try:
            files = history_diffs(messages, snapshots, Originals(sessions.store), sessions.messages)
            if files or snapshots.readable:
                return files, snapshots.text(*ends) if ends else "", ""
            reason, unknown = snapshots.note or "there are no snapshots", ends is not None
        except SnapshotError:
            reason = "its snapshots are gone"
    stored = sessions.diff(session.id) if whole else []
    if stored:
        return stored, "", reason
    # OpenCode's databases and forks store changes only with each prompt, and after a revert the record is empty.
    summaries = (object_at(message.info, "summary") for message in messages)
    by_prompt = [diffs for summary in summaries if (diffs := as_list(summary.get("diffs"))) is not None]
    if whole and not by_prompt:
        with suppress(NotFoundError):
            sessions.store.read(keys.diff(session.id))
            unknown = False
    if unknown and not by_prompt:
        raise NotFoundError(f"the changes of session {session.id} were not stored, and {reason}", id=session.id)
    stored = list(chain.from_iterable(by_prompt))
    return stored, "", reason if stored else ""
