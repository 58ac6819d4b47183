"""The check of the store with its repairs, and the trash."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...history.maintenance.disk_usage import measure
from ...history.maintenance.doctor import diagnose
from ...sessions import trash
from ...storage.registry import new_sessions_place
from ...workspace.tidying import disk_use
from ..operations import Call, Routes
from ..routes.maintenance_routes import trash_items
from .pages import render

if TYPE_CHECKING:
    from ...history.library import Library
    from ...history.maintenance.disk_usage import StoreDiskUsage
    from ...history.maintenance.doctor import Diagnosis
    from ...history.maintenance.findings import Finding
    from ...sessions.undo import Header
    from ...workspace.tidying import DiskUse

pages = Routes()
_LEVELS = {"damage": "damaged", "odd": "inconsistent", "note": "note"}
_TITLES = {
    "database": "Databases",
    "torn": "Records that are torn or unreadable",
    "orphan": "Records whose session or message is missing",
    "duplicate": "Records that exist twice",
    "misplaced": "Records in the wrong place",
    "foreign": "Files that are not records",
    "stale": "Runs that never ended",
    "lease": "Leases of processes that are gone",
    "leftover": "Temporary files",
    "project": "Projects",
    "folder": "Folders that no longer exist",
    "permissions": "Files that others can read",
    "migration": "Migrations",
    "stores": "Stores",
    "share": "Shares that could not be taken down",
}
_FINDINGS_SHOWN = 50
_SESSIONS_SHOWN = 10


class FindingGroup(NamedTuple):
    """All findings of one kind and level."""

    title: str
    level: str
    findings: list[Finding]

    @property
    def fixable(self) -> int:
        """The number of findings that can be repaired."""
        return sum(finding.fixable for finding in self.findings)


class Report(NamedTuple):
    """The content of the page."""

    diagnosis: Diagnosis
    groups: list[FindingGroup]
    repairs: list[tuple[str, Header]]
    """The undo files of earlier repairs, the latest first."""
    target: str
    """Where new sessions go."""
    reason: str


@pages.get("/ui/doctor", "ui.doctor", response=None)
async def doctor_page(call: Call) -> object:
    """Show the frame of the check, which takes a while in a large store; a script fetches the report."""
    return render(call, "doctor.html", report=None)


@pages.get("/ui/doctor/report", "ui.doctor.report", response=None)
async def doctor_report(call: Call) -> object:
    """Check the store. A browser without scripts gets a page, a script the part that it asked for."""

    def read(library: Library) -> Report:
        diagnosis = diagnose(library.store)
        groups: dict[tuple[str, str], FindingGroup] = {}
        for finding in diagnosis.findings:
            group = groups.setdefault(
                (finding.level, finding.kind), FindingGroup(_TITLES[finding.kind], _LEVELS[finding.level], [])
            )
            group.findings.append(finding)
        ordered = sorted(groups.values(), key=lambda group: list(_LEVELS.values()).index(group.level))
        repairs = trash.undo_files_of("doctor", library.store)[::-1]
        target, reason = new_sessions_place(library.store)
        return Report(diagnosis, ordered, repairs, target, reason)

    report = await call.state.read_history(read)
    accepted = call.request.headers.get("accept", "")
    template = "doctor.html" if accepted.startswith("text/html,") else "doctor_report.html"
    return render(call, template, report=report, shown=_FINDINGS_SHOWN)


@pages.get("/ui/disk", "ui.disk", response=None)
async def disk_page(call: Call) -> object:
    """Show what takes space on the disk."""

    def read(library: Library) -> tuple[list[StoreDiskUsage], DiskUse]:
        return measure(library.store, report=library.report), disk_use(library.store)

    stores, beside = await call.state.read_history(read)
    return render(call, "disk.html", shown=_SESSIONS_SHOWN, stores=stores, beside=beside)


@pages.get("/ui/trash", "ui.trash", response=None)
async def trash_page(call: Call) -> object:
    """Show removed sessions."""
    items = await call.state.read_history(lambda library: trash_items(library.store))
    return render(call, "trash.html", items=items)
