"""Change feed of the JSON tree.

OpenCode rewrites files in place, which does not change the modification time of their folder, and a ``stat`` of every
one of 100,000 files takes a second. So the feed and the caches rely on this instead:

* A session's record and its folder of messages are compared every time. Every prompt, answer, title, summary, revert
  and removal changes one of the two.
* OpenCode rewrites in place only what is unfinished: an answer, a text or a tool call without an end. A cache asks for
  the ``message_state`` of such messages every time.
* The newest messages of the sessions that changed last are compared every time (``recent``), in case another program
  works differently.
* A file that changed within the last seconds is ``UNSTABLE``: two changes within one tick of the clock look like one.
* Everything else is compared in batches now and then, and at once if the user asks for it (``full``), so that an old
  record that was edited by hand is noticed as well.
"""

from __future__ import annotations

import os
import time
from heapq import nlargest
from typing import TYPE_CHECKING, cast
from zlib import crc32

from ...errors import RecordError
from ..change_feeds import (
    SETTLE_NS,
    UNSTABLE,
    MessageState,
    RawRecord,
    SessionChanges,
    StoredSession,
    fingerprint,
    printable,
)
from ..disk import read_file
from ..keys import is_plain
from ..protocol import Damage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ...records import Document

_SUFFIX = ".json"
_DAY_NS = 86_400 * 1_000_000_000
_RECENT_SESSIONS = 4
_NEWEST_MESSAGES = 8


