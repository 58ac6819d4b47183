"""Remove or archive many sessions at once, by what they have in common; look into the trash, restore and empty it.

For ``opensesh session``: :func:`declare` adds the actions, :func:`run` does them.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ..errors import NotFound, UsageError
from ..storage import open_store
from . import output
from .choose import find_session, read_sessions
from .listing import moment
from .room import size

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from ..history.trash import Bulk, Trashed
    from ..records import Session
    from ..storage.store import Store
    from .app import Parser

ACTIONS = ("remove", "archive", "trash", "restore")


def declare(parser: Parser) -> None:
    """Add the actions to the parser of ``session``."""
    remove = parser.add_action("remove", "move sessions, their children and all they hold to the trash")
    _filters(remove)
    remove.add_argument("--archived", action="store_true", help="only archived ones")
    archive = parser.add_action("archive", "put sessions away, out of the lists")
    _filters(archive)
    archive.add_argument("--undo", action="store_true", help="take the named ones out again")
    restore = parser.add_action("restore", "bring back what was removed or archived")
    restore.add_argument("undo", metavar="FILE", help="the undo file that was named, or 'last'")
    trash = parser.add_action("trash", "what was removed; --empty deletes it for good")
    trash.add_argument("--empty", action="store_true", help="delete it for good")
    trash.add_argument("--older", metavar="T", help="only what went there before: 2026-08-01, 30d, 4w")
    trash.add_argument("--yes", action="store_true", help="do not ask")


def _filters(parser: Parser) -> None:
    parser.add_argument("session", nargs="*", metavar="S", help="an id, its beginning or end, a slug, or 'last'")
    parser.add_argument("--project", metavar="NAME", help="all of this project: name, folder or id, roughly")
    parser.add_argument("--before", metavar="T", help="all not used since: 2026-08-01, 90d, 26w")
    parser.add_argument("--empty", action="store_true", help="all without a message")
    parser.add_argument("--larger", metavar="SIZE", help="all that take more than this: 500K, 20M, 1G")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(options: Namespace) -> int:
    """Do what was asked."""
    match options.action:
        case "restore":
            return _restore(options)
        case "trash":
            return _trash(options)
        case "archive" if options.undo:
            return _take_out(options)
        case _:
            return _bulk(options)


def _bulk(options: Namespace) -> int:
    from ..history import trash

    store = open_store(options.store)
    chosen = _chosen(store, options)
    act = trash.remove if options.action == "remove" else trash.archive
    plan = act(store, chosen, dry_run=True)
    if not options.dry_run and plan.sessions and not _agreed(plan, options):
        print("Nothing was changed.", file=sys.stderr)
        return 1
    done = plan if options.dry_run or not plan.sessions else act(store, chosen)
    _tell(done, options)
    return 4 if done.left and not done.sessions else 0


def _chosen(store: Store, options: Namespace) -> list[Session]:
    tests = _tests(store, options)
    if options.session and tests:
        raise UsageError("name sessions, or say what they have in common; not both")
    if options.session:
        return [find_session(store, word) for word in options.session]
    if not tests:
        raise UsageError("which sessions? Name them, or say --project, --before, --empty or --larger")
    return [each for each in read_sessions(store, []) if all(test(each) for test in tests)]


def _tests(store: Store, options: Namespace) -> list[Callable[[Session], bool]]:
    tests: list[Callable[[Session], bool]] = []
    if options.project:
        from ..history.ledger_reading import session_facts
        from .stats import in_project

        belongs = in_project(store, options.project)
        tests.append(lambda session: belongs(session_facts(session.document, session.project_id, session.id)))
    if options.before:
        before = moment(options.before)
        tests.append(lambda session: session.updated < before)
    if options.empty:
        tests.append(lambda session: not store.list(("message", session.id)))
    if options.larger:
        tests.append(_larger(store, options.larger))
    if getattr(options, "archived", False):
        tests.append(lambda session: session.archived)
    return tests


def _larger(store: Store, text: str) -> Callable[[Session], bool]:
    from ..history.accounting import measure

    units = {"K": 10**3, "M": 10**6, "G": 10**9}
    digits = text.upper().removesuffix("B").rstrip("KMG")
    if not digits.isdecimal():
        raise UsageError(f"{text!r} is no size; write 500K, 20M or 1G")
    least = int(digits) * units.get(text.upper().removesuffix("B")[-1:], 1)
    takes = {
        each.session: each.inclusive for room in measure(store, report=_overlook) for each in room.sessions.values()
    }
    return lambda session: takes.get(session.id, 0) > least


def _overlook(_: object) -> None:
    """What cannot be read takes no part in the choice."""


def _agreed(plan: Bulk, options: Namespace) -> bool:
    if options.yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError("say --yes where nobody can be asked, or --dry-run to see what would be done")
    what = "Move to the trash" if options.action == "remove" else "Archive"
    said = input(f"{what}: {len(plan.sessions):,} sessions, {plan.files:,} files, {size(plan.bytes)}? [y/N] ")
    return said.strip().lower() in ("y", "yes")


def _tell(done: Bulk, options: Namespace) -> None:
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
    for each in done.sessions:
        print(f"{each.id}  {output.when(each.updated, utc=options.utc)}  {output.clip(each.title, 60)}")
    for name, reason in done.left:
        print(f"{name} was left alone: {reason}", file=sys.stderr)
    would = "would be " if options.dry_run else ""
    what = "moved to the trash" if options.action == "remove" else "archived"
    print(f"{len(done.sessions):,} sessions {would}{what}: {done.files:,} files, {size(done.bytes)}.")
    shared = [each.id for each in done.sessions if each.share and each.share.url]
    if shared and options.action == "remove":
        print(f"{len(shared)} of them are still shared; that ends when the trash is emptied.", file=sys.stderr)
    if done.undo:
        print(f"To take it back: opensesh session restore {done.undo}")


def _take_out(options: Namespace) -> int:
    import os

    from ..project import resolve
    from ..sessions import Sessions

    store = open_store(options.store)
    sessions = Sessions(store, resolve(os.getcwd()))
    for word in options.session:
        done = sessions.archive(find_session(store, word).id, archived=False)
        print(f"{done.id} taken out of the archive: {output.clip(done.title, 100)}")
    return 0


def _restore(options: Namespace) -> int:
    from ..history import trash

    undo = options.undo
    if undo == "last":
        held = trash.contents()
        if not held:
            raise NotFound("the trash is empty")
        undo = held[-1].undo
    done = trash.restore(undo)
    if options.json:
        left = [{"path": path, "reason": reason} for path, reason in done.left]
        output.print_json({"restored": done.restored, "left": left})
    else:
        print(f"{done.restored:,} files brought back.")
        for path, reason in done.left:
            print(f"left as it is: {path}: {reason}", file=sys.stderr)
    return 1 if done.left else 0


def _trash(options: Namespace) -> int:
    from ..history import trash

    before = moment(options.older) if options.older else None
    held = [each for each in trash.contents() if before is None or each.header.time < before]
    if options.empty and held:
        if not options.yes:
            _ask_to_empty(held)
        held = trash.empty(before)
    if options.json:
        entries = [{"undo": each.undo, "time": each.header.time, "sessions": each.titles} for each in held]
        output.print_json({"emptied": bool(options.empty), "trash": entries})
        return 0
    for each in held:
        print(f"{output.when(each.header.time, utc=options.utc)}  {len(each.titles):,} sessions  {each.undo}")
    print("Deleted for good." if options.empty and held else f"{len(held):,} in the trash.", file=sys.stderr)
    return 0


def _ask_to_empty(held: list[Trashed]) -> None:
    if not sys.stdin.isatty():
        raise UsageError("say --yes where nobody can be asked")
    count = sum(len(each.titles) for each in held)
    if input(f"Delete {count:,} sessions for good? [y/N] ").strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was deleted")
