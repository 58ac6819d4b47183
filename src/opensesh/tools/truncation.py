"""Truncation of long outputs: what the model sees, and the file with the whole."""

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
    """An output, truncated if it was too long."""

    text: str
    truncated: bool
    path: str | None = None
    """The file with the whole output, if it was truncated."""


class Fit(Struct, frozen=True):
    """As much of a text as the limits allow."""

    text: str
    lines: int
    size: int
    """In bytes."""
    by_size: bool
    """Whether the limit of bytes applied, rather than that of lines."""


class Outputs(Struct, frozen=True, kw_only=True):
    """Limits for outputs, and the directory where long ones are saved."""

    directory: str
    """``tool-output`` in the data folder; created when it is first needed."""
    max_lines: int = MAX_LINES
    max_bytes: int = MAX_BYTES
    delegate: bool = False
    """Whether the agent can let a subagent read a long output."""

    def shorten(self, text: str, keep: Literal["head", "tail"] = "head") -> OutputPreview:
        """Return ``text`` if it is short enough; otherwise its first (or last) lines and the path of the whole."""
        lines = text.split("\n")
        size = len(text) if text.isascii() else len(_encode(text))
        if len(lines) <= self.max_lines and size <= self.max_bytes:
            return OutputPreview(text, truncated=False)
        fit = self.fit(lines, keep)
        cut = f"{size - fit.size} bytes" if fit.by_size else f"{len(lines) - fit.lines} lines"
        path: str | None = None
        try:
            path, file = self.new_file()
            with BufferedWriter(file) as whole:
                whole.write(_encode(text))
        except OSError as error:
            log.warning("cannot save a long output: %s", error)
            path = None
        return OutputPreview(self.notice(fit.text, cut, path, keep), truncated=True, path=path)

    def fit(self, lines: Sequence[str], keep: Literal["head", "tail"]) -> Fit:
        """Return as many whole lines from one end as fit; of a single line that is too long, a piece."""
        ordered = lines[: self.max_lines] if keep == "head" else lines[: -self.max_lines - 1 : -1]
        kept: list[str] = []
        size = 0
        for line in ordered:
            added = len(_encode(line)) + (1 if kept else 0)
            if size + added > self.max_bytes:
                break
            kept.append(line)
            size += added
        by_size = len(kept) < len(ordered)
        if by_size and not any(kept):
            line = _encode(ordered[len(kept)])
            remaining = max(self.max_bytes - size - (1 if kept else 0), 0)
            piece = line[:remaining] if keep == "head" else line[len(line) - remaining :]
            kept.append(piece.decode("utf-8", "ignore"))  # cuts between characters
        text = "\n".join(kept if keep == "head" else reversed(kept))
        return Fit(text, len(kept), len(_encode(text)), by_size=by_size)

    def notice(self, kept: str, cut: str, path: str | None, keep: Literal["head", "tail"]) -> str:
        """Return the kept text with a notice: how much was cut, and where the whole output is."""
        if path is None:
            where = "The rest is lost: it could not be written to a file."
        elif self.delegate:
            where = (
                f"The whole output is in {path}\nLet an explore agent search that file (task tool, with grep and "
                "read); reading all of it here would fill the context again."
            )
        else:
            where = f"The whole output is in {path}\nSearch it with grep, or read a piece of it with offset and limit."
        note = f"...{cut} truncated...\n\n{where}"
        return f"{kept}\n\n{note}" if keep == "head" else f"{note}\n\n{kept}"

    def new_file(self) -> tuple[str, FileIO]:
        """Create a file for an output and return its path. Only its owner can read it: a command may print secrets."""
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        path = os.path.join(self.directory, ids.ascending("tool"))
        return path, FileIO(path, "x", opener=lambda name, flags: os.open(name, flags, 0o600))


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "replace")
