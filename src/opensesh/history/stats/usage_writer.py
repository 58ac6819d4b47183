"""Writing the usage layer: reading the messages of a session and adding up their usage."""

from __future__ import annotations

import json
import time
from array import array
from typing import TYPE_CHECKING, NamedTuple

from ...errors import RecordError
from ...storage.protocol import UNSTABLE, Damage
from .forks import may_be_fork
from .session_info import session_info
from .session_usage import UsageEntry, buckets_of, in_time_order
from .usage_reader import UsageReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from sqlite3 import Connection
    from typing import Any

    from ...storage.protocol import ChangeFeed, RawRecord, StoredSession
    from .repricing import Repricer

_MAX_TIME = 1 << 62  # SQLite stores 64 bits; damaged records may have any number
_REPLACE = "INSERT OR REPLACE INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


class SessionUsage(NamedTuple):
    """The messages of a session, read from every store that has it."""

    entries: list[UsageEntry]
    watched: dict[str, int]
    """Messages that may change in place, with their fingerprints."""
    damage: list[Damage]
    damaged: list[str]
    """Messages that could not be read as such; their tool calls count nevertheless."""


class UsageWriter:
    """See :class:`~opensesh.history.cache.cache_layers.LayerWriter`."""

    def __init__(self, db: Connection, repricer: Repricer) -> None:
        self.written = 0
        self._db = db
        self._repricer = repricer
        self._reported: dict[str, int] = {}
        """By store: how much of the damage of its feed belongs to earlier sessions."""

    def write_session(
        self, session: str, head: StoredSession | None, feeds: Sequence[ChangeFeed], *, full: bool
    ) -> None:
        """Read the messages of a session and write its row."""
        usage = read_usage(session, feeds, self._repricer)
        entries = in_time_order(usage.entries)
        info = session_info(head.record, head.project_id, session) if head else None
        first = min(max(entries[0].created, -_MAX_TIME), _MAX_TIME) if entries else 0
        answers = [entry for entry in entries if entry.role == "assistant"]
        damage = [*usage.damage]
        for feed in feeds:
            damage += feed.damage[self._reported.get(feed.store_id, 0) :]
            self._reported[feed.store_id] = len(feed.damage)
        row = [
            session,
            time.time_ns(),
            None if info is None else json.dumps(info),
            first,
            json.dumps(buckets_of(entries)),
            json.dumps(damage) if damage else None,
            json.dumps(list(usage.watched.items())) if usage.watched else None,
            " ".join([*(entry.id for entry in answers), *usage.damaged]),
            json.dumps([*(entry.created for entry in answers), *(0 for _ in usage.damaged)]),
            array("q", [entry.fingerprint for entry in entries]).tobytes(),
            json.dumps(entries) if entries and may_be_fork(info, first) else None,
        ]
        self._db.execute(_REPLACE, row)
        self.written += 1

    def remove_session(self, session: str) -> None:
        """Remove the rows of a session."""
        self._db.execute("DELETE FROM usage WHERE session = ?", [session])
        self._db.execute("DELETE FROM tool_usage WHERE session = ?", [session])

    def flush(self) -> None:
        """Write which price table was used."""
        prices = json.dumps(self._repricer.prices.plain)
        self._db.execute("INSERT OR REPLACE INTO meta VALUES ('prices', ?)", [prices])
        self.written = 0


def read_usage(session: str, feeds: Sequence[ChangeFeed], repricer: Repricer) -> SessionUsage:
    """Read the messages of a session; of a message that several stores have, the most complete copy counts."""
    copies: list[dict[str, list[UsageEntry]]] = []
    watched: dict[str, int] = {}
    damage: list[Damage] = []
    damaged: list[str] = []
    for feed in feeds:
        entries: dict[str, list[UsageEntry]] = {}
        reader = UsageReader(repricer, lambda message, feed=feed: _parts(feed, session, message))
        for record in feed.messages(session):
            try:
                entries[record.id] = reader.read(record)
                if not entries[record.id][0].completed and entries[record.id][0].role == "assistant":
                    # The fingerprint must not be newer than what is read, so the message is read once more.
                    _watch(feed, session, record.id, watched)
                    for again in feed.messages(session, [record.id]):
                        entries[record.id] = reader.read(again)
            except RecordError as error:
                entries.pop(record.id, None)
                damaged.append(record.id)
                damage.append(Damage(record.path, error.reason))
                _watch(feed, session, record.id, watched)
        copies.append(entries)
    if len(copies) == 1:
        return SessionUsage([entry for group in copies[0].values() for entry in group], watched, damage, damaged)
    from ...storage.merged import duplicate_messages

    duplicates = duplicate_messages([entries.keys() for entries in copies])
    merged: dict[str, list[UsageEntry]] = {}
    for entries in copies:
        for name, group in entries.items():
            if name not in duplicates:
                merged[name] = max(
                    merged.get(name, group),
                    group,
                    key=lambda group: (len(group), bool(group[0].completed), group[0].cost, group[0].output),
                )
    return SessionUsage([entry for group in merged.values() for entry in group], watched, damage, damaged)


def _watch(feed: ChangeFeed, session: str, message: str, watched: dict[str, int]) -> None:
    state = feed.message_state(session, message, full=False)
    if state is not None:
        watched[message] = state.fingerprint
    elif feed.persistent:
        watched.setdefault(message, UNSTABLE)


def _parts(feed: ChangeFeed, session: str, message: str) -> Iterator[Any]:
    records: Iterator[RawRecord] = feed.message_parts(session, [message])
    for record in records:
        try:
            yield record.document()
        except RecordError:
            continue
