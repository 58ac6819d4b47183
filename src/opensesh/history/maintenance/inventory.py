"""Inventory of a JSON tree, which reads every file once for all checks; and rebuilding of lost records."""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from ... import ids
from ...errors import InvalidIDError, RecordError
from ...records import (
    AssistantMessage,
    Document,
    Project,
    Record,
    Session,
    UserMessage,
    as_object,
    as_time,
    as_whole,
    loads,
    loads_object,
    object_at,
    order,
    out_of_bounds,
    view,
)
from ...sessions.final_states import is_open_answer
from ...sessions.slugs import new_slug
from ...storage.disk import read_file
from ...storage.keys import GLOBAL, PER_SESSION, is_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ...storage.protocol import FileTree

    Step = Callable[[int], None]

_LEFTOVER = re.compile(r"\..+\.json\.(\d+)\.[0-9a-f]{8}\.tmp")
_NESTED_KINDS = ("session", "message", "part")
_KINDS = ("project", *_NESTED_KINDS, *PER_SESSION)
_KEPT_FIELDS = ("id", "projectID", "sessionID", "messageID", "directory", "worktree", "role", "time")


class InventoryItem(NamedTuple):
    """A record: its path, and the few fields that the checks need."""

    path: str
    """Relative to the root."""
    kind: str
    folder: str
    """The project of a session, the session of a message, the message of a part; empty for other kinds."""
    name: str
    changed: int
    """When the file was last changed, in milliseconds."""
    fields: Document


