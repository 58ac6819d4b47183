"""Long outputs: what the model gets to see of them, and the file that holds the whole."""

from __future__ import annotations

import logging
import os
from io import BufferedWriter, FileIO
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from .. import ids

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger("opensesh.tools")

MAX_LINES = 2_000
MAX_BYTES = 51_200


class OutputPreview(Struct, frozen=True):
    """What is left of an output."""

    text: str
    truncated: bool
    path: str | None = None
    """Where the whole is, if this is not all."""


class Fit(Struct, frozen=True):
    """As much of a text as there is room for."""

    text: str
    lines: int
    size: int
    """In bytes."""
    by_size: bool
    """Whether it was the bytes that ran out, rather than the lines."""


class Outputs(Struct, frozen=True, kw_only=True):
    """Where long outputs are kept, and how long is too long."""

    directory: str
    """``tool-output`` in the data folder; made when it is first needed."""
    max_lines: int = MAX_LINES
    max_bytes: int = MAX_BYTES
    delegate: bool = False
    """Whether the agent can hand the reading of a long output to another."""

    def shorten(self, text: str, keep: Literal["head", "tail"] = "head") -> OutputPreview:
        """``text`` itself if it is short enough; otherwise its whole first (or last) lines, and where the rest is."""
        lines = text.split("\n")
        size = len(text) if text.isascii() else len(_bytes(text))
        if len(lines) <= self.max_lines and size <= self.max_bytes:
            return OutputPreview(text, truncated=False)
        fit = self.fit(lines, keep)
        cut = f"{size - fit.size} bytes" if fit.by_size else f"{len(lines) - fit.lines} lines"
        path = self._save(_bytes(text))
        return OutputPreview(self.notice(fit.text, cut, path, keep), truncated=True, path=path)

    def _save(self, data: bytes) -> str | None:
        try:
            path, file = self.new_file()
            with BufferedWriter(file) as whole:
                whole.write(data)
        except OSError as error:
            log.warning("a long output could not be kept: %s", error)
            return None
        return path

    def fit(self, lines: Sequence[str], keep: Literal["head", "tail"]) -> Fit:
        """As many whole lines from one end as there is room for; of a line longer than all the room, a piece."""
        ordered = lines[: self.max_lines] if keep == "head" else lines[: -self.max_lines - 1 : -1]
        kept: list[str] = []
        size = 0
        for line in ordered:
            more = len(_bytes(line)) + (1 if kept else 0)
            if size + more > self.max_bytes:
                break
            kept.append(line)
            size += more
        by_size = len(kept) < len(ordered)
        if by_size and not any(kept):
            kept.append(_piece(ordered[len(kept)], self.max_bytes - size - (1 if kept else 0), keep))
        text = "\n".join(kept if keep == "head" else reversed(kept))
        return Fit(text, len(kept), len(_bytes(text)), by_size=by_size)

    def notice(self, kept: str, cut: str, path: str | None, keep: Literal["head", "tail"]) -> str:
        """What is kept, with a word of what was ``cut`` and of where the whole is, if it could be kept at all."""
        if path is None:
            where = "The rest is lost: it could not be written to a file."
        elif self.delegate:
            where = (
                f"The whole output is in {path}\nLet an explore agent look through that file (task tool, with grep and "
                "read); reading all of it here would fill the context again."
            )
        else:
            where = f"The whole output is in {path}\nSearch it with grep, or read a piece of it with offset and limit."
        note = f"...{cut} truncated...\n\n{where}"
        return f"{kept}\n\n{note}" if keep == "head" else f"{note}\n\n{kept}"

    def new_file(self) -> tuple[str, FileIO]:
        """A new file for an output, and its name. Its owner alone can read it: a command may print anything."""
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        path = os.path.join(self.directory, ids.ascending("tool"))
        return path, FileIO(path, "x", opener=_private)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _piece(line: str, size: int, keep: Literal["head", "tail"]) -> str:
    """As much of a long line as fits, cut between characters."""
    raw = _bytes(line)
    cut = raw[: max(size, 0)] if keep == "head" else raw[len(raw) - max(size, 0) :]
    return cut.decode("utf-8", "ignore")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")
