"""Records that cannot be read, belong to nothing, are there twice, or are filed where they do not belong."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

from ...ids import now_ms
from ...records import Document, as_object, as_whole, dumps
from ...sessions.undo import Change
from ...storage.keys import PER_SESSION, is_plain
from ...text import pluralize
from .findings import Finding
from .inventory import is_open
from .rebuilding import make_fit, rebuilt_message, rebuilt_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ...storage.protocol import FileTree
    from .inventory import Inventory, InventoryItem

_DAY_MS = 86_400_000
INTERRUPTED = "Tool execution was interrupted: the program ended while it ran"
_PREFIX = {"session": "ses", "message": "msg", "part": "prt"}


def check_records(tree: FileTree, found: Inventory, running: frozenset[str]) -> Iterator[Finding]:
    """Everything that is wrong with single records. Sessions in ``running`` are at work, and unfinished by right."""
    messages = _made_again(tree, found)
    speaking: Counter[str] = Counter([*found.owners.values(), *(str(info["sessionID"]) for info in messages.values())])
    yield from _torn(tree, found, messages, speaking)
    yield from _unreadable(found)
    yield from _misfits(found)
    yield from _foreign(found)
    yield from _duplicates(found)
    yield from _orphans(tree, found, messages, speaking)
    yield from _misplaced(tree, found)
    yield from _stale(found, running)


def _made_again(tree: FileTree, found: Inventory) -> dict[str, Document]:
    """The torn messages of which no other copy is left, made again from their parts, by name."""
    made: dict[str, Document] = {}
    for path, _ in found.torn:
        match path.removesuffix(".json").split(os.sep):
            case ["message", session, name] if name not in found.owners and name not in made:
                record = rebuilt_message(tree, session, name)
                if record is not None:
                    made[name] = record
            case _:
                continue
    return made


def _torn(
    tree: FileTree, found: Inventory, messages: Mapping[str, Document], speaking: Mapping[str, int]
) -> Iterator[Finding]:
    """What cannot be read is put aside; a session or message is made again from what it holds. ``speaking`` are the
    sessions that have messages, or will have."""
    sessions = {item.name for item in found.of("session")}
    for path, reason in found.torn:
        record = None
        match path.removesuffix(".json").split(os.sep):
            case ["session", project, name] if name in speaking and name not in sessions:
                sessions.add(name)
                record = rebuilt_session(tree, name, _of_session(name, messages), project)
            case ["message", session, name] if messages.get(name, {}).get("sessionID") == session:
                record = messages[name]
            case _:
                pass
        again = [] if record is None else [Change(path=path, data=dumps(record))]
        text = f"{reason}{'; can be made again from what it held' if again else ''}"
        yield Finding("torn", path, text, "damage", [Change(path=path, aside=True), *again])


def _of_session(session: str, messages: Mapping[str, Document]) -> list[Document]:
    return [info for info in messages.values() if info["sessionID"] == session]


def _unreadable(found: Inventory) -> Iterator[Finding]:
    remedy = "see that it can be read, then run this again: it may be sound"
    for path, reason in found.unreadable:
        yield Finding("torn", path, reason, "damage", remedy=remedy)


def _misfits(found: Inventory) -> Iterator[Finding]:
    """What can be read as JSON, but not as the record it should be."""
    superseded = {item.path for item, _ in found.superseded}
    for item, reason, can_fit in found.misfits:
        if item.path not in superseded:
            yield Finding("torn", item.path, reason, "damage", edit=_fitting(item) if can_fit else None)


def _fitting(item: InventoryItem) -> Callable[[Document], None]:
    def fit(record: Document) -> None:
        make_fit(record, item.kind, item.name, item.changed)

    return fit


def _foreign(found: Inventory) -> Iterator[Finding]:
    for path in found.foreign:
        text = "not a record, but where OpenCode takes every file for one"
        yield Finding("foreign", path, text, "odd", [Change(path=path, aside=True)])


def _duplicates(found: Inventory) -> Iterator[Finding]:
    for item, kept in found.superseded:
        text = f"a second copy of {item.name}; the one at {kept.path} is kept"
        yield Finding("duplicate", item.path, text, "odd", [Change(path=item.path, aside=True)])


def _orphans(
    tree: FileTree, found: Inventory, messages: Mapping[str, Document], speaking: Mapping[str, int]
) -> Iterator[Finding]:
    """What belongs to something that is not there. Nothing is taken to be gone that may be in a folder that cannot be
    listed."""
    unlisted = {path.split(os.sep)[0] for path, _ in found.unreadable if not path.endswith(".json")}
    sessions = {item.name for item in found.of("session")} | _true_names(tree, found, "session")
    if "session" not in unlisted:
        seen = sessions | {name for _, name in found.damaged("session")}
        for session, count in sorted(speaking.items()):
            if session not in seen:
                yield _without_session(tree, session, count, _of_session(session, messages))
    if "message" not in unlisted:
        known = {name for _, name in found.damaged("message")} | _true_names(tree, found, "message")
        for message, count in sorted(found.lost_parts.items()):
            if message not in known:
                text = f"{pluralize(count, 'part')} of a message that is gone"
                yield Finding("orphan", os.path.join("part", message), text, "odd", _aside(tree, "part", message))
    if unlisted.isdisjoint(("session", "message")):
        unread = {os.path.basename(path).removesuffix(".json") for path, _ in found.unreadable}
        for item in (item for kind in PER_SESSION for item in found.of(kind)):
            if item.name not in sessions and item.name not in speaking and item.name not in unread:
                text = "left behind by a session that is gone"
                yield Finding("orphan", item.path, text, "odd", [Change(path=item.path, aside=True)])


def _true_names(tree: FileTree, found: Inventory, kind: str) -> set[str]:
    """What records will be called that are filed under another name than their own."""
    called = {str(item.says.get("id", "")): item for item in found.of(kind)}
    return {own for own, item in called.items() if own != item.name and _is_its_name(tree, item, own)}


def _without_session(tree: FileTree, session: str, count: int, messages: Iterable[Document]) -> Finding:
    """Messages without a session are what is left when its record is lost: a new record makes them a session again."""
    record = rebuilt_session(tree, session, messages)
    place = os.path.join("session", str(record["projectID"]), f"{session}.json")
    text = f"{pluralize(count, 'message')} of a session whose record is lost"
    return Finding("orphan", os.path.join("message", session), text, "damage", [Change(path=place, data=dumps(record))])


def _aside(tree: FileTree, kind: str, folder: str) -> list[Change]:
    above = os.path.join(tree.root, kind, folder)
    names = sorted(os.listdir(above)) if os.path.isdir(above) else []
    return [Change(path=os.path.join(kind, folder, name), aside=True) for name in names]


def _misplaced(tree: FileTree, found: Inventory) -> Iterator[Finding]:
    """Where a record is filed is what counts; what it says of itself is brought in line with that."""
    superseded = {item.path for item, _ in found.superseded}
    for kind in ("session", "message", "part", "project"):
        taken = _taken(tree, found, kind)
        for item in found.of(kind):
            wrong = {name: right for name, right in _expected(item, found).items() if _differs(item, name, right)}
            if wrong and item.path not in superseded:
                yield _brought_in_line(tree, item, wrong, taken)


def _taken(tree: FileTree, found: Inventory, kind: str) -> set[str]:
    """The names of a kind's records that are their own, as far as others call themselves so."""
    strays = [item for item in found.of(kind) if item.says.get("id") != item.name]
    paths = {item.path for item in strays}
    sessions = {item.name for item in found.of("session") if kind == "session" and item.path not in paths}
    taken: set[str] = set()
    for item in strays:
        own = str(item.says.get("id", ""))
        homes = {item.folder, found.owners[own]} if kind == "message" and own in found.owners else {item.folder}
        places = {os.path.join(kind, folder, f"{own}.json") for folder in homes} - paths
        if own in sessions or (is_plain(own) and any(os.path.exists(os.path.join(tree.root, each)) for each in places)):
            taken.add(own)
    return taken


