"""Remove, archive or move sessions: those that are named, or all that have something in common.

For ``opensesh session``: :func:`configure` adds the actions, :func:`run` does them.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from typing import TYPE_CHECKING

from ..errors import NotFoundError, UsageError
from ..storage import open_store
from . import confirm, output
from .arguments import PROJECT, SESSION
from .choose import find_session, read_sessions
from .disk_usage import size
from .list_command import moment

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from ..records import Session
    from ..sessions.trash import Bulk
    from ..storage.protocol import Store
    from .arguments import Parser

ACTIONS = ("remove", "archive", "move")
_WORDS = {
    "remove": ("Move to the trash", "moved to the trash"),
    "archive": ("Archive", "archived"),
    "move": ("File under another folder", "filed under another folder"),
}
_SHOWN = 8


def configure(parser: Parser) -> None:
    """Add the actions to the parser of ``session``."""
    archive = parser.add_action("archive", "put sessions away, out of the lists")
    _filters(archive)
    archive.add_argument("--undo", action="store_true", help="take the named ones out again")
    move = parser.add_action("move", "file sessions under another folder, which is named last")
    _filters(move, f"{SESSION}; and behind them the folder")
    move.add_argument("--from", dest="base", metavar="OLD", help="all that worked in this folder or below it")
    remove = parser.add_action("remove", "move sessions, their children and all they hold to the trash")
    _filters(remove)
    remove.add_argument("--archived", action="store_true", help="all archived ones")


def _filters(parser: Parser, sessions: str = SESSION) -> None:
    parser.add_argument("session", nargs="*", metavar="S", help=sessions)
    parser.add_argument("--project", metavar="NAME", help=f"all of this project: {PROJECT}")
    parser.add_argument("--before", metavar="T", help="all not used since: 2026-08-01, 90d, 26w")
    parser.add_argument("--empty", action="store_true", help="all without a message")
    parser.add_argument("--larger", metavar="SIZE", help="all that take more than this: 500K, 20M, 1G")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(options: Namespace) -> int:
    """Do what was asked, and say how to take it back."""
    if options.action == "archive" and options.undo:
        return _take_out(options)
    act = _deed(options)
    store = open_store(options.store)
    named = bool(options.session)
    chosen = _chosen(store, options)
    plan = act(store, chosen, True)
    if not options.dry_run and plan.sessions and not _agreed(plan, options, named=named):
        print("Nothing was changed.", file=sys.stderr)
        return 1
    done = plan if options.dry_run or not plan.sessions else act(store, chosen, False)
    _tell(done, store, options)
    return 0 if done.sessions or not done.left else _failed(done)


def _failed(done: Bulk) -> int:
    """Somebody runs one of them, or all are where they cannot be written."""
    from ..sessions.trash import IN_DATABASE

    return 5 if all(reason == IN_DATABASE for _, reason in done.left) else 4


def _deed(options: Namespace) -> Callable[[Store, list[Session], bool], Bulk]:
    from ..sessions import moving, trash

    if options.action == "move":
        folder = options.session.pop() if options.session else ""
        if not folder:
            raise UsageError("to which folder? Name it last")
        if not os.path.isdir(folder) and (folder == "last" or folder.startswith("ses_")):
            raise UsageError(f"move {folder} to which folder? Name it last: opensesh session move {folder} FOLDER")
        if not os.path.isdir(folder):
            raise NotFoundError(f"there is no folder {folder}", path=folder)
        base = os.path.abspath(os.path.expanduser(options.base)) if options.base else ""
        return lambda store, chosen, dry: moving.move(store, chosen, os.path.abspath(folder), base=base, dry_run=dry)
    act = trash.remove if options.action == "remove" else trash.archive
    return lambda store, chosen, dry: act(store, chosen, dry_run=dry)


def _chosen(store: Store, options: Namespace) -> list[Session]:
    tests = _tests(store, options)
    if options.session and tests:
        raise UsageError("name sessions, or say what they have in common; not both")
    if options.session:
        return [find_session(store, word) for word in options.session]
    if not tests:
        more = " or --from" if options.action == "move" else " or --archived" if options.action == "remove" else ""
        raise UsageError(f"which sessions? Name them, or say --project, --before, --empty, --larger{more}")
    return [each for each in read_sessions(store) if all(test(each) for test in tests)]


def _tests(store: Store, options: Namespace) -> list[Callable[[Session], bool]]:
    tests: list[Callable[[Session], bool]] = []
    if options.project:
        from ..history.library import Library

        project = Library(store=store).resolve_project(options.project)
        if project.by_title:
            raise NotFoundError(f"no project resembles {options.project!r}. 'opensesh projects' shows them.")
        tests.append(lambda each: project.matches(each.project_id, each.directory, each.title))
    if options.before:
        before = moment(options.before, utc=options.utc)
        tests.append(lambda each: each.updated < before)
    if options.empty:
        tests.append(lambda each: not store.list(("message", each.id)))
    if options.larger:
        tests.append(_larger(store, options.larger))
    if getattr(options, "archived", False):
        tests.append(lambda each: each.archived)
    if getattr(options, "base", None):
        base = os.path.abspath(os.path.expanduser(options.base))
        tests.append(lambda each: each.directory == base or each.directory.startswith(os.path.join(base, "")))
    return tests


def _larger(store: Store, text: str) -> Callable[[Session], bool]:
    from ..history.maintenance.disk_usage import measure

    given = re.fullmatch(r"(\d+)([KMG]?)B?", text.upper())
    if given is None:
        raise UsageError(f"{text!r} is no size; write 500K, 20M or 1G")
    least = int(given[1]) * {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}[given[2]]
    takes: dict[str, int] = {}
    for each in (each for usage in measure(store, report=_overlook) for each in usage.sessions.values()):
        takes[each.session] = max(takes.get(each.session, 0), each.inclusive)
    return lambda session: takes.get(session.id, 0) > least


def _overlook(_: object) -> None:
    """What cannot be read takes no part in the choice."""


def _agreed(plan: Bulk, options: Namespace, *, named: bool) -> bool:
    """Whether it may be done: not asked where the sessions were named and only a word about them changes."""
    if options.yes or (named and options.action != "remove"):
        return True
    confirm.need_somebody("say --yes where nobody can be asked, or --dry-run to see what would be done")
    for each in _newest_first(plan)[:_SHOWN]:
        line = f"  {each.id}  {output.when(each.updated, utc=options.utc)}  {output.clip(each.title, 60)}"
        print(line, file=sys.stderr)
    if len(plan.sessions) > _SHOWN:
        print(f"  ... and {len(plan.sessions) - _SHOWN:,} more", file=sys.stderr)
    return confirm.says_yes(f"{_WORDS[options.action][0]}: {_amount(plan)}?")


def _newest_first(done: Bulk) -> list[Session]:
    return sorted(done.sessions, key=lambda each: -each.updated)


def _amount(done: Bulk) -> str:
    sessions, files = output.pluralize(len(done.sessions), "session"), output.pluralize(done.files, "file")
    return f"{sessions}, {files}, {size(done.bytes)}"


def _tell(done: Bulk, store: Store, options: Namespace) -> None:
    if options.json:
        left = [{"sessionID": name, "reason": reason} for name, reason in done.left]
        output.print_json(
            {
                "dryRun": options.dry_run,
                "sessions": [each.id for each in done.sessions],
                "files": done.files,
                "bytes": done.bytes,
                "left": left,
                "undo": done.undo or None,
            }
        )
        return
    if not done.sessions and not done.left:
        print("No sessions fit.", file=sys.stderr)
        return
    for each in _newest_first(done):
        print(f"{each.id}  {output.when(each.updated, utc=options.utc)}  {output.clip(each.title, 60)}")
    for reason, number in Counter(reason for _, reason in done.left).items():
        first = next(name for name, each in done.left if each == reason)
        which = f"{first} was" if number == 1 else f"{number:,} sessions were"
        print(f"{which} left alone: {reason}", file=sys.stderr)
    would = "would be " if options.dry_run else ""
    told = f"{would}{_WORDS[options.action][1]}: {_amount(done)}."
    print(told[0].upper() + told[1:])
    if options.action == "remove":
        _tell_what_stays(done, store, options)
    if done.undo:
        print(f"To take it back: opensesh session restore {done.undo}")


def _tell_what_stays(done: Bulk, store: Store, options: Namespace) -> None:
    shared = sum(bool(each.share and each.share.url) for each in done.sessions)
    if shared:
        how = "'opensesh session unshare' takes a link down now, and emptying the trash all of them"
        print(f"Still shared: {output.pluralize(shared, 'session')}; {how}.", file=sys.stderr)
    if options.dry_run:
        return
    removed = {each.id for each in done.sessions}
    again = sum(key[-1] in removed for key in store.list(("session",)))
    if again:
        sessions = output.pluralize(again, "session")
        print(f"In a database of OpenCode's too, and still seen from there: {sessions}.", file=sys.stderr)


def _take_out(options: Namespace) -> int:
    from ..project import resolve
    from ..sessions import Sessions

    if not options.session:
        raise UsageError("which sessions? Name them; 'session restore' takes back an archive as a whole")
    store = open_store(options.store)
    sessions = Sessions(store, resolve(os.getcwd()))
    named = [find_session(store, word) for word in options.session]
    for each in named:
        if each.archived:
            sessions.archive(each.id, archived=False)
    if options.json:
        output.print_json({"sessions": [each.id for each in named if each.archived]})
        return 0
    for each in named:
        told = "taken out of the archive" if each.archived else "is not archived, nothing to do"
        print(f"{each.id} {told}: {output.clip(each.title, 100)}")
    return 0
