"""Which stores are at a place, judged by names alone: nothing is opened, and little is imported.

The default place is a setting of the user. Settings of opensesh itself, for which OpenCode's configuration has no key,
are in ``opensesh/settings.json`` in the user's configuration folder, never in a project: a cloned project must not
decide where sessions are stored or which server is sent requests. An environment variable takes precedence.
"""

from __future__ import annotations

import os
import re

from ..errors import StoreError
from ..flags import Flags
from . import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

_TREE_FOLDERS = ("session", "message", "part", "migration")
_CHANNEL_DATABASE = r"opencode(-[A-Za-z0-9._-]+)\.db"
_COPY = r"(?i)[-._](backup|bak|copy|old|orig|save|saved|tmp)([-._]|\d|$)"

SETTINGS = {"store": "OPENSESH_STORE", "opencodeServer": "OPENSESH_OPENCODE_SERVER"}
"""The settings, and the environment variables that take precedence over them."""


class StoreLocations:
    """The paths of the stores at a path."""

    __slots__ = ("databases", "path", "tree")

    def __init__(self, path: str, tree: str | None, databases: tuple[str, ...]) -> None:
        self.path = path
        """The folder or database that was named, absolute."""
        self.tree = tree
        """The root of the JSON tree; it need not exist yet. ``None`` if the path is that of a database."""
        self.databases = databases


def find_stores(path: str | None = None) -> StoreLocations:
    """Find the stores at ``path``: a storage folder, an OpenCode data folder, or a database file.

    A data folder (the default is OpenCode's own) has the JSON tree and every database that is in it.
    """
    path = path or default_place()
    if "://" in path:
        raise StoreError(f"{path} is not a path", place=path)
    path = os.path.abspath(os.path.expanduser(path))
    if os.path.isfile(path):
        return StoreLocations(path, None, (path,))
    if _is_tree(path):
        return StoreLocations(path, path, ())
    return StoreLocations(path, os.path.join(path, "storage"), tuple(databases(path)))


def old_projects(folder: str) -> list[str]:
    """Return the trees of OpenCode before 0.6 in a data folder: it had one a project."""
    parent = os.path.join(folder, "project")
    try:
        names = sorted(os.listdir(parent))
    except OSError:
        return []
    return [path for name in names if os.path.isdir(path := os.path.join(parent, name, "storage", "session"))]


def _is_tree(folder: str) -> bool:
    """Return whether a folder is a JSON tree, and not a data folder, in which OpenCode before 0.6 left ``project``.

    An empty or missing folder is one if it is named like that of OpenCode.
    """
    if os.path.isdir(os.path.join(folder, "storage")) or databases(folder) or old_projects(folder):
        return False
    try:
        has_projects = any(name.endswith(".json") for name in os.listdir(os.path.join(folder, "project")))
    except OSError:
        has_projects = False
    is_tree = has_projects or any(os.path.exists(os.path.join(folder, name)) for name in _TREE_FOLDERS)
    return is_tree or os.path.basename(folder) == "storage"


def default_place() -> str:
    """Return the place that is used if none is named: the user's setting, or OpenCode's data folder."""
    return user_setting("store") or paths.data()


def databases(folder: str | os.PathLike[str], environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return OpenCode's databases in a data folder: the released program's first, then those of other channels.

    In OpenCode's own data folder, ``OPENCODE_DB`` names the one to use instead, as it does for OpenCode; a backup that
    is named with ``--store`` has its own. Copies that users make are left out.
    """
    named = Flags(environment).text("DB")
    if named and named != ":memory:" and os.path.realpath(folder) == os.path.realpath(paths.data()):
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


def user_setting(name: str) -> str:
    """Return a setting of the user; empty if it is not set."""
    return os.environ.get(SETTINGS[name]) or _stored().get(name, "")


def settings_file() -> str:
    """Return the path of the file, which need not exist."""
    return os.path.join(paths.xdg("config", "opensesh"), "settings.json")


def _stored() -> dict[str, str]:
    path = settings_file()
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError:
        return {}
    import json  # at start-up, only for those who have the file

    try:
        settings: dict[str, Any] = dict(json.loads(content))
    except (TypeError, ValueError) as error:
        raise StoreError(f"{path}: not an object in JSON ({error})", path=path) from None
    texts: dict[str, str] = {}
    for name, value in settings.items():
        if name not in SETTINGS:
            raise StoreError(f"{path}: unknown setting {name}; known are {', '.join(sorted(SETTINGS))}", path=path)
        if not isinstance(value, str):
            raise StoreError(f"{path}: {name} must be a text", path=path)
        texts[name] = value
    return texts


def is_users_own(store_ids: Iterable[str]) -> bool:
    """Return whether a store with these ids is in the user's data folder, or a database that is used as if it were.

    Another one may come from another person.
    """
    folder = os.path.join(os.path.realpath(paths.data()), "")
    linked = {os.path.realpath(path) for path in databases(paths.data())}
    return all(os.path.join(store_id, "").startswith(folder) or store_id in linked for store_id in store_ids)
