"""Pseudo-terminals of clients: a program each, with its recent output kept for clients that connect later."""

from __future__ import annotations

import asyncio
import codecs
import fcntl
import os
import shutil
import signal
import struct
import subprocess
import termios
from contextlib import suppress
from typing import TYPE_CHECKING

from .. import ids
from ..errors import NotFoundError
from .responses import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..records import Document

    Publish = Callable[[str, Document, str], None]

MAX_TERMINALS = 64
_MAX_OUTPUT = 2 << 20
"""Output that is kept for a client that connects later, in UTF-16 code units, which are JavaScript's characters."""
_CHUNK = 64 << 10
"""Of output, what a client is sent at once when it connects."""
_MAX_CLIENT_QUEUE = 256
_READ_BYTES = 65_536
_END_SECONDS = 2.0
_IN_TERMINAL = 'exec "$@" <>"$0" >&0 2>&0'
"""The first process of a session takes the terminal that it opens as its own, so that it can control jobs in it."""


class Terminal:
    """One program in a pseudo-terminal."""

    def __init__(self, terminal_id: str, directory: str, title: str, command: Sequence[str], cwd: str) -> None:
        self.id = terminal_id
        self.directory = directory
        self.title = title
        self._command = list(command)
        self._cwd = cwd
        """As the client sent it: it may be relative to the directory."""
        self._process: subprocess.Popen[bytes] | None = None
        self._descriptor = -1
        self._output = bytearray()
        """The newest output, in UTF-16."""
        self._cursor = 0
        """How much output there has been, in UTF-16 code units."""
        self._clients: set[asyncio.Queue[str | None]] = set()
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self.exit_code: int | None = None
        self.ended = asyncio.Event()

    @property
    def info(self) -> Document:
        """The terminal as clients see it."""
        return {
            "id": self.id,
            "title": self.title,
            "command": self._command[0],
            "args": self._command[1:],
            "cwd": self._cwd,
            "status": "running" if self.exit_code is None else "exited",
            "pid": self._process.pid if self._process is not None else 0,
        }

    def start(self, environment: dict[str, str], on_exit: Callable[[Terminal], None]) -> None:
        """Start the program; ``on_exit`` is called when it has ended."""
        descriptor, other_end = os.openpty()
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _IN_TERMINAL, os.ttyname(other_end), *self._command],
                cwd=os.path.join(self.directory, self._cwd),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=other_end,
                stderr=other_end,
                start_new_session=True,
            )
        except OSError:
            os.close(descriptor)
            raise
        finally:
            os.close(other_end)
        self._descriptor = descriptor
        os.set_blocking(descriptor, False)
        asyncio.get_running_loop().add_reader(descriptor, self._read, on_exit)

    def connect(self, cursor: int = 0) -> tuple[list[str], int, asyncio.Queue[str | None]]:
        """Return the output from ``cursor`` on (-1: none) in pieces, the cursor of its end, and a queue with what
        follows; ``None`` in it is the end."""
        queue: asyncio.Queue[str | None] = asyncio.Queue(_MAX_CLIENT_QUEUE)
        if self.exit_code is not None:
            queue.put_nowait(None)
        else:
            self._clients.add(queue)
        beginning = self._cursor - len(self._output) // 2
        first = len(self._output) if cursor < 0 else 2 * max(0, cursor - beginning)
        pieces = range(first, len(self._output), 2 * _CHUNK)
        shown = [bytes(self._output[at : at + 2 * _CHUNK]).decode("utf-16-le", errors="replace") for at in pieces]
        return shown, self._cursor, queue

    def disconnect(self, queue: asyncio.Queue[str | None]) -> None:
        """Remove a client."""
        self._clients.discard(queue)

    async def write(self, content: bytes) -> None:
        """Send input to the program."""
        data = memoryview(content)
        while data and self.exit_code is None:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:
                await asyncio.sleep(0.01)
            except OSError:
                return

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of the terminal."""
        if self.exit_code is None:
            fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    async def end(self) -> None:
        """End the program and everything in its terminal."""
        for number in (signal.SIGHUP, signal.SIGKILL):
            if self.exit_code is not None:
                return
            with suppress(ProcessLookupError, PermissionError):
                if self._process is not None:
                    os.killpg(self._process.pid, number)
            with suppress(TimeoutError):
                async with asyncio.timeout(_END_SECONDS):
                    await self.ended.wait()

    def _read(self, on_exit: Callable[[Terminal], None]) -> None:
        try:
            data = os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:  # Linux reports the end of the last program in the terminal as an input/output error
            data = b""
        if data:
            self._add(self._decoder.decode(data))
            return
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._reap(on_exit)

    def _reap(self, on_exit: Callable[[Terminal], None]) -> None:
        code = self._process.poll() if self._process is not None else 0
        if code is None:
            asyncio.get_running_loop().call_later(0.02, self._reap, on_exit)
            return
        self.exit_code = code
        for queue in list(self._clients):
            self._send(queue, None)
        self._clients.clear()
        self.ended.set()
        on_exit(self)

    def _add(self, text: str) -> None:
        units = text.encode("utf-16-le")
        self._output += units
        self._cursor += len(units) // 2
        del self._output[: max(0, len(self._output) - 2 * _MAX_OUTPUT)]
        for queue in list(self._clients):
            self._send(queue, text)

    def _send(self, queue: asyncio.Queue[str | None], text: str | None) -> None:
        try:
            queue.put_nowait(text)
        except asyncio.QueueFull:  # a client that does not read is disconnected, so that it can connect again
            self._clients.discard(queue)
            while not queue.empty():
                queue.get_nowait()
            queue.put_nowait(None)


class Terminals:
    """All terminals of a server."""

    def __init__(self, publish: Publish) -> None:
        self._publish = publish
        self._terminals: dict[str, Terminal] = {}

    def list(self, directory: str) -> list[Terminal]:
        """Return the terminals of a directory."""
        return [terminal for terminal in self._terminals.values() if terminal.directory == directory]

    def get(self, terminal_id: str) -> Terminal:
        """Return a terminal."""
        if terminal_id not in self._terminals:
            raise NotFoundError(f"there is no terminal {terminal_id}", id=terminal_id)
        return self._terminals[terminal_id]

    def create(
        self, directory: str, command: Sequence[str], cwd: str, title: str | None, environment: dict[str, str]
    ) -> Terminal:
        """Start a program in a new terminal."""
        if len(self._terminals) >= MAX_TERMINALS:
            raise RequestError(429, "UnknownError", f"there are {MAX_TERMINALS} terminals already; close one")
        if any("\0" in text for text in (*command, cwd, *environment, *environment.values())):
            raise RequestError(400, "BadRequest", "a command cannot contain a NUL character")
        folder = os.path.join(directory, cwd)
        if not os.path.isdir(folder):
            raise RequestError(400, "BadRequest", f"there is no directory {folder}")
        if shutil.which(os.path.join(folder, command[0]) if "/" in command[0] else command[0]) is None:
            raise RequestError(400, "BadRequest", f"there is no program {command[0]}")
        terminal_id = ids.ascending("pty")
        terminal = Terminal(terminal_id, directory, title or f"Terminal {terminal_id[-4:]}", command, cwd)
        terminal.start(environment, self._on_exit)
        self._terminals[terminal_id] = terminal
        self._publish("pty.created", {"info": terminal.info}, directory)
        return terminal

    def update(self, terminal: Terminal, title: str | None, size: tuple[int, int] | None) -> None:
        """Change the title or the size of a terminal."""
        if title:
            terminal.title = title
        if size is not None:
            terminal.resize(*size)
        self._publish("pty.updated", {"info": terminal.info}, terminal.directory)

    async def remove(self, terminal: Terminal) -> None:
        """End the program of a terminal, and forget the terminal."""
        is_listed = self._terminals.pop(terminal.id, None) is not None
        await terminal.end()
        if is_listed:
            self._publish("pty.deleted", {"id": terminal.id}, terminal.directory)

    async def close(self, directory: str | None = None) -> None:
        """Remove the terminals of a directory, or all."""
        chosen = [one for one in self._terminals.values() if directory in (None, one.directory)]
        await asyncio.gather(*(self.remove(terminal) for terminal in chosen))

    def _on_exit(self, terminal: Terminal) -> None:
        event: Document = {"id": terminal.id, "exitCode": terminal.exit_code}
        self._publish("pty.exited", event, terminal.directory)
        self._terminals.pop(terminal.id, None)  # one that has ended is not listed, as in OpenCode
