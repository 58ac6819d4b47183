"""What a session changed: ``opensesh session diff``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..errors import NotFound, SnapshotError
from ..records import as_object
from . import output

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from ..project import Place
    from ..records import Document, Session
    from ..sessions import Sessions
    from ..storage.store import StoredMessage
    from ..workspace import Snapshots
    from .arguments import Parser


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.add_argument("session", metavar="S")
    parser.add_argument("--message", metavar="MESSAGE", help="only what this prompt led to")
    parser.add_argument("--stat", action="store_true", help="only how many lines of which files")


def run(options: Namespace, sessions: Sessions, session: Session) -> int:
    """Show the files that the session, or one prompt of it, changed."""
    from ..workspace import turn

    messages = list(sessions.messages(session.id))
    if options.message is not None:
        messages = turn(messages, options.message)
        if not messages:
            raise NotFound(f"the session has no message {options.message}", id=options.message)
    snapshots = snapshots_of(sessions, session)
    found = _files(sessions, session, messages, snapshots, whole=options.message is None)
    if options.json:
        output.print_json(found)
    elif not found:
        print("Nothing was changed.")
    elif options.stat:
        _print_counts(found)
    else:
        print(_text(messages, snapshots) or _joined(found))
    return 0


def snapshots_of(sessions: Sessions, session: Session) -> Snapshots:
    """The snapshots of the place where the session worked."""
    from ..workspace import Snapshots, data_of

    return Snapshots(place_of(session), data=data_of(sessions.store))


def place_of(session: Session) -> Place:
    """Where the session worked; it must still be there."""
    from ..project import resolve

    if not os.path.isdir(session.directory):
        raise NotFound(f"the session worked in {session.directory}, which is not there any more", id=session.id)
    return resolve(session.directory)


def _files(
    sessions: Sessions, session: Session, messages: Sequence[StoredMessage], snapshots: Snapshots, *, whole: bool
) -> list[Document]:
    """From the snapshots; from what was stored when they were there, if they no longer are."""
    from ..workspace import Originals, diffs_of

    try:
        return diffs_of(messages, snapshots, Originals(sessions.store))
    except SnapshotError:
        if whole:
            return sessions.diff(session.id)
        summary = as_object(messages[0].info.get("summary")) or {}
        return summary.get("diffs") or []


def _text(messages: Sequence[StoredMessage], snapshots: Snapshots) -> str:
    from ..workspace import span

    ends = span(messages)
    try:
        return snapshots.text(*ends) if ends else ""
    except SnapshotError:
        return ""


def _joined(found: Sequence[Document]) -> str:
    """A unified diff of texts that were stored."""
    from ..tools.diff import compare

    return "\n".join(compare(each["file"], each.get("before", ""), each.get("after", "")).text for each in found)


def _print_counts(found: Sequence[Document]) -> None:
    rows = [(f"+{each['additions']}", f"-{each['deletions']}", each.get("status", ""), each["file"]) for each in found]
    output.table(("added", "removed", "", "file"), rows)
    added, removed = (sum(each[name] for each in found) for name in ("additions", "deletions"))
    files = output.counted(len(found), "file")
    print(f"{files}, {output.counted(added, 'line')} added, {removed:,} removed")
