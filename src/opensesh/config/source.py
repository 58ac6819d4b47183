"""A text that settings are read from, and where in it each of them stands."""

from __future__ import annotations

import errno
import os
import sys
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec import Struct

from ..errors import ConfigError
from ..storage import paths

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..flags import Flags

SettingPath = tuple[str | int, ...]
"""The way to a value: names of members and positions in lists, from the outside in."""

_MOST = 1 << 24
"""Bytes that a file of configuration may have."""


class Spot(NamedTuple):
    """A place in a text, counted from 1 as editors do."""

    line: int
    column: int


class Source:
    """A file's text, or a variable's, with the offset of every value and of the key that introduces it."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        """The path of the file, the name of the variable, or a URL."""
        self.text = text
        self.values: dict[SettingPath, int] = {}
        self.keys: dict[SettingPath, int] = {}
        self.written: dict[SettingPath, str] = {}
        """What stands in the text for values that placeholders fill in."""
        self._starts: list[int] = []

    def spot(self, offset: int) -> Spot:
        """The line and column of an offset."""
        if not self._starts:
            self._starts = [0, *(at + 1 for at, letter in enumerate(self.text) if letter == "\n")]
        line = bisect_right(self._starts, offset)
        return Spot(line, offset - self._starts[line - 1] + 1)

    def where(self, path: SettingPath, *, key: bool = False) -> Spot:
        """Where the value at ``path`` stands (or its key); for one that is not there, the nearest around it."""
        offsets = self.keys if key else self.values
        for length in range(len(path), -1, -1):
            offset = offsets.get(path[:length])
            if offset is not None:
                return self.spot(offset)
        return Spot(1, 1)

    def inside(self, name: str) -> Source:
        """The same text, for whom the member ``name`` is the whole value."""
        source = Source(self.name, self.text)
        source.values = {path[1:]: at for path, at in self.values.items() if path[:1] == (name,)}
        source.keys = {path[1:]: at for path, at in self.keys.items() if path[:1] == (name,)}
        source.written = {path[1:]: text for path, text in self.written.items() if path[:1] == (name,)}
        return source

    def around(self, name: str) -> Source:
        """The same text, for whom the whole value is the member ``name``."""
        source = Source(self.name, self.text)
        source.values = {(name, *path): at for path, at in self.values.items()}
        source.keys = {(name, *path): at for path, at in self.keys.items()}
        source.written = {(name, *path): text for path, text in self.written.items()}
        return source

    def error(self, reason: str, path: SettingPath = (), *, key: bool = False) -> ConfigError:
        """What is wrong with the value at ``path``, to be raised."""
        spot = self.where(path, key=key)
        return ConfigError(reason, path=self.name, line=spot.line, column=spot.column)

    def error_at(self, offset: int, reason: str) -> ConfigError:
        """What is wrong at an offset, to be raised."""
        spot = self.spot(offset)
        return ConfigError(reason, path=self.name, line=spot.line, column=spot.column)


def read_limited(path: str) -> bytes:
    """The bytes of a file; :class:`OSError` if there are more than any configuration has. A project may hold a link
    to a device, which has no end."""
    with open(path, "rb") as file:
        found = file.read(_MOST + 1)
    if len(found) > _MOST:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return found


def read_text(path: str) -> str | None:
    """The text of a file; ``None`` if there is none, and :class:`ConfigError` if it cannot be read or is no text."""
    try:
        return read_limited(path).decode()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", path=path) from None
    except UnicodeDecodeError:
        raise ConfigError("not UTF-8 text", path=path) from None


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


class Fetch(Protocol):
    """A way to get what is behind a URL."""

    def __call__(self, url: str, /, *, timeout: float) -> bytes:
        """The body of a successful answer. Anything else (no connection, a status of 400 or more, more than
        ``timeout`` seconds) is an :class:`OSError`. It may be called from several threads at once.
        """
        ...