class JsonTreeFeed:
    """See :class:`~opensesh.storage.change_feeds.ChangeFeed`."""

    persistent = True

    def __init__(self, root: str) -> None:
        self.store_id = printable(root)
        self.damage: list[Damage] = []
        self._root = root
        self._projects: dict[str, str] = {}
        """By session: the project that its newest record is filed under."""

    def detect_changes(self, before: int, known: Mapping[str, int]) -> SessionChanges:
        """Compare the record and the folder of each session."""
        now = time.time_ns()
        sessions = self._stat_sessions()
        changed: dict[str, int] = {}
        recent: list[tuple[int, str]] = []
        for name, (current, newest) in sessions.items():
            if known.get(name, UNSTABLE) != current:
                changed[name] = UNSTABLE if _is_unstable(newest, now) else current
            elif now - newest < _DAY_NS:
                recent.append((newest, name))
        removed = [name for name in known if name not in sessions]
        return SessionChanges(1, changed, removed, [name for _, name in nlargest(_RECENT_SESSIONS, recent)])

    def session(self, session_id: str) -> StoredSession | None:
        """Read a session's record."""
        project = self._projects.get(session_id)
        if project is None:
            return None
        record = self._read(f"{self._root}/session/{project}/{session_id}{_SUFFIX}")
        return None if record is None else StoredSession(project, record)

    def message_states(self, session_id: str, known: Mapping[str, int], *, full: bool) -> Iterator[MessageState]:
        """Compare each message and its folder of parts; the parts of those that changed or are among the newest."""
        now = time.time_ns()
        folder = f"{self._root}/message/{session_id}"
        names = sorted(_record_names(folder))
        # Identifiers start over after some years: the newest may sort first.
        newest = {*names[-_NEWEST_MESSAGES:], *names[:_NEWEST_MESSAGES]}
        for name in names:
            current = self._message_fingerprint(folder, name, now)
            if current is not None:
                same = current != UNSTABLE and current == known.get(name)
                skip_parts = same and not full and name not in newest
                yield MessageState(name, current, None if skip_parts else self._part_fingerprints(name, now))

    def message_state(self, session_id: str, message_id: str, *, full: bool) -> MessageState | None:
        """Compare one message and, with ``full``, its parts."""
        now = time.time_ns()
        current = self._message_fingerprint(f"{self._root}/message/{session_id}", message_id, now)
        if current is None:
            return None
        return MessageState(message_id, current, self._part_fingerprints(message_id, now) if full else None)

    def messages(self, session_id: str, ids: Sequence[str] | None = None) -> Iterator[RawRecord]:
        """Read messages."""
        folder = f"{self._root}/message/{session_id}"
        return self._records(folder, _record_names(folder) if ids is None else ids, "")

    def parts(self, session_id: str, ids: Sequence[tuple[str, str]]) -> Iterator[RawRecord]:
        """Read parts by name."""
        for message, name in ids:
            yield from self._records(f"{self._root}/part/{message}", (name,), message)

    def message_parts(self, session_id: str, message_ids: Sequence[str]) -> Iterator[RawRecord]:
        """Read all parts of some messages."""
        for message in message_ids:
            folder = f"{self._root}/part/{message}"
            yield from self._records(folder, _record_names(folder), message)

    def part(self, session_id: str, message_id: str, part_id: str) -> Document | None:
        """Read one part, or a message."""
        import json  # loads faster than msgspec; for a page of results that is what counts

        key = ("part", message_id, part_id) if part_id else ("message", session_id, message_id)
        try:
            record: object = json.loads(read_file(os.path.join(self._root, *key) + _SUFFIX))
        except (OSError, ValueError, RecursionError):
            return None
        return cast("Document", record) if isinstance(record, dict) else None

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _stat_sessions(self) -> dict[str, tuple[int, int]]:
        """Return the fingerprint and the time of the last change of every session with a record or a message."""
        records: dict[str, tuple[int, int, int]] = {}
        for project in _entries(f"{self._root}/session"):
            if not is_plain(project.name):
                continue
            for entry in _entries(project.path):
                name = entry.name.removesuffix(_SUFFIX)
                status = _status(entry.path) if name != entry.name and is_plain(name) else None
                # A move between projects that was interrupted leaves two records: the newest counts.
                if status and status.st_mtime_ns >= records.get(name, (0,))[0]:
                    records[name] = status.st_mtime_ns, status.st_size, crc32(project.name.encode())
                    self._projects[name] = project.name
        folder = f"{self._root}/message"
        sessions: dict[str, tuple[int, int]] = {}
        for name in {*records, *(name for name in _names(folder) if is_plain(name))}:
            status = _status(f"{folder}/{name}")
            changed, size, filed = records.get(name, (0, 0, 0))
            listed = status.st_mtime_ns if status else 0
            sessions[name] = fingerprint(changed, size, filed, listed), max(changed, listed)
        return sessions

    def _message_fingerprint(self, folder: str, name: str, now: int) -> int | None:
        status = _status(f"{folder}/{name}{_SUFFIX}")
        if status is None:
            return None
        parts = _status(f"{self._root}/part/{name}")
        listed = parts.st_mtime_ns if parts else 0
        if _is_unstable(max(status.st_mtime_ns, listed), now):
            return UNSTABLE
        return fingerprint(status.st_mtime_ns, status.st_size, listed)

    def _part_fingerprints(self, message: str, now: int) -> dict[str, int]:
        folder = f"{self._root}/part/{message}"
        parts: dict[str, int] = {}
        for name in _record_names(folder):
            status = _status(f"{folder}/{name}{_SUFFIX}")
            if status is not None:
                unstable = _is_unstable(status.st_mtime_ns, now)
                parts[name] = UNSTABLE if unstable else fingerprint(status.st_mtime_ns, status.st_size)
        return parts

    def _records(self, folder: str, names: Sequence[str], message: str) -> Iterator[RawRecord]:
        for name in names:
            path = f"{folder}/{name}{_SUFFIX}"
            try:
                yield RawRecord(name, message, path, read_file(path))
            except FileNotFoundError:
                continue
            except OSError as error:
                self.damage.append(Damage(path, f"cannot be read: {error.strerror or error}"))

    def _read(self, path: str) -> Document | None:
        try:
            return RawRecord("", "", path, read_file(path)).document()
        except FileNotFoundError:
            return None
        except OSError as error:
            self.damage.append(Damage(path, f"cannot be read: {error.strerror or error}"))
        except RecordError as error:
            self.damage.append(Damage(path, error.detail))
        return None


def _is_unstable(changed: int, now: int) -> bool:
    """Whether the next change may get the same time. A time far in the future is simply wrong and stays as it is."""
    return now - SETTLE_NS < changed < now + _DAY_NS


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
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


def _record_names(folder: str) -> list[str]:
    stems = [name.removesuffix(_SUFFIX) for name in _names(folder) if name.endswith(_SUFFIX)]
    return [stem for stem in stems if is_plain(stem)]


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None
