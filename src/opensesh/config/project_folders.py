"""The folders whose configuration belongs to a project: from its directory up to the root of the repository.

Outside of a repository they end at the home folder, and never go beyond a file-system boundary. In a folder that
another user owns or can write to, such as ``/tmp``, that user could place configuration, which chooses the servers that
get prompts and keys. So nothing in such a folder is used before the user trusts it as a whole.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from .source import ProjectFolders, SharedFolder, upward
from .trust import Trust, digest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..flags import Flags

_CONTENTS = (
    *("opencode.json", "opencode.jsonc", ".opencode", ".claude", ".agents"),
    *("AGENTS.md", "CLAUDE.md", "CONTEXT.md"),
)


def project_folders(directory: str, worktree: str, home: str, flags: Flags) -> ProjectFolders:
    """Return the folders whose configuration is read for ``directory``."""
    used: list[str] = []
    shared: list[SharedFolder] = []
    trust = Trust()
    for folder in _walk(directory, worktree, home):
        parts = [folder, os.path.join(folder, ".opencode")]
        reason = next((why for part in parts if (why := _why_shared(part))), "")
        if not reason:
            used.append(folder)
        elif any(os.path.lexists(os.path.join(folder, name)) for name in _CONTENTS):
            item = SharedFolder(folder, reason, f"{folder}#folder", digest(reason.encode()))
            shared.append(item)
            if flags.trust_plugins or trust.status(item.key, item.digest) == "trusted":
                used.append(folder)
    return ProjectFolders(tuple(used), tuple(shared), worktree != os.path.dirname(worktree))


def _walk(directory: str, worktree: str, home: str) -> Iterator[str]:
    device: int | None = None
    for folder in upward(directory, worktree):
        try:
            status = os.stat(folder)
        except OSError:
            status = None
        if status is not None and device not in (None, status.st_dev):
            return
        device = status.st_dev if status is not None else device
        yield folder
        if folder == home:
            return


def _why_shared(folder: str) -> str:
    """Return why other users can change the contents of a folder; empty if they cannot, or if it does not exist."""
    if not hasattr(os, "getuid"):
        return ""
    try:
        status = os.stat(folder)
    except OSError:
        return ""
    user = os.getuid()
    # As git does it: with sudo, this is about the folders of the user who calls it.
    caller = os.environ.get("SUDO_UID", "") if user == 0 else ""
    if status.st_uid not in {0, user, int(caller) if caller.isdigit() else user}:
        return f"{folder} belongs to another user (uid {status.st_uid})"
    if status.st_mode & stat.S_IWOTH:
        return f"every user can write to {folder}"
    if status.st_mode & stat.S_IWGRP and status.st_gid not in (0, os.getgid()):
        return f"the group {status.st_gid} can write to {folder}"
    return ""
