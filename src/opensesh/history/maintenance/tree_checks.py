"""Checks of a JSON tree: its records, and around them leases, leftover files, permissions, projects and folders."""

from __future__ import annotations

import os
import shlex
from collections import Counter, defaultdict
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ...errors import BusyError
from ...ids import now_ms
from ...project import other_ids, resolve
from ...records import Document, as_object, dumps
from ...sessions.final_states import close_answer, close_call
from ...sessions.undo import Change
from ...storage.json_tree.migrations import LAYOUT, left_behind, pending, session_names, version
from ...storage.keys import GLOBAL, PER_SESSION, is_plain
from ...storage.leases import FileLeases, is_alive
from ...storage.protocol import FileTree, Store, ignore_damage
from ...text import pluralize
from .findings import Finding
from .inventory import Inventory, InventoryItem, is_unfinished, make_valid, rebuilt_message, rebuilt_session, records_in

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping


DAY_MS = 86_400_000
_ID_PREFIXES = {"session": "ses", "message": "msg", "part": "prt"}


# -- records -----------------------------------------------------------------------------------------------------------


def check_records(
    tree: FileTree, inventory: Inventory, running: Collection[str], in_databases: Collection[str] | None
) -> Iterator[Finding]:
    """Yield everything that is wrong with records. Unfinished records of ``running`` sessions are not a fault.

    The tree also has the diffs of sessions that are ``in_databases`` beside it; ``None`` if one of them was not read.
    """
    rebuilt = _rebuilt_messages(tree, inventory)
    message_counts = Counter([*inventory.owners.values(), *(str(info["sessionID"]) for info in rebuilt.values())])
    superseded = {item.path for item, _ in inventory.superseded}
    yield from _torn(tree, inventory, rebuilt, message_counts)
    for path, reason in inventory.unreadable:
        remedy = "make it readable, then run this again: its content may be intact"
        yield Finding("torn", path, reason, "damage", remedy=remedy)
    for item, reason, can_repair in inventory.invalid:
        if item.path not in superseded:
            edit = partial(make_valid, kind=item.kind, name=item.name, changed=item.changed)
            yield Finding("torn", item.path, reason, "damage", edit=edit if can_repair else None)
    for path in inventory.foreign:
        text = "not a record, but in a folder where OpenCode reads every file as one"
        yield Finding("foreign", path, text, "odd", [Change(path=path, aside=True)])
    for item, kept in inventory.superseded:
        text = f"a second copy of {item.name}; the one at {kept.path} is kept"
        yield Finding("duplicate", item.path, text, "odd", [Change(path=item.path, aside=True)])
    yield from _orphans(tree, inventory, rebuilt, message_counts, in_databases)
    for kind in ("session", "message", "part", "project"):
        taken = _ids_in_use(tree, inventory, kind)
        for item in inventory.of(kind):
            wrong = _wrong_fields(item, inventory)
            if wrong and item.path not in superseded:
                yield _misplaced(tree, item, wrong, taken)
    yield from _stale(tree, inventory, running, superseded)


def _rebuilt_messages(tree: FileTree, inventory: Inventory) -> dict[str, Document]:
    """Rebuild the torn messages without another copy from their parts; return them by id."""
    rebuilt: dict[str, Document] = {}
    for path, _ in inventory.torn:
        match path.removesuffix(".json").split(os.sep):
            case ["message", session, name] if name not in inventory.owners and name not in rebuilt:
                parts = list(records_in(tree, os.path.join("part", name)))
                others = list(records_in(tree, os.path.join("message", session))) if parts else []
                record = rebuilt_message(session, name, parts, others)
                if record is not None:
                    rebuilt[name] = record
            case _:
                continue
    return rebuilt


def _torn(
    tree: FileTree, inventory: Inventory, rebuilt: Mapping[str, Document], message_counts: Mapping[str, int]
) -> Iterator[Finding]:
    """Move torn files aside, and rebuild sessions from their messages and messages from their parts."""
    sessions = {item.name for item in inventory.of("session")}
    for path, reason in inventory.torn:
        record = None
        match path.removesuffix(".json").split(os.sep):
            case ["session", project, name] if name in message_counts and name not in sessions:
                sessions.add(name)
                record = _rebuilt_session(tree, name, rebuilt, project)
            case ["message", session, name] if rebuilt.get(name, {}).get("sessionID") == session:
                record = rebuilt[name]
            case _:
                pass
        new = [] if record is None else [Change(path=path, data=dumps(record))]
        text = f"{reason}{'; can be rebuilt from its contents' if new else ''}"
        yield Finding("torn", path, text, "damage", [Change(path=path, aside=True), *new])


