"""Files that git ignores and that changed while a shell command ran. No snapshot has them, so a revert leaves them."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from ..errors import SnapshotError
from ..records import object_at
from .changes import calls_in
from .git import Git, git_environment, join, split
from .originals import file_stats

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..project import ProjectLocation
    from ..storage.protocol import StoredMessage
    from .changes import ChildMessages

log = logging.getLogger("opensesh.workspace")
_MAX_SECONDS = 5.0
_CLOCK_TOLERANCE_MS = 20
"""Disks record times with the resolution of the kernel's timer."""


def ignored_changes(
    messages: Iterable[StoredMessage], location: ProjectLocation, children: ChildMessages
) -> tuple[str, ...]:
    """Return the names of ignored files that changed last during a shell command of ``messages``.

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
