"""Revert a session to before a prompt, including its changes to files, and undo that."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import redirect_stdout

from ..errors import NotFoundError
from ..history.library import Library
from ..records import Document, Session
from ..sessions import Sessions
from ..storage.leases import leases_of
from ..storage.protocol import StoredMessage
from ..text import pluralize
from ..workspace.revert import RevertResult, Reverts
from . import output
from .command_arguments import named_session
from .session_diff import snapshots_of
from .terminal import confirm, ensure_can_ask, error_stream

_MARKS = {"restore": "~", "create": "+", "delete": "-", "keep": "="}
_MAX_IGNORED_FILES = 10


def run(options: Namespace, sessions: Sessions) -> int:
    """Show what would happen, ask, and revert or unrevert."""
    session = named_session(Library(store=sessions.store), options.session, to_change=True).record
    reverts = Reverts(sessions, snapshots_of(sessions, session), leases=leases_of(sessions.store))
    if reverts.recover(session.id):
        session = sessions.get(session.id)
    if options.action == "revert":
        message = options.message or previous_prompt(sessions.messages(session.id), session)
        preview = reverts.preview(session.id, message, options.part, unattributed=options.unattributed)
        if not (options.force or options.keep_files or options.dry_run):
            preview.plan.refuse_conflicts()
        if not is_confirmed(preview.document, session, options):
            return print_preview(preview.document, session, options)
        result = reverts.revert(
            session.id,
            message,
            options.part,
            force=options.force,
            files=not options.keep_files,
            unattributed=options.unattributed,
        )
        return _print_outcome(result, "reverted", options)
    if session.revert is None:
        raise NotFoundError(f"session {session.id} is not reverted", id=session.id)
    preview = reverts.preview_unrevert(session.id)
    if not (options.force or options.dry_run):
        preview.plan.refuse_conflicts()
    if not is_confirmed(preview.document, session, options):
        return print_preview(preview.document, session, options)
    return _print_outcome(reverts.unrevert(session.id, force=options.force), "unreverted", options)


def previous_prompt(messages: Sequence[StoredMessage], session: Session) -> str:
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


def is_confirmed(preview: Document, session: Session, options: Namespace) -> bool:
    """Return whether to revert. Only a revert that changes files needs a confirmation."""
    if options.dry_run:
        return False
    if options.yes or not _changed(preview):
        return True
    ensure_can_ask("files would be changed; confirm with --yes, or use --dry-run to see which")
    with redirect_stdout(sys.stderr):
        print(output.session_line(session))
        _print_plan(preview)
    return confirm("Continue?")


def print_preview(preview: Document, session: Session, options: Namespace) -> int:
    """Print what a revert would do, after ``--dry-run``; otherwise, that it was not confirmed."""
    if options.json:
        output.print_json(preview | {"title": session.title, "directory": session.directory})
        return 0
    if options.dry_run:
        _print_plan(preview)
        return 0
    print("Nothing was changed.", file=sys.stderr)
    return 1


def print_result(
    session: Document, preview: Document, left: Sequence[Document], kept: str, verb: str, options: Namespace
) -> int:
    """Print what was done. The exit code is 1 if some files could not be reverted."""
    if options.json:
        output.print_json(
            {"session": session, **preview, "left": [file["file"] for file in left], "kept": kept or None}
        )
    else:
        print(f"{session['id']} {verb}: {pluralize(len(_changed(preview)), 'file')} changed")
    if kept:
        print(f"overwritten changes of others are kept in {kept}", file=sys.stderr)
    if not options.json and (preview["outside"] or preview["unattributed"] or preview["ignored"]):
        with redirect_stdout(sys.stderr):
            print("left alone:")
            _print_left_alone(preview)
    for file in left:
        print(f"not {verb}: {_with_reason(file)}", file=error_stream())
    return 1 if left else 0


def _print_outcome(result: RevertResult, verb: str, options: Namespace) -> int:
    left = [file.document for file in result.left_alone]
    return print_result(result.session.document, result.preview.document, left, result.kept, verb, options)


def _changed(preview: Document) -> list[Document]:
    return [file for file in preview["files"] if file["action"] != "keep"]


def _print_plan(preview: Document) -> None:
    if preview["messages"]:
        print(f"{pluralize(len(preview['messages']), 'message')} would be hidden")
    for file in preview["files"]:
        print(f"  {_MARKS[file['action']]} {_with_reason(file)}")
    _print_left_alone(preview)
    for command in preview["commands"]:
        print(f"  ? {output.clip(command, 200)} (a command; its changes are unknown and stay)")


def _print_left_alone(preview: Document) -> None:
    """Print the files that are not reverted, because they are outside the project or may be another program's."""
    for path in preview["outside"]:
        print(f"  = {output.clip(path, 200)} (outside of the project)")
    for file in preview["unattributed"]:
        other = file["session"]
        who = f"session {other} changed it" if other else "changed while a command ran; --unattributed reverts it too"
        print(f"  = {output.clip(file['file'], 200)} ({who})")
    ignored = preview["ignored"]
    for name in ignored[:_MAX_IGNORED_FILES]:
        print(f"  = {output.clip(name, 200)} (changed while a command ran; git ignores it, so no snapshot has it)")
    if len(ignored) > _MAX_IGNORED_FILES:
        print(f"  = {pluralize(len(ignored) - _MAX_IGNORED_FILES, 'more file')} that git ignores")


def _with_reason(file: Document) -> str:
    return output.clip(file["file"], 200) + (f" ({file['reason']})" if file["reason"] else "")
