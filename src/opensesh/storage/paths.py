"""Folders. OpenCode follows XDG on every platform, including macOS and Windows, and so does opensesh."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_FOLDERS = {
    "data": ("XDG_DATA_HOME", ".local/share"),
    "config": ("XDG_CONFIG_HOME", ".config"),
    "cache": ("XDG_CACHE_HOME", ".cache"),
    "state": ("XDG_STATE_HOME", ".local/state"),
}


def home() -> str:
    """Return the user's home folder."""
    return os.path.expanduser("~")


def data() -> str:
    """Return OpenCode's data folder: sessions, snapshots, keys."""
    return xdg("data", "opencode")


def config() -> str:
    """Return OpenCode's configuration folder."""
    return xdg("config", "opencode")


def opencode_cache() -> str:
    """Return OpenCode's cache folder, which is only read."""
    return xdg("cache", "opencode")


def opencode_state() -> str:
    """Return OpenCode's state folder, which is only read."""
    return xdg("state", "opencode")


def storage() -> str:
    """Return the JSON tree below the data folder."""
    return os.path.join(data(), "storage")


def cache() -> str:
    """Return opensesh's cache folder, which can be deleted at any time."""
    return xdg("cache", "opensesh")


def state() -> str:
    """Return opensesh's state folder: locks, leases, the trash, undo files, reverts, text that is being streamed."""
    return xdg("state", "opensesh")


def xdg(kind: str, name: str, environ: Mapping[str, str] | None = None, base: str | None = None) -> str:
    """Return the folder ``name`` for ``data``, ``config``, ``cache`` or ``state``.

    ``environ`` and ``base`` replace the environment of the process and the user's home folder.
    """
    variable, default = _FOLDERS[kind]
    folder = (os.environ if environ is None else environ).get(variable)
    return os.path.join(folder or os.path.join(base or home(), *default.split("/")), name)


def digest(text: str) -> str:
    """Return a short name for a store's id or a real path, to name files and folders of state that belongs to it."""
    from hashlib import blake2b

    return blake2b(text.encode(errors="surrogateescape"), digest_size=8).hexdigest()
