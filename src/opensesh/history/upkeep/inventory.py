"""Everything in a JSON tree, looked at once: what each file is, whether it can be read, and what it says of itself."""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from ...errors import RecordError
from ...records import Document, as_object, loads
from ...storage.json_tree import JsonTree, read_file
from ...storage.keys import is_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Step = Callable[[int], None]

_LEFTOVER = re.compile(r"\..+\.json\.(\d+)\.[0-9a-f]{8}\.tmp")
_DEEP = ("session", "message", "part")
_KINDS = ("project", *_DEEP, "session_diff", "todo", "session_share", "share")
_TOLD = ("id", "projectID", "sessionID", "messageID", "directory", "worktree", "role", "time")


class Item(NamedTuple):
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
    """What there is. Of parts, of which there are many, only those that are not as they should be are kept."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.items: dict[str, list[Item]] = {kind: [] for kind in _KINDS}
        self.parts: Counter[str] = Counter()
        """How many readable parts each message has."""
        self.owners: dict[str, str] = {}
        """The session of each readable message."""
        self.torn: list[tuple[str, str]] = []
        """Files that cannot be read, with the reason."""
        self.foreign: list[str] = []
        """Files that are not named like a record, in places where OpenCode takes every file for one."""
        self.leftovers: list[tuple[str, int]] = []
        """Temporary files of ours, with the process that made them."""
        self.modes: list[tuple[str, int, bool]] = []
        """What has strange permissions: path, mode, and whether it is a folder."""
        self.strangers: list[str] = []
        """What belongs to another user."""
        self.files = 0

    def of(self, kind: str) -> list[Item]:
        """The readable records of a kind."""
        return self.items[kind]


def take_inventory(tree: JsonTree, step: Step) -> Inventory:
    """Read every record of a tree once. ``step`` hears how many it has been."""
    found = Inventory(tree.root)
    _look_at(found, tree.root, "", is_folder=True)
    for kind in _KINDS:
        for folder, entry in _entries(found, kind):
            path = os.path.join(kind, folder, entry.name) if folder else os.path.join(kind, entry.name)
            if _is_record(found, path, entry.name):
                _read(found, Item(path, kind, folder, entry.name[:-5], 0, {}))
            found.files += 1
            if found.files % 1000 == 0:
                step(found.files)
    return found


def _entries(found: Inventory, kind: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    for entry in _scan(found, kind):
        if not entry.is_dir(follow_symlinks=False):
            if kind not in _DEEP:
                yield "", entry
        elif kind in _DEEP and entry.name[0] != ".":
            _look_at(found, entry.path, os.path.join(kind, entry.name), is_folder=True)
            for each in _scan(found, os.path.join(kind, entry.name)):
                if not each.is_dir(follow_symlinks=False):
                    yield entry.name, each


def _scan(found: Inventory, folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(os.path.join(found.root, folder)) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        found.torn.append((folder, f"cannot be listed: {error.strerror or error}"))
        return []


def _is_record(found: Inventory, path: str, name: str) -> bool:
    if leftover := _LEFTOVER.fullmatch(name):
        found.leftovers.append((path, int(leftover[1])))
    elif name[0] != "." and not (name.endswith(".json") and is_plain(name[:-5])):
        found.foreign.append(path)
    else:
        return name[0] != "."
    return False


def _read(found: Inventory, item: Item) -> None:
    path = os.path.join(found.root, item.path)
    changed = _look_at(found, path, item.path, is_folder=False)
    try:
        document = loads(read_file(path), path)
    except FileNotFoundError:
        return
    except OSError as error:
        found.torn.append((item.path, f"cannot be read: {error.strerror or error}"))
        return
    except RecordError as error:
        found.torn.append((item.path, f"{error.reason}{f' ({error.place})' if error.place else ''}"))
        return
    held = as_object(document)
    if held is None and item.kind in ("project", *_DEEP):
        found.torn.append((item.path, "not an object"))
        return
    _keep(found, item._replace(changed=changed, says=_told(held or {}, item.kind)))


def _told(document: Document, kind: str) -> Document:
    if kind == "part":
        state = as_object(document.get("state")) or {}
        return {name: document.get(name) for name in ("id", "sessionID", "messageID")} | {"status": state.get("status")}
    return {name: document[name] for name in _TOLD if name in document}


def _keep(found: Inventory, item: Item) -> None:
    if item.kind == "message":
        found.owners[item.name] = item.folder
    if item.kind == "part":
        found.parts[item.folder] += 1
        told = (item.says["id"], item.says["messageID"], item.says["sessionID"])
        filed = (item.name, item.folder, found.owners.get(item.folder, item.says["sessionID"]))
        if told == filed and item.says["status"] not in ("pending", "running"):
            return
    found.items[item.kind].append(item)


def _look_at(found: Inventory, path: str, place: str, *, is_folder: bool) -> int:
    try:
        seen = os.stat(path, follow_symlinks=False)
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
