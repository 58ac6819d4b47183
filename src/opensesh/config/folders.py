"""The folders that configuration is looked for in, for a given home and environment."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from msgspec import Struct

from ..storage import paths

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..flags import Flags


class Folders(Struct, frozen=True):
    """OpenCode's folders, but for the cache. They follow XDG on every platform."""

    home: str
    config: str
    data: str
    cache: str
    """Ours, for what can be fetched again."""
    managed: str
    """What the administrator decided."""

    @property
    def tool_output(self) -> str:
        """Tool outputs that were too long for the request, as a pattern."""
        return os.path.join(self.data, "tool-output", "*")

    @property
    def plans(self) -> str:
        """Where plans are kept for folders outside of version control."""
        return os.path.join(self.data, "plans")

    def expand(self, path: str) -> str:
        """``path`` with a leading ``~/`` replaced by the home folder."""
        return os.path.join(self.home, path[2:]) if path.startswith("~/") else path

    def resolve(self, path: str, base: str) -> str:
        """``path`` as an absolute one: from home if it begins with ``~/``, else from ``base``."""
        return os.path.normpath(os.path.join(base, self.expand(path)))


def folders(flags: Flags, home: str | os.PathLike[str] | None = None) -> Folders:
    """Where things are; ``home`` and the environment decide."""
    base = os.fspath(home) if home else flags.test_home or paths.home()

    return Folders(
        home=base,
        config=paths.xdg("config", "opencode", flags.environ, base),
        data=paths.xdg("data", "opencode", flags.environ, base),
        cache=paths.xdg("cache", "opensesh", flags.environ, base),
        managed=flags.test_managed_config_dir or _managed(flags),
    )


def _managed(flags: Flags) -> str:
    match sys.platform:
        case "darwin":
            return "/Library/Application Support/opencode"
        case "win32":
            return os.path.join(flags.environ.get("ProgramData", r"C:\ProgramData"), "opencode")
        case _:
            return "/etc/opencode"


def upward(start: str, stop: str) -> Iterator[str]:
    """``start`` and the folders around it, the innermost first, up to and with ``stop`` (or the root)."""
    folder = start
    while True:
        yield folder
        above = os.path.dirname(folder)
        if folder in (stop, above):
            return
        folder = above
