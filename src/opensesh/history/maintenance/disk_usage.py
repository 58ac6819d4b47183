"""Disk usage of stores, by session, kind of record, tool, subagent sessions and attachments."""

from __future__ import annotations

import os
from collections import defaultdict
from typing import TYPE_CHECKING

from ...errors import RecordError, StoreError
from ...records import Document, as_object, dumps_compact, loads_object, object_at, objects_in
from ...storage.disk import names_in, read_file
from ...storage.families import children_by_parent, descendants
from ...storage.keys import is_plain
from ...storage.protocol import Damage, FileTree, Key, Store, log_damage, member_stores
from ...workspace.tidying import folder_size
from ..formatting import text
from ..stats.session_usage import SessionInfo, session_info

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...storage.protocol import Report

_OTHER_FOLDERS = ("snapshot", "tool-output", "worktree", "log", "bin", "plans")


class UsageTotal:
    """A number of records and their bytes."""

    def __init__(self) -> None:
        self.bytes = 0
        self.records = 0

    def add(self, size: int) -> None:
        """Add a record."""
        self.bytes += size
        self.records += 1

    def document(self) -> Document:
        """Return it as JSON."""
        return {"bytes": self.bytes, "records": self.records}


class SessionDiskUsage:
    """The disk usage of one session."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.info: SessionInfo | None = None
        self.own = UsageTotal()
        self.inclusive = 0
        """Bytes, including its subagent sessions."""

    def document(self) -> Document:
        """Return it as JSON."""
        info = self.info or SessionInfo(self.session)
        return {
            "sessionID": self.session,
            "title": info.title,
            "parentID": info.parent or None,
            "projectID": info.project,
            **self.own.document(),
            "inclusive": self.inclusive,
        }


class StoreDiskUsage:
    """The disk usage of a store."""

    def __init__(self, store: Store) -> None:
        self.place = store.place
        self.total = UsageTotal()
        self.kinds: defaultdict[str, UsageTotal] = defaultdict(UsageTotal)
        """The sizes by kind of record: session, message, part, session_diff, todo..."""
        self.parts: defaultdict[str, UsageTotal] = defaultdict(UsageTotal)
        """The sizes by type of part."""
        self.tools: defaultdict[str, UsageTotal] = defaultdict(UsageTotal)
        self.attachments = UsageTotal()
        """Files and images inside of parts."""
        self.children = UsageTotal()
        """Records of subagent sessions."""
        self.orphans = UsageTotal()
        """Records without a session."""
        self.sessions: dict[str, SessionDiskUsage] = {}
        self.beside: dict[str, int] = {}
        """Bytes of other folders in OpenCode's data folder."""

    def document(self) -> Document:
        """Return the usage as JSON, the largest first."""
        return {
            "place": self.place,
            "total": self.total.document(),
            "kinds": _ranked(self.kinds),
            "parts": _ranked(self.parts),
            "tools": _ranked(self.tools),
            "attachments": self.attachments.document(),
            "children": self.children.document(),
            "orphans": self.orphans.document(),
            "beside": self.beside,
            "sessions": [session.document() for session in self.largest()],
        }

    def largest(self) -> list[SessionDiskUsage]:
        """Return the sessions, those with the most bytes (including subagent sessions) first."""
        return sorted(self.sessions.values(), key=lambda session: (-session.inclusive, session.session))


def measure(store: Store, *, report: Report = log_damage) -> list[StoreDiskUsage]:
    """Measure each member of a store: a tree by its files, a database by its records."""
    members = member_stores(store)
    if members != [store]:
        usages: list[StoreDiskUsage] = []
        for member in members:
            try:
                usages += measure(member, report=report)
            except StoreError as error:  # a database that was damaged since it was opened
                report(Damage(member.place, error.message))
        return usages
    usage = StoreDiskUsage(store)
    owners: dict[str, str] = {}
    entries = _files(store) if isinstance(store, FileTree) else _values(store, report)
    for key, size, read in entries:
        _count(usage, key, size, read, owners)
    parents = {id_: entry.info.parent for id_, entry in usage.sessions.items() if entry.info and entry.info.parent}
    children = children_by_parent(parents.items())
    for id_, entry in usage.sessions.items():
        entry.inclusive = sum(usage.sessions[name].own.bytes for name in (id_, *descendants(id_, children)))
        if id_ in parents:
            usage.children.bytes += entry.own.bytes
            usage.children.records += entry.own.records
    if isinstance(store, FileTree):
        data = os.path.dirname(store.root)
        usage.beside = {name: size for name in _OTHER_FOLDERS if (size := folder_size(os.path.join(data, name)))}
    return [usage]


def _files(tree: FileTree) -> Iterator[tuple[Key, int, Callable[[], Document]]]:
    """Yield every record of a tree: sessions first, messages before parts, so that owners are known."""
    kinds = ("session", "message", "part")
    others = [name for name in names_in(tree.root) if is_plain(name) and name not in kinds]
    for key in (key for kind in (*kinds, *others) for key in tree.keys((kind,))):
        path = tree.locate(key)
        try:
            size = os.stat(path).st_size
        except OSError:
            continue
        yield key, size, lambda path=path: _read(path)


def _values(store: Store, report: Report) -> Iterator[tuple[Key, int, Callable[[], Document]]]:
    for kind in ("session", "message", "part", "session_diff", "todo", "session_share", "project"):
        for key, value in store.scan((kind,), report=report):
            document = as_object(value) or {}
            yield key, len(dumps_compact(value)), lambda document=document: document


def _read(path: str) -> Document:
    try:
        return loads_object(read_file(path), path)
    except (OSError, RecordError):
        return {}


def _count(usage: StoreDiskUsage, key: Key, size: int, read: Callable[[], Document], owners: dict[str, str]) -> None:
    usage.total.add(size)
    usage.kinds[key[0]].add(size)
    session = key[-1]
    match key[0]:
        case "session":
            usage.sessions.setdefault(session, SessionDiskUsage(session)).info = session_info(read(), key[1], session)
        case "message":
            session = owners[key[-1]] = key[1]
        case "part":
            session = owners.get(key[1], "")
            _count_part(usage, read(), size)
        case "project":
            return
        case _:
            pass
    if session in usage.sessions:
        usage.sessions[session].own.add(size)
    else:
        usage.orphans.add(size)


def _count_part(usage: StoreDiskUsage, part: Document, size: int) -> None:
    kind = str(part.get("type", "unreadable"))
    usage.parts[kind].add(size)
    if kind == "tool":
        usage.tools[str(part.get("tool", ""))].add(size)
        for file in objects_in(object_at(part, "state").get("attachments")):
            usage.attachments.add(len(text(file, "url")))
    elif kind == "file":
        usage.attachments.add(len(text(part, "url")) or size)


def _ranked(totals: dict[str, UsageTotal]) -> Document:
    return {name: total.document() for name, total in sorted(totals.items(), key=lambda entry: -entry[1].bytes)}
