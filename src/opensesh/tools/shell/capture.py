"""The output of a running command: the end of it in memory, all of it in a file once it is too long to be shown."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from ..truncation import Preview

if TYPE_CHECKING:
    from io import FileIO

    from ..truncation import Outputs

log = logging.getLogger("opensesh.tools")

MOST_ON_DISK = 64 * 1024 * 1024
SHOWN_WHILE_RUNNING = 30_000
"""Characters."""


class Capture:
    """Takes bytes as they come, at any rate and in any number, in bounded memory."""

    def __init__(self, outputs: Outputs, most_on_disk: int = MOST_ON_DISK) -> None:
        self._outputs = outputs
        self._most_on_disk = most_on_disk
        self._most_in_memory = max(4 * outputs.max_bytes, 4 * SHOWN_WHILE_RUNNING)
        self._end = bytearray()
        self._too_long = False
        self._file: FileIO | None = None
        self._on_disk = 0
        self.size = 0
        """How many bytes have come."""
        self._newlines = 0
        self._path: str | None = None

    def feed(self, data: bytes) -> None:
        """More output."""
        self.size += len(data)
        self._newlines += data.count(b"\n")
        self._end += data
        if self._too_long:
            self._keep(data)
        elif self.size > self._outputs.max_bytes or self._newlines >= self._outputs.max_lines:
            self._too_long = True
            self._open()
            self._keep(bytes(self._end))
        if len(self._end) > 2 * self._most_in_memory:
            del self._end[: -self._most_in_memory]

    def _open(self) -> None:
        try:
            self._path, self._file = self._outputs.new_file()
        except OSError as error:
            log.warning("the output of a command cannot be kept: %s", error)

    def _keep(self, data: bytes) -> None:
        room = self._most_on_disk - self._on_disk
        if self._file is None or room <= 0:
            return
        try:
            self._on_disk += self._file.write(data[:room]) or 0
        except OSError as error:
            log.warning("the output of a command cannot be kept further: %s", error)
            self._file.close()
            self._file = self._path = None

    def recent(self) -> str:
        """The last of it, for a screen."""
        text = self._tail()
        if len(text) <= SHOWN_WHILE_RUNNING and self.size == len(self._end):
            return text
        return "...\n\n" + text[-SHOWN_WHILE_RUNNING:]

    def finish(self) -> Preview:
        """All of it if it is short enough; otherwise its last lines, and where the whole is."""
        self.close()
        text = self._tail()
        if not self._too_long:
            return Preview(text, truncated=False)
        fit = self._outputs.fit(text.split("\n"), "tail")
        cut = f"{self.size - fit.size} bytes" if fit.by_size else f"{self._newlines + 1 - fit.lines} lines"
        return Preview(self._outputs.notice(fit.text, cut, self._path, "tail"), truncated=True, path=self._path)

    def close(self) -> None:
        """Nothing more will come. Can be called twice."""
        if self._file is None:
            return
        lost = self.size - self._on_disk
        with suppress(OSError):
            if lost:
                self._file.write(f"\n[{lost} more bytes came and were not kept]\n".encode())
        self._file.close()
        self._file = None

    def _tail(self) -> str:
        data = bytes(self._end)
        if self.size > len(data):  # it starts in the middle of something: go on to the next character
            start = next((place for place in range(4) if data[place] & 0xC0 != 0x80), 0)
            data = data[start:]
        return data.decode("utf-8", "replace")
