"""Revert a session to before a prompt, including its changes to files, and undo that."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from ..errors import NotFoundError
from ..history.library import Library
from ..storage.leases import leases_of
from ..text import pluralize
from ..workspace.revert import Reverts
from . import output
from .session_argument import named_session
from .session_diff import snapshots_of
from .terminal import confirm, ensure_can_ask

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from ..records import Session
    from ..sessions import Sessions
    from ..storage.protocol import StoredMessage
    from ..workspace.revert import RevertPreview, RevertResult
    from ..workspace.revert_plan import PlannedFile

_MARKS = {"restore": "~", "create": "+", "delete": "-", "keep": "="}
_MAX_IGNORED_FILES = 10


def run(options: Namespace, sessions: Sessions) -> int:
    """Show what would happen, ask, and revert or unrevert."""
    session = named_session(Library(store=sessions.store), options.session, to_change=True).record
    reverts = Reverts(sessions, snapshots_of(sessions, session), leases=leases_of(sessions.store))
    if reverts.recover(session.id):
        session = sessions.get(session.id)
    if options.action == "revert":
        message = options.message or _previous_prompt(sessions.messages(session.id), session)
        preview = reverts.preview(session.id, message, options.part, unattributed=options.unattributed)
        if options.dry_run or not _is_confirmed(preview, session, options, keep_files=options.keep_files):
            return _print_preview(preview, session, options)
        result = reverts.revert(
            session.id,
            message,
            options.part,
            force=options.force,
            files=not options.keep_files,
            unattributed=options.unattributed,
        )
        return _print_result(result, "reverted", options)
    if session.revert is None:
        raise NotFoundError(f"session {session.id} is not reverted", id=session.id)
    preview = reverts.preview_unrevert(session.id)
    if options.dry_run or not _is_confirmed(preview, session, options):
        return _print_preview(preview, session, options)
    return _print_result(reverts.unrevert(session.id, force=options.force), "unreverted", options)


def _previous_prompt(messages: Sequence[StoredMessage], session: Session) -> str:
    """Return the last prompt, or the one before the current revert."""
    message_ids = [str(message.info["id"]) for message in messages]
    end = len(message_ids)
    if session.revert and session.revert.message_id in message_ids:
        end = message_ids.index(session.revert.message_id)
    prompts = [message.info["id"] for message in messages[:end] if message.info.get("role") == "user"]
    if not prompts and session.revert is not None:
        hint = f"'opensesh session unrevert {session.id}' undoes that"
        raise NotFoundError(
            f"session {session.id} is already reverted to before its first prompt; {hint}", id=session.id
        )
    if not prompts:
        raise NotFoundError(f"session {session.id} has no prompt to revert", id=session.id)
    return prompts[-1]


def _is_confirmed(preview: RevertPreview, session: Session, options: Namespace, *, keep_files: bool = False) -> bool:
    if not options.force and not keep_files:
        preview.plan.refuse_conflicts()
    if options.yes or not preview.plan.changes:
        return True
    ensure_can_ask("files would be changed; confirm with --yes, or use --dry-run to see which")
    with redirect_stdout(sys.stderr):
        print(output.session_line(session))
        _print_plan(preview)
    return confirm("Continue?")


def _print_preview(preview: RevertPreview, session: Session, options: Namespace) -> int:
    if options.json:
        output.print_json(preview.document | {"title": session.title, "directory": session.directory})
        return 0
    if options.dry_run:
        _print_plan(preview)
        return 0
    print("Nothing was changed.", file=sys.stderr)
    return 1


def _print_plan(preview: RevertPreview) -> None:
    if preview.hidden:
        print(f"{pluralize(len(preview.hidden), 'message')} would be hidden")
    for file in preview.plan.files:
        print(f"  {_MARKS[file.action]} {output.clip(file.name, 200)}{_reason(file)}")
    _print_left_alone(preview)
    for command in preview.unwatched:
        print(f"  ? {output.clip(command, 200)} (a command; its changes are unknown and stay)")


def _print_left_alone(preview: RevertPreview) -> None:
    """Print the files that are not reverted, because they are outside the project or may be another program's."""
    for path in preview.outside:
        print(f"  = {output.clip(path, 200)} (outside of the project)")
    for name, other in preview.unattributed.items():
        who = f"session {other} changed it" if other else "changed while a command ran; --unattributed reverts it too"
        print(f"  = {output.clip(name, 200)} ({who})")
    for name in preview.ignored[:_MAX_IGNORED_FILES]:
        print(f"  = {output.clip(name, 200)} (changed while a command ran; git ignores it, so no snapshot has it)")
    if len(preview.ignored) > _MAX_IGNORED_FILES:
        print(f"  = {pluralize(len(preview.ignored) - _MAX_IGNORED_FILES, 'more file')} that git ignores")


def _reason(file: PlannedFile) -> str:
    return f" ({file.reason})" if file.reason else ""


def _print_result(result: RevertResult, verb: str, options: Namespace) -> int:
    """Print what was done. The exit code is 1 if some files could not be reverted."""
    unchanged = result.left_alone
    if options.json:
        output.print_json(
            {
                "session": result.session.document,
                **result.preview.document,
                "left": [file.name for file in unchanged],
                "kept": result.kept or None,
            }
        )
    else:
        print(f"{result.session.id} {verb}: {pluralize(len(result.preview.plan.changes), 'file')} changed")
    if result.kept:
        print(f"overwritten changes of others are kept in {result.kept}", file=sys.stderr)
    if not options.json and (result.preview.outside or result.preview.unattributed or result.preview.ignored):
        with redirect_stdout(sys.stderr):
            print("left alone:")
            _print_left_alone(result.preview)
    for file in unchanged:
        print(f"not {verb}: {output.clip(file.name, 200)}{_reason(file)}", file=sys.stderr)
    return 1 if unchanged else 0