def _expected(item: InventoryItem, found: Inventory) -> dict[str, str]:
    match item.kind:
        case "session":
            return {"id": item.name, "projectID": item.folder}
        case "message":
            return {"id": item.name, "sessionID": item.folder}
        case "part":
            session = found.session_of(item.folder)
            return {"id": item.name, "messageID": item.folder} | ({"sessionID": session} if session else {})
        case _:
            return {"id": item.name}


def _differs(item: InventoryItem, name: str, right: str) -> bool:
    # The oldest trees have sessions that do not say which project they belong to.
    return item.says.get(name) != right and not (name == "projectID" and name not in item.says)


def _brought_in_line(tree: FileTree, item: InventoryItem, wrong: dict[str, str], taken: set[str]) -> Finding:
    """``taken`` are the names that others of its kind have, or will have; the one it gets here is added."""
    own = str(item.says.get("id", ""))
    place = os.path.join(os.path.dirname(item.path), f"{own}.json")
    if "id" in wrong and own in taken:
        text = f"a copy of {own} under another name"
        parts = _aside(tree, "part", item.name)
        return Finding("misplaced", item.path, text, "odd", [Change(path=item.path, aside=True), *parts])
    renamed = "id" in wrong and _is_its_name(tree, item, own) and not os.path.exists(os.path.join(tree.root, place))
    right = {name: value for name, value in wrong.items() if not (renamed and name == "id")}
    texts = [f"filed under another name than its own, {own}"] if renamed else []
    if right:
        said = ", ".join(f"{name} {str(item.says.get(name))!r:.40}" for name in right)
        texts.append(f"says {said}, which is not where it is filed")
    if renamed:
        taken.add(own)

    def correct(record: Document) -> None:
        record.update(right)

    changes = [Change(path=item.path, to=place)] if renamed else []
    return Finding("misplaced", item.path, "; ".join(texts), "odd", changes, edit=correct if right else None)


