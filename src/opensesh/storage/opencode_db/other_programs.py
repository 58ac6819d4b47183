"""Other programs that use a database at the same time: which processes have it open, and what they are running.

OpenCode has no lease on a session. An answer that is not finished may be running, or its process may have died; rows
that changed a moment ago, in a database that another process has open, say that it is running. So do a prompt that was
stored a moment ago, and tool calls that ended then: the answer to them is about to begin.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ... import ids
from ...records.codec import as_object, loads_object

if TYPE_CHECKING:
    from collections.abc import Collection
    from sqlite3 import Connection

_ANSWER_SECONDS = 60
"""An unfinished answer that has not changed for this long is not being written any more."""
_BETWEEN_STEPS_SECONDS = 5
"""A prompt without an answer, or tool calls without another step, that are older than this are not continued."""
_OPEN_BYTE = 128
"""SQLite holds a shared lock on this byte of the ``-shm`` file as long as a connection is open."""


def other_processes(path: str) -> list[int]:
    """Return the ids of other processes of this host that have the database open, as far as the system tells."""
    try:
        inode = os.stat(f"{path}-shm").st_ino
        with open("/proc/locks", encoding="ascii") as file:
            lines = [line.split() for line in file]
    except (OSError, UnicodeDecodeError):
        return []  # no such file: the database has no write-ahead log, or this is not Linux
    processes = {
        int(pid)
        for _, _, _, _, pid, device, start, end, *_ in (line for line in lines if len(line) == 8)
        if device.rpartition(":")[2] == str(inode)
        and int(start) <= _OPEN_BYTE
        and (end == "EOF" or int(end) >= _OPEN_BYTE)
    }
    return sorted(processes - {os.getpid(), -1})


def running_since(connection: Connection, session_id: str, own: Collection[str]) -> float | None:
    """Return how many seconds ago the newest message changed, if a program that is not done seems to have written it.

    That is an answer without an end, or for a moment a prompt without an answer, or tool calls whose results have not
    been sent yet. ``own`` are the messages that this program wrote.
    """
    newest = connection.execute(
        "SELECT id, time_updated, data FROM message WHERE session_id = ? ORDER BY time_created DESC, id DESC LIMIT 1",
        [session_id],
    ).fetchone()
    if newest is None:
        return None
    message_id, updated, data = newest
    message = loads_object(data)
    if message_id.decode() in own or "error" in message:
        return None
    is_answer = message.get("role") == "assistant"
    is_complete = "completed" in (as_object(message.get("time")) or {})
    if is_answer and is_complete and message.get("finish") != "tool-calls":
        return None
    (part,) = connection.execute("SELECT max(time_updated) FROM part WHERE message_id = ?", [message_id]).fetchone()
    age = (ids.now_ms() - max(int(updated), int(part or 0))) / 1000
    return age if age <= (_ANSWER_SECONDS if is_answer and not is_complete else _BETWEEN_STEPS_SECONDS) else None
