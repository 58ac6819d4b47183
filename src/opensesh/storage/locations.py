"""Which stores are at a place, told by names alone: nothing is opened, and little is imported."""

from __future__ import annotations

import os

from ..errors import StoreError
from ..flags import Flags
from . import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_TREE_FOLDERS = ("project", "session", "message", "part", "migration")
_DATABASE = r"opencode(-[A-Za-z0-9._-]+)\.db"
_COPY = r"(?i)[-._](backup|bak|copy|old|orig|save|saved|tmp)([-._]|\d|$)"


class StoreLocations:
    """What is at a place."""

    __slots__ = ("databases", "place", "tree")

    def __init__(self, place: str, tree: str | None, databases: tuple[str, ...]) -> None:
        self.place = place
        """Absolute."""
        self.tree = tree
        """The root of the JSON tree; it need not exist yet. ``None`` where the place is a database."""
        self.databases = databases


def find_stores(place: str | None = None) -> StoreLocations:
    """The stores at ``place``: a storage folder, an OpenCode data folder, or a database file.

    A data folder (the default is OpenCode's own) holds the JSON tree and every database that is found in it.
    """
    place = place or os.environ.get("OPENSESH_STORE") or paths.data()
    if "://" in place:
        scheme = place.partition("://")[0]
        raise StoreError(f"there is no store for {scheme}:// addresses; give a folder or an opencode.db", place=place)
    place = os.path.abspath(os.path.expanduser(place))
    if os.path.isfile(place):
        return StoreLocations(place, None, (place,))
    if _is_tree(place):
        return StoreLocations(place, place, ())
    return StoreLocations(place, os.path.join(place, "storage"), tuple(databases(place)))


def databases(folder: str | os.PathLike[str], environment: Mapping[str, str] = os.environ) -> list[str]:
    """The databases that OpenCode keeps in its data folder: the released program's first, then those of other channels.

    ``OPENCODE_DB`` names the one to use instead, as it does for OpenCode. Copies that people make are not counted.
    """
    named = Flags(environment).text("DB")
    if named and named != ":memory:":
        path = os.path.join(folder, named)
        return [path] if os.path.isfile(path) else []
    try:
        named_so = [name for name in os.listdir(folder) if name.startswith("opencode") and name.endswith(".db")]
    except OSError:
        return []
    names = sorted(named_so, key=lambda name: (name != "opencode.db", name))
    found = [name for name in names if name == "opencode.db" or _is_of_a_channel(name)]
    return [path for name in found if os.path.isfile(path := os.path.join(folder, name))]


def _is_of_a_channel(name: str) -> bool:
    import re  # most have the released program's alone, and nobody wants to wait for this

    match = re.fullmatch(_DATABASE, name)
    return match is not None and not re.search(_COPY, match[1])


def _is_tree(place: str) -> bool:
    if os.path.isdir(os.path.join(place, "storage")):
        return False
    return any(os.path.exists(os.path.join(place, name)) for name in _TREE_FOLDERS)
