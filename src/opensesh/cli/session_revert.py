"""Going back in a session and forth again: ``opensesh session revert`` and ``opensesh session unrevert``."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from ..errors import NotFoundError
from . import confirm, output
from .arguments import SESSION
from .session_diff import snapshots_of

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from ..records import Session
    from ..sessions import Sessions
    from ..storage.protocol import StoredMessage
    from ..workspace import PlannedFile, RevertPreview, RevertResult, Reverts
    from .arguments import Parser

_MARKS = {"restore": "~", "create": "+", "delete": "-", "keep": "="}


def configure_revert(parser: Parser) -> None:
    """Declare the arguments of ``revert``."""
    parser.add_argument("session", metavar="S", help=SESSION)
    before = "go back to before this one (default: the last prompt, and where that is reverted, the one before)"
    parser.add_argument("message", nargs="?", metavar="MESSAGE", help=before)
    parser.add_argument("--part", metavar="PART", help="keep what the message says before this part")
    parser.add_argument("--keep-files", action="store_true", help="take back the conversation only")
    _declare_care(parser)


def configure_unrevert(parser: Parser) -> None:
    """Declare the arguments of ``unrevert``."""
    parser.add_argument("session", metavar="S", help=SESSION)
    _declare_care(parser)


def run_revert(options: Namespace, sessions: Sessions, session: Session) -> int:
    """Show what would happen, ask, and go back."""
    reverts = _reverts(sessions, session)
    if reverts.recover(session.id):
        session = sessions.get(session.id)
    message = options.message or _one_prompt_back(sessions.messages(session.id), session)
    preview = reverts.preview(session.id, message, options.part)
    if options.dry_run or not _agreed(preview, options):
        return _leave(preview, options)
    done = reverts.revert(session.id, message, options.part, force=options.force, files=not options.keep_files)
    return _answer(done, "reverted", options)


def run_unrevert(options: Namespace, sessions: Sessions, session: Session) -> int:
    """Show what would happen, ask, and bring everything back."""
    reverts = _reverts(sessions, session)
    if reverts.recover(session.id):
        session = sessions.get(session.id)
    if session.revert is None:
        raise NotFoundError(f"{session.id} is not reverted, so there is nothing to bring back", id=session.id)
    preview = reverts.preview_unrevert(session.id)
    if options.dry_run or not _agreed(preview, options):
        return _leave(preview, options)
    return _answer(reverts.unrevert(session.id, force=options.force), "brought back", options)


def _declare_care(parser: Parser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only show what would happen")
    parser.add_argument("--force", action="store_true", help="also where someone else changed a file since")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def _reverts(sessions: Sessions, session: Session) -> Reverts:
    from ..storage.leases import Leases
    from ..workspace import Reverts

    return Reverts(sessions, snapshots_of(sessions, session), leases=Leases(sessions.store))


def _one_prompt_back(messages: Sequence[StoredMessage], session: Session) -> str:
    """The last prompt or, where a revert stands, the one before it."""
    names = [str(message.info["id"]) for message in messages]
    end = (
        names.index(session.revert.message_id) if session.revert and session.revert.message_id in names else len(names)
    )
    prompts = [message.info["id"] for message in messages[:end] if message.info.get("role") == "user"]
    if not prompts and session.revert is not None:
        back = f"'opensesh session unrevert {session.id}' brings everything back"
        raise NotFoundError(f"{session.id} is reverted to before its first prompt already; {back}", id=session.id)
    if not prompts:
        raise NotFoundError(f"there is no prompt to go back to in {session.id}", id=session.id)
    return prompts[-1]


def _agreed(preview: RevertPreview, options: Namespace) -> bool:
    if not options.force and not getattr(options, "keep_files", False):
        preview.plan.refuse_conflicts()
    if options.yes or not preview.plan.changes:
        return True
    confirm.need_somebody("files would change; say --yes where nobody can be asked, or --dry-run to see which")
    with redirect_stdout(sys.stderr):
        _print_plan(preview)
    return confirm.says_yes("Go on?")


def _leave(preview: RevertPreview, options: Namespace) -> int:
    if options.json:
        output.print_json(preview.document)
        return 0
    if options.dry_run:
        _print_plan(preview)
        return 0
    print("Nothing was changed.", file=sys.stderr)
    return 1


def _print_plan(preview: RevertPreview) -> None:
    if preview.hidden:
        print(f"{output.pluralize(len(preview.hidden), 'message')} would be hidden")
    for each in preview.plan.files:
        print(f"  {_MARKS[each.action]} {output.clip(each.name, 200)}{_why(each)}")
    for path in preview.outside:
        print(f"  = {output.clip(path, 200)} (outside of the project)")
    for command in preview.unwatched:
        print(f"  ? {output.clip(command, 200)} (a command: what it changed is not known, and stays)")


def _why(file: PlannedFile) -> str:
    return f" ({file.reason})" if file.reason else ""


def _answer(done: RevertResult, what: str, options: Namespace) -> int:
    """What happened. A file that could not be brought back makes it less than a success."""
    left = done.left_alone
    if options.json:
        output.print_json(
            {
                "session": done.session.document,
                **done.preview.document,
                "left": [each.name for each in left],
                "kept": done.kept or None,
            }
        )
    else:
        print(f"{done.session.id} {what}: {output.pluralize(len(done.preview.plan.changes), 'file')} changed")
    if done.kept:
        print(f"what someone else had written into them is kept in {done.kept}", file=sys.stderr)
    for each in left:
        print(f"left alone: {output.clip(each.name, 200)}{_why(each)}", file=sys.stderr)
    return 1 if left else 0
