"""The log file: unexpected errors with their tracebacks, and warnings.

It is ``opensesh.log`` under ``$XDG_STATE_HOME/opensesh``, readable by its owner only. At a megabyte it is renamed to
``opensesh.log.1`` and begun anew. Secrets are redacted.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING

from .. import __version__
from ..redaction import Redactor, known_secrets
from ..storage import paths

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

_MAX_BYTES = 1_000_000
_FORMAT = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"


_reading_config: ContextVar[bool] = ContextVar("reading_config", default=False)


def log_path() -> str:
    """Return the path of the log file."""
    return os.path.join(paths.state(), "opensesh.log")


def log_crash(command: str, error: BaseException) -> str | None:
    """Log an unexpected error; return the path of the log, or ``None`` if it cannot be written."""
    trace = "".join(traceback.format_exception(error))
    head = f"opensesh {__version__}, Python {sys.version.split()[0]}, {sys.platform}: {command} failed\n"
    record = logging.LogRecord("opensesh.cli", logging.ERROR, "", 0, head + trace, None, None)
    try:
        _append(logging.Formatter(_FORMAT).format(record))
    except OSError:
        return None
    return log_path()


@contextmanager
def show_warnings(show: Callable[[str], None] | None = None) -> Generator[None]:
    """Log warnings of opensesh while this lasts, and print each on standard error, or call ``show`` with it."""
    logger = logging.getLogger("opensesh")
    handlers = (_LogFileHandler(), _LineHandler(show or (lambda text: print(text, file=sys.stderr))))
    for handler in handlers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for handler in handlers:
            logger.removeHandler(handler)


class _LineHandler(logging.Handler):
    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            self._show(f"! {_redacted(record.getMessage())}")


class _LogFileHandler(logging.Handler):
    """Appends to the log file, which is opened for each record."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.setFormatter(logging.Formatter(_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):  # a log that cannot be written must not stop the command
            _append(self.format(record))


def _append(text: str) -> None:
    path = log_path()
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with suppress(FileNotFoundError):
        if os.path.getsize(path) > _MAX_BYTES:
            os.replace(path, f"{path}.1")
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(_redacted(text).rstrip("\n") + "\n")


def _redacted(text: str) -> str:
    return Redactor(_secrets()).text(text)


def _secrets() -> set[str]:
    """Return the secrets of this machine; without those of the configuration while that is being read for the log."""
    if _reading_config.get():
        return known_secrets({})
    from .directory_config import secrets_of_this_machine

    token = _reading_config.set(True)
    try:
        return secrets_of_this_machine()
    except Exception:  # the configuration may be what the log is about
        return known_secrets({})
    finally:
        _reading_config.reset(token)
