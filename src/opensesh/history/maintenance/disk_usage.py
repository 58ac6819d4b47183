"""What takes the room: which sessions, which tools, subagents and attachments hold how many bytes."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from ...errors import RecordError
from ...records import Document, as_list, as_object, dumps_compact, loads_object
from ...storage.disk import read_file
from ...storage.protocol import Damage, FileTree, log_damage, member_stores
from ...workspace.tidying import folder_size
from ..stats.session_info import SessionInfo, session_info
from .tree_folders import folders, records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...storage.protocol import Key, Store

    Report = Callable[[Damage], None]

_LARGE = 65_536
_TYPE = re.compile(rb'^\s*\{[^{]*?"type":\s*"([a-z-]+)"')
_TOOL = re.compile(rb'^\s*\{[^{]*?"tool":\s*"([^"\\]{1,200})"')
_BESIDE = ("snapshot", "tool-output", "worktree", "log", "bin", "plans")


class UsageTotal:
    """So many bytes in so many records."""

    def __init__(self) -> None:
        self.bytes = 0
        self.records = 0

    def add(self, size: int) -> None:
        """Count a record."""
        self.bytes += size
        self.records += 1

    def document(self) -> Document:
        """For machines."""
        return {"bytes": self.bytes, "records": self.records}


class SessionDiskUsage:
    """What one session takes."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.facts: SessionInfo | None = None
        self.own = UsageTotal()
        self.inclusive = 0
        """Bytes, with those of the subagents below it."""

    def document(self) -> Document:
        """For machines."""
        facts = self.facts or SessionInfo(self.session)
        return {
            "sessionID": self.session,
            "title": facts.title,
            "parentID": facts.parent or None,
            "projectID": facts.project,
            **self.own.document(),
            "inclusive": self.inclusive,
        }


class StoreDiskUsage:
    """What a store takes."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.total = UsageTotal()
        self.kinds: dict[str, UsageTotal] = {}
        """By kind of record: session, message, part, session_diff, todo..."""
        self.parts: dict[str, UsageTotal] = {}
        """By type of part."""
        self.tools: dict[str, UsageTotal] = {}
        self.attachments = UsageTotal()
        """Files and images that are kept inside of parts."""
        self.children = UsageTotal()
        """What belongs to subagents' sessions."""
        self.orphans = UsageTotal()
        """What belongs to no session that there is."""
        self.sessions: dict[str, SessionDiskUsage] = {}
        self.beside: dict[str, int] = {}
        """Bytes of what OpenCode keeps next to its sessions."""

    def document(self) -> Document:
        """For machines; the largest first."""
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
            "sessions": [each.document() for each in self.largest()],
        }

    def largest(self) -> list[SessionDiskUsage]:
        """The sessions, by what they take with all below them."""
        return sorted(self.sessions.values(), key=lambda each: (-each.inclusive, each.session))


def measure(store: Store, *, report: Report = log_damage) -> list[StoreDiskUsage]:
    """What each of a store's members takes. A tree is measured by its files, a database by the records in it."""
    members = member_stores(store)
    if members != [store]:
        return [usage for member in members for usage in measure(member, report=report)]
    usage = StoreDiskUsage(store.place)
    owners: dict[str, str] = {}
    found = _files(store) if isinstance(store, FileTree) else _values(store, report)
    for key, size, look in found:
        _count(usage, key, size, look, owners)
    _add_up_children(usage)
    if isinstance(store, FileTree):
        data = os.path.dirname(store.root)
        usage.beside = {name: size for name in _BESIDE if (size := folder_size(os.path.join(data, name)))}
    return [usage]


def _files(tree: FileTree) -> Iterator[tuple[Key, int, Callable[[], Document]]]:
    """Every record in a tree: sessions first, messages before parts, so that owners are known."""
    kinds = ("session", "message", "part")
    others = sorted(name for name, _ in folders(tree.root) if name not in kinds)
    for key in (key for kind in (*kinds, *others) for key in _keys(tree, kind)):
        path = tree.locate(key)
        try:
            size = os.stat(path).st_size
        except OSError:
            continue
        yield key, size, lambda path=path, size=size, kind=key[0]: _glimpse(path, size, kind)


def _keys(tree: FileTree, kind: str) -> Iterator[Key]:
    """The keys of a kind, a folder at a time: there may be very many."""
    above = os.path.join(tree.root, kind)
    yield from ((kind, name[:-5]) for name in sorted(records(above)))
    for folder, _ in sorted(folders(above)):
        if not os.path.islink(os.path.join(above, folder)):
            yield from tree.list((kind, folder))


def _values(store: Store, report: Report) -> Iterator[tuple[Key, int, Callable[[], Document]]]:
    for kind in ("session", "message", "part", "session_diff", "todo", "session_share", "project"):
        for key, value in store.scan((kind,), report=report):
            document = as_object(value) or {}
            yield key, len(dumps_compact(value)), lambda document=document: document


def _glimpse(path: str, size: int, kind: str) -> Document:
    """As much of a record as is needed. Most small parts say at their beginning all there is to know; the others are
    decoded."""
    try:
        data = read_file(path)
        found = _TYPE.match(data) if kind == "part" and size <= _LARGE else None
        if found and found[1] not in (b"tool", b"file"):
            return {"type": found[1].decode()}
        if found and b'"attachments"' not in data and (tool := _TOOL.match(data)):
            return {"type": "tool", "tool": tool[1].decode(errors="replace")}
        return loads_object(data, path)
    except (OSError, RecordError):
        return {}


def _count(usage: StoreDiskUsage, key: Key, size: int, look: Callable[[], Document], owners: dict[str, str]) -> None:
    usage.total.add(size)
    usage.kinds.setdefault(key[0], UsageTotal()).add(size)
    session = key[-1]
    match key[0]:
        case "session":
            usage.sessions.setdefault(session, SessionDiskUsage(session)).facts = session_info(look(), key[1], session)
        case "message":
            session = owners[key[-1]] = key[1]
        case "part":
            session = owners.get(key[1], "")
            _count_part(usage, look(), size)
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
    usage.parts.setdefault(kind, UsageTotal()).add(size)
    if kind == "tool":
        usage.tools.setdefault(str(part.get("tool", "")), UsageTotal()).add(size)
        state = as_object(part.get("state")) or {}
        for each in as_list(state.get("attachments")) or []:
            usage.attachments.add(_url_length(each))
    elif kind == "file":
        usage.attachments.add(_url_length(part) or size)


def _url_length(held: Any) -> int:
    url = (as_object(held) or {}).get("url")
    return len(url) if isinstance(url, str) else 0


def _add_up_children(usage: StoreDiskUsage) -> None:
    """Add up the trees of subagents."""
    parents = {each.session: each.facts.parent for each in usage.sessions.values() if each.facts and each.facts.parent}
    for each in usage.sessions.values():
        each.inclusive += each.own.bytes
        if each.session in parents:
            usage.children.bytes += each.own.bytes
            usage.children.records += each.own.records
        seen = {each.session}
        above = parents.get(each.session)
        while above in usage.sessions and above not in seen:
            seen.add(above)
            usage.sessions[above].inclusive += each.own.bytes
            above = parents.get(above)


def _ranked(shares: dict[str, UsageTotal]) -> Document:
    return {name: share.document() for name, share in sorted(shares.items(), key=lambda each: -each[1].bytes)}
