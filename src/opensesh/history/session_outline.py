"""The outline of a session: a row for each message, and the prompts to jump to."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .rendering.visible_text import one_line
from .transcript import MarkerBlock, ReasoningBlock, TextBlock, ToolBlock, TranscriptOptions, transcript_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..records import Document
    from ..storage.protocol import StoredMessage
    from .transcript import TranscriptMessage

_WORDS_LENGTH = 120


class OutlineRow(NamedTuple):
    """One message. Rows are sent as arrays, because a session has thousands of them."""

    id: str
    role: str
    """user or assistant."""
    created: int
    size: int
    """Characters of text, reasoning and output."""
    flags: str
    """Letters: ``c`` compaction, ``e`` error, ``f`` failed call, ``s`` summary, ``t`` tool call."""
    cost: float
    words: str
    """The beginning of a prompt; empty for an answer."""


def outline(messages: Iterable[StoredMessage]) -> Iterator[OutlineRow]:
    """Yield a row for each message, in order."""
    for stored in messages:
        message = transcript_message(stored, TranscriptOptions.everything())
        size, calls, is_compaction = 0, list[ToolBlock](), False
        for block in message.blocks:
            match block:
                case TextBlock(text=text) | ReasoningBlock(text=text):
                    size += len(text)
                case ToolBlock():
                    size += len(block.output) + len(block.diff)
                    calls.append(block)
                case MarkerBlock(kind="compaction"):
                    is_compaction = True
                case _:
                    pass
        flags = {
            "c": is_compaction,
            "e": bool(message.failure),
            "f": any(call.status == "error" or call.exit_code for call in calls),
            "s": message.is_summary,
            "t": bool(calls),
        }
        yield OutlineRow(
            message.id,
            message.role,
            message.created,
            size,
            "".join(flag for flag, holds in flags.items() if holds),
            message.cost,
            prompt_words(message),
        )


def prompt_words(message: TranscriptMessage) -> str:
    """Return the beginning of a prompt as one line; empty for an answer."""
    if message.role != "user":
        return ""
    texts = (block.text for block in message.blocks if isinstance(block, TextBlock) and not block.synthetic)
    return one_line(" ".join(texts), _WORDS_LENGTH)


def outline_document(rows: Iterable[OutlineRow], revision: str) -> Document:
    """Return an outline as JSON data."""
    return {"revision": revision, "turns": [list(row) for row in rows]}
