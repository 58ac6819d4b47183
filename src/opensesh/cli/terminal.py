"""The two streams a command writes to, and the keyboard it may ask.

What a model or a tool says is never let near a terminal as it is: an escape sequence could retitle the window, move the
cursor over a question, or show other text than there is.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from typing import TextIO

_C0 = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n\r"}
_C1 = {code: f"\\x{code:02x}" for code in range(0x80, 0xA0)}
_DIRECTIONS = {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
_TAMED: dict[int, str | None] = {**_C0, **_C1, **_DIRECTIONS, 0x0D: None, 0x7F: "␡"}


def tame(text: str) -> str:
    """``text`` with what would steer a terminal made visible; line ends and tabs stay."""
    return text if text.isprintable() else text.translate(_TAMED)


class Stream:
    """Standard output or standard error. What is written is seen at once; what it cannot encode is replaced."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_terminal = stream.isatty()
        self.is_lively = self.is_terminal and os.environ.get("TERM") != "dumb"
        """Whether a line can be taken back."""
        plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        self._coloured = not plain and (self.is_terminal or bool(os.environ.get("FORCE_COLOR")))

    def write(self, text: str) -> None:
        """Write ``text`` as it is."""
        self.write_bytes(text.encode(self._stream.encoding or "utf-8", "replace"))

    def write_bytes(self, data: bytes) -> None:
        """Write ``data``, whatever the terminal's encoding."""
        self._stream.flush()
        self._stream.buffer.write(data)
        self._stream.buffer.flush()

    def paint(self, text: str, *codes: int) -> str:
        """``text`` in colour, where colour is wanted."""
        return f"\x1b[{';'.join(map(str, codes))}m{text}\x1b[0m" if codes and self._coloured else text

    def drop_unwritten(self) -> None:
        """Keep Python from complaining at its end about what nobody takes: the reader went away, or the disk is
        full."""
        try:
            self._stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    @property
    def columns(self) -> int:
        """How wide it is; 80 where that means nothing."""
        try:
            return int(os.environ.get("COLUMNS") or os.get_terminal_size(self._stream.fileno()).columns) or 80
        except (OSError, ValueError):
            return 80

    def shares_screen(self, other: Stream) -> bool:
        """Whether both end up in the same place, so that one must mind where the other left off."""
        try:
            return os.path.sameopenfile(self._stream.fileno(), other._stream.fileno())
        except (OSError, ValueError):
            return False


class Keyboard:
    """Lines that a person types. A thread of its own waits for them, so that waiting can be given up."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._waiting: asyncio.Future[str | None] | None = None
        self._begun = False
        self._ended = False

    @classmethod
    def find(cls) -> Keyboard | None:
        """The keyboard of whoever sees standard error; ``None`` if there is nobody to ask.

        Where standard input is something else, such as a file, the terminal itself is asked.
        """
        if not sys.stderr.isatty():
            return None
        try:
            descriptor = sys.stdin.fileno() if sys.stdin.isatty() else os.open("/dev/tty", os.O_RDONLY)
            return cls(descriptor) if _in_front(descriptor) else None
        except (OSError, ValueError):
            return None

    async def line(self, ask: Callable[[], None]) -> str | None:
        """The next line that is typed after ``ask`` was called; ``None`` if there will be none, or :meth:`leave` was
        called."""
        import asyncio

        if self._ended:
            return None
        loop = asyncio.get_running_loop()
        self._forget_what_was_typed()
        self._waiting = loop.create_future()
        if not self._begun:
            import threading

            self._begun = True
            threading.Thread(target=self._read, args=(loop,), name="keyboard", daemon=True).start()
        ask()
        try:
            return await self._waiting
        finally:
            self._waiting = None

    def leave(self) -> None:
        """Wait no longer."""
        self._deliver(None)

    def _forget_what_was_typed(self) -> None:
        """An answer given before the question was asked is none."""
        with suppress(ImportError, OSError):
            import termios

            termios.tcflush(self._descriptor, termios.TCIFLUSH)

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        # Not through sys.stdin: a thread that waits in there would hold its lock when the interpreter ends.
        while True:
            try:
                data = os.read(self._descriptor, 65536)
            except OSError:
                data = b""
            line = data.decode(sys.stdin.encoding or "utf-8", "replace").rstrip("\r\n") if data else None
            with suppress(RuntimeError):  # the loop is over, and nobody waits
                loop.call_soon_threadsafe(self._deliver, line, not data)
            if not data:
                return

    def _deliver(self, line: str | None, ended: bool = False) -> None:
        self._ended = self._ended or ended
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(line)


def _in_front(descriptor: int) -> bool:
    """Whether we may read from the terminal; in the background, that would stop the whole process."""
    return not hasattr(os, "tcgetpgrp") or os.tcgetpgrp(descriptor) == os.getpgrp()
