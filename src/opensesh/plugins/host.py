"""Where a plugin runs: the one thing that hooks are told of before there are any."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Given(Struct, frozen=True, kw_only=True):
    """What a hook is told."""


class Host(Given, frozen=True, kw_only=True):
    """Where a plugin runs."""

    directory: str
    """The directory that sessions work in; absolute."""
    worktree: str
    """Where the project ends; ``/`` outside of version control."""
    project_id: str
    options: dict[str, Any] = {}
    """What the configuration says behind the plugin's name: ``"plugin": [["./it.py", {"key": "value"}]]``."""
