"""The first prompts of sessions, which tell sessions with the same title apart in lists.

A list has thousands of sessions and shows a hundred. The prompts of those are read when they are shown, and remembered.
"""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING

from ..errors import OpenseshError
from ..records import as_object
from ..storage.protocol import StoredMessage, ignore_damage
from ..storage.record_ids import with_ids_of_key
from .session_outline import prompt_words
from .transcript import transcript_message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..storage.protocol import Store

_MAX_MESSAGES = 3
"""A session that does not begin with a prompt has none for lists."""
_MAX_REMEMBERED = 20_000


class FirstPrompts:
    """The beginnings of first prompts that were read so far. Several threads may use it."""

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
                    scanned = self._store.scan(("part", key[-1]), report=ignore_damage)
                    parts = [as_object(with_ids_of_key(part_key, part)) or {} for part_key, part in scanned]
                    if words := prompt_words(transcript_message(StoredMessage(info, parts))):
                        return words
        except OpenseshError:
            pass  # the list shows the session without it
        return ""
