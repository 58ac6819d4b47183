"""Which stores are at a place, judged by names alone: nothing is opened, and little is imported."""

from __future__ import annotations

import os
import re

from ..errors import StoreError
from ..flags import Flags
from . import paths
from .user_settings import user_setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_TREE_FOLDERS = ("session", "message", "part", "migration")
_CHANNEL_DATABASE = r"opencode(-[A-Za-z0-9._-]+)\.db"
_COPY = r"(?i)[-._](backup|bak|copy|old|orig|save|saved|tmp)([-._]|\d|$)"


class StoreLocations:
    """The paths of the stores at a place."""

    __slots__ = ("databases", "place", "tree")

    def __init__(self, place: str, tree: str | None, databases: tuple[str, ...]) -> None:
        self.place = place
        """Absolute."""
        self.tree = tree
        """The root of the JSON tree; it need not exist yet. ``None`` if the place is a database."""
        self.databases = databases


def find_stores(place: str | None = None) -> StoreLocations:
    """Find the stores at ``place``: a storage folder, an OpenCode data folder, or a database file.

    A data folder (the default is OpenCode's own) has the JSON tree and every database that is in it.
    """
    place = place or default_place()
    if "://" in place:
        raise StoreError(f"{place} is not a path", place=place)
    place = os.path.abspath(os.path.expanduser(place))
    if os.path.isfile(place):
        return StoreLocations(place, None, (place,))
    if _is_tree(place):
        return StoreLocations(place, place, ())
    return StoreLocations(place, os.path.join(place, "storage"), tuple(databases(place)))


def old_projects(folder: str) -> list[str]:
    """Return the trees of OpenCode before 0.6 in a data folder: it had one a project."""
    parent = os.path.join(folder, "project")
    try:
        names = sorted(os.listdir(parent))
    except OSError:
        return []
    return [path for name in names if os.path.isdir(path := os.path.join(parent, name, "storage", "session"))]


def _is_tree(place: str) -> bool:
    """Return whether a folder is a JSON tree, and not a data folder, in which OpenCode before 0.6 left ``project``.

    An empty or missing folder is one if it is named like that of OpenCode.
    """
    if os.path.isdir(os.path.join(place, "storage")) or databases(place) or old_projects(place):
        return False
    try:
        has_projects = any(name.endswith(".json") for name in os.listdir(os.path.join(place, "project")))
    except OSError:
        has_projects = False
    is_tree = has_projects or any(os.path.exists(os.path.join(place, name)) for name in _TREE_FOLDERS)
    return is_tree or os.path.basename(place) == "storage"


def default_place() -> str:
    """Return the place that is used if none is named: the user's setting, or OpenCode's data folder."""
    return user_setting("store") or paths.data()


def databases(folder: str | os.PathLike[str], environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return OpenCode's databases in a data folder: the released program's first, then those of other channels.

    ``OPENCODE_DB`` names the one to use instead, as it does for OpenCode. Copies that users make are left out.
    """
    named = Flags(environment).text("DB")
    if named and named != ":memory:":
        path = os.path.join(folder, named)
        return [path] if os.path.isfile(path) else []
    try:
        names = [name for name in os.listdir(folder) if name.startswith("opencode") and name.endswith(".db")]
    except OSError:
        return []
    names.sort(key=lambda name: (name != "opencode.db", name))
    channels = (re.fullmatch(_CHANNEL_DATABASE, name) for name in names)
    of_a_channel = {match[0] for match in channels if match is not None and not re.search(_COPY, match[1])}
    chosen = [name for name in names if name == "opencode.db" or name in of_a_channel]
    return [path for name in chosen if os.path.isfile(path := os.path.join(folder, name))]
