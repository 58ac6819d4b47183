"""Runs a server so that it cannot outlive whoever started it: ``python -I -S supervisor.py PARENT COMMAND...``.

A server is asked to end by closing its standard input. One that does not mind, or that left helpers behind, would stay
for ever once the engine was killed. This program stands between the two: it shares a process group with the server,
and ends the group when the server exits, or when its own parent is no longer ``PARENT``. The server's input and output
do not pass through it. It needs the standard library alone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

_EVERY = 0.5
"""Seconds between two looks at the parent."""
_GRACE = 2.0
"""Seconds between asking the group to end and ending it."""


def main() -> int:
    """The exit code is the server's."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    # A handler, unlike an ignored signal, is not passed on to the server.
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, _pass)
    server = subprocess.Popen(command)
    # The pipes are the server's alone, so that its end is seen at both of them.
    nothing = os.open(os.devnull, os.O_RDWR)
    for inherited in (0, 1, 2):
        os.dup2(nothing, inherited)
    threading.Thread(target=_mind, args=(parent,), daemon=True).start()
    code = server.wait()
    os.killpg(0, signal.SIGTERM)
    return code if code >= 0 else 128 - code


def _pass(number: int, frame: object) -> None:
    """The server is told as well, and this ends when it does."""


def _mind(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_EVERY)
    os.killpg(0, signal.SIGTERM)
    time.sleep(_GRACE)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
