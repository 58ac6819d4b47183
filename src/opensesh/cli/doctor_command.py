"""Check a store: damaged, missing, duplicate or stale records, and what each of its parts holds.

--fix repairs what can be repaired safely and quarantines the rest. Nothing is deleted, and --undo reverses it.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections import Counter

from ..errors import UsageError
from ..history.maintenance.doctor import Diagnosis, diagnose, repair
from ..history.maintenance.findings import Finding
from ..project import resolve
from ..sessions import Sessions
from ..sessions.trash import restore, writable_tree
from ..storage import open_store
from ..storage.json_tree.migrations import migrate
from ..storage.protocol import Damage, Store
from ..text import format_bytes, pluralize
from ..tools.shell.sandbox import find_lock
from ..workspace.tidying import disk_use, tidy_store
from . import output
from .command_arguments import CommandParser
from .session_trash import print_restored
from .terminal import Progress

_COLOURS = {"damage": 31, "odd": 33, "note": 2}
_FINDINGS_SHOWN = 8


def configure(parser: CommandParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--fix", action="store_true", help="repair what is safe, quarantine the rest, write an undo file"
    )
    parser.add_argument("--undo", metavar="FILE", help="reverse what --fix did; FILE is the undo file it printed")
    parser.add_argument(
        "--migrate", action="store_true", help="convert the tree of an older OpenCode to the last layout"
    )
    parser.add_argument("--tidy", action="store_true", help="delete snapshots that no session needs")
    parser.add_argument("--all", action="store_true", help="list all findings instead of the first few of each kind")


def run(options: Namespace) -> int:
    """Check the store, and repair it if asked."""
    if sum(map(bool, (options.fix, options.undo, options.migrate, options.tidy))) > 1:
        raise UsageError("--fix, --undo, --migrate and --tidy cannot be combined")
    if options.undo:
        return print_restored(restore(os.path.expanduser(options.undo)), options)
    unread: list[Damage] = []
    store = open_store(options.store, report=unread.append)
    if options.migrate:
        migrated = migrate(writable_tree(store))
        if options.json:
            left = [damage._asdict() for damage in migrated.left]
            output.print_json({"steps": migrated.steps, "written": migrated.written, "left": left})
        else:
            print(f"{pluralize(migrated.steps, 'migration')} run, {pluralize(migrated.written, 'record')} written.")
            output.report_damage(migrated.left)
        return 0
    if options.tidy:
        tidied = tidy_store(Sessions(store, resolve(".")))
        if options.json:
            sizes = {"before": tidied.before._asdict(), "after": tidied.after._asdict()}
            output.print_json({**sizes, "snapshots": tidied.snapshots, "notes": list(tidied.notes)})
        else:
            before, after = (format_bytes(sum(sizes)) for sizes in (tidied.before, tidied.after))
            print(f"{before} before, {after} after; {pluralize(tidied.snapshots, 'snapshot')} deleted.")
            print("".join(f"{note}\n" for note in tidied.notes), end="", file=sys.stderr)
        return 0
    with Progress("{:,} records checked") as step:
        diagnosis = (repair if options.fix else diagnose)(store, unread=unread, step=step)
    usage = disk_use(store)._asdict()
    lock = find_lock()
    if options.json:
        sandbox = {"kind": lock.kind, "description": lock.description} if lock else None
        output.print_json(
            diagnosis.document()
            | {"room": usage, "sandbox": sandbox, "newSessions": output.new_sessions_document(store)}
        )
    else:
        _print_diagnosis(diagnosis, store, options)
        if any(usage.values()):
            sizes = {name: format_bytes(size) for name, size in usage.items()}
            use = (
                f"Also on disk: snapshots {sizes['snapshots']}, originals of overwritten files {sizes['kept']}, "
                f"revert journals {sizes['journals']}. --tidy deletes what no session needs."
            )
            print(output.folded(use))
        absent = "none (needs Landlock in the kernel, or bubblewrap); plan mode asks before most commands"
        print(output.folded(f"Sandbox for commands: {lock.description if lock else absent}."))
    return 5 if diagnosis.damaged else 0


def _print_diagnosis(diagnosis: Diagnosis, store: Store, options: Namespace) -> None:
    rows = [
        (f"{part.sessions:,}", f"{part.messages:,}", f"{part.parts:,}", f"{part.only:,}", part.place)
        for part in diagnosis.holdings
    ]
    output.table(("SESSIONS", "MESSAGES", "PARTS", "ONLY HERE", "STORE"), rows, paths=True)
    print(output.folded(output.new_sessions_line(store)))
    print()
    by_kind: dict[str, list[Finding]] = {}
    for finding in diagnosis.findings:
        by_kind.setdefault(finding.kind, []).append(finding)
    for kind, findings in by_kind.items():
        shown = findings if options.all else findings[:_FINDINGS_SHOWN]
        for finding, following in zip(shown, [*shown[1:], None], strict=True):
            mark = " (fixed)" if options.fix and finding.fixable else ""
            text = output.folded(f"{'':<12}{finding.path}: {finding.message}{mark}")[12:]
            print(f"{output.paint(f'{kind:<12}', _COLOURS[finding.level])}{text}")
            if finding.remedy and (following is None or following.remedy != finding.remedy):
                print(output.paint(output.folded(f"{'':<12}{finding.remedy}"), 2))
        if len(shown) < len(findings):
            print(f"{'':<12}... and {len(findings) - len(shown):,} more; --all shows them")
    levels = Counter(finding.level for finding in diagnosis.findings)
    texts = {
        "damage": f"{levels['damage']:,} damaged",
        "odd": f"{levels['odd']:,} inconsistent",
        "note": pluralize(levels["note"], "note"),
    }
    counts = ", ".join(text for level, text in texts.items() if levels[level])
    fixable = sum(finding.fixable for finding in diagnosis.findings)
    if not diagnosis.findings:
        print("No problems found.")
    elif diagnosis.fixed:
        changed = f", {pluralize(diagnosis.files, 'record')} changed or quarantined" if diagnosis.files else ""
        print(f"{counts}. {fixable:,} repaired{changed}.")
    else:
        print(f"{counts}." + (f" --fix repairs {fixable:,} of them." if fixable else ""))
    for undo in filter(None, (diagnosis.undo, *diagnosis.more_undo)):
        print(f"To undo: opensesh doctor --undo {undo}")
