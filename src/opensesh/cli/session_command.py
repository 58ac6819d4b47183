"""Fork, rename, compact, diff, revert or share a session; archive, move, remove or restore one or many."""

from __future__ import annotations

import importlib
import os
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from ..errors import NotFoundError, OpenseshError, UsageError
from ..history.library import Library
from ..project import resolve
from ..records import Session
from ..sessions import Sessions
from ..storage import open_store
from ..storage.protocol import log_damage
from . import output
from .command_arguments import PROJECT, SESSION, CommandParser, named_session
from .logfile import show_warnings

if TYPE_CHECKING:
    from ..engine.loop import Outcome

_MODULES = {
    "archive": "session_bulk",
    "move": "session_bulk",
    "remove": "session_bulk",
    "diff": "session_diff",
    "revert": "session_revert",
    "unrevert": "session_revert",
    "share": "session_share",
    "unshare": "session_share",
    "restore": "session_trash",
    "trash": "session_trash",
}
"""Modules of actions, each with a function ``run(options, sessions)``. Only that of the chosen action is loaded."""
_READING = ("diff", "trash")
"""Actions that change no session, and therefore do without a database that cannot be opened."""


def configure(parser: CommandParser) -> None:
    """Declare the actions and their arguments."""
    fork = _add_action(parser, "fork", "copy a session, or its messages up to one")
    fork.add_argument("--before", metavar="MESSAGE", help="copy only the messages before this one")
    fork.add_argument(
        "--reverted", action="store_true", help="include the messages that its last, final revert removed"
    )
    rename = _add_action(parser, "rename", "change the title of a session")
    rename.add_argument("title", nargs="+", metavar="TITLE", help="the new title")
    compact = _add_action(parser, "compact", "summarize a session for the model's context window; nothing is lost")
    compact.add_argument("--undo", action="store_true", help="undo the last compaction")
    compact.add_argument("--redo", action="store_true", help="redo the compaction that was undone last")
    diff = _add_action(parser, "diff", "show the changes that a session made to files")
    diff.add_argument("--message", metavar="MESSAGE", help="only the changes of this prompt")
    diff.add_argument("--stat", action="store_true", help="only the number of changed lines per file")
    revert = _add_action(parser, "revert", "undo a prompt and everything after it, including changes to files")
    revert.add_argument(
        "message",
        nargs="?",
        metavar="MESSAGE",
        help="go back to before this message (default: the last prompt; if reverted, the one before)",
    )
    revert.add_argument("--part", metavar="PART", help="keep the parts of the message before this one")
    revert.add_argument("--keep-files", action="store_true", help="revert only the conversation")
    revert.add_argument(
        "--unattributed",
        action="store_true",
        help="also revert files that changed while a command ran, by any program",
    )
    unrevert = _add_action(parser, "unrevert", "undo a revert")
    for leaf in (revert, unrevert):
        leaf.add_argument("--dry-run", action="store_true", help="only show what would be done")
        leaf.add_argument("--force", action="store_true", help="overwrite files that have been changed since")
        leaf.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    share = _add_action(parser, "share", "publish a session and print its link")
    share.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    share.add_argument("--no-redact", action="store_true", help="do not redact secrets")
    unshare = parser.add_action("unshare", "remove a shared session from the server")
    unshare.add_argument("session", nargs="?", metavar="S", help="a session, even if it was removed; or its link")
    unshare.add_argument("--pending", action="store_true", help="retry all that could not be removed so far")
    _configure_bulk(parser)
    restore = parser.add_action("restore", "undo a remove, archive or move")
    restore.add_argument("undo", metavar="WHAT", help="'last', a removed session, or an undo file")
    trash = parser.add_action("trash", "list removed sessions, or delete them permanently")
    trash.add_argument("--empty", action="store_true", help="delete them permanently")
    trash.add_argument("--older", metavar="T", help="only sessions removed before: 2026-08-01, 30d, 4w")
    trash.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    for action in parser.actions.values():
        action.add_argument(
            "--attach", metavar="URL", help="let this server do it ('opensesh serve', 'opencode serve')"
        )