def _rebuilt_session(tree: FileTree, session: str, rebuilt: Mapping[str, Document], project: str = "") -> Document:
    own = (info for info in rebuilt.values() if info["sessionID"] == session)
    infos = [*records_in(tree, os.path.join("message", session)), *own]
    projects = tree.scan(("project",), report=ignore_damage)
    worktrees = ((key[-1], str((as_object(value) or {}).get("worktree"))) for key, value in projects)
    return rebuilt_session(session, infos, worktrees, project)


def _orphans(
    tree: FileTree,
    inventory: Inventory,
    rebuilt: Mapping[str, Document],
    message_counts: Mapping[str, int],
    in_databases: Collection[str] | None,
) -> Iterator[Finding]:
    """Yield records whose session or message is missing, unless it may be in a folder that cannot be listed."""
    unlisted = {path.split(os.sep)[0] for path, _ in inventory.unreadable if not path.endswith(".json")}
    sessions = {item.name for item in inventory.of("session")} | _future_ids(tree, inventory, "session")
    if "session" not in unlisted:
        existing = sessions | {name for _, name in inventory.damaged("session")}
        for session, count in sorted(message_counts.items()):
            if session not in existing:  # a new record makes the messages a session again
                record = _rebuilt_session(tree, session, rebuilt)
                path = os.path.join("session", str(record["projectID"]), f"{session}.json")
                change = Change(path=path, data=dumps(record))
                text = f"{pluralize(count, 'message')} of a session whose record is lost"
                yield Finding("orphan", os.path.join("message", session), text, "damage", [change])
    if "message" not in unlisted:
        existing = {name for _, name in inventory.damaged("message")} | _future_ids(tree, inventory, "message")
        for message, count in sorted(inventory.lost_parts.items()):
            if message not in existing:
                text = f"{pluralize(count, 'part')} of a message that is gone"
                yield Finding("orphan", os.path.join("part", message), text, "odd", _move_aside(tree, "part", message))
    if in_databases is not None and unlisted.isdisjoint(("session", "message")):
        unread = {os.path.basename(path).removesuffix(".json") for path, _ in inventory.unreadable}
        existing = sessions | message_counts.keys() | unread | set(in_databases)
        for item in (item for kind in PER_SESSION for item in inventory.of(kind)):
            if item.name not in existing:
                text = "belongs to a session that is gone"
                yield Finding("orphan", item.path, text, "odd", [Change(path=item.path, aside=True)])


def _future_ids(tree: FileTree, inventory: Inventory, kind: str) -> set[str]:
    """Return the ids of records whose file has another name and will be renamed."""
    by_id = {str(item.fields.get("id", "")): item for item in inventory.of(kind)}
    return {id_ for id_, item in by_id.items() if id_ != item.name and _is_true_id(tree, item, id_)}


def _move_aside(tree: FileTree, kind: str, folder: str) -> list[Change]:
    path = os.path.join(tree.root, kind, folder)
    names = sorted(os.listdir(path)) if os.path.isdir(path) else []
    return [Change(path=os.path.join(kind, folder, name), aside=True) for name in names]


def _ids_in_use(tree: FileTree, inventory: Inventory, kind: str) -> set[str]:
    """Return the ids of a kind that a record with another file name claims, although another record has them."""
    strays = [item for item in inventory.of(kind) if item.fields.get("id") != item.name]
    paths = {item.path for item in strays}
    sessions = {item.name for item in inventory.of("session") if kind == "session" and item.path not in paths}
    in_use: set[str] = set()
    for item in strays:
        id_ = str(item.fields.get("id", ""))
        folders = {item.folder} | (
            {inventory.owners[id_]} if kind == "message" and id_ in inventory.owners else set[str]()
        )
        others = {os.path.join(kind, folder, f"{id_}.json") for folder in folders} - paths
        exists = is_plain(id_) and any(os.path.exists(os.path.join(tree.root, path)) for path in others)
        if id_ in sessions or exists:
            in_use.add(id_)
    return in_use


