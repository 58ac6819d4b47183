"""What lies in a JSON tree, told by names and times of change alone."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from ...storage.keys import is_plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_USUAL = re.compile(r"[a-z]{3}_[A-Za-z0-9]{1,100}\.json").fullmatch
"""Records as OpenCode names them: quicker to tell than all that may be named so."""


def folders(folder: str) -> Iterator[tuple[str, int]]:
    """The folders in a folder that are named like parts of keys, each with its time of change in nanoseconds."""
    for each in _entries(folder):
        try:
            if not is_plain(each.name) or not each.is_dir():
                continue
            changed = each.stat().st_mtime_ns
        except OSError:  # gone meanwhile
            continue
        yield each.name, changed


def session_files(folder: str) -> Iterator[tuple[str, str, int, int]]:
    """The records of sessions: the project each is filed under, its path, time of change and size; both are 0 for one
    that cannot be looked at."""
    for project, _ in folders(folder):
        for each in _entries(os.path.join(folder, project)):
            if is_record(each.name):
                try:
                    status = each.stat()
                    yield project, each.path, status.st_mtime_ns, status.st_size
                except OSError:
                    yield project, each.path, 0, 0


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        found = os.scandir(folder)
    except OSError:
        return
    with found:
        yield from found


def records(folder: str) -> Iterable[str]:
    """The files in a folder that are named like records."""
    try:
        names = os.listdir(folder)
    except OSError:
        return ()
    return [name for name in names if _USUAL(name) or is_record(name)]


def is_record(name: str) -> bool:
    """Whether a file is named like a record; the copies that people and programs make are not."""
    return name.endswith(".json") and is_plain(name[:-5])
