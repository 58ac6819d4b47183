"""The log: what went wrong inside, with where it came from, for whoever looks into it later.

One file under ``$XDG_STATE_HOME/opensesh``, which only its owner can read; it is begun anew at a megabyte, and the one
before it is kept. Secrets are taken out of what is written there.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from .. import __version__
from ..storage import paths

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

_MOST = 1_000_000
_FORMAT = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"


def path() -> str:
    """Where the log is."""
    return os.path.join(paths.state(), "opensesh.log")


def note_crash(command: str, error: BaseException) -> str | None:
    """Write down an error that nobody expected; where to, or ``None`` if that cannot be done either."""
    trace = "".join(traceback.format_exception(error))
    head = f"opensesh {__version__}, Python {sys.version.split()[0]}, {sys.platform}: {command} failed\n"
    record = logging.LogRecord("opensesh.cli", logging.ERROR, "", 0, head + trace, None, None)
    try:
        _append(logging.Formatter(_FORMAT).format(record))
    except OSError:
        return None
    return path()


def print_warning(text: str) -> None:
    """How to tell, where nothing else is on the screen."""
    print(text, file=sys.stderr)


@contextmanager
def warnings_told(tell: Callable[[str], None] = print_warning) -> Generator[None]:
    """While this lasts, tell the user in a line what the parts of the house warn of, and write all of it down here."""
    log = logging.getLogger("opensesh")
    handlers = (_Log(), _Teller(tell))
    for handler in handlers:
        log.addHandler(handler)
    try:
        yield
    finally:
        for handler in handlers:
            log.removeHandler(handler)


class _Teller(logging.Handler):
    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            self._tell(f"! {record.getMessage()}")


class _Log(logging.Handler):
    """Appends to the file; opened when there is something to write."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.setFormatter(logging.Formatter(_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, if the disk lets us; a log that cannot be written must not end what it is about."""
        with suppress(OSError):
            _append(self.format(record))


def _append(text: str) -> None:
    from ..history.import_export.redaction import Redactor

    where = path()
    os.makedirs(os.path.dirname(where), mode=0o700, exist_ok=True)
    with suppress(FileNotFoundError):
        if os.path.getsize(where) > _MOST:
            os.replace(where, f"{where}.1")
    descriptor = os.open(where, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(Redactor().text(text).rstrip("\n") + "\n")
