"""The log file: unexpected errors with their tracebacks, and warnings.

It is ``opensesh.log`` under ``$XDG_STATE_HOME/opensesh``, readable by its owner only. At a megabyte it is renamed to
``opensesh.log.1`` and begun anew. Secrets are redacted.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from .. import __version__
from ..redaction import Redactor, known_secrets
from ..storage import paths
from ..storage.disk import append_to_log

_FRESH_SECONDS = 2.0
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
        _append(_Redaction()(logging.Formatter(_FORMAT).format(record)))
    except OSError:
        return None
    return log_path()


@contextmanager
def show_warnings(show: Callable[[str], None] | None = None) -> Generator[None]:
    """Log warnings of opensesh while this lasts, and print each on standard error, or call ``show`` with it."""
    logger = logging.getLogger("opensesh")
    redact = _Redaction()
    show = show or (lambda text: print(text, file=sys.stderr))
    handlers = (_LogFileHandler(redact), _LineHandler(show, redact))
    for handler in handlers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for handler in handlers:
            logger.removeHandler(handler)


class _LineHandler(logging.Handler):
    def __init__(self, show: Callable[[str], None], redact: _Redaction) -> None:
        super().__init__(logging.WARNING)
        self._show = show
        self._redact = redact

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            self._show(f"! {self._redact(record.getMessage())}")


class _LogFileHandler(logging.Handler):
    """Appends to the log file, which is opened for each record."""

    def __init__(self, redact: _Redaction) -> None:
        super().__init__(logging.WARNING)
        self._redact = redact
        self.setFormatter(logging.Formatter(_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):  # a log that cannot be written must not stop the command
            _append(self._redact(self.format(record)))


def _append(text: str) -> None:
    append_to_log(log_path(), (text.rstrip("\n") + "\n").encode(errors="backslashreplace"))


class _Redaction:
    """Removes secrets from texts. They are read again after some seconds: hundreds of warnings may follow each other,
    and the configuration of a project may take long to read."""

    def __init__(self) -> None:
        self._redactor: Redactor | None = None
        self._read_at = 0.0

    def __call__(self, text: str) -> str:
        if _reading_config.get():
            return Redactor(known_secrets({})).text(text)
        if self._redactor is None or time.monotonic() > self._read_at + _FRESH_SECONDS:
            self._redactor = Redactor(_secrets())
            self._read_at = time.monotonic()
        return self._redactor.text(text)


def _secrets() -> set[str]:
    """Return the secrets of this machine. What is logged meanwhile is redacted without those of the configuration."""
    from .directory_config import secrets_of_this_machine

    token = _reading_config.set(True)
    try:
        return secrets_of_this_machine()
    except Exception:  # the configuration may be what the log is about
        return known_secrets({})
    finally:
        _reading_config.reset(token)