def _is_its_name(tree: FileTree, item: InventoryItem, own: str) -> bool:
    """Whether what a record calls itself is what others know it by: then it is the file that has the wrong name."""
    prefix = _PREFIX.get(item.kind)
    if prefix is None or not own.startswith(prefix) or not is_plain(own):
        return False
    below = {"session": "message", "message": "part"}.get(item.kind)
    if below is None:
        return not item.name.startswith(prefix)
    return _has_folder(tree, below, own) and not _has_folder(tree, below, item.name)


def _has_folder(tree: FileTree, kind: str, name: str) -> bool:
    return os.path.isdir(os.path.join(tree.root, kind, name))


def _stale(found: Inventory, running: frozenset[str]) -> Iterator[Finding]:
    """Calls and answers that nobody will ever finish: a later message is there, or a day has passed."""
    now = now_ms()
    superseded = {item.path for item, _ in found.superseded}

    def is_over(message: str, changed: int) -> bool:
        session = found.owners.get(message, "")
        over = message not in found.last.get(session, (0, []))[1] or now - changed > _DAY_MS
        return bool(session) and session not in running and over

    for item in filter(is_open, found.of("part")):
        if is_over(item.folder, item.changed):
            text = f"a tool call that is {item.says['status']} for ever"
            yield Finding("stale", item.path, text, "odd", edit=_closing_call(item.changed))
    for item in filter(is_open, found.of("message")):
        if item.path not in superseded and is_over(item.name, item.changed):
            text = "an answer that was never finished"
            yield Finding("stale", item.path, text, "odd", edit=_closing_answer(item.changed))


def _closing_call(changed: int) -> Callable[[Document], None]:
    def close(part: Document) -> None:
        state = as_object(part.get("state")) or {}
        start = as_whole((as_object(state.get("time")) or {}).get("start")) or changed
        failed: Document = {"status": "error", "input": as_object(state.get("input")) or {}, "error": INTERRUPTED}
        if metadata := as_object(state.get("metadata")):
            failed["metadata"] = metadata
        part["state"] = failed | {"time": {"start": start, "end": max(start, changed)}}

    return close


def _closing_answer(changed: int) -> Callable[[Document], None]:
    def close(info: Document) -> None:
        info["time"]["completed"] = max(changed, as_whole(info["time"].get("created")))
        if "finish" not in info and "error" not in info:
            info["finish"] = "unknown"

    return close
