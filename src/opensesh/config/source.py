"""Sources of configuration: texts with the positions of their settings, folders, and fetching."""

from __future__ import annotations

import errno
import os
import sys
import time
from bisect import bisect_right
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from msgspec import Struct

from ..errors import ConfigError
from ..storage import paths
from ..storage.disk import Disk, read_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx2

    from ..flags import Flags

SettingPath = tuple[str | int, ...]
"""The path of a setting: names of members and positions in lists, from the outside in."""

MAX_FILE_BYTES = 1 << 24
"""The largest file that is read for a setting, and the largest text with its placeholders filled in."""
FRESH_SECONDS = 3600
"""A downloaded copy that is younger is used without asking the server."""
TIMEOUT_SECONDS = 5.0
_MAX_DOWNLOAD_BYTES = 1 << 20


class Position(NamedTuple):
    """A position in a text, counted from 1 as editors do."""

    line: int
    column: int


class Source:
    """The text of a file or variable, with the offset of every value and its key."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        """The path of the file, the name of the variable, or a URL."""
        self.text = text
        self.values: dict[SettingPath, int] = {}
        self.keys: dict[SettingPath, int] = {}
        self.written: dict[SettingPath, str] = {}
        """The text of values with placeholders, as written."""
        self._starts: list[int] = []

    def position(self, offset: int) -> Position:
        """Return the line and column of an offset."""
        if not self._starts:
            self._starts = [0, *(at + 1 for at, letter in enumerate(self.text) if letter == "\n")]
        line = bisect_right(self._starts, offset)
        return Position(line, offset - self._starts[line - 1] + 1)

    def where(self, path: SettingPath, *, key: bool = False) -> Position:
        """Return the position of the value at ``path``, or of its key; if it does not exist, of the nearest parent."""
        offsets = self.keys if key else self.values
        for length in range(len(path), -1, -1):
            offset = offsets.get(path[:length])
            if offset is not None:
                return self.position(offset)
        return Position(1, 1)

    def inside(self, name: str) -> Source:
        """Return a source for the member ``name`` of this one."""
        return self._moved(lambda path: path[1:] if path[:1] == (name,) else None)

    def around(self, name: str) -> Source:
        """Return a source in which this one is the member ``name``."""
        return self._moved(lambda path: (name, *path))

    def _moved(self, new_path: Callable[[SettingPath], SettingPath | None]) -> Source:
        source = Source(self.name, self.text)
        for old, new in ((self.values, source.values), (self.keys, source.keys), (self.written, source.written)):
            moved = ((new_path(path), value) for path, value in old.items())
            cast("dict[SettingPath, Any]", new).update((path, value) for path, value in moved if path is not None)
        return source

    def error(self, reason: str, path: SettingPath = (), *, key: bool = False) -> ConfigError:
        """Return an error about the value at ``path``."""
        position = self.where(path, key=key)
        return ConfigError(reason, path=self.name, line=position.line, column=position.column)

    def error_at(self, offset: int, reason: str) -> ConfigError:
        """Return an error about an offset."""
        position = self.position(offset)
        return ConfigError(reason, path=self.name, line=position.line, column=position.column)


def read_text(path: str, limit: int = MAX_FILE_BYTES) -> str | None:
    """Return the text of a file; ``None`` if it does not exist. Raises :class:`ConfigError` if it is not UTF-8."""
    try:
        return read_file(path, limit=limit).decode()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return None  # in a folder that cannot exist, which the record of a session may name
        raise ConfigError(f"cannot be read: {error.strerror}", path=path) from None
    except UnicodeDecodeError:
        raise ConfigError("not UTF-8 text", path=path) from None


class Folders(Struct, frozen=True):
    """OpenCode's folders, and our cache. They follow XDG on every platform."""

    home: str
    config: str
    data: str
    cache: str
    """Our cache of downloads."""
    managed: str
    """The administrator's settings."""

    @property
    def tool_output(self) -> str:
        """The pattern of files with tool outputs that were too long for a request."""
        return os.path.join(self.data, "tool-output", "*")

    @property
    def plans(self) -> str:
        """The folder of plans for directories outside of version control."""
        return os.path.join(self.data, "plans")

    def expand(self, path: str) -> str:
        """Return ``path`` with a leading ``~/`` replaced by the home folder."""
        return os.path.join(self.home, path[2:]) if path.startswith("~/") else path

    def resolve(self, path: str, base: str) -> str:
        """Return the absolute path: from home if it begins with ``~/``, otherwise from ``base``."""
        return os.path.normpath(os.path.join(base, self.expand(path)))


