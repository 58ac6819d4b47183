"""Check a store: what is damaged, lost, doubled, stale or strange, and what each of its generations holds.

--fix repairs what is safe to repair and puts the rest aside; nothing is deleted, and --undo takes it back.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import TYPE_CHECKING

from ..errors import UsageError
from . import output
from .progress import Progress

if TYPE_CHECKING:
    from argparse import Namespace

    from ..history.maintenance.doctor import Diagnosis
    from ..history.maintenance.findings import Finding
    from ..storage.protocol import Damage, Store
    from .arguments import Parser

_COLOURS = {"damage": 31, "odd": 33, "note": 2}
_SHOWN = 8


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.add_argument("--fix", action="store_true", help="repair what is safe, put the rest aside, keep an undo file")
    parser.add_argument("--undo", metavar="FILE", help="take back what --fix did; FILE is the undo file it named")
    parser.add_argument("--migrate", action="store_true", help="bring a tree of an older OpenCode to the last layout")
    parser.add_argument("--tidy", action="store_true", help="give back the room of snapshots that no session needs")
    parser.add_argument("--all", action="store_true", help="every finding by name, however many there are")


def run(options: Namespace) -> int:
    """Check, and repair if asked."""
    if sum(map(bool, (options.fix, options.undo, options.migrate, options.tidy))) > 1:
        raise UsageError("--fix, --undo, --migrate or --tidy: one at a time")
    if options.undo:
        return _undo(options)
    from ..history.maintenance.doctor import diagnose, repair
    from ..storage import open_store

    unread: list[Damage] = []
    store = open_store(options.store, report=unread.append)
    if options.migrate:
        return _migrate(store, options)
    if options.tidy:
        return _tidy(store, options)
    with Progress("{:,} records looked at") as step:
        found = (repair if options.fix else diagnose)(store, unread=unread, step=step)
    if options.json:
        output.print_json(found.document() | {"room": _room(store)})
    else:
        _print(found, options)
        _print_room(_room(store))
    return 5 if found.damaged else 0


def _print(found: Diagnosis, options: Namespace) -> None:
    rows = [
        (f"{each.sessions:,}", f"{each.messages:,}", f"{each.parts:,}", f"{each.only:,}", each.place)
        for each in found.holdings
    ]
    output.table(("SESSIONS", "MESSAGES", "PARTS", "ONLY HERE", "STORE"), rows, paths=True)
    print()
    kinds: dict[str, list[Finding]] = {}
    for finding in found.findings:
        kinds.setdefault(finding.kind, []).append(finding)
    for kind, findings in kinds.items():
        _print_kind(kind, findings, options)
    print(_verdict(found))
    if found.undo:
        print(f"To take it back: opensesh doctor --undo {found.undo}")


def _print_kind(kind: str, findings: list[Finding], options: Namespace) -> None:
    shown = findings if options.all else findings[:_SHOWN]
    for each, following in zip(shown, [*shown[1:], None], strict=True):
        mark = " (fixed)" if options.fix and each.fixable else ""
        print(f"{output.paint(f'{kind:<12}', _COLOURS[each.level])}{each.path}: {each.message}{mark}")
        if each.remedy and (following is None or following.remedy != each.remedy):
            print(output.paint(f"{'':<12}{each.remedy}", 2))
    if len(shown) < len(findings):
        print(f"{'':<12}... and {len(findings) - len(shown):,} more; --all shows them")


def _verdict(found: Diagnosis) -> str:
    levels = Counter(each.level for each in found.findings)
    fixable = sum(each.fixable for each in found.findings)
    if not found.findings:
        return "Nothing is wrong."
    told = [f"{levels[level]:,} {word}" for level, word in _WORDS.items() if levels[level]]
    if found.fixed:
        changed = f", {output.pluralize(found.files, 'file')} changed or put aside" if found.files else ""
        return f"{', '.join(told)}. {fixable:,} repaired{changed}."
    return f"{', '.join(told)}." + (f" --fix repairs {fixable:,} of them." if fixable else "")


_WORDS = {"damage": "damaged", "odd": "out of order", "note": "worth knowing"}


def _undo(options: Namespace) -> int:
    from ..sessions.trash import restore
    from .session_trash import tell_taken_back

    return tell_taken_back(restore(os.path.expanduser(options.undo)), options)


def _room(store: Store) -> dict[str, int]:
    """What is taken beside the sessions, in bytes."""
    from ..workspace import disk_use

    return disk_use(store)._asdict()


def _print_room(room: dict[str, int]) -> None:
    from .disk_usage import size

    if any(room.values()):
        print(
            f"Beside the sessions: snapshots {size(room['snapshots'])}, what tools wrote over {size(room['kept'])}, "
            f"reverts {size(room['journals'])}. --tidy gives back what no session needs."
        )


def _tidy(store: Store, options: Namespace) -> int:
    from ..project import resolve
    from ..sessions import Sessions
    from ..workspace import tidy_store
    from .disk_usage import size

    done = tidy_store(Sessions(store, resolve(".")))
    before, after = sum(done.before), sum(done.after)
    if options.json:
        output.print_json(
            {
                "before": done.before._asdict(),
                "after": done.after._asdict(),
                "snapshots": done.snapshots,
                "notes": list(done.notes),
            }
        )
    else:
        print(f"{size(before)} before, {size(after)} after; {done.snapshots:,} snapshots let go.")
        for note in done.notes:
            print(note, file=sys.stderr)
    return 0


def _migrate(store: Store, options: Namespace) -> int:
    from ..project import resolve
    from ..sessions.trash import writable_tree
    from ..storage.json_tree.migrations import migrate

    done = migrate(writable_tree(store), lambda worktree: resolve(worktree).id)
    if options.json:
        left = [{"path": path, "reason": reason} for path, reason in done.left]
        output.print_json({"steps": done.steps, "written": done.written, "left": left})
    else:
        print(f"{output.pluralize(done.steps, 'step')} taken, {output.pluralize(done.written, 'record')} written.")
        output.tell_damage(done.left)
    return 0
