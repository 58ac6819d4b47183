"""What a session changed: ``opensesh session diff``."""

from __future__ import annotations

import os
import sys
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from ..errors import NotFoundError, SnapshotError
from ..records import as_list, as_object
from ..storage import keys
from . import output
from .arguments import SESSION

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Sequence

    from ..project import ProjectLocation
    from ..records import Document, Session
    from ..sessions import Sessions
    from ..storage.protocol import StoredMessage
    from ..workspace import Snapshots
    from .arguments import Parser


class _Changes(NamedTuple):
    """What is known to have changed."""

    files: list[Document]
    text: str
    """As git shows it, if the snapshots are there to ask."""
    stored: str
    """Why these are what was stored when the session ran; empty if they are not."""


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.add_argument("session", metavar="S", help=SESSION)
    parser.add_argument("--message", metavar="MESSAGE", help="only what this prompt led to")
    parser.add_argument("--stat", action="store_true", help="only how many lines of which files")


def run(options: Namespace, sessions: Sessions, session: Session) -> int:
    """Show the files that the session, or one prompt of it, changed."""
    from ..workspace import turn

    messages = list(sessions.messages(session.id))
    if options.message is not None:
        messages = turn(messages, options.message)
        if not messages:
            raise NotFoundError(f"the session has no message {options.message}", id=options.message)
    found = _changes(sessions, session, messages, whole=options.message is None)
    if options.json:
        output.print_json(found.files)
    elif not found.files:
        print("Nothing was changed.", file=sys.stderr)
    elif options.stat:
        _print_counts(found.files)
    else:
        _print(found.text or "\n".join(_texts(found.files)))
    if found.stored:
        print(f"As it was stored when the session ran: {found.stored}.", file=sys.stderr)
    return 0


def snapshots_of(sessions: Sessions, session: Session) -> Snapshots:
    """The snapshots of the place where the session worked."""
    from ..workspace import Snapshots, data_folder

    return Snapshots(place_of(session), data=data_folder(sessions.store))


def place_of(session: Session) -> ProjectLocation:
    """Where the session worked; it must still be there."""
    from ..project import resolve

    if not os.path.isdir(session.directory):
        how = f"if it was moved, 'opensesh session move {session.id} FOLDER' says where to"
        raise NotFoundError(f"the session worked in {session.directory}, which is gone; {how}", id=session.id)
    return resolve(session.directory)


def _changes(sessions: Sessions, session: Session, messages: Sequence[StoredMessage], *, whole: bool) -> _Changes:
    """From the snapshots, or what the tools noted; from what was stored when they were there, if they no longer are."""
    from ..workspace import Originals, history_diffs, snapshot_range

    why = f"{session.directory} is not there any more"
    unknown = True
    if os.path.isdir(session.directory):
        snapshots = snapshots_of(sessions, session)
        try:
            files = history_diffs(messages, snapshots, Originals(sessions.store))
            if files or snapshots.readable:
                return _Changes(files, _text(messages, snapshots), "")
            why, unknown = snapshots.note or "there are no snapshots", snapshot_range(messages) is not None
        except SnapshotError:
            why = "its snapshots are gone"
    stored = _stored(sessions, session, messages, whole=whole)
    if stored is None and unknown:
        raise NotFoundError(f"nothing is stored of what it changed, and {why}", id=session.id)
    return _Changes(stored or [], "", why if stored else "")


def _stored(
    sessions: Sessions, session: Session, messages: Sequence[StoredMessage], *, whole: bool
) -> list[Document] | None:
    """What was stored when the session ran: of it as a whole, or else of each prompt; ``None`` if nothing was.

    OpenCode's databases and the forks it makes hold nothing of the whole, and after a revert what it holds is empty.
    """
    if whole and (found := sessions.diff(session.id)):
        return found
    summaries = (as_object(message.info.get("summary")) or {} for message in messages)
    told = [found for summary in summaries if (found := as_list(summary.get("diffs"))) is not None]
    if told or not whole:
        return list(chain.from_iterable(told)) if told else None
    try:
        sessions.store.read(keys.diff(session.id))
    except NotFoundError:
        return None
    return []


def _text(messages: Sequence[StoredMessage], snapshots: Snapshots) -> str:
    from ..workspace import snapshot_range

    ends = snapshot_range(messages)
    return snapshots.text(*ends) if ends else ""


def _texts(found: Sequence[Document]) -> Iterator[str]:
    """Unified diffs of what was stored: as such by newer versions, as both texts by older ones."""
    from ..tools.diff import compare

    for each in found:
        yield each.get("patch") or compare(each["file"], each.get("before", ""), each.get("after", "")).text


def _print(text: str) -> None:
    from .paging import page
    from .terminal import tame

    text = text.removesuffix("\n")
    page("\n".join(output.painted_diff(tame(text))) if sys.stdout.isatty() else text)


def _print_counts(found: Sequence[Document]) -> None:
    rows = [(f"+{each['additions']}", f"-{each['deletions']}", each.get("status", ""), each["file"]) for each in found]
    output.table(("ADDED", "REMOVED", "", "FILE"), rows, paths=True)
    added, removed = (sum(each[name] for each in found) for name in ("additions", "deletions"))
    files = output.pluralize(len({each["file"] for each in found}), "file")
    print(f"{files}, {output.pluralize(added, 'line')} added, {removed:,} removed")
