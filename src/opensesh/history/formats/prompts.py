"""What was asked, nothing else: a heading a session, then its prompts in their own words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..formatting import when
from ..transcript import TextBlock, transcript_messages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from . import ExportedSession, FormatOptions


class PromptsFormat:
    """Plain text. A session without a prompt is left out."""

    suffix = ".txt"
    together = (b"", b"", b"")
    nests = False
    reads = frozenset(("text", "file", "subtask"))

    def __init__(self, options: FormatOptions) -> None:
        self._options = options

    def pieces(self, session: ExportedSession) -> Iterator[bytes]:
        """One session's prompts."""
        title = session.info.get("title")
        heading = f"# {title if isinstance(title, str) else ''} ({session.id})\n\n"
        for turn in transcript_messages(session.messages):
            words = [block.text for block in turn.blocks if isinstance(block, TextBlock)]
            if turn.role == "user" and words:
                said = "\n\n".join(text.strip("\n") for text in words)
                yield f"{heading}[{when(turn.created, utc=self._options.utc)}]\n{said}\n\n".encode(errors="replace")
                heading = ""
