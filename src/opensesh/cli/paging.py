"""Long text on a terminal: through the pager that its user has chosen."""

from __future__ import annotations

import os
import sys
from io import StringIO

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

_COULD_NOT_BE_RUN = (126, 127)
"""What a shell answers then."""


def page(text: str) -> None:
    """Write ``text``: through the pager if it is longer than the screen, as it is where there is no terminal."""
    data = text.encode(errors="replace") + b"\n"
    sys.stdout.flush()
    if not (_is_longer_than_the_screen(text) and _is_paged(data)):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def page_what(prints: Callable[[], None]) -> None:
    """Call ``prints``, which prints for a terminal, and page what it printed."""
    terminal, held = sys.stdout, _Held(sys.stdout)
    sys.stdout = held
    try:
        prints()
    finally:
        sys.stdout = terminal
    if text := held.getvalue():
        page(text.removesuffix("\n"))


class _Held(StringIO):
    """What is printed, and looks like the terminal that it is for."""

    def __init__(self, terminal: TextIO) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal.isatty()

    def fileno(self) -> int:
        return self._terminal.fileno()


def _is_longer_than_the_screen(text: str) -> bool:
    if not (sys.stdout.isatty() and sys.stdin.isatty()) or os.environ.get("TERM") == "dumb":
        return False
    from shutil import get_terminal_size

    return text.count("\n") >= get_terminal_size().lines


def _is_paged(data: bytes) -> bool:
    """Whether a pager has shown it: the one that ``PAGER`` names, or less. An empty ``PAGER`` wants none."""
    command = os.environ.get("PAGER", _usual())
    if not command.strip():
        return False
    import subprocess
    from contextlib import suppress

    try:
        environ = {"LESS": "FRX", **os.environ}
        pager = subprocess.Popen(["/bin/sh", "-c", command], stdin=subprocess.PIPE, env=environ)
    except OSError:
        return False  # a system without a shell
    if pager.stdin:
        with suppress(OSError, KeyboardInterrupt), pager.stdin as pipe:  # it may be left before the end
            pipe.write(data)
    while pager.poll() is None:
        with suppress(KeyboardInterrupt):  # which is for the pager to answer, as long as it has the terminal
            pager.wait()
    return pager.returncode not in _COULD_NOT_BE_RUN


def _usual() -> str:
    from shutil import which

    return "less" if which("less") else ""
