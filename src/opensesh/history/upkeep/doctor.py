"""Checks a store: what is damaged, lost, doubled, stale or strange; and repairs what can be repaired.

A repair never deletes. What is changed is kept, what is in the way is put aside, in a folder under the state folder
with an undo file. A tree that was repaired has nothing left to repair: a second run changes nothing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from ...records import dumps, loads_object
from ...storage.json_tree import JsonTree, read_file
from ...storage.union import Union
from .checks_places import check_places, running
from .checks_records import check_records
from .checks_shares import check_shares
from .comparison import Holding, check_stores, compare_stores
from .inventory import take_inventory
from .undo import Change, perform

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...records import Document
    from ...storage.store import Store
    from .findings import Finding

    Step = Callable[[int], None]


class Diagnosis(NamedTuple):
    """What was found, and what was done about it."""

    place: str
    holdings: list[Holding]
    findings: list[Finding]
    undo: str = ""
    """The undo file, if anything was repaired."""
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
            "undo": self.undo or None,
        }


def diagnose(store: Store, *, step: Step = lambda count: None) -> Diagnosis:
    """Look at everything, change nothing."""
    holdings = compare_stores(store)
    findings = list(check_stores(holdings))
    for tree in _trees(store):
        if os.path.isdir(tree.root):
            found = take_inventory(tree, step)
            findings += check_records(tree, found, running(tree, found))
            findings += check_places(tree, found)
    findings += check_shares(store)
    return Diagnosis(store.place, holdings, findings)


def repair(store: Store, *, step: Step = lambda count: None) -> Diagnosis:
    """Look at everything, and repair what can be repaired."""
    diagnosis = diagnose(store, step=step)
    undo = ""
    for tree in _trees(store):
        about = {"findings": [f"{each.path}: {each.message}" for each in diagnosis.findings if each.fixable]}
        undo = perform(tree, "doctor", _plan(tree, diagnosis.findings), about) or undo
    for finding in diagnosis.findings:
        if finding.act is not None:
            finding.act()
    return diagnosis._replace(undo=undo, fixed=True)


def _trees(store: Store) -> list[JsonTree]:
    members: Sequence[Store] = store.members if isinstance(store, Union) else (store,)
    return [member for member in members if isinstance(member, JsonTree)]


def _plan(tree: JsonTree, findings: Sequence[Finding]) -> list[Change]:
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
    return [*modes, *(_edited(tree, path, each) for path, each in edits.items()), *moved.values()]


def _edited(tree: JsonTree, path: str, findings: Sequence[Finding]) -> Change:
    record = loads_object(read_file(os.path.join(tree.root, path)), path)
    for finding in findings:
        if finding.edit is not None:
            finding.edit(record)
    return Change(path=path, data=dumps(record))