def _wrong_fields(item: InventoryItem, inventory: Inventory) -> dict[str, str]:
    """Return the fields that contradict the path of a record, with their right values: the path counts."""
    expected = {"id": item.name}
    match item.kind:
        case "session":
            expected["projectID"] = item.folder
        case "message":
            expected["sessionID"] = item.folder
        case "part":
            session = inventory.session_of(item.folder)
            expected |= {"messageID": item.folder} | ({"sessionID": session} if session else {})
        case _:
            pass
    return {
        name: value
        for name, value in expected.items()
        # The oldest trees have sessions without a project.
        if item.fields.get(name) != value and not (name == "projectID" and name not in item.fields)
    }


def _misplaced(tree: FileTree, item: InventoryItem, wrong: dict[str, str], in_use: set[str]) -> Finding:
    """Correct the fields of a record, or rename its file; a copy of another record is moved aside.

    The id that a renamed record gets is added to ``in_use``.
    """
    id_ = str(item.fields.get("id", ""))
    new_path = os.path.join(os.path.dirname(item.path), f"{id_}.json")
    if "id" in wrong and id_ in in_use:
        text = f"a copy of {id_} under another name"
        parts = _move_aside(tree, "part", item.name)
        return Finding("misplaced", item.path, text, "odd", [Change(path=item.path, aside=True), *parts])
    renamed = "id" in wrong and _is_true_id(tree, item, id_) and not os.path.exists(os.path.join(tree.root, new_path))
    fields = {name: value for name, value in wrong.items() if not (renamed and name == "id")}
    texts = [f"its file is not named after its id, {id_}"] if renamed else []
    if missing := [name for name in fields if item.fields.get(name) is None]:
        texts.append(f"has no {' and no '.join(missing)}, which its path shows")
    if values := [f"{name} {str(item.fields[name])!r:.40}" for name in fields if name not in missing]:
        texts.append(f"contains {', '.join(values)}, which does not match its path")
    if renamed:
        in_use.add(id_)

    changes = [Change(path=item.path, to=new_path)] if renamed else []
    edit: Callable[[Document], None] | None = (lambda record: record.update(fields)) if fields else None
    return Finding("misplaced", item.path, "; ".join(texts), "odd", changes, edit=edit)


def _is_true_id(tree: FileTree, item: InventoryItem, id_: str) -> bool:
    """Return whether other records know a record by the id it contains: then its file has the wrong name."""
    prefix = _ID_PREFIXES.get(item.kind)
    if prefix is None or not id_.startswith(prefix) or not is_plain(id_):
        return False
    below = {"session": "message", "message": "part"}.get(item.kind)
    if below is None:
        return not item.name.startswith(prefix)
    by_id, by_name = (os.path.isdir(os.path.join(tree.root, below, name)) for name in (id_, item.name))
    return by_id and not by_name


def _stale(tree: FileTree, inventory: Inventory, running: Collection[str], superseded: set[str]) -> Iterator[Finding]:
    """Yield tool calls and answers that will never be finished: a later message exists, or a day has passed."""
    now = now_ms()

    def is_over(message: str, changed: int) -> bool:
        session = inventory.owners.get(message, "")
        over = message not in inventory.last.get(session, (0, []))[1] or now - changed > DAY_MS
        return bool(session) and session not in running and over

    for item in filter(is_unfinished, inventory.of("part")):
        if is_over(item.folder, item.changed):
            text = f"a tool call that stays {item.fields['status']} forever"
            yield Finding("stale", item.path, text, "odd", edit=partial(close_call, moment=item.changed))
    for item in filter(is_unfinished, inventory.of("message")):
        if item.path not in superseded and is_over(item.name, item.changed):
            edit = partial(_close_answer, tree, item)
            yield Finding("stale", item.path, "an answer that was never finished", "odd", edit=edit)


def _close_answer(tree: FileTree, item: InventoryItem, info: Document) -> None:
    close_answer(info, list(records_in(tree, os.path.join("part", item.name))), item.changed)


# -- surroundings ------------------------------------------------------------------------------------------------------


def check_leases(leases: FileLeases) -> Iterator[Finding]:
    """Yield the leases of processes that have ended."""
    for session, holder in leases.abandoned():

        def release(session: str = session) -> None:
            with suppress(BusyError):  # another process has taken it over
                leases.acquire(session, "opensesh doctor").release()

        text = f"the lease of {session} was never released by {holder.owner} (pid {holder.pid}), which has ended"
        yield Finding("lease", os.path.join(leases.folder, session), text, "odd", act=release)