def folders(flags: Flags, home: str | os.PathLike[str] | None = None) -> Folders:
    """Return the folders for a home folder and environment."""
    base = os.fspath(home) if home else flags.test_home or paths.home()
    managed = {
        "darwin": "/Library/Application Support/opencode",
        "win32": os.path.join(flags.environ.get("ProgramData", r"C:\ProgramData"), "opencode"),
    }
    return Folders(
        home=base,
        config=paths.xdg("config", "opencode", flags.environ, base),
        data=paths.xdg("data", "opencode", flags.environ, base),
        cache=paths.xdg("cache", "opensesh", flags.environ, base),
        managed=flags.test_managed_config_dir or managed.get(sys.platform, "/etc/opencode"),
    )


def upward(start: str, stop: str) -> Iterator[str]:
    """Yield ``start`` and its parents, the innermost first, up to and including ``stop`` (or the root)."""
    folder = start
    while True:
        yield folder
        above = os.path.dirname(folder)
        if folder in (stop, above):
            return
        folder = above


class SharedFolder(NamedTuple):
    """A folder of the project that another user can change."""

    path: str
    reason: str
    key: str
    """The key under which trust in it is stored."""
    digest: str
    """Changes with its owner and permissions."""


class ProjectFolders(NamedTuple):
    """The folders of a project."""

    used: tuple[str, ...]
    """The innermost first."""
    shared: tuple[SharedFolder, ...]
    """The folders that other users can change and that contain something for us, trusted or not."""
    is_repository: bool = False
    """Whether all of them are one repository."""

    def root(self, path: str) -> str:
        """Return the real path of the folder that a file of the project does not lead out of, by a link or a setting:
        the repository; outside of one, the folder that the file or its ``.opencode`` is in.

        Outside of a repository, the home folder is among the folders, and not everything in it is the project's.
        """
        around = [folder for folder in self.used if path.startswith(os.path.join(folder, ""))]
        if self.is_repository and around:
            return os.path.realpath(self.used[-1])
        return os.path.realpath(max(around, key=len, default=os.path.dirname(path)))


class Fetch(Protocol):
    """A function that downloads a URL. There is none by default."""

    def __call__(self, url: str, /, *, timeout: float) -> bytes:
        """Return the body. Raises :class:`OSError` for anything else: no connection, a status of 400 or more, more than
        ``timeout`` seconds. May be called from several threads at once.
        """
        ...


class CachedFetch:
    """Downloads URLs, and keeps a copy of each that serves when the network does not. A :class:`Fetch`."""

    def __init__(self, folder: str, *, only_cached: bool = False) -> None:
        """With ``only_cached``, copies of any age are used, and nothing is downloaded."""
        self._folder = os.path.join(folder, "fetched")
        self._only_cached = only_cached

    def __call__(self, url: str, /, *, timeout: float) -> bytes:
        """Return the body of ``url``, from the cache if it is fresh or if the download fails."""
        path = os.path.join(self._folder, sha256(url.encode()).hexdigest())
        try:
            age = time.time() - os.stat(path).st_mtime
            cached = read_file(path, limit=_MAX_DOWNLOAD_BYTES)
        except OSError:
            age, cached = 0.0, None
        if cached is not None and (self._only_cached or 0 <= age < FRESH_SECONDS):
            return cached
        if self._only_cached:
            raise FileNotFoundError(f"{url} was not fetched")
        try:
            body = _download(url, timeout)
        except OSError:
            if cached is None:
                raise
            return cached
        disk = Disk(durable=False)
        disk.make_folder(self._folder)
        disk.replace(path, body)
        return body


def _download(url: str, timeout: float) -> bytes:
    """Return the body of ``url``. Raises :class:`OSError`, also if all of it takes longer than ``timeout``: a server
    that sends a byte now and then never exceeds the limit of one read."""
    from threading import Thread

    import httpx2  # most configurations name no URL

    end = time.monotonic() + timeout
    outcomes: list[bytes | Exception] = []

    def read() -> None:
        try:
            with httpx2.stream("GET", url, timeout=timeout, follow_redirects=True) as response:
                outcomes.append(_read_body(response, end))
        except Exception as error:  # raised by the thread that waits
            outcomes.append(error)

    reader = Thread(target=read, daemon=True)
    reader.start()
    reader.join(timeout)
    outcome = outcomes[0] if outcomes else TimeoutError(f"the server did not answer within {timeout:g} s")
    if isinstance(outcome, (httpx2.HTTPError, httpx2.InvalidURL)):
        raise OSError(str(outcome) or type(outcome).__name__) from outcome
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _read_body(response: httpx2.Response, end: float) -> bytes:
    if response.status_code >= 400:
        raise OSError(f"the server answered {response.status_code}")
    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > _MAX_DOWNLOAD_BYTES:
            raise OSError(f"larger than {_MAX_DOWNLOAD_BYTES:,} bytes")
        if time.monotonic() > end:
            raise TimeoutError("the answer took too long")
    return bytes(body)
