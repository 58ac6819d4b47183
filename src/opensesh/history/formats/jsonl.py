"""One line a session: its prompts and answers with thoughts and tokens, for those who study conversations.

The fields, in this order: ``session_id``, ``project_hash``, ``start_time``, ``last_updated``, ``source``, ``messages``;
of each message ``role``, ``timestamp``, ``model``, ``content``, ``thoughts``, ``tokens``; of each thought ``subject``,
``description``, ``timestamp``. Times are ISO 8601 in UTC. ``content`` is all text of the message, one part behind the
other; what a message does not have is ``null``. Not lossless: tools, files and structure stay behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...records import as_object, dumps_compact
from ..formatting import iso, text, tool_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...records import Document
    from ...storage.protocol import StoredMessage
    from . import ExportedSession, FormatOptions


class JsonlFormat:
    """A conversation a line."""

    suffix = ".jsonl"
    together = (b"", b"", b"")
    nests = False

    def __init__(self, options: FormatOptions) -> None:
        self._summarise = options.tools == "summary"
        self.reads = frozenset(("text", "reasoning", "tool") if self._summarise else ("text", "reasoning"))

    def pieces(self, session: ExportedSession) -> Iterator[bytes]:
        """A line, with its end."""
        time = as_object(session.info.get("time")) or {}
        head: Document = {
            "session_id": session.id,
            "project_hash": text(session.info, "projectID") or session.project,
            "start_time": iso(time.get("created")),
            "last_updated": iso(time.get("updated", time.get("created"))),
            "source": "opencode",
            "messages": [],
        }
        yield dumps_compact(head)[:-2]
        between = b""
        for message in session.messages:
            yield between + dumps_compact(self._message(message))
            between = b","
        yield b"]}\n"

    def _message(self, message: StoredMessage) -> Document:
        info = message.info
        time = as_object(info.get("time")) or {}
        return {
            "role": info.get("role"),
            "timestamp": iso(time.get("created")),
            "model": info.get("modelID"),
            "content": self._content(message.parts),
            "thoughts": [_thought(part, time) for part in message.parts if part.get("type") == "reasoning"],
            "tokens": info.get("tokens"),
        }

    def _content(self, parts: list[Document]) -> str:
        if not self._summarise:
            return "".join(text(part, "text") for part in parts if part.get("type") == "text")
        pieces = ""
        for part in parts:
            if part.get("type") == "text":
                pieces += text(part, "text")
            elif part.get("type") == "tool":
                pieces += ("\n" if pieces and not pieces.endswith("\n") else "") + tool_line(part) + "\n"
        return pieces


def _thought(part: Document, message: Document) -> Document:
    metadata = as_object(part.get("metadata")) or {}
    subject: Any = metadata.get("subject")
    moment = (as_object(part.get("time")) or {}).get("start", message.get("created"))
    return {
        "subject": "Thinking" if subject is None else subject,
        "description": text(part, "text"),
        "timestamp": iso(moment),
    }
