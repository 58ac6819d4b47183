"""The outline of a session: a row for each message, and the prompts to jump to; and the first prompts of many."""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ..errors import OpenseshError
from ..records import Document, as_object
from ..storage.protocol import Store, StoredMessage, ignore_damage
from ..storage.record_ids import with_ids_of_key, with_parts
from .rendering.visible_text import one_line
from .transcript import (
    MarkerBlock,
    ReasoningBlock,
    TextBlock,
    ToolBlock,
    TranscriptMessage,
    TranscriptOptions,
    transcript_message,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


_WORDS_LENGTH = 120
_MAX_MESSAGES = 3
"""A session that does not begin with a prompt has none for lists."""
_MAX_REMEMBERED = 20_000


class OutlineRow(NamedTuple):
    """One message. Rows are sent as arrays, because a session has thousands of them."""

    id: str
    role: str
    """user or assistant."""
    created: int
    size: int
    """Characters of text, reasoning and output."""
    flags: str
    """Letters: ``a`` aborted, ``c`` compaction, ``e`` error, ``f`` failed call, ``s`` summary, ``t`` tool call."""
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
            "a": message.is_aborted,
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


class FirstPrompts:
    """The beginnings of the first prompts of sessions, which tell sessions with the same title apart in lists.

    A list has thousands of sessions and shows a hundred. The prompts of those are read when they are shown, and
    remembered. Several threads may use it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, str] = {}

    def of(self, session_ids: Iterable[str], seconds: float) -> tuple[dict[str, str], bool]:
        """Return the prompts by session, and whether there was time to read all of them."""
        end = time.monotonic() + seconds
        prompts: dict[str, str] = {}
        for session_id in session_ids:
            words = self._known.get(session_id)
            if words is None:
                if time.monotonic() > end:
                    return prompts, False
                words = self._read(session_id)
                # A session without a prompt gets one later.
                if words and len(self._known) < _MAX_REMEMBERED:
                    self._known[session_id] = words
            prompts[session_id] = words
        return prompts, True

    def _read(self, session_id: str) -> str:
        # Keys are in the order of ids, which are those of time, apart from ids that have wrapped around: then the
        # first message by id is not the oldest, and another prompt of the session is shown.
        messages = self._store.scan(("message", session_id), report=ignore_damage)
        try:
            for key, record in islice(messages, _MAX_MESSAGES):
                info = as_object(with_ids_of_key(key, record)) or {}
                if info.get("role") == "user":
                    message = with_parts(self._store, info, ignore_damage)
                    if words := prompt_words(transcript_message(message)):
                        return words
        except OpenseshError:
            pass  # the list shows the session without it
        return ""
