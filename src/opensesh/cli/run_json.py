"""A run for programs: one event a line, and the result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import OpenseshError
from ..records import dumps_compact

if TYPE_CHECKING:
    from ..bus import Envelope
    from ..engine.loop import Outcome
    from ..records import Document
    from .driving import Drive
    from .terminal import Stream


class EventLines:
    """Writes every event as a line: its type, its properties and its number."""

    def __init__(self, out: Stream) -> None:
        self._out = out

    def follow(self, session_id: str) -> None:
        """The session is named in the events themselves."""

    def show(self, envelope: Envelope) -> None:
        """Write it."""
        write_line(self._out, {**envelope.document, "sequence": envelope.sequence})


class Nothing:
    """Shows nothing, for those who want the result alone."""

    def follow(self, session_id: str) -> None:
        """Not of interest."""

    def show(self, envelope: Envelope) -> None:
        """Not of interest."""


def write_line(out: Stream, document: Document) -> None:
    """One document on one line, whatever a reader takes to be a line end."""
    line = dumps_compact(document)
    for character in ("\u2028", "\u2029", "\x85"):
        line = line.replace(character.encode(), b"\\u%04x" % ord(character))
    out.write_bytes(line + b"\n")


def result(drive: Drive, outcome: Outcome) -> Document:
    """What became of the prompt."""
    record: Document = {
        "type": "result",
        "sessionID": drive.session_id,
        "outcome": outcome.kind,
        "text": outcome.text,
        "cost": drive.tally.cost(drive.engine),
        "tokens": drive.tally.tokens,
    }
    return record | ({"error": outcome.error} if outcome.error is not None else {})


def no_result(error: Exception) -> Document:
    """The result where the prompt never got to have an outcome."""
    known = isinstance(error, OpenseshError)
    data = {**error.data, "message": error.message} if known else {"message": f"{type(error).__name__}: {error}"}
    shape = {"name": error.json_name if known else "UnknownError", "data": data}
    none = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}
    return {
        "type": "result",
        "sessionID": None,
        "outcome": "failed",
        "text": "",
        "cost": 0,
        "tokens": none,
        "error": shape,
    }
