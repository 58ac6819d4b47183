"""Where things are. OpenCode follows XDG on every platform, macOS and Windows included, and so do we."""

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
    """The user's home folder."""
    return os.path.expanduser("~")


def data() -> str:
    """OpenCode's data folder: sessions, snapshots, keys."""
    return xdg("data", "opencode")


def config() -> str:
    """OpenCode's configuration folder."""
    return xdg("config", "opencode")


def opencode_cache() -> str:
    """OpenCode's cache folder; read, never written."""
    return xdg("cache", "opencode")


def opencode_state() -> str:
    """OpenCode's state folder; read, never written."""
    return xdg("state", "opencode")


def storage() -> str:
    """The JSON tree below the data folder."""
    return os.path.join(data(), "storage")


def cache() -> str:
    """Ours: what can be made again."""
    return xdg("cache", "opensesh")


def state() -> str:
    """Ours: locks and leases, and what can be taken back: the trash, undo files, reverts. No session lies there."""
    return xdg("state", "opensesh")


def xdg(kind: str, name: str, environ: Mapping[str, str] | None = None, base: str | None = None) -> str:
    """The folder ``name`` for ``data``, ``config``, ``cache`` or ``state``, by an environment and a home folder; by the
    process's and the user's unless given."""
    variable, default = _FOLDERS[kind]
    place = (os.environ if environ is None else environ).get(variable)
    return os.path.join(place or os.path.join(base or home(), *default.split("/")), name)


def digest(text: str) -> str:
    """Return a short name for a store's id or a real path, to name files and folders of state that belongs to it."""
    from hashlib import blake2b

    return blake2b(text.encode(errors="surrogateescape"), digest_size=8).hexdigest()
