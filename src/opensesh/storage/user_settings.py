"""The user's settings of opensesh itself: what OpenCode's configuration has no key for, and would reject.

They are in ``opensesh/settings.json`` in the user's configuration folder, never in a project: a cloned project must not
decide where sessions are stored or which server is sent requests. An environment variable takes precedence.
"""

from __future__ import annotations

import os

from ..errors import StoreError
from . import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAMES = {"store": "OPENSESH_STORE", "opencodeServer": "OPENSESH_OPENCODE_SERVER"}
"""The settings, and the environment variables that take precedence over them."""


def user_setting(name: str) -> str:
    """Return a setting of the user; empty if it is not set."""
    return os.environ.get(NAMES[name]) or _stored().get(name, "")


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
        if name not in NAMES:
            raise StoreError(f"{path}: unknown setting {name}; known are {', '.join(sorted(NAMES))}", path=path)
        if not isinstance(value, str):
            raise StoreError(f"{path}: {name} must be a text", path=path)
        texts[name] = value
    return texts
