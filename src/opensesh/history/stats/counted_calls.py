"""The model calls that a session paid for: what statistics count for it, for callers that need one session.

Every call counts once, for the session that made it. What a fork copied counts for the original (see
:mod:`opensesh.history.stats.forks`); what was removed from a session still counts for it.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING

from ...errors import RecordError
from ...records import Document, as_whole, object_at, side_calls
from ...sessions import removed_calls
from ...storage.protocol import Store, StoredMessage, store_ids
from .forks import may_be_fork
from .session_usage import UsageEntry, session_info

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .money import Repricer


class CountedCalls:
    """The calls of the sessions of a store. What forks copied is found out once, when it is first needed."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def of_session(self, session: Document, messages: Iterable[Document]) -> list[Document]:
        """Return answers and side calls, each with its ``cost``, ``tokens`` and model, from the records of a session
        and of its messages."""
        session_id = str(session.get("id"))
        infos = {str(info.get("id")): info for info in messages}
        for removed in removed_calls.read(store_ids(self._store), session_id):
            infos.setdefault(str(removed.get("id")), removed)
        copied = self._copied_by(session, [as_whole(object_at(info, "time").get("created")) for info in infos.values()])
        calls: dict[str, Document] = {}
        for name, info in infos.items():
            if info.get("role") == "assistant":
                calls[name] = info
            calls |= {f"{name}#{number}": call for number, call in enumerate(side_calls(info))}
        return [call for name, call in calls.items() if name not in copied]

    def usage_of(self, session: Document, messages: Iterable[StoredMessage], repricer: Repricer) -> list[UsageEntry]:
        """Return the usage of the same calls, priced again, and of the prompts, from the messages of a session."""
        from ...storage.change_feeds import RawRecord  # these load msgspec's views; lists of sessions do without
        from .usage_writer import message_usage, with_removed_calls

        session_id = str(session.get("id"))
        usage: dict[str, list[UsageEntry]] = {}
        for message in messages:
            name = str(message.info.get("id"))
            with suppress(RecordError):
                record = RawRecord(name, "", name, message.info)
                usage[name] = message_usage(record, partial(iter, message.parts), repricer)
        entries = with_removed_calls(usage, store_ids(self._store), session_id, repricer)
        copied = self._copied_by(session, [entry.created for entry in entries])
        return [entry for entry in entries if entry.id not in copied]

    def _copied_by(self, session: Document, times: list[int]) -> set[str]:
        """Return the messages and side calls that a session copied; ``times`` are when its messages were created."""
        session_id = str(session.get("id"))
        info = session_info(session, str(session.get("projectID") or ""), session_id)
        return self._copied.get(session_id, set()) if times and may_be_fork(info, min(times)) else set()

    @cached_property
    def _copied(self) -> dict[str, set[str]]:
        """The messages and side calls that each session copied, by session."""
        from ..cache.derived_cache import DerivedCache
        from .usage_layer import UsageTable

        cache = DerivedCache(store=self._store)
        try:
            return UsageTable(cache).copied
        finally:
            cache.close()
