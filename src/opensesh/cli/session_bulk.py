"""Archive, move or remove sessions: those that are named, or all that match filters."""

from __future__ import annotations

import os
import re
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Sequence

from ..errors import NotFoundError, UsageError
from ..history.library import Library
from ..history.maintenance.disk_usage import measure
from ..history.user_times import parse_time
from ..records import Document, Session
from ..sessions import Sessions, moving, trash
from ..sessions.trash import IN_DATABASE, Bulk
from ..storage.protocol import Store, ignore_damage
from ..text import format_bytes, pluralize
from . import output
from .command_arguments import named_session
from .terminal import confirm, ensure_can_ask, error_stream

_WORDS = {
    "remove": ("Move to the trash", "moved to the trash"),
    "archive": ("Archive", "archived"),
    "move": ("Assign to another folder", "assigned to another folder"),
}
_SESSIONS_SHOWN = 8


def run(options: Namespace, sessions: Sessions) -> int:
    """Change the sessions, and print how to undo it."""
    if options.action == "archive" and options.undo:
        return _unarchive(options, sessions)
    store = sessions.store
    operation = _operation(options)  # takes the folder off the named sessions
    named = bool(options.session)
    filters = _filters(store, options)
    if named and filters:
        raise UsageError("name sessions or use filters such as --project, not both")
    if not named and not filters:
        more = {"move": ", --from", "remove": ", --archived"}.get(options.action, "")
        raise UsageError(f"name sessions, or select them with --project, --before, --empty, --larger{more}")
    library = Library(store=store)
    selected = [named_session(library, word, to_change=True).record for word in options.session]
    if not named:
        selected = [session for _, session in library.records() if all(matches(session) for matches in filters)]
    plan = operation(store, selected, True)
    if not options.dry_run and plan.sessions and not _is_confirmed(plan, options, named=named):
        print("Nothing was changed.", file=sys.stderr)
        return 1
    result = plan if options.dry_run or not plan.sessions else operation(store, selected, False)
    sizes = {"files": result.files, "bytes": result.bytes}
    summary = f"{_WORDS[options.action][1]}: {_amount(result)}."
    code = print_changed(result.sessions, result.left, summary, options, undo=result.undo, sizes=sizes)
    if not options.json:
        if options.action == "remove":
            _print_remaining(result, store, options)
        if result.undo:
            print(f"To undo: opensesh session restore {result.undo}")
    return code


def _operation(options: Namespace) -> Callable[[Store, list[Session], bool], Bulk]:
    if options.action != "move":
        change = trash.remove if options.action == "remove" else trash.archive
        return lambda store, selected, dry_run: change(store, selected, dry_run=dry_run)
    folder = options.session.pop() if options.session else ""
    if not folder:
        raise UsageError("name the new folder as the last argument")
    if not os.path.isdir(folder) and (folder == "last" or folder.startswith("ses_")):
        raise UsageError(f"name the new folder as the last argument: opensesh session move {folder} FOLDER")
    if not os.path.isdir(folder):
        raise NotFoundError(f"the folder {folder} does not exist", path=folder)
    base = os.path.abspath(os.path.expanduser(options.old_directory)) if options.old_directory else ""
    return lambda store, selected, dry_run: moving.move(
        store, selected, os.path.abspath(folder), base=base, dry_run=dry_run
    )


def _filters(store: Store, options: Namespace) -> list[Callable[[Session], bool]]:
    filters: list[Callable[[Session], bool]] = []
    if options.project:
        project = Library(store=store).resolve_project(options.project)
        if project.by_title:
            raise NotFoundError(f"no project resembles {options.project!r}. 'opensesh projects' shows them.")
        filters.append(lambda session: project.matches(session.project_id, session.directory, session.title))
    if options.before:
        before = parse_time(options.before, utc=options.utc)
        filters.append(lambda session: session.updated < before)
    if options.empty:
        filters.append(lambda session: not store.list(("message", session.id)))
    if options.larger:
        parsed = re.fullmatch(r"(\d+)([KMG]?)B?", options.larger.upper())
        if parsed is None:
            raise UsageError(f"{options.larger!r} is not a size; write one like 500K, 20M or 1G")
        minimum = int(parsed[1]) * {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}[parsed[2]]
        usages = measure(store, report=ignore_damage)
        large = {entry.session for usage in usages for entry in usage.sessions.values() if entry.inclusive > minimum}
        filters.append(lambda session: session.id in large)
    if getattr(options, "archived", False):
        filters.append(lambda session: session.archived)
    if getattr(options, "old_directory", None):
        base = os.path.abspath(os.path.expanduser(options.old_directory))
        filters.append(
            lambda session: session.directory == base or session.directory.startswith(os.path.join(base, ""))
        )
    return filters


