"""The JSON tree as the index sees it.

OpenCode rewrites files in place, which no folder's time shows, so folders alone cannot be trusted, and a look at every
one of 100,000 files takes a second. What is relied on instead:

* A session's record and its folder of messages are looked at every time. No prompt, answer, title, summary, revert or
  removal leaves both as they were.
* What OpenCode rewrites in place *after* that is unfinished: an answer without an end, a text without an end, a tool
  that has not answered. Messages with such parts are looked at file by file every time.
* So are the newest messages of the sessions that changed last, in case another program works otherwise.
* A file that changed within the last seconds is read again the next time: two changes within one tick of the clock
  would look like one.
* Everything else is compared file by file in turn, a little with every search that comes a minute after the last such
  turn, and at once when the user asks for it. So a record that someone edits by hand years later is noticed too.
"""

from __future__ import annotations

import os
import time
from heapq import nlargest
from typing import TYPE_CHECKING, Any, cast

from ...errors import RecordError
from ...storage.keys import is_plain
from ...storage.protocol import Damage
from .feeds import JUST_NOW_NS, UNSURE, Document, Look, Survey, mark, spelled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_SUFFIX = ".json"
_DAY_NS = 86_400 * 1_000_000_000
_RECENT = 4
_NEWEST = 8


class TreeFeed:
    """See :class:`~opensesh.history.search.feeds.Feed`."""

    def __init__(self, root: str) -> None:
        self.place = spelled(root)
        self._root = root
        self.damage: list[Damage] = []
        self._records: dict[str, str] = {}
        """By session: the folder that its record is in."""
        self._decode: Callable[[bytes, str], Any] | None = None

    def survey(self, before: int, held: Mapping[str, int]) -> Survey:
        """Look at the record and the folder of each session."""
        now = time.time_ns()
        seen = self._seen()
        changed: dict[str, int] = {}
        recent: list[tuple[int, str]] = []
        for name, (found, newest) in seen.items():
            if held.get(name, UNSURE) != found:
                changed[name] = UNSURE if _is_unsure(newest, now) else found
            elif now - newest < _DAY_NS:
                recent.append((newest, name))
        gone = [name for name in held if name not in seen]
        return Survey(1, changed, gone, [name for _, name in nlargest(_RECENT, recent)])

    def session(self, name: str) -> Document | None:
        """A session's record."""
        return self._read(f"{self._records[name]}/{name}{_SUFFIX}") if name in self._records else None

    def look(self, session: str, known: Mapping[str, int], *, closely: bool) -> Iterator[Look]:
        """Two looks at each message, and a closer one at those that changed or are among the newest."""
        now = time.time_ns()
        folder = os.path.join(self._root, "message", session)
        names = sorted(_records(folder))
        newest = set(names[-_NEWEST:]) | set(names[:_NEWEST])  # identifiers start over: the newest may come first
        for name in names:
            found = self._look(folder, name, now)
            if found is None:
                continue
            same = found != UNSURE and found == known.get(name)
            yield Look(name, found, None if same and not closely and name not in newest else self._parts(name, now))

    def look_at(self, session: str, message: str) -> Look | None:
        """One message, file by file."""
        now = time.time_ns()
        found = self._look(os.path.join(self._root, "message", session), message, now)
        return None if found is None else Look(message, found, self._parts(message, now))

    def messages(self, session: str, names: Sequence[str]) -> Iterator[tuple[str, Document]]:
        """Those that can be read."""
        for name in names:
            info = self._read(f"{self._root}/message/{session}/{name}{_SUFFIX}")
            if info is not None:
                yield name, info

    def parts(self, session: str, names: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, Document]]:
        """Those that can be read, one at a time."""
        for message, name in names:
            part = self._read(f"{self._root}/part/{message}/{name}{_SUFFIX}")
            if part is not None:
                yield message, name, part

    def part(self, session: str, message: str, name: str) -> Document | None:
        """One part, decoded by the standard library: for a page of them, that is done before msgspec is loaded."""
        import json

        path = os.path.join(self._root, *(("part", message, name) if name else ("message", session, message)))
        try:
            with open(path + _SUFFIX, "rb") as file:
                found: object = json.load(file)
        except (OSError, ValueError, RecursionError):
            return None
        return cast("Document", found) if isinstance(found, dict) else None

    def close(self) -> None:
        """Nothing is open."""

    def _seen(self) -> dict[str, tuple[int, int]]:
        """Every session that has a record or a message: its mark, and when it last changed."""
        records: dict[str, tuple[int, int]] = {}
        for project in _scan(os.path.join(self._root, "session")):
            for entry in _scan(project.path):
                name = entry.name.removesuffix(_SUFFIX)
                status = _status(entry.path) if name != entry.name and is_plain(name) else None
                if status and status.st_mtime_ns >= records.get(name, (0, 0))[0]:
                    records[name] = status.st_mtime_ns, status.st_size
                    self._records[name] = project.path
        folders = os.path.join(self._root, "message")
        seen: dict[str, tuple[int, int]] = {}
        for name in {*records, *(name for name in _names(folders) if is_plain(name))}:
            status = _status(f"{folders}/{name}")
            changed, size = records.get(name, (0, 0))
            listed = status.st_mtime_ns if status else 0
            seen[name] = mark(changed, size, listed), max(changed, listed)
        return seen

    def _look(self, folder: str, name: str, now: int) -> int | None:
        status = _status(f"{folder}/{name}{_SUFFIX}")
        if status is None:
            return None
        parts = _status(f"{self._root}/part/{name}")
        listed = parts.st_mtime_ns if parts else 0
        if _is_unsure(max(status.st_mtime_ns, listed), now):
            return UNSURE
        return mark(status.st_mtime_ns, status.st_size, listed)

    def _parts(self, message: str, now: int) -> dict[str, int]:
        folder = os.path.join(self._root, "part", message)
        found: dict[str, int] = {}
        for name in _records(folder):
            status = _status(f"{folder}/{name}{_SUFFIX}")
            if status is not None:
                unsure = _is_unsure(status.st_mtime_ns, now)
                found[name] = UNSURE if unsure else mark(status.st_mtime_ns, status.st_size)
        return found

    def _read(self, path: str) -> Document | None:
        from ...storage.json_tree.store import read_file

        if self._decode is None:
            from ...records.codec import loads_object

            self._decode = loads_object
        try:
            return self._decode(read_file(path), path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self.damage.append(Damage(path, f"cannot be read: {error.strerror or error}"))
        except RecordError as error:
            self.damage.append(Damage(path, f"{error.place}: {error.reason}" if error.place else error.reason))
        return None


def _is_unsure(changed: int, now: int) -> bool:
    """Whether a change may have come after the look and yet bear the same time. A date far ahead is just wrong."""
    return now - JUST_NOW_NS < changed < now + _DAY_NS


def _scan(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        entries = os.scandir(folder)
    except OSError:
        return
    with entries:
        yield from (entry for entry in entries if entry.name[0] != ".")


def _names(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name[0] != "."]
    except OSError:
        return []


def _records(folder: str) -> list[str]:
    """The records in a folder, by name."""
    stems = [name.removesuffix(_SUFFIX) for name in _names(folder) if name.endswith(_SUFFIX)]
    return [stem for stem in stems if is_plain(stem)]


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None
