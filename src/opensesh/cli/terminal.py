"""The terminal: the streams a command writes to, questions to the user, and a progress line.

Text of a record, a model, a tool or an argument is escaped before it gets to a terminal: a control sequence could
retitle the window, write to the clipboard, move the cursor over a question, or show other text than there is. Standard
output and standard error do this themselves (:class:`EscapingStream`), so that no command can forget it. Only the
screen of ``run`` (:class:`Stream`) and progress lines are written to a terminal directly.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, redirect_stderr
from contextvars import ContextVar
from typing import Any, Self, TextIO, cast

from ..errors import UsageError

_C0 = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n\r"}
_C1 = {code: f"\\u{code:04x}" for code in range(0x80, 0xA0)}
_DIRECTIONS = {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
_ESCAPES: dict[int, str | None] = {**_C0, **_C1, **_DIRECTIONS, 0x0D: None, 0x7F: "␡"}
_PROGRESS_AFTER_SECONDS = 1.0
_PROGRESS_INTERVAL_SECONDS = 0.2


def escape_control(text: str) -> str:
    """Return ``text`` with control characters made visible; line ends and tabs stay."""
    return text if text.isprintable() else text.translate(_ESCAPES)


_COLOUR = re.compile(r"(\x1b\[(?:0|(?:[1-4]|3[1-6])(?:;(?:[1-4]|3[1-6]))*)?m)")
"""The styles that commands use. Others could hide a text, as concealed or as white on white."""
_ANY_STYLE = re.compile(r"(\x1b\[[0-9;]*m)")


def escape_except_colours(text: str, *, any_style: bool = False) -> str:
    """Return ``text`` with control characters made visible, except sequences that set a colour or a style that hides
    nothing; with ``any_style``, except those of all styles."""
    if "\x1b[" not in text:
        return escape_control(text)
    styles = _ANY_STYLE if any_style else _COLOUR
    return "".join(piece if index % 2 else escape_control(piece) for index, piece in enumerate(styles.split(text)))


_WORD = re.compile(r"\s*(?:(?<!\S)'[^']+'\S*|\S+)")
"""A word with the space before it. A quoted command is one word, so that it can be copied from a terminal."""


def fold(text: str, columns: int) -> str:
    """Return ``text`` with more line ends between its words, so that no word is cut at the last column of a terminal.
    What follows them is indented like the line was."""
    if len(text) <= columns:
        return text
    return "\n".join(_fold_line(line, columns) for line in text.split("\n"))


def _fold_line(line: str, columns: int) -> str:
    indent = line[: len(line) - len(line.lstrip())]
    lines, length = [""], 0
    for word in _WORD.findall(line):
        size = len(_ANY_STYLE.sub("", word))
        if lines[-1] and length + size > columns:
            begin = indent + word.lstrip()
            lines.append(begin)
            length = len(_ANY_STYLE.sub("", begin))
        else:
            lines[-1] += word
            length += size
    return "\n".join(lines)


class EscapingStream:
    """A terminal's standard output or standard error that escapes what is written to it, as text or as bytes.

    ``folds``: its lines are sentences, which are folded between words.
    """

    def __init__(self, stream: TextIO, *, folds: bool = False) -> None:
        self.terminal = stream
        self.buffer = _EscapingBuffer(stream)
        self._folds = folds

    def write(self, text: str) -> int:
        """Write ``text``; colours stay."""
        shown = escape_except_colours(text)
        self.terminal.write(fold(shown, columns_of(self.terminal)) if self._folds else shown)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each of ``lines``."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.terminal, name)


class _EscapingBuffer:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, data: bytes) -> int:
        self._stream.flush()
        self._stream.buffer.write(escape_except_colours(data.decode(errors="replace")).encode())
        return len(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream.buffer, name)


def escape_terminals() -> None:
    """Make standard output and standard error escape what is written to them, where they are terminals."""
    for name in ("stdout", "stderr"):
        stream: TextIO | EscapingStream = getattr(sys, name)
        if not isinstance(stream, EscapingStream) and stream.isatty():
            setattr(sys, name, EscapingStream(stream, folds=name == "stderr"))


def unescaped(stream: TextIO) -> TextIO:
    """Return the terminal behind an escaping stream, for text that is escaped already and for cursor movements."""
    wrapped = cast("object", stream)
    return wrapped.terminal if isinstance(wrapped, EscapingStream) else stream


def is_coloured(stream: TextIO) -> bool:
    """Return whether a stream takes colour."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()