class Inventory:
    """The contents of a tree. Of messages and parts, which are many, only wrong and unfinished ones are kept."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.items: dict[str, list[InventoryItem]] = {kind: [] for kind in _KINDS}
        self.files: Counter[str] = Counter()
        """How many files of each kind have the name of a record."""
        self.owners: dict[str, str] = {}
        """The session of each readable message; of several copies, that of the one that counts."""
        self.superseded: list[tuple[InventoryItem, InventoryItem]] = []
        """Second copies, each with the record that counts: the newest session, the message at the right path."""
        self.last: dict[str, tuple[int, list[str]]] = {}
        """The creation time of the last readable message of each session, and the messages of that time."""
        self.lost_parts: Counter[str] = Counter()
        """How many readable parts belong to each message that is missing or cannot be read."""
        self.torn: list[tuple[str, str]] = []
        """Files that do not contain a record, with the reason."""
        self.invalid: list[tuple[InventoryItem, str, bool]] = []
        """Valid JSON that no reader accepts as a record: the reason, and whether it can be repaired."""
        self.repairable_messages: dict[str, str] = {}
        """The session of each message that is torn, or whose file has another name than its id."""
        self.unreadable: list[tuple[str, str]] = []
        """Files that cannot be read and folders that cannot be listed, with the reason."""
        self.foreign: list[str] = []
        """Files without the name of a record, in folders where OpenCode reads every file as one."""
        self.leftovers: list[tuple[str, int]] = []
        """Temporary files of opensesh, with the id of the process that created them."""
        self.modes: list[tuple[str, int, bool]] = []
        """Files and folders with unsuitable permissions: path, mode, whether it is a folder."""
        self.other_owners: list[str] = []
        """Files and folders of other users."""

    def of(self, kind: str) -> list[InventoryItem]:
        """Return the readable records of a kind; for messages and parts, see the class."""
        return self.items[kind]

    def session_of(self, message: str) -> str:
        """Return the session of a message, also of a torn or renamed one; empty if none is known."""
        return self.owners.get(message) or self.repairable_messages.get(message, "")

    def add_torn(self, item: InventoryItem, reason: str) -> None:
        """Add a file that does not contain a record."""
        self.torn.append((item.path, reason))
        if item.kind == "message":
            self.repairable_messages.setdefault(item.name, item.folder)

    def damaged(self, kind: str) -> Iterator[tuple[str, str]]:
        """Yield folder and name of each file of a kind that does not contain a record or cannot be read."""
        for path, _ in (*self.torn, *self.unreadable):
            match path.split(os.sep):
                case [first, folder, name] if first == kind:
                    yield folder, name.removesuffix(".json")
                case _:
                    continue


def take_inventory(tree: FileTree, step: Step) -> Inventory:
    """Read every record of a tree once. ``step`` is called with the number of records so far."""
    inventory = Inventory(tree.root)
    _check_mode(inventory, tree.root, "", is_folder=True)
    seen = 0
    for kind in _KINDS:
        copies: dict[str, list[InventoryItem]] = {}
        for folder, name in _entries(inventory, kind):
            path = os.path.join(kind, folder, name) if folder else os.path.join(kind, name)
            if _is_record(inventory, path, name):
                inventory.files[kind] += 1
                _read(inventory, InventoryItem(path, kind, folder, name[:-5], 0, {}), copies)
            seen += 1
            if seen % 1000 == 0:
                step(seen)
        for items in copies.values():
            if len(items) > 1:
                kept = max(items, key=_update_times if kind == "session" else has_right_path)
                inventory.superseded += [(item, kept) for item in items if item is not kept]
                if kind == "message":
                    inventory.owners[kept.name] = kept.folder
    return inventory


def _entries(inventory: Inventory, kind: str) -> Iterator[tuple[str, str]]:
    folders, names = _scan(inventory, kind)
    if kind not in _NESTED_KINDS:
        yield from (("", name) for name in names)
        return
    for folder in folders:
        if folder[0] != ".":
            path = os.path.join(kind, folder)
            _check_mode(inventory, os.path.join(inventory.root, path), path, is_folder=True)
            yield from ((folder, name) for name in _scan(inventory, path)[1])


def _scan(inventory: Inventory, folder: str) -> tuple[list[str], list[str]]:
    """Return the names of the folders and of the files in a folder."""
    names: tuple[list[str], list[str]] = ([], [])
    try:
        with os.scandir(os.path.join(inventory.root, folder)) as entries:
            for entry in entries:
                names[not entry.is_dir(follow_symlinks=False)].append(entry.name)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        inventory.unreadable.append((folder, f"cannot be listed: {error.strerror or error}"))
    return sorted(names[0]), sorted(names[1])


def _is_record(inventory: Inventory, path: str, name: str) -> bool:
    if leftover := _LEFTOVER.fullmatch(name):
        inventory.leftovers.append((path, int(leftover[1])))
    elif name[0] != "." and not (name.endswith(".json") and is_plain(name[:-5])):
        inventory.foreign.append(path)
    else:
        return name[0] != "."
    return False


def _read(inventory: Inventory, item: InventoryItem, copies: dict[str, list[InventoryItem]]) -> None:
    path = os.path.join(inventory.root, item.path)
    changed = _check_mode(inventory, path, item.path, is_folder=False)
    try:
        record = as_object(loads(read_file(path), path))
    except FileNotFoundError:
        return
    except OSError as error:
        inventory.unreadable.append((item.path, f"cannot be read: {error.strerror or error}"))
        return
    except RecordError as error:
        inventory.add_torn(item, f"{error.reason}{f' ({error.place})' if error.place else ''}")
        return
    if record is None and item.kind in ("project", *_NESTED_KINDS):
        inventory.add_torn(item, "not an object")
        return
    if record is not None and (error := validation_error(record, item.kind, item.name)):
        can_repair = make_valid(record.copy(), item.kind, item.name, changed)
        inventory.invalid.append((item._replace(changed=changed), error.detail, can_repair))
    document = record or {}
    if item.kind == "part":
        fields = {name: document.get(name) for name in ("id", "sessionID", "messageID")}
        fields["status"] = object_at(document, "state").get("status")
    else:
        fields = {name: document[name] for name in _KEPT_FIELDS if name in document}
    _add(inventory, item._replace(changed=changed, fields=fields), copies)


def _add(inventory: Inventory, item: InventoryItem, copies: dict[str, list[InventoryItem]]) -> None:
    is_correct = False
    if item.kind == "session":
        copies.setdefault(item.name, []).append(item)
    elif item.kind == "message":
        if item.name in inventory.owners:
            # If the copy that was read first was not kept, there was nothing wrong with it.
            session = inventory.owners[item.name]
            path = os.path.join("message", session, f"{item.name}.json")
            correct = InventoryItem(path, "message", session, item.name, 0, {"id": item.name, "sessionID": session})
            first = next((other for other in inventory.items["message"] if other.path == path), correct)
            copies.setdefault(item.name, [first]).append(item)
        else:
            inventory.owners[item.name] = item.folder
        if item.fields.get("id") != item.name:
            inventory.repairable_messages.setdefault(str(item.fields.get("id")), item.folder)
        created = as_whole(object_at(item.fields, "time").get("created"))
        latest, last_messages = inventory.last.setdefault(item.folder, (created, []))
        if created > latest:
            inventory.last[item.folder] = (created, [item.name])
        elif created == latest:
            last_messages.append(item.name)
        is_correct = has_right_path(item) and item.fields.get("id") == item.name and not is_unfinished(item)
    elif item.kind == "part":
        if item.folder not in inventory.owners:
            inventory.lost_parts[item.folder] += 1
        own = (item.fields["id"], item.fields["messageID"], item.fields["sessionID"])
        expected = (item.name, item.folder, inventory.session_of(item.folder) or item.fields["sessionID"])
        is_correct = own == expected and not is_unfinished(item)
    if not is_correct:
        inventory.items[item.kind].append(item)


def _update_times(item: InventoryItem) -> tuple[int, ...]:
    time = object_at(item.fields, "time")
    return as_whole(time.get("updated")), as_whole(time.get("created"))


def has_right_path(item: InventoryItem) -> bool:
    """Return whether a message is in the folder of its session."""
    return item.fields.get("sessionID") == item.folder


def is_unfinished(item: InventoryItem) -> bool:
    """Return whether a message is an unfinished answer, or a part an unfinished tool call."""
    if item.kind == "part":
        return item.fields.get("status") in ("pending", "running")
    return is_open_answer(item.fields)


def _check_mode(inventory: Inventory, path: str, relative: str, *, is_folder: bool) -> int:
    try:
        status = os.stat(path)
    except OSError:
        return 0
    if os.name != "nt":
        mode = stat.S_IMODE(status.st_mode)
        needed = 0o700 if is_folder else 0o600
        if mode & 0o002 or mode & needed != needed:
            inventory.modes.append((relative, mode, is_folder))
        if status.st_uid != os.geteuid():
            inventory.other_owners.append(relative)
    return status.st_mtime_ns // 1_000_000


# -- rebuilding --------------------------------------------------------------------------------------------------------

_ASSISTANT_PART_TYPES = {"step-start", "step-finish", "tool", "reasoning", "patch"}
_UNKNOWN = "unknown"
_VIEWS: dict[str, type[Record]] = {
    "session": Session,
    "project": Project,
    "message user": UserMessage,
    "message assistant": AssistantMessage,
}


def rebuilt_session(
    session: str, infos: Sequence[Document], worktrees: Iterable[tuple[str, str]], project: str = ""
) -> Document:
    """Return a new record for a session, from its messages; ``worktrees`` are the projects and where they are."""
    times = [moment for info in infos if (moment := as_whole(object_at(info, "time").get("created")))]
    paths = [path for info in infos if (path := as_object(info.get("path")))]
    directory = next((str(path["cwd"]) for path in paths if path.get("cwd")), "/")
    root = next((str(path["root"]) for path in paths if path.get("root")), "/")
    if not project:
        project = next((name for name, worktree in worktrees if worktree == root != "/"), GLOBAL)
    return {
        "id": session,
        "slug": new_slug(),
        "version": _UNKNOWN,
        "projectID": project,
        "directory": directory,
        "title": "Recovered session",
        "time": {"created": min(times, default=0), "updated": max(times, default=0)},
    }


def rebuilt_message(
    session: str, message: str, parts: Sequence[Document], others: Sequence[Document]
) -> Document | None:
    """Return a new record for a message, with cost and tokens from its parts; ``None`` if there are no parts.

    ``others`` are the other messages of the session.
    """
    if not parts:
        return None
    # Another answer of the session, or any message of it, has the fields that all have in common.
    similar = next((info for info in others if info.get("role") == "assistant"), others[0] if others else {})
    created = _time_of_id(message, as_whole(object_at(similar, "time").get("created")) or ids.now_ms())
    base: Document = {"id": message, "sessionID": session}
    if not any(part.get("type") in _ASSISTANT_PART_TYPES for part in parts):
        model = {"providerID": _UNKNOWN, "modelID": _UNKNOWN}
        return base | {"role": "user", "time": {"created": created}, "agent": "build", "model": model}
    steps = [part for part in parts if part.get("type") == "step-finish"]
    ended = created
    for part in parts:
        state = object_at(part, "state")
        time = object_at(state, "time") or object_at(part, "time")
        ended = max(ended, as_whole(time.get("end")))
    return base | {
        "role": "assistant",
        "time": {"created": created, "completed": ended},
        "parentID": str(similar.get("parentID") or similar.get("id") or message),
        "modelID": similar.get("modelID") or _UNKNOWN,
        "providerID": similar.get("providerID") or _UNKNOWN,
        "mode": similar.get("mode") or "build",
        "agent": similar.get("agent") or "build",
        "path": as_object(similar.get("path")) or {"cwd": "/", "root": "/"},
        "cost": sum(cost for part in steps if isinstance(cost := part.get("cost"), (int, float))),
        "tokens": next((tokens for part in reversed(steps) if (tokens := as_object(part.get("tokens")))), _NO_TOKENS),
        "finish": next((str(part["reason"]) for part in reversed(steps) if part.get("reason")), _UNKNOWN),
    }


def validation_error(record: Document, kind: str, name: str) -> RecordError | None:
    """Return why readers do not accept a record; ``None`` if they do."""
    shape = _VIEWS.get(f"{kind} {record.get('role')}" if kind == "message" else kind)
    record = record | {"id": name}
    try:
        if kind == "message":
            order.created(record)
        elif shape:
            view(record, shape)
    except RecordError as error:
        return error
    return out_of_bounds(record, shape) if shape else None


def make_valid(record: Document, kind: str, name: str, changed: int) -> bool:
    """Repair a record in place; return whether it is valid then.

    An invalid time is replaced by that of the id, or by when the file was ``changed``; other invalid fields are
    removed.
    """
    for _ in range(len(record) + 1):
        error = validation_error(record, kind, name)
        if error is None:
            return True
        field = re.split(r"[.\[]", error.place.removeprefix("$."))[0]
        if field in ("$", "time"):
            valid = {part: whole for part, value in object_at(record, "time").items() if (whole := as_time(value))}
            record["time"] = {"created": _time_of_id(name, changed)} | valid
        else:
            record.pop(field, None)
    return False


_NO_TOKENS: Document = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}


def records_in(tree: FileTree, folder: str) -> Iterator[Document]:
    """Iterate over the readable records in a folder."""
    path = os.path.join(tree.root, folder)
    for name in sorted(os.listdir(path)) if os.path.isdir(path) else ():
        if name.endswith(".json") and name[0] != ".":
            try:
                yield loads_object(read_file(os.path.join(path, name)), name)
            except (OSError, RecordError):
                continue


def _time_of_id(name: str, near: int) -> int:
    try:
        return ids.timestamp_of(name, near)
    except InvalidIDError:
        return near
