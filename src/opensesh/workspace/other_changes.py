"""Changes that a revert leaves alone: writes on record of other sessions, and changes of files that git ignores."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, NamedTuple

from ..errors import SnapshotError
from ..records import Session, object_at
from .attribution import comparable
from .changes import call_edits, calls_in
from .git import Git, git_environment, join, split
from .originals import file_stats

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..project import ProjectLocation
    from ..sessions import Sessions
    from ..storage.protocol import StoredMessage
    from .changes import ChildMessages

log = logging.getLogger("opensesh.workspace")
_DAY_MS = 86_400_000
_MAX_SECONDS = 5.0
_CLOCK_TOLERANCE_MS = 20
"""Disks record times with the resolution of the kernel's timer."""


class _Write(NamedTuple):
    file: str
    began: int
    ended: float


class OtherSessions:
    """The sessions of a store without one session and its subagents."""

    def __init__(self, sessions: Sessions, session_id: str) -> None:
        self._sessions = sessions
        self._session_id = session_id
        self._others: list[Session] | None = None
        self._writes: dict[str, list[_Write]] = {}

    def writer(self, path: str, began: int, ended: int) -> str:
        """Return the id of a session that recorded a write to ``path`` in a span of time; empty if none did."""
        if self._others is None:
            own = {self._session_id, *(child.id for child in self._sessions.descendants(self._session_id))}
            self._others = [session for session in self._sessions.list() if session.id not in own]
        file = comparable(os.path.realpath(path))
        for session in self._others:
            # A session that still runs may have been updated last when its prompt came.
            if session.time.created > ended or session.time.updated < began - _DAY_MS:
                continue
            writes = self._writes_of(session.id)
            if any(write.file == file and write.began <= ended and write.ended >= began for write in writes):
                return session.id
        return ""

    def _writes_of(self, session_id: str) -> list[_Write]:
        if session_id not in self._writes:
            writes = self._writes[session_id] = []
            for part in (part for message in self._sessions.messages(session_id) for part in message.parts):
                time = object_at(part, "state", "time")
                began, ended = int(time.get("start") or 0), float(time.get("end") or "inf")
                files = [edit.path for edit in call_edits(part) if not edit.by_command]
                writes += [_Write(comparable(os.path.realpath(file)), began, ended) for file in files]
        return self._writes[session_id]


def ignored_changes(
    messages: Iterable[StoredMessage], location: ProjectLocation, children: ChildMessages
) -> tuple[str, ...]:
    """Return the names of ignored files that changed last during a shell command of ``messages``. No snapshot has them.

    Deleted files, files that changed again since, and those of a project with very many files are not found.
    """
    calls = (call for message in messages for part in message.parts for call in calls_in(part, children))
    times = [object_at(call, "state", "time") for call in calls if call.get("tool") == "bash"]
    spans = [(int(time["start"]), int(time["end"])) for time in times if time.get("start") and time.get("end")]
    if location.vcs != "git" or not spans:
        return ()
    root = os.path.realpath(location.sandbox)
    changed: list[str] = []
    for path, stat in (file_stats(root, max_seconds=_MAX_SECONDS) or {}).items():
        modified_ms = stat[0] / 1e6 if stat else 0
        if any(start - _CLOCK_TOLERANCE_MS <= modified_ms <= end + _CLOCK_TOLERANCE_MS for start, end in spans):
            changed.append(f"./{os.path.relpath(path, root).replace(os.sep, '/')}")
    # With the user's own settings, because they can name files to ignore. This command cannot read literal paths, and
    # "./" keeps it from reading a name as a pattern.
    git = Git(root, git_environment(isolated=False, GIT_LITERAL_PATHSPECS="0"))
    try:
        ignored = split(git.run("check-ignore", "-z", "--stdin", stdin=join(changed))) if changed else []
    except SnapshotError as error:
        if error.data.get("status") != 1:  # none of them is ignored
            log.warning("the files that git ignores are not listed: %s", error)
        ignored = []
    return tuple(sorted(name.removeprefix("./") for name in ignored))