def _add_action(parser: CommandParser, name: str, summary: str) -> CommandParser:
    action = parser.add_action(name, summary)
    action.add_argument("session", metavar="S", help=SESSION)
    return action


def _configure_bulk(parser: CommandParser) -> None:
    archive = parser.add_action("archive", "archive sessions, so that they are not listed")
    move = parser.add_action("move", "assign sessions to another folder, named last")
    remove = parser.add_action("remove", "move sessions and their children to the trash")
    for action in (archive, move, remove):
        sessions = f"{SESSION}; the folder comes last" if action is move else SESSION
        action.add_argument("session", nargs="*", metavar="S", help=sessions)
        action.add_argument("--project", metavar="NAME", help=f"all of this project: {PROJECT}")
        action.add_argument("--before", metavar="T", help="all not used since: 2026-08-01, 90d, 26w")
        action.add_argument("--empty", action="store_true", help="all without messages")
        action.add_argument("--larger", metavar="SIZE", help="all larger than: 500K, 20M, 1G")
        action.add_argument("--dry-run", action="store_true", help="only show what would be done")
        action.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    archive.add_argument("--undo", action="store_true", help="unarchive the named sessions")
    move.add_argument("--from", dest="old_directory", metavar="OLD", help="all that worked in this folder or below it")
    remove.add_argument("--archived", action="store_true", help="all archived sessions")


def run(options: Namespace) -> int:
    """Run the action."""
    with show_warnings():
        if options.attach:
            attached: Any = importlib.import_module(".attached_session", __package__)
            return attached.run(options)
        store = open_store(options.store, report=log_damage if options.action in _READING else None)
        sessions = Sessions(store, resolve(os.getcwd(), store=store))
        if options.action in _MODULES:
            module: Any = importlib.import_module(f".{_MODULES[options.action]}", __package__)
            return module.run(options, sessions)
        session = named_session(
            Library(store=sessions.store), options.session, to_change=options.action != "fork"
        ).record
        match options.action:
            case "fork":
                done = "forked"
                if not options.reverted:
                    session = sessions.fork(session.id, before=options.before)
                elif options.before:
                    raise UsageError("--before and --reverted cannot be combined")
                elif session.revert is not None:
                    how = f"undo it with 'opensesh session unrevert {session.id}'"
                    raise UsageError(f"the revert is not final yet; {how}")
                else:
                    from ..workspace.revert_journal import RevertTrash  # only for --reverted

                    history = RevertTrash(sessions).history_before(session.id)
                    session = sessions.fork_messages(session.id, history)
            case "rename":
                title = " ".join(options.title).strip()
                if not title:
                    raise UsageError("the title is empty")
                sessions.refuse_running([session.id])
                session, done = sessions.rename(session.id, title), "renamed"
            case _:
                session, done = _compact(sessions, session, undo=options.undo, redo=options.redo)
        if options.json:
            output.print_json(session.document)
        else:
            print(f"{session.id} {done}: {output.clip(session.title, 100)}")
        return 0


def _compact(sessions: Sessions, session: Session, *, undo: bool, redo: bool) -> tuple[Session, str]:
    import asyncio  # these take longer to load than the other actions of this module

    from ..engine.compaction_undo import redo_compaction, undo_compaction
    from ..engine.opening import open_engine

    if undo and redo:
        raise UsageError("--undo and --redo cannot be combined")
    if undo:
        if not undo_compaction(sessions, session.id):
            raise NotFoundError(f"session {session.id} has no compaction to undo")
        return sessions.get(session.id), "restored to before its last compaction"
    if redo:
        if not redo_compaction(sessions, session.id):
            raise NotFoundError(f"session {session.id} has no undone compaction")
        return sessions.get(session.id), "compacted again"

    async def compact() -> Outcome:
        async with open_engine(session.directory or ".", store=sessions.store) as engine:
            return await (await engine.compact(session.id))

    outcome = asyncio.run(compact())
    if outcome.kind != "answered":
        raise OpenseshError(outcome.description, session=session.id)
    return sessions.get(session.id), "compacted"
