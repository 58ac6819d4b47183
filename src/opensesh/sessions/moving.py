"""Filing sessions under another folder: it was moved or renamed, or they were started in the wrong one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..project import register, resolve
from ..records import as_whole, codec, dumps, object_at
from ..storage.protocol import member_stores
from .record_files import record_files
from .trash import Bulk, change_members, with_descendants
from .undo import Change

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..project import ProjectLocation
    from ..records import Session
    from ..storage.protocol import Store
    from .record_files import RecordFiles


def move(store: Store, sessions: Sequence[Session], folder: str, *, base: str = "", dry_run: bool = False) -> Bulk:
    """File sessions and their descendants under ``folder`` and its project.

    ``base`` is the old path of ``folder``: a session that worked below it is filed under the same subfolder of the new
    one, if that exists. Paths inside messages stay as they are.
    """
    family = with_descendants(store, sessions)
    directories: dict[str, str] = {}
    for session in family:
        same = ""
        if base and session.directory.startswith(os.path.join(base, "")):
            same = os.path.join(folder, os.path.relpath(session.directory, base))
        directories[session.id] = same if same and os.path.isdir(same) else folder

    def plan(member: Store, filed: Mapping[str, Sequence[str]], chosen: Sequence[Session]) -> list[Change]:
        records = record_files(member)
        locations = {directory: resolve(directory, store=member) for directory in set(directories.values())}
        return [
            change
            for session in chosen
            for change in _changes(records, filed[session.id], locations[directories[session.id]])
        ]

    if not dry_run:
        for member in (member for member in member_stores(store) if member.writable):
            # Before the records are listed, because it adopts sessions that are older than the first commit.
            names = {key[-1] for key in member.list(("session",))}
            for directory in {directories[name] for name in names & directories.keys()}:
                register(member, resolve(directory, store=member))
    return change_members(store, "move", family, plan, dry_run=dry_run)


def _changes(records: RecordFiles, paths: Sequence[str], location: ProjectLocation) -> Iterator[Change]:
    """File the newest of a session's records at the location, and move the others away."""
    copies = {path: codec.loads_object(records.read(path), path) for path in paths}
    newest = max(paths, key=lambda path: as_whole(object_at(copies[path], "time").get("updated")))
    yield from (Change(path=path, aside=True) for path in paths if path != newest)
    after = copies[newest] | {"projectID": location.id, "directory": location.directory}
    if after.get("path") is not None and location.path is not None:
        after["path"] = location.path  # at its position: an undo compares the record with what the store returns
    else:
        after.pop("path", None)
    new_path = os.path.join("session", location.id, os.path.basename(newest))
    if after != copies[newest] or new_path != newest:
        yield Change(path=newest, data=dumps(after), to=new_path if new_path != newest else "")
