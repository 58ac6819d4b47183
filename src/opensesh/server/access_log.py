"""The access log: which browser or program changed something through the server, and when.

It is ``access.log`` under ``$XDG_STATE_HOME/opensesh``, readable by its owner only. At a megabyte it is renamed to
``access.log.1`` and begun anew. A line has the time, the method, the path, the status and who asked; never a query,
which may contain a password, nor a body.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress

from ..storage import paths

log = logging.getLogger("opensesh.server")
_MAX_BYTES = 1_000_000


def access_log_path() -> str:
    """Return the path of the access log."""
    return os.path.join(paths.state(), "access.log")


def log_access(method: str, path: str, status: int, client: str) -> None:
    """Append a line. A log that cannot be written does not stop the server."""
    # A path may contain line ends and characters that a terminal obeys, and so may the name of a program.
    line = f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {method} {path} {status} {client}".encode("unicode_escape") + b"\n"
    file = access_log_path()
    try:
        os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
        with suppress(FileNotFoundError):
            if os.path.getsize(file) > _MAX_BYTES:
                os.replace(file, f"{file}.1")
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(line)
    except OSError as error:
        log.info("the access log cannot be written: %s", error)
