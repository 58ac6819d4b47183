"""Everything in a JSON tree, looked at once: what each file is, whether it can be read, and what it says of itself."""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from ...errors import RecordError
from ...records import Document, as_object, as_whole, loads
from ...storage.disk import read_file
from ...storage.keys import PER_SESSION, is_plain
from .rebuilding import make_fit, misfit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...storage.protocol import FileTree

    Step = Callable[[int], None]

_LEFTOVER = re.compile(r"\..+\.json\.(\d+)\.[0-9a-f]{8}\.tmp")
_DEEP = ("session", "message", "part")
_KINDS = ("project", *_DEEP, *PER_SESSION)
_TOLD = ("id", "projectID", "sessionID", "messageID", "directory", "worktree", "role", "time")


class InventoryItem(NamedTuple):
    """One record: where it is filed, and the few things it says that others depend on."""

    path: str
    """Below the root."""
    kind: str
    folder: str
    """The project of a session, the session of a message, the message of a part; empty for other kinds."""
    name: str
    changed: int
    """When the file was last changed, in milliseconds."""
    says: Document


class Inventory:
    """What there is. Of messages and parts, of which there are many, only those that are not as they should be or not
    finished are kept."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.items: dict[str, list[InventoryItem]] = {kind: [] for kind in _KINDS}
        self.files: Counter[str] = Counter()
        """How many files of each kind are named like a record."""
        self.owners: dict[str, str] = {}
        """The session of each readable message; of one that is filed under several, the one that counts."""
        self.superseded: list[tuple[InventoryItem, InventoryItem]] = []
        """Records of one name in several places, each with the one that counts: a session's newest, a message where it
        says it belongs."""
        self.last: dict[str, tuple[int, list[str]]] = {}
        """When the last readable message of each session was made, and which was made then."""
        self.lost_parts: Counter[str] = Counter()
        """How many readable parts there are of each message that is not, or cannot be read."""
        self.torn: list[tuple[str, str]] = []
        """Files that hold no record, with the reason."""
        self.misfits: list[tuple[InventoryItem, str, bool]] = []
        """Records that every reader leaves out, though they are whole: the reason, and whether they can be made to
        fit."""
        self.to_be_mended: dict[str, str] = {}
        """The session of each message that is torn, or filed under another name than its own."""
        self.unreadable: list[tuple[str, str]] = []
        """Files that cannot be read and folders that cannot be listed, with the reason."""
        self.foreign: list[str] = []
        """Files that are not named like a record, in places where OpenCode takes every file for one."""
        self.leftovers: list[tuple[str, int]] = []
        """Temporary files of ours, with the process that made them."""
        self.modes: list[tuple[str, int, bool]] = []
        """What has strange permissions: path, mode, and whether it is a folder."""
        self.strangers: list[str] = []
        """What belongs to another user."""

    def of(self, kind: str) -> list[InventoryItem]:
        """The readable records of a kind; see above for messages and parts."""
        return self.items[kind]

    def session_of(self, message: str) -> str:
        """The session that a message is filed under, be it readable, torn or under another name; empty if there is no
        such message."""
        return self.owners.get(message) or self.to_be_mended.get(message, "")

    def add_torn(self, item: InventoryItem, reason: str) -> None:
        """Take note of a file that holds no record."""
        self.torn.append((item.path, reason))
        if item.kind == "message":
            self.to_be_mended.setdefault(item.name, item.folder)

    def damaged(self, kind: str) -> Iterator[tuple[str, str]]:
        """The folder and name of each file of a kind that holds no record or cannot be read."""
        for path, _ in (*self.torn, *self.unreadable):
            match path.split(os.sep):
                case [first, folder, name] if first == kind:
                    yield folder, name.removesuffix(".json")
                case _:
                    continue


def take_inventory(tree: FileTree, step: Step) -> Inventory:
    """Read every record of a tree once. ``step`` hears how many it has been."""
    found = Inventory(tree.root)
    _look_at(found, tree.root, "", is_folder=True)
    seen = 0
    for kind in _KINDS:
        copies: dict[str, list[InventoryItem]] = {}
        for folder, name in _entries(found, kind):
            path = os.path.join(kind, folder, name) if folder else os.path.join(kind, name)
            if _is_record(found, path, name):
                found.files[kind] += 1
                _read(found, InventoryItem(path, kind, folder, name[:-5], 0, {}), copies)
            seen += 1
            if seen % 1000 == 0:
                step(seen)
        _settle_copies(found, copies)
    return found


def _entries(found: Inventory, kind: str) -> Iterator[tuple[str, str]]:
    folders, names = _scan(found, kind)
    if kind not in _DEEP:
        yield from (("", name) for name in names)
        return
    for folder in folders:
        if folder[0] != ".":
            place = os.path.join(kind, folder)
            _look_at(found, os.path.join(found.root, place), place, is_folder=True)
            yield from ((folder, name) for name in _scan(found, place)[1])


def _scan(found: Inventory, folder: str) -> tuple[list[str], list[str]]:
    """The names of the folders and of the files in a folder."""
    names: tuple[list[str], list[str]] = ([], [])
    try:
        with os.scandir(os.path.join(found.root, folder)) as entries:
            for entry in entries:
                names[not entry.is_dir(follow_symlinks=False)].append(entry.name)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        found.unreadable.append((folder, f"cannot be listed: {error.strerror or error}"))
    return sorted(names[0]), sorted(names[1])


def _is_record(found: Inventory, path: str, name: str) -> bool:
    if leftover := _LEFTOVER.fullmatch(name):
        found.leftovers.append((path, int(leftover[1])))
    elif name[0] != "." and not (name.endswith(".json") and is_plain(name[:-5])):
        found.foreign.append(path)
    else:
        return name[0] != "."
    return False


def _read(found: Inventory, item: InventoryItem, copies: dict[str, list[InventoryItem]]) -> None:
    path = os.path.join(found.root, item.path)
    changed = _look_at(found, path, item.path, is_folder=False)
    try:
        document = loads(read_file(path), path)
    except FileNotFoundError:
        return
    except OSError as error:
        found.unreadable.append((item.path, f"cannot be read: {error.strerror or error}"))
        return
    except RecordError as error:
        found.add_torn(item, f"{error.reason}{f' ({error.place})' if error.place else ''}")
        return
    held = as_object(document)
    if held is None and item.kind in ("project", *_DEEP):
        found.add_torn(item, "not an object")
        return
    if held is not None and (error := misfit(held, item.kind, item.name)):
        can_fit = make_fit(held.copy(), item.kind, item.name, changed)
        found.misfits.append((item._replace(changed=changed), f"{error.place}: {error.reason}", can_fit))
    _keep(found, item._replace(changed=changed, says=_told(held or {}, item.kind)), copies)


def _told(document: Document, kind: str) -> Document:
    if kind == "part":
        state = as_object(document.get("state")) or {}
        return {name: document.get(name) for name in ("id", "sessionID", "messageID")} | {"status": state.get("status")}
    return {name: document[name] for name in _TOLD if name in document}


def _keep(found: Inventory, item: InventoryItem, copies: dict[str, list[InventoryItem]]) -> None:
    sound = False
    if item.kind == "session":
        copies.setdefault(item.name, []).append(item)
    elif item.kind == "message":
        if item.name in found.owners:
            copies.setdefault(item.name, [_first_copy(found, item.name)]).append(item)
        else:
            found.owners[item.name] = item.folder
        if item.says.get("id") != item.name:
            found.to_be_mended.setdefault(str(item.says.get("id")), item.folder)
        _note_last(found, item)
        sound = is_at_home(item) and item.says.get("id") == item.name and not is_open(item)
    elif item.kind == "part":
        if item.folder not in found.owners:
            found.lost_parts[item.folder] += 1
        told = (item.says["id"], item.says["messageID"], item.says["sessionID"])
        filed = (item.name, item.folder, found.session_of(item.folder) or item.says["sessionID"])
        sound = told == filed and not is_open(item)
    if not sound:
        found.items[item.kind].append(item)


def _first_copy(found: Inventory, name: str) -> InventoryItem:
    """The message of this name that was read first: it was kept, or there is nothing to be said of it."""
    session = found.owners[name]
    path = os.path.join("message", session, f"{name}.json")
    sound = InventoryItem(path, "message", session, name, 0, {"id": name, "sessionID": session})
    return next((item for item in found.items["message"] if item.path == path), sound)


def _note_last(found: Inventory, item: InventoryItem) -> None:
    moment = as_whole((as_object(item.says.get("time")) or {}).get("created"))
    latest, names = found.last.setdefault(item.folder, (moment, []))
    if moment > latest:
        found.last[item.folder] = (moment, [item.name])
    elif moment == latest:
        names.append(item.name)


def _settle_copies(found: Inventory, copies: dict[str, list[InventoryItem]]) -> None:
    for items in copies.values():
        if len(items) > 1:
            counts = max(items, key=_newest if items[0].kind == "session" else is_at_home)
            found.superseded += [(item, counts) for item in items if item is not counts]
            if counts.kind == "message":
                found.owners[counts.name] = counts.folder


def _newest(item: InventoryItem) -> tuple[int, ...]:
    time = as_object(item.says.get("time")) or {}
    return as_whole(time.get("updated")), as_whole(time.get("created"))


def is_at_home(item: InventoryItem) -> bool:
    """Whether a message is filed under the session it says it belongs to."""
    return item.says.get("sessionID") == item.folder


def is_open(item: InventoryItem) -> bool:
    """Whether a message is an answer, or a part a tool call, that was never finished."""
    if item.kind == "part":
        return item.says.get("status") in ("pending", "running")
    time = as_object(item.says.get("time")) or {}
    return item.says.get("role") == "assistant" and "created" in time and "completed" not in time


def _look_at(found: Inventory, path: str, place: str, *, is_folder: bool) -> int:
    try:
        seen = os.stat(path)
    except OSError:
        return 0
    if os.name != "nt":
        mode = stat.S_IMODE(seen.st_mode)
        needed = 0o700 if is_folder else 0o600
        if mode & 0o002 or mode & needed != needed:
            found.modes.append((place, mode, is_folder))
        if seen.st_uid != os.geteuid():
            found.strangers.append(place)
    return seen.st_mtime_ns // 1_000_000
