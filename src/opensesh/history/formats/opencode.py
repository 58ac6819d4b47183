"""OpenCode's own export: ``{"info": ..., "messages": [{"info": ..., "parts": [...]}]}``, indented as it prints it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...records import dumps
from .completing import complete_message, complete_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...records import Document
    from ...storage.protocol import StoredMessage
    from . import ExportedSession, FormatOptions


class JsonFormat:
    """Records as they are stored, nothing added and nothing left out."""

    suffix = ".json"
    together: tuple[bytes, bytes, bytes] | None = (b"[\n", b",\n", b"]\n")
    nests = False
    reads = None

    def __init__(self, options: FormatOptions) -> None:
        pass

    def pieces(self, session: ExportedSession) -> Iterator[bytes]:
        """One document, with a line's end behind it."""
        yield b'{\n  "info": ' + _indented(self.info(session), b"  ") + b',\n  "messages": ['
        between = b"\n    "
        for message in session.messages:
            info, parts = self.message(session, message)
            yield between + _indented({"info": info, "parts": parts}, b"    ")
            between = b",\n    "
        yield (b"\n  ]" if between[:1] == b"," else b"]") + b"\n}\n"

    def info(self, session: ExportedSession) -> Document:
        """The record of the session."""
        return session.info

    def message(self, session: ExportedSession, message: StoredMessage) -> StoredMessage:
        """A message and its parts."""
        return message


class ImportableFormat(JsonFormat):
    """The same for ``opencode import``, whose newer versions refuse records that lack what older ones did not write.

    What is there stays as it is; only what is missing is filled in. Unlike :class:`JsonFormat`, a file holds one
    session: OpenCode takes no more.
    """

    together = None
    _prompt = ""

    def info(self, session: ExportedSession) -> Document:
        """The record of the session, complete."""
        self._prompt = ""
        return complete_session(session.info, session.id, session.project)

    def message(self, session: ExportedSession, message: StoredMessage) -> StoredMessage:
        """A message and its parts, complete."""
        if message.info.get("role") == "user":
            self._prompt = str(message.info.get("id", ""))
        return complete_message(message, session.info | {"id": session.id}, self._prompt)


def _indented(value: object, margin: bytes) -> bytes:
    # Inside of strings, JSON has no line ends of its own.
    return dumps(value).replace(b"\n", b"\n" + margin)