def check_surroundings(tree: FileTree, inventory: Inventory) -> Iterator[Finding]:
    """Yield everything that is wrong around the records of a tree."""
    yield from check_leases(FileLeases.of(tree))
    for path, process in inventory.leftovers:
        if not is_alive(process):
            text = f"a temporary file of a process that has ended (pid {process})"
            yield Finding("leftover", path, text, "odd", [Change(path=path, aside=True)])
    yield from _permissions(inventory)
    yield from _projects(inventory)


def check_layout(tree: FileTree) -> Iterator[Finding]:
    """Yield a finding if the tree has an older layout, or a newer one."""
    if version(tree) > LAYOUT:
        text = f"layout {version(tree)}: written by a newer OpenCode, and only read; this version supports {LAYOUT}"
        yield Finding("migration", tree.root, text, "odd", remedy="install a newer opensesh to write to it")
    elif pending(tree):
        text = f"layout {version(tree)} of {LAYOUT}: written by an older OpenCode and never migrated"
        yield Finding("migration", tree.root, text, "odd", remedy="opensesh doctor --migrate migrates it")
    elif version(tree):
        for source in left_behind(tree):
            sessions = pluralize(len(session_names(source)), "session")
            text = f"{sessions} of OpenCode before 0.6 not in the tree: left out when it was migrated, or removed since"
            yield Finding("migration", source, text, "note", remedy="opensesh doctor --migrate adds them")


def _permissions(inventory: Inventory) -> Iterator[Finding]:
    # Only the owner of a file, or root, can change its mode.
    immutable = frozenset(inventory.other_owners if os.name != "nt" and os.geteuid() != 0 else ())
    for path, mode, is_folder in inventory.modes:
        needed = 0o700 if is_folder else 0o600
        problem = "every user may write to it" if mode & 0o002 else "its owner may not read or write it"
        changes = [] if path in immutable else [Change(path=path, mode=(mode | needed) & ~0o002)]
        yield Finding("permissions", path or inventory.root, f"{problem} ({mode:04o})", "odd", changes)
    counts = Counter(os.path.dirname(path) or path for path in inventory.other_owners)
    for folder, count in sorted(counts.items()):
        remedy = f"chown it: sudo chown -R $USER {os.path.join(inventory.root, folder)}"
        text = f"{pluralize(count, 'file')} of another user"
        yield Finding("permissions", folder or inventory.root, text, "odd", remedy=remedy)


def _projects(inventory: Inventory) -> Iterator[Finding]:
    """Yield sessions that are stored under a project id which their repository no longer has."""
    sessions = Counter(item.folder for item in inventory.of("session"))
    worktrees: defaultdict[str, set[str]] = defaultdict(set)
    for item in inventory.of("project"):
        worktree = item.fields.get("worktree")
        if isinstance(worktree, str) and worktree != "/" and item.name != GLOBAL:
            worktrees[worktree].add(item.name)
    for worktree, ids in sorted(worktrees.items()):
        location = resolve(worktree) if os.path.isdir(worktree) else None
        if location is None or location.id == GLOBAL:
            continue
        for old in sorted((ids | (set(other_ids(location)) & sessions.keys())) - {location.id}):
            if sessions[old]:
                count = pluralize(sessions[old], "session")
                text = f"stored under {old}, which is now {location.id}: {count} of {worktree}"
                remedy = "opensesh finds them under both ids; 'opensesh session move' stores them under the new one"
                yield Finding("project", os.path.join("session", old), text, "note", remedy=remedy)


def check_folders(store: Store) -> Iterator[Finding]:
    """Yield the folders of sessions that do not exist any more."""
    folders: dict[str, set[str]] = {}
    for key, record in store.scan(("session",), report=ignore_damage):
        directory = (as_object(record) or {}).get("directory")
        if isinstance(directory, str) and directory:
            folders.setdefault(directory, set()).add(key[-1])  # a set, because a session may have two copies
    for folder, sessions in sorted(folders.items()):
        if not os.path.isdir(folder):
            remedy = f"opensesh session move --from {shlex.quote(folder)} NEW changes it to where it is now"
            text = f"the folder of {pluralize(len(sessions), 'session')} does not exist any more"
            yield Finding("folder", folder, text, "note", remedy=remedy)