def columns_of(stream: TextIO) -> int:
    """Return the width of a stream's terminal; 80 if there is none."""
    try:
        return int(os.environ.get("COLUMNS") or os.get_terminal_size(stream.fileno()).columns) or 80
    except (OSError, ValueError):
        return 80


def _is_pipe(stream: TextIO) -> bool:
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


class Stream:
    """Standard output or standard error, unbuffered and not escaped. Characters that it cannot encode are replaced."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = unescaped(stream)
        self.is_terminal = stream.isatty()
        self.is_pipe = _is_pipe(stream)
        self.can_erase = self.is_terminal and os.environ.get("TERM") != "dumb"
        self._coloured = is_coloured(stream)

    def write(self, text: str) -> None:
        """Write ``text`` as it is."""
        self.write_bytes(text.encode(self._stream.encoding or "utf-8", "replace"))

    def write_bytes(self, data: bytes) -> None:
        """Write ``data``, regardless of the stream's encoding."""
        self._stream.flush()
        self._stream.buffer.write(data)
        self._stream.buffer.flush()

    def paint(self, text: str, *codes: int) -> str:
        """Return ``text`` in colour, if the stream takes it."""
        return f"\x1b[{';'.join(map(str, codes))}m{text}\x1b[0m" if codes and self._coloured else text

    def drop_unwritten(self) -> None:
        """Discard what cannot be written, so that Python does not fail on it at exit."""
        try:
            self._stream.flush()
        except OSError:  # the reader has closed the pipe, or the disk is full
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    @property
    def columns(self) -> int:
        """The width of the terminal; 80 if there is none."""
        return columns_of(self._stream)

    def shares_screen(self, other: Stream) -> bool:
        """Return whether both streams end in the same file, so that their lines mix."""
        try:
            return os.path.sameopenfile(self._stream.fileno(), other._stream.fileno())
        except (OSError, ValueError):
            return False


# -- errors ------------------------------------------------------------------------------------------------------------

_ERRORS: ContextVar[TextIO | None] = ContextVar("errors", default=None)
"""Where errors are printed while the rest of standard error is discarded."""


@contextmanager
def only_errors() -> Generator[None]:
    """Discard what is written to standard error, except errors."""
    token = _ERRORS.set(sys.stderr)
    try:
        with open(os.devnull, "w", encoding="utf-8") as null, redirect_stderr(null):
            yield
    finally:
        _ERRORS.reset(token)


def error_stream() -> TextIO:
    """Return the stream for errors: standard error, also with ``--quiet``."""
    return _ERRORS.get() or sys.stderr


# -- questions ---------------------------------------------------------------------------------------------------------


def can_ask() -> bool:
    """Return whether the user would see a question and could answer it; not with ``--quiet``."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ensure_can_ask(instead: str) -> None:
    """Raise a :class:`~opensesh.errors.UsageError` that says what to do instead, where no question can be asked."""
    if not can_ask():
        raise UsageError(instead)


def ask(question: str) -> str:
    """Return the user's answer; empty at the end of the input. Standard output is left to the result."""
    print(question, end=" ", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        print(file=sys.stderr)
    return line.strip()


def confirm(question: str) -> bool:
    """Return whether the user answers yes."""
    return ask(f"{question} [y/N]").lower() in ("y", "yes")


# -- progress ----------------------------------------------------------------------------------------------------------


class Progress:
    """A line on a terminal's standard error that counts, shown after a second and erased at the end.

    Calling it with the current counts fills them into ``template``.
    """

    def __init__(self, template: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._template = template
        self._clock = clock
        self._next = clock() + _PROGRESS_AFTER_SECONDS
        self._length = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._length:
            print(f"\r{' ' * self._length}\r", end="", file=unescaped(sys.stderr), flush=True)

    def __call__(self, *counts: int) -> None:
        """Show the counts, unless the line was updated a moment ago."""
        now = self._clock()
        if now >= self._next and sys.stderr.isatty():
            self._next = now + _PROGRESS_INTERVAL_SECONDS
            line = self._template.format(*counts).ljust(self._length)
            self._length = len(line)
            print(f"\r{line}", end="", file=unescaped(sys.stderr), flush=True)