def _is_confirmed(plan: Bulk, options: Namespace, *, named: bool) -> bool:
    """Return whether to go ahead. Archiving and moving named sessions needs no confirmation."""
    if options.yes or (named and options.action != "remove"):
        return True
    ensure_can_ask("confirm with --yes, or use --dry-run to see what would be done")
    for session in sorted(plan.sessions, key=lambda session: -session.updated)[:_SESSIONS_SHOWN]:
        print(f"  {output.session_line(session)}", file=sys.stderr)
    if len(plan.sessions) > _SESSIONS_SHOWN:
        print(f"  ... and {len(plan.sessions) - _SESSIONS_SHOWN:,} more", file=sys.stderr)
    return confirm(f"{_WORDS[options.action][0]}: {_amount(plan)}?")


def _amount(result: Bulk) -> str:
    sessions, records = pluralize(len(result.sessions), "session"), pluralize(result.files, "record")
    return f"{sessions}, {records}, {format_bytes(result.bytes)}"


def print_changed(
    sessions: Sequence[Session],
    left: Sequence[tuple[str, str]],
    summary: str,
    options: Namespace,
    *,
    undo: str = "",
    sizes: Document | None = None,
) -> int:
    """Print sessions that were changed together, and those that were ``left`` with the reason; return the exit code."""
    if options.json:
        named = [{"sessionID": one.id, "title": one.title, "directory": one.directory} for one in sessions]
        document = {"dryRun": options.dry_run, "sessions": [session.id for session in sessions], "named": named}
        reasons = [{"sessionID": session_id, "reason": reason} for session_id, reason in left]
        output.print_json(document | (sizes or {}) | {"left": reasons, "undo": undo or None})
    elif not sessions and not left:
        print("No sessions match.", file=sys.stderr)
    else:
        for session in sorted(sessions, key=lambda session: -session.updated):
            updated = output.format_time(session.updated, utc=options.utc)
            print(f"{session.id}  {updated}  {output.clip(session.title, 60)}")
        for reason, number in Counter(reason for _, reason in left).items():
            first = next(session_id for session_id, why in left if why == reason)
            print(f"{first if number == 1 else f'{number:,} sessions'} not changed: {reason}", file=error_stream())
        summary = f"would be {summary}" if options.dry_run else summary
        print(summary[0].upper() + summary[1:])
    if sessions or not left:
        return 0
    # All of them are in a database, which is not written; or else some process runs them.
    return 5 if all(reason.startswith(IN_DATABASE) for _, reason in left) else 4


def _print_remaining(result: Bulk, store: Store, options: Namespace) -> None:
    """Print what is left of removed sessions elsewhere: on share servers, and in databases."""
    shared = sum(bool(session.share and session.share.url) for session in result.sessions)
    if shared:
        how = "'opensesh session unshare' removes a link now, emptying the trash removes all of them"
        print(f"Still shared: {pluralize(shared, 'session')}; {how}.", file=sys.stderr)
    removed = {session.id for session in result.sessions}
    remaining = 0 if options.dry_run else sum(key[-1] in removed for key in store.list(("session",)))
    if remaining:
        sessions = pluralize(remaining, "session")
        print(f"Also in an OpenCode database, and still listed from there: {sessions}.", file=sys.stderr)


def _unarchive(options: Namespace, sessions: Sessions) -> int:
    if not options.session:
        raise UsageError("name the sessions to unarchive; 'opensesh session restore' undoes a whole archive command")
    library = Library(store=sessions.store)
    named = [named_session(library, word, to_change=True).record for word in options.session]
    sessions.refuse_running(session.id for session in named)
    for session in named:
        if session.archived:
            sessions.archive(session.id, archived=False)
    if options.json:
        return print_changed([session for session in named if session.archived], (), "", options)
    for session in named:
        state = "unarchived" if session.archived else "is not archived"
        print(f"{session.id} {state}: {output.clip(session.title, 100)}")
    return 0
