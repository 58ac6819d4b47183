"""The functions of :mod:`opensesh.history`, which imports them from here when one of them is first used."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..errors import NotFoundError
from .formats import format_of
from .import_export.destinations import to_file
from .import_export.exporting import Export, Selection
from .import_export.import_sources import read_sessions
from .import_export.importing import Importer, ImportResult
from .library import Library
from .maintenance import doctor
from .stats import usage_stats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..redaction import Redactor
    from .maintenance.doctor import Diagnosis
    from .stats.usage_stats import By, Statistics

    Place = str | os.PathLike[str]


def open(place: Place | None = None) -> Library:  # noqa: A001 - history.open() is the public name
    """Open the history at ``place``: a storage folder, an OpenCode data folder (the default), a database, or a URL.

    All stores of a data folder are opened as one. Raises :class:`~opensesh.errors.NotFoundError` if the place does not
    exist.
    """
    place = None if place is None else os.fspath(place)
    if place is not None and "://" not in place and not os.path.exists(os.path.expanduser(place)):
        raise NotFoundError(f"there is no store at {place}", path=place)
    return Library(place)


def export(
    path: Place,
    sessions: Sequence[str] = (),
    *,
    format: str | None = None,  # noqa: A002 - the name of the command's option
    redactor: Redactor | None = None,
    place: Place | None = None,
) -> int:
    """Write sessions, by id, or all of them to a file; return how many.

    ``format`` is one of the formats of ``opensesh export``; without it, that of the ending of the file, or JSONL.
    ``redactor`` removes secrets: :class:`opensesh.redaction.Redactor`.
    """
    path = os.fspath(path)
    selected = Export(open(place).store, Selection(ids=tuple(sessions)), format or format_of(path), redactor=redactor)
    return to_file(selected, path, lambda done, total: None)


def import_sessions(source: Place, *, place: Place | None = None, dry_run: bool = False) -> list[ImportResult]:
    """Copy the sessions of a file, a store or an export into the store that new sessions go to; return what was done
    with each. A session that is there already is completed, never overwritten."""
    return Importer(open(place).store, dry_run=dry_run).take(read_sessions(os.fspath(source)))


def statistics(by: By = "day", *, place: Place | None = None, utc: bool = False) -> Statistics:
    """Add up tokens and costs, each model call once, by day, month, project, model, agent or session."""
    return usage_stats.statistics(open(place).store, by, utc=utc)


def diagnose(place: Place | None = None) -> Diagnosis:
    """Check every record, as ``opensesh doctor`` does; change nothing."""
    return doctor.diagnose(open(place).store)


def repair(place: Place | None = None) -> Diagnosis:
    """Repair what is safe and quarantine the rest, as ``opensesh doctor --fix`` does; the result has the undo file."""
    return doctor.repair(open(place).store)
