"""Records that cannot be read, belong to nothing, are there twice, or are filed where they do not belong."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from ...ids import now_ms
from ...records import Document, as_object, dumps
from ...storage.keys import is_plain
from .findings import Finding
from .rebuilding import rebuilt_message, rebuilt_session
from .undo import Change

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...storage.json_tree import JsonTree
    from .inventory import Inventory, Item

_DAY_MS = 86_400_000
INTERRUPTED = "Tool execution was interrupted: the program ended while it ran"
_PREFIX = {"session": "ses", "message": "msg", "part": "prt"}


def check_records(tree: JsonTree, found: Inventory, running: frozenset[str]) -> Iterator[Finding]:
    """Everything that is wrong with single records. Sessions in ``running`` are at work, and unfinished by right."""
    yield from _torn(tree, found)
    yield from _foreign(found)
    yield from _duplicates(found)
    yield from _orphans(tree, found)
    yield from _misplaced(tree, found)
    yield from _stale(found, running)


def _torn(tree: JsonTree, found: Inventory) -> Iterator[Finding]:
    """What cannot be read is put aside; a session or message is made again from what it holds."""
    for path, reason in found.torn:
        if not path.endswith(".json"):
            yield Finding("torn", path, reason, "damage")
            continue
        record = _made_again(tree, found, path)
        again = [] if record is None else [Change(path=path, data=dumps(record))]
        text = f"{reason}{'; made again from what it held' if again else ''}"
        yield Finding("torn", path, text, "damage", [Change(path=path, aside=True), *again])


def _made_again(tree: JsonTree, found: Inventory, path: str) -> Document | None:
    match path.removesuffix(".json").split(os.sep):
        case ["session", project, name] if name in set(found.owners.values()):
            others = {item.name for item in found.of("session")}
            return None if name in others else rebuilt_session(tree, name, project)
        case ["message", session, name] if name not in found.owners:
            return rebuilt_message(tree, session, name)
        case _:
            return None


def _foreign(found: Inventory) -> Iterator[Finding]:
    for path in found.foreign:
        text = "not a record, but where OpenCode takes every file for one"
        yield Finding("foreign", path, text, "odd", [Change(path=path, aside=True)])


def _duplicates(found: Inventory) -> Iterator[Finding]:
    for item, kept in _superseded(found):
        text = f"a second copy of {item.name}; the one at {kept.path} is kept"
        yield Finding("duplicate", item.path, text, "odd", [Change(path=item.path, aside=True)])


def _superseded(found: Inventory) -> Iterator[tuple[Item, Item]]:
    """Records of one name in several places, each with the one that counts: a session's newest, a message where it says
    it belongs."""
    for kind in ("session", "message"):
        copies: defaultdict[str, list[Item]] = defaultdict(list)
        for item in found.of(kind):
            copies[item.name].append(item)
        for items in copies.values():
            if len(items) > 1:
                kept = max(items, key=_newest if kind == "session" else _at_home)
                yield from ((item, kept) for item in items if item is not kept)


def _newest(item: Item) -> tuple[int, ...]:
    time = as_object(item.says.get("time")) or {}
    return _number(time.get("updated")), _number(time.get("created"))


def _at_home(item: Item) -> tuple[int, ...]:
    return (int(item.says.get("sessionID") == item.folder),)


def _orphans(tree: JsonTree, found: Inventory) -> Iterator[Finding]:
    torn = {os.path.basename(path).removesuffix(".json") for path, _ in found.torn}
    known = torn | found.owners.keys() | _true_names(tree, found, "message")
    sessions = {item.name for item in found.of("session")} | _true_names(tree, found, "session")
    messages: Counter[str] = Counter(found.owners.values())
    seen = sessions | torn
    for session, count in sorted(messages.items()):
        if session not in seen:
            yield _without_session(tree, session, count)
    for message, count in sorted(found.parts.items()):
        if message not in known:
            text = f"{count:,} {'part' if count == 1 else 'parts'} of a message that is gone"
            yield Finding("orphan", os.path.join("part", message), text, "odd", _aside(tree, "part", message))
    for kind in ("session_diff", "todo", "session_share", "share"):
        for item in found.of(kind):
            if item.name not in sessions and item.name not in messages:
                text = "left behind by a session that is gone"
                yield Finding("orphan", item.path, text, "odd", [Change(path=item.path, aside=True)])


def _true_names(tree: JsonTree, found: Inventory, kind: str) -> set[str]:
    """What records will be called that are filed under another name than their own."""
    called = {str(item.says.get("id", "")): item for item in found.of(kind)}
    return {own for own, item in called.items() if own != item.name and _is_its_name(tree, item, own)}


def _without_session(tree: JsonTree, session: str, count: int) -> Finding:
    """Messages without a session are what is left when its record is lost: a new record makes them a session again."""
    record = rebuilt_session(tree, session)
    place = os.path.join("session", str(record["projectID"]), f"{session}.json")
    text = f"{count} messages of a session whose record is lost"
    return Finding("orphan", os.path.join("message", session), text, "damage", [Change(path=place, data=dumps(record))])


def _aside(tree: JsonTree, kind: str, folder: str) -> list[Change]:
    names = sorted(os.listdir(os.path.join(tree.root, kind, folder)))
    return [Change(path=os.path.join(kind, folder, name), aside=True) for name in names]


def _misplaced(tree: JsonTree, found: Inventory) -> Iterator[Finding]:
    """Where a record is filed is what counts; what it says of itself is brought in line with that."""
    superseded = {item.path for item, _ in _superseded(found)}
    for kind in ("session", "message", "part", "project"):
        for item in found.of(kind):
            wrong = {name: right for name, right in _expected(item, found).items() if _differs(item, name, right)}
            if wrong and item.path not in superseded:
                yield _brought_in_line(tree, item, wrong)


def _expected(item: Item, found: Inventory) -> dict[str, str]:
    match item.kind:
        case "session":
            return {"id": item.name, "projectID": item.folder}
        case "message":
            return {"id": item.name, "sessionID": item.folder}
        case "part":
            session = found.owners.get(item.folder)
            return {"id": item.name, "messageID": item.folder} | ({"sessionID": session} if session else {})
        case _:
            return {"id": item.name}


def _differs(item: Item, name: str, right: str) -> bool:
    # The oldest trees have sessions that do not say which project they belong to.
    return item.says.get(name) != right and not (name == "projectID" and name not in item.says)


def _brought_in_line(tree: JsonTree, item: Item, wrong: dict[str, str]) -> Finding:
    own = str(item.says.get("id", ""))
    place = os.path.join(os.path.dirname(item.path), f"{own}.json")
    if "id" in wrong and is_plain(own) and os.path.exists(os.path.join(tree.root, place)):
        text = f"a copy of {own} under another name"
        parts = _aside(tree, "part", item.name) if _has_folder(tree, "part", item.name) else []
        return Finding("misplaced", item.path, text, "odd", [Change(path=item.path, aside=True), *parts])
    if "id" in wrong and _is_its_name(tree, item, own):
        text = f"filed under another name than its own, {own}"
        return Finding("misplaced", item.path, text, "odd", [Change(path=item.path, to=place)])
    said = ", ".join(f"{name} {str(item.says.get(name))!r:.40}" for name in wrong)
    text = f"says {said}, which is not where it is filed"

    def correct(record: Document) -> None:
        record.update(wrong)

    return Finding("misplaced", item.path, text, "odd", edit=correct)


def _is_its_name(tree: JsonTree, item: Item, own: str) -> bool:
    """Whether what a record calls itself is what others know it by: then it is the file that has the wrong name."""
    prefix = _PREFIX.get(item.kind)
    if prefix is None or not own.startswith(prefix) or not is_plain(own):
        return False
    below = {"session": "message", "message": "part"}.get(item.kind)
    if below is None:
        return not item.name.startswith(prefix)
    return _has_folder(tree, below, own) and not _has_folder(tree, below, item.name)


def _has_folder(tree: JsonTree, kind: str, name: str) -> bool:
    return os.path.isdir(os.path.join(tree.root, kind, name))


def _stale(found: Inventory, running: frozenset[str]) -> Iterator[Finding]:
    """Calls and answers that nobody will ever finish: a later message is there, or a day has passed."""
    made = {item.name: _number((as_object(item.says.get("time")) or {}).get("created")) for item in found.of("message")}
    latest: dict[str, int] = {}
    for name, moment in made.items():
        latest[found.owners[name]] = max(latest.get(found.owners[name], 0), moment)
    now = now_ms()

    def is_over(message: str, changed: int) -> bool:
        session = found.owners.get(message, "")
        over = made.get(message, 0) < latest.get(session, 0) or now - changed > _DAY_MS
        return bool(session) and session not in running and over

    for item in found.of("part"):
        if item.says.get("status") in ("pending", "running") and is_over(item.folder, item.changed):
            text = f"a tool call that is {item.says['status']} for ever"
            yield Finding("stale", item.path, text, "odd", edit=_closing_call(item.changed))
    for item in found.of("message"):
        time = as_object(item.says.get("time")) or {}
        open_ = item.says.get("role") == "assistant" and "created" in time and "completed" not in time
        if open_ and is_over(item.name, item.changed):
            text = "an answer that was never finished"
            yield Finding("stale", item.path, text, "odd", edit=_closing_answer(item.changed))


def _closing_call(changed: int) -> Callable[[Document], None]:
    def close(part: Document) -> None:
        state = as_object(part.get("state")) or {}
        start = _number((as_object(state.get("time")) or {}).get("start")) or changed
        failed: Document = {"status": "error", "input": as_object(state.get("input")) or {}, "error": INTERRUPTED}
        if metadata := as_object(state.get("metadata")):
            failed["metadata"] = metadata
        part["state"] = failed | {"time": {"start": start, "end": max(start, changed)}}

    return close


def _closing_answer(changed: int) -> Callable[[Document], None]:
    def close(info: Document) -> None:
        info["time"]["completed"] = max(changed, _number(info["time"].get("created")))
        if "finish" not in info and "error" not in info:
            info["finish"] = "unknown"

    return close


def _number(value: Any) -> int:
    return int(value) if isinstance(value, (int, float)) else 0
