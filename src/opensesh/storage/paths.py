"""Where things are. OpenCode follows XDG on every platform, macOS and Windows included, and so do we."""

from __future__ import annotations

import os

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
    return _folder("data", "opencode")


def config() -> str:
    """OpenCode's configuration folder."""
    return _folder("config", "opencode")


def opencode_cache() -> str:
    """OpenCode's cache folder; read, never written."""
    return _folder("cache", "opencode")


def opencode_state() -> str:
    """OpenCode's state folder; read, never written."""
    return _folder("state", "opencode")


def storage() -> str:
    """The JSON tree below the data folder."""
    return os.path.join(data(), "storage")


def cache() -> str:
    """Ours: what can be made again."""
    return _folder("cache", "opensesh")


def state() -> str:
    """Ours: locks and leases, and what can be taken back: the trash, undo files, reverts. No session lies there."""
    return _folder("state", "opensesh")


def _folder(kind: str, name: str) -> str:
    variable, default = _FOLDERS[kind]
    base = os.environ.get(variable) or os.path.join(home(), *default.split("/"))
    return os.path.join(base, name)
