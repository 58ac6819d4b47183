"""Fork, rename, compact, diff, revert or share a session; archive, move or remove one or many, and take that back."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..errors import BusyError, NotFoundError, OpenseshError, UsageError
from ..project import resolve
from ..sessions import Sessions
from ..storage import open_store
from . import output, session_bulk, session_diff, session_revert, session_share, session_trash
from .arguments import SESSION
from .choose import find_session

if TYPE_CHECKING:
    from argparse import Namespace

    from ..engine.loop import Outcome
    from ..records import Session
    from .arguments import Parser

_ELSEWHERE = {
    "diff": session_diff.run,
    "revert": session_revert.run_revert,
    "unrevert": session_revert.run_unrevert,
    "share": session_share.run_share,
}


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    fork = parser.add_action("fork", "copy it, whole or up to a message")
    fork.add_argument("session", metavar="S", help=SESSION)
    fork.add_argument("--before", metavar="MESSAGE", help="copy only what came before this message")
    fork.add_argument(
        "--reverted", action="store_true", help="copy it with what its last revert took, once that is final"
    )
    rename = parser.add_action("rename", "give it a title")
    rename.add_argument("session", metavar="S", help=SESSION)
    rename.add_argument("title", nargs="+", metavar="TITLE", help="its new title")
    compact = parser.add_action("compact", "sum it up, so that it fits the model's window again; nothing is lost")
    compact.add_argument("session", metavar="S", help=SESSION)
    compact.add_argument("--undo", action="store_true", help="take the last summary back")
    session_diff.configure(parser.add_action("diff", "show the files it changed"))
    session_revert.configure_revert(parser.add_action("revert", "go back to before a prompt, its files included"))
    session_revert.configure_unrevert(parser.add_action("unrevert", "bring back what a revert took"))
    session_share.configure_share(parser.add_action("share", "let others read it, at a link"))
    session_share.configure_unshare(parser.add_action("unshare", "take the link down, also of a session that is gone"))
    session_bulk.configure(parser)
    session_trash.configure(parser)


def run(options: Namespace) -> int:
    """Do what was asked to the session that was named."""
    from .logfile import warnings_told

    with warnings_told():
        return _run(options)


def _run(options: Namespace) -> int:
    for several in (session_bulk, session_trash):
        if options.action in several.ACTIONS:
            return several.run(options)
    store = open_store(options.store)
    sessions = Sessions(store, resolve(os.getcwd()))
    if options.action == "unshare":
        return session_share.run_unshare(options, sessions)
    session = find_session(store, options.session)
    if options.action in _ELSEWHERE:
        return _ELSEWHERE[options.action](options, sessions, session)
    match options.action:
        case "fork":
            _answer(_fork(sessions, session, options), "forked", options)
        case "rename":
            _answer(sessions.rename(session.id, _title(options)), "renamed", options)
        case _:
            return _compact(sessions, session, options)
    return 0


def _fork(sessions: Sessions, session: Session, options: Namespace) -> Session:
    if not options.reverted:
        return sessions.fork(session.id, before=options.before)
    from ..workspace import RevertTrash

    if options.before:
        raise UsageError("--before MESSAGE or --reverted, not both")
    if session.revert is not None:
        raise UsageError(f"its revert is not final; 'opensesh session unrevert {session.id}' brings back what it took")
    return sessions.fork_messages(session.id, RevertTrash(sessions).history_before(session.id))


def _title(options: Namespace) -> str:
    title = " ".join(options.title).strip()
    if not title:
        raise UsageError("a title needs a word at least")
    return title


def _compact(sessions: Sessions, session: Session, options: Namespace) -> int:
    import asyncio

    from ..engine import compaction

    if options.undo:
        _refuse_if_running(sessions, session)
        if not compaction.undo_compaction(sessions, session.id):
            raise NotFoundError(f"session {session.id} has no summary to take back")
        _answer(sessions.get(session.id), "shown as before its last summary", options)
        return 0
    outcome = asyncio.run(_sum_up(sessions, session))
    if outcome.kind != "answered":
        raise OpenseshError(outcome.description, session=session.id)
    _answer(sessions.get(session.id), "summed up", options)
    return 0


async def _sum_up(sessions: Sessions, session: Session) -> Outcome:
    from ..engine.engine import open_engine

    async with open_engine(session.directory or ".", store=sessions.store) as engine:
        return await (await engine.compact(session.id))


def _refuse_if_running(sessions: Sessions, session: Session) -> None:
    from ..storage.leases import Leases

    holder = Leases(sessions.store).holder(session.id)
    if holder is not None:
        raise BusyError(f"session {session.id} is being run by {holder}. Stop it first.", session=session.id)


def _answer(session: Session, what: str, options: Namespace) -> None:
    if options.json:
        output.print_json(session.document)
    else:
        print(f"{session.id} {what}: {output.clip(session.title, 100)}")
