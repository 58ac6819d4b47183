"""Run a server so that it cannot outlive its parent: ``python -I -S supervisor.py PARENT COMMAND...``.

A server is asked to end by closing its standard input. One that ignores it, or that left child processes, would run
forever after the engine was killed. This program shares a process group with the server, and ends the group when the
server exits or when its own parent is not ``PARENT`` any more. The server's input and output do not pass through it. It
needs only the standard library.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

_CHECK_INTERVAL_SECONDS = 0.5
_GRACE_SECONDS = 2.0
"""Time between SIGTERM and SIGKILL."""


def main() -> int:
    """Return the server's exit code."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    # A handler, unlike an ignored signal, is not passed on to the server.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda received, frame: None)  # the server receives it too, and ends
    server = subprocess.Popen(command)
    # Only the server keeps the pipes open, so that its end closes them.
    null = os.open(os.devnull, os.O_RDWR)
    for inherited in (0, 1, 2):
        os.dup2(null, inherited)

    def watch_parent() -> None:
        while os.getppid() == parent:
            time.sleep(_CHECK_INTERVAL_SECONDS)
        os.killpg(0, signal.SIGTERM)
        time.sleep(_GRACE_SECONDS)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch_parent, daemon=True).start()
    code = server.wait()
    os.killpg(0, signal.SIGTERM)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
