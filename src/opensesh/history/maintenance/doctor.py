"""Check a store for damaged, lost, duplicate, stale and misplaced records, and repair them.

A repair never deletes: replaced and removed files, and rows of databases, are kept in a folder under the state folder,
with an undo file. After a repair there is nothing left to repair, so a second run changes nothing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from ...errors import RecordError, StoreError
from ...records import Document, dumps, loads_object
from ...sessions.trash import writable_tree
from ...sessions.undo import Change, files_changed, perform
from ...storage.disk import read_file
from ...storage.leases import FileLeases
from ...storage.locations import databases
from ...storage.protocol import Damage, FileTree, RawRows, Store, member_stores
from ...storage.registry import new_sessions_place
from .database_checks import check_database
from .findings import (
    Finding,
    StoreContents,
    StoreSummary,
    check_shares,
    check_stores,
    compare_stores,
    inventory_contents,
    store_contents,
)
from .inventory import take_inventory
from .tree_checks import check_folders, check_layout, check_records, check_surroundings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Step = Callable[[int], None]

_DATABASE_REMEDY = "it is left out, and cannot be repaired: only rows of a database that can be opened are"


class Diagnosis(NamedTuple):
    """The findings, and what was repaired."""

    place: str
    holdings: list[StoreSummary]
    findings: list[Finding]
    undo: str = ""
    """The undo file, if anything was repaired."""
    more_undo: tuple[str, ...] = ()
    """The undo files of further stores that were repaired."""
    files: int = 0
    """How many files were changed, as an undo will count them."""
    fixed: bool = False
    """Whether repairs were requested."""

    @property
    def damaged(self) -> bool:
        """Whether damage remains."""
        return any(finding.level == "damage" and not (self.fixed and finding.fixable) for finding in self.findings)

    def document(self) -> Document:
        """Return the diagnosis as JSON."""
        return {
            "place": self.place,
            "stores": [summary.document() for summary in self.holdings],
            "findings": [finding.document(fixed=self.fixed) for finding in self.findings],
            "fixed": sum(finding.fixable for finding in self.findings) if self.fixed else 0,
            "files": self.files,
            "undo": self.undo or None,
            "moreUndo": list(self.more_undo),
        }


def diagnose(store: Store, *, unread: Sequence[Damage] = (), step: Step = lambda count: None) -> Diagnosis:
    """Run all checks; change nothing. ``unread`` are stores of the data folder that could not be opened."""
    contents: list[StoreContents] = []
    findings = [Finding("database", path, reason, "damage", remedy=_DATABASE_REMEDY) for path, reason in unread]
    members = member_stores(store)
    read_ids: set[str] = set()
    for member in members:
        if not isinstance(member, FileTree):
            try:
                contents.append(store_contents(member))
                if isinstance(member, RawRows):
                    findings += check_database(member, member)
            except StoreError as error:  # it was damaged since it was opened
                findings.append(Finding("database", member.place, error.message, "damage", remedy=_DATABASE_REMEDY))
            else:
                read_ids.add(member.id)
    in_databases = set[str]().union(*(content.sessions for content in contents))
    for member in (member for member in members if isinstance(member, FileTree)):
        inventory = take_inventory(member, step)
        tree = inventory_contents(inventory)
        # Beside a database, the folder of the tree may be missing, or have only the diffs that OpenCode keeps in files.
        if member is store or tree.sessions or tree.messages or tree.parts:
            contents.append(tree)
        if os.path.isdir(member.root):
            running = dict(FileLeases.of(member).held())
            beside = databases(os.path.dirname(member.root), {})
            are_all_read = {os.path.realpath(path) for path in beside} <= read_ids
            findings += check_records(member, inventory, running, in_databases if are_all_read else None)
            findings += check_surroundings(member, inventory)
        findings += check_layout(member)
    findings += check_folders(store)
    summaries = compare_stores(contents)
    target, _ = new_sessions_place(store)
    return Diagnosis(store.place, summaries, [*check_stores(summaries, target), *findings, *check_shares(store)])


def repair(store: Store, *, unread: Sequence[Damage] = (), step: Step = lambda count: None) -> Diagnosis:
    """Run all checks, and repair what can be repaired."""
    diagnosis = diagnose(store, unread=unread, step=step)
    fixable = [finding for finding in diagnosis.findings if finding.fixable]
    undo: list[str] = []
    files = 0
    for member in [None, *member_stores(store)]:
        # A data folder has one tree at most. The findings of a database name it.
        own = [finding for finding in fixable if finding.rows_of is member]
        if not own:
            continue
        target = member or writable_tree(store)
        changes = _plan(target, own) if isinstance(target, FileTree) else _changes(own)
        about = {"findings": [f"{finding.path}: {finding.message}" for finding in own]}
        undo += filter(None, [perform(target, "doctor", changes, about, raw=member is not None)])
        files += files_changed(changes)
    diagnosis = diagnosis._replace(undo=undo[0] if undo else "", more_undo=tuple(undo[1:]), files=files)
    for finding in fixable:
        if finding.act is not None:
            finding.act()
    return diagnosis._replace(fixed=True)


def _changes(findings: Sequence[Finding]) -> list[Change]:
    return [change for finding in findings for change in finding.changes]


def _plan(tree: FileTree, findings: Sequence[Finding]) -> list[Change]:
    """Return all repairs in order: permissions, then edits of records, then files to move aside, rename or create.

    A file that is moved aside is not edited before, and is moved once.
    """
    every = _changes(findings)
    removed = {change.path for change in every if change.aside}
    moved: dict[tuple[str, bool], Change] = {}
    for change in every:
        if change.mode is None:
            moved.setdefault((change.path, change.aside), change)
    edits: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.edit is not None and finding.path not in removed:
            edits.setdefault(finding.path, []).append(finding)
    modes = [change for change in every if change.mode is not None and change.path not in removed]
    renamed = {change.path: change.to for change in moved.values() if change.to}
    edited: dict[str, Change] = {}
    for path, record_findings in edits.items():
        try:
            record = loads_object(read_file(os.path.join(tree.root, path)), path)
        except (OSError, RecordError):
            continue  # changed since the check; the next run checks it again
        for finding in record_findings:
            if finding.edit is not None:
                finding.edit(record)
        edited[path] = Change(path=path, data=dumps(record), to=renamed.get(path, ""))
    # A record that is edited and renamed is one change.
    others = (change for change in moved.values() if not (change.to and change.path in edited))
    return [*modes, *edited.values(), *others]
