"""What a command has started, however far it went from it.

A process that makes itself a daemon is in no group of the command's and nobody's child any more. What it keeps is its
environment: a command is given a mark there, which all that it starts inherits, and by which they are found where the
system lists processes as files. One that clears its environment is not found.
"""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "OPENSESH_CALL"


class Entry(NamedTuple):
    """A process that runs."""

    parent: int
    group: int
    born: str


def is_listed() -> bool:
    """Whether the system lists processes as files."""
    return os.path.isdir("/proc/self")


def new_mark() -> str:
    """One that no other command has."""
    return secrets.token_hex(8)


def marked(environment: Mapping[str, str], mark: str) -> dict[str, str]:
    """``environment`` for a command with that mark. One that runs on behalf of another keeps the other's mark, too."""
    if not is_listed():
        return dict(environment)
    outer = environment.get(VARIABLE)
    return {**environment, VARIABLE: f"{outer}:{mark}" if outer else mark}


def processes() -> dict[int, Entry]:
    """The processes that run; none where the system does not list them."""
    table: dict[int, Entry] = {}
    for name in os.listdir("/proc") if is_listed() else ():
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                fields = file.read().rpartition(") ")[2].split()
            if fields[0] not in ("Z", "X"):
                table[int(name)] = Entry(int(fields[1]), int(fields[2]), fields[19])
        except (OSError, ValueError, IndexError):
            continue  # it has ended meanwhile
    return table


def descendants(root: int) -> dict[int, str]:
    """The children of ``root``, theirs, and so on, and when each was born; also of those that left its group."""
    table = processes()
    found = {root}
    while more := {pid for pid, entry in table.items() if entry.parent in found} - found:
        found |= more
    return {pid: table[pid].born for pid in found - {root}}


def bearers(mark: str) -> dict[int, str]:
    """The processes that carry a mark, and when each was born; among those whose environment we may see, the user's
    own."""
    wanted = mark.encode()
    return {pid: entry.born for pid, entry in processes().items() if wanted in _environment(pid)}


def _environment(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:
        return b""  # another user's, or it has ended meanwhile
