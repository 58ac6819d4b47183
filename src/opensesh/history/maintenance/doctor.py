"""Checks a store: what is damaged, lost, doubled, stale or strange; and repairs what can be repaired.

A repair never deletes. What is changed is kept, what is in the way is put aside, in a folder under the state folder
with an undo file. A tree that was repaired has nothing left to repair: a second run changes nothing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from ...errors import RecordError
from ...records import dumps, loads_object
from ...sessions.trash import writable_tree
from ...sessions.undo import Change, files_changed, perform
from ...storage.disk import read_file
from ...storage.protocol import FileTree, member_stores
from .checks_places import check_places, running
from .checks_records import check_records
from .checks_shares import check_shares
from .comparison import StoreContents, StoreSummary, check_stores, compare_stores, inventory_contents, store_contents
from .findings import Finding
from .inventory import take_inventory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...records import Document
    from ...storage.protocol import Damage, Store

    Step = Callable[[int], None]

_WITHOUT_IT = "reading goes on without it; OpenCode's databases are never written, and not repaired here"


class Diagnosis(NamedTuple):
    """What was found, and what was done about it."""

    place: str
    holdings: list[StoreSummary]
    findings: list[Finding]
    undo: str = ""
    """The undo file, if anything was repaired."""
    files: int = 0
    """How many files that changed, as taking it back will count them."""
    fixed: bool = False
    """Whether repairs were asked for."""

    @property
    def damaged(self) -> bool:
        """Whether something that cannot be read or reached is still so."""
        return any(each.level == "damage" and not (self.fixed and each.fixable) for each in self.findings)

    def document(self) -> Document:
        """For machines."""
        return {
            "place": self.place,
            "stores": [each.document() for each in self.holdings],
            "findings": [each.document(fixed=self.fixed) for each in self.findings],
            "fixed": sum(each.fixable for each in self.findings) if self.fixed else 0,
            "files": self.files,
            "undo": self.undo or None,
        }


def diagnose(store: Store, *, unread: Sequence[Damage] = (), step: Step = lambda count: None) -> Diagnosis:
    """Look at everything, change nothing. ``unread`` are stores of the place that could not be opened."""
    stores: list[StoreContents] = []
    findings = [Finding("database", path, reason, "damage", remedy=_WITHOUT_IT) for path, reason in unread]
    for member in member_stores(store):
        if not isinstance(member, FileTree):
            stores.append(store_contents(member))
            continue
        found = take_inventory(member, step)
        stores.append(inventory_contents(found))
        if os.path.isdir(member.root):
            findings += check_records(member, found, running(member, found))
            findings += check_places(member, found)
    holdings = compare_stores(stores)
    return Diagnosis(store.place, holdings, [*check_stores(holdings), *findings, *check_shares(store)])


def repair(store: Store, *, unread: Sequence[Damage] = (), step: Step = lambda count: None) -> Diagnosis:
    """Look at everything, and repair what can be repaired."""
    diagnosis = diagnose(store, unread=unread, step=step)
    wanted = [each for each in diagnosis.findings if each.fixable]
    if wanted:
        tree = writable_tree(store)  # of the stores of a place one at the most is a tree, and nothing else is repaired
        changes = _plan(tree, wanted)
        about = {"findings": [f"{each.path}: {each.message}" for each in wanted]}
        undo = perform(tree, "doctor", changes, about)
        diagnosis = diagnosis._replace(undo=undo, files=files_changed(changes))
    for finding in wanted:
        if finding.act is not None:
            finding.act()
    return diagnosis._replace(fixed=True)


def _plan(tree: FileTree, findings: Sequence[Finding]) -> list[Change]:
    """All repairs as changes: permissions first, then what records say, then what is put aside, renamed or made anew.

    What is put aside need not be corrected before, and is put aside once.
    """
    every = [change for finding in findings for change in finding.changes]
    gone = {change.path for change in every if change.aside}
    moved: dict[tuple[str, bool], Change] = {}
    for change in every:
        if change.mode is None:
            moved.setdefault((change.path, change.aside), change)
    edits: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.edit is not None and finding.path not in gone:
            edits.setdefault(finding.path, []).append(finding)
    modes = [change for change in every if change.mode is not None and change.path not in gone]
    edited = {path: _edited(tree, path, each) for path, each in edits.items()}
    renamed = {change.path: change.to for change in moved.values() if change.to}
    corrected = [Change(path=path, data=data, to=renamed.get(path, "")) for path, data in edited.items() if data]
    done = {change.path for change in corrected}
    return [*modes, *corrected, *(change for change in moved.values() if not (change.to and change.path in done))]


def _edited(tree: FileTree, path: str, findings: Sequence[Finding]) -> bytes | None:
    try:
        record = loads_object(read_file(os.path.join(tree.root, path)), path)
    except (OSError, RecordError):
        return None  # changed since it was looked at; the next run sees what it is now
    for finding in findings:
        if finding.edit is not None:
            finding.edit(record)
    return dumps(record)
