"""Writing the usage layer: reading the fields of messages that say who, when and how much, and adding them up."""

from __future__ import annotations

import json
import time
from array import array
from contextlib import suppress
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import RecordError
from ...records import EXTENSION_KEY, Document, as_object, as_whole, object_at, side_calls
from ...sessions import removed_calls
from ...storage.change_feeds import UNSTABLE, ChangeFeed, RawRecord, StoredSession
from ...storage.protocol import Damage
from ..formatting import text, time_of
from .forks import may_be_fork
from .money import Repricer, units
from .session_usage import UsageEntry, buckets_of, session_info

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from sqlite3 import Connection

    from .money import Used

_REPLACE = "INSERT OR REPLACE INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"


class SessionUsage(NamedTuple):
    """The messages of a session, read from every store that has it."""

    entries: list[UsageEntry]
    """The entries in the order of time."""
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
        """The number of entries in the damage of each feed that belong to earlier sessions, by store."""

    def write_session(
        self, session: str, head: StoredSession | None, feeds: Sequence[ChangeFeed], *, full: bool
    ) -> None:
        """Read the messages of a session and write its row."""
        usage = read_usage(session, feeds, self._repricer)
        entries = usage.entries
        info = session_info(head.record, head.project_id, session) if head else None
        answers = {entry.id: entry.created for entry in entries if entry.role == "assistant"}
        damage = [*usage.damage]
        for feed in feeds:
            damage += feed.damage[self._reported.get(feed.store_id, 0) :]
            self._reported[feed.store_id] = len(feed.damage)
        row = [
            session,
            time.time_ns(),
            None if info is None else json.dumps(info),
            json.dumps(buckets_of(entries)),
            json.dumps(damage) if damage else None,
            json.dumps(list(usage.watched.items())) if usage.watched else None,
            # The tool calls of a damaged message count although its time is not known.
            json.dumps(answers | dict.fromkeys(usage.damaged, 0)),
            array("q", [entry.fingerprint for entry in entries]).tobytes(),
            json.dumps(entries) if entries and may_be_fork(info, entries[0].created) else None,
        ]
        self._db.execute(_REPLACE, row)
        self.written += 1

    def remove_session(self, session: str) -> None:
        """Remove the rows of a session."""
        self._db.execute("DELETE FROM usage WHERE session = ?", [session])
        self._db.execute("DELETE FROM tool_usage WHERE session = ?", [session])

    def flush(self) -> None:
        """Write which price table was used."""
        prices = json.dumps(self._repricer.prices)
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
        for record in feed.messages(session):
            try:
                parts = partial(_parts, session, record.id, feed)
                entries[record.id] = message_usage(record, parts, repricer)
                if not entries[record.id][0].completed and entries[record.id][0].role == "assistant":
                    # The fingerprint must not be newer than what is read, so the message is read once more.
                    _watch(feed, session, record.id, watched)
                    for again in feed.messages(session, [record.id]):
                        entries[record.id] = message_usage(again, parts, repricer)
            except RecordError as error:
                entries.pop(record.id, None)
                damaged.append(record.id)
                damage.append(Damage(record.path, error.reason))
                _watch(feed, session, record.id, watched)
        copies.append(entries)
    merged = copies[0] if len(copies) == 1 else _merge(copies)
    entries_in_order = with_removed_calls(merged, [feed.store_id for feed in feeds], session, repricer)
    return SessionUsage(entries_in_order, watched, damage, damaged)


def with_removed_calls(
    usage: Mapping[str, list[UsageEntry]], store_ids: Iterable[str], session: str, repricer: Repricer
) -> list[UsageEntry]:
    """Return the usage of a session's messages, and of the messages that were removed from it, in the order of time."""
    removed: dict[str, list[UsageEntry]] = {}
    for info in removed_calls.read(store_ids, session):
        if (name := str(info.get("id"))) not in usage:
            record = RawRecord(name, "", name, {"finish": "unknown", **info})
            with suppress(RecordError):
                answer, *others = message_usage(record, tuple, repricer)
                removed[name] = [answer._replace(role="removed"), *others] if answer.role == "assistant" else others
    return sorted(chain(*usage.values(), *removed.values()), key=attrgetter("created", "id"))


def _merge(copies: Sequence[dict[str, list[UsageEntry]]]) -> dict[str, list[UsageEntry]]:
    from ...storage.copies import duplicate_messages

    def completeness(group: list[UsageEntry]) -> Any:
        return len(group), bool(group[0].completed), group[0].cost, group[0].output

    duplicates = duplicate_messages([entries.keys() for entries in copies])
    merged: dict[str, list[UsageEntry]] = {}
    for entries in copies:
        for name, group in entries.items():
            if name not in duplicates:
                merged[name] = max(merged.get(name, group), group, key=completeness)
    return merged


def message_usage(record: RawRecord, parts: Callable[[], Iterable[Document]], repricer: Repricer) -> list[UsageEntry]:
    """Return the usage of a message, and of the side calls stored with it, such as one for a title.

    ``parts`` returns the parts of the message, which only old answers need. A field of the wrong type is ignored.
    Raises :class:`RecordError` if the record is not a message.
    """
    info, name = record.document(), record.id
    role = info.get("role")
    if role not in ("user", "assistant"):
        raise RecordError(f"a message's role is user or assistant, not {role!r}", path=record.path, place="$.role")
    created = time_of(info, "created")
    if created is None:
        raise RecordError("expected milliseconds, found nothing", path=record.path, place="$.time.created")
    if role == "user":
        model = _model_of(object_at(info, "model"))
        entries = [UsageEntry(name, "user", created, 0, *model, _agent_of(info))]
    else:
        # Before OpenCode 1.0.69 an answer had several model calls and no finish reason, and kept only the tokens of
        # the last call.
        steps = [] if info.get("finish") is not None else list(_step_tokens(parts()))
        entries = [_answer(name, "assistant", created, info, repricer, steps)]
    for number, call in enumerate(side_calls(info) if EXTENSION_KEY in info else ()):
        entries.append(_answer(f"{name}#{number}", "call", time_of(call, "created") or 0, call, repricer))
    return entries


def _answer(
    name: str, role: str, created: int, info: Document, repricer: Repricer, steps: Sequence[Document] = ()
) -> UsageEntry:
    """Return the usage of an answer or a side call; ``steps`` are the tokens of its model calls, if it had several."""
    model, cost = _model_of(info), info.get("cost")
    tokens = object_at(info, "tokens")
    used = _used(tokens)
    repriced = repricer.cost(*model, used, tokens.get("total"))
    if len(steps) > 1 and (any(used) or cost):
        calls = [_used(step) for step in steps]
        prices = [repricer.cost(*model, call, step.get("total")) for call, step in zip(calls, steps, strict=True)]
        fresh, output, reasoning, read, write = map(sum, zip(*calls, strict=True))
        used = fresh, output, reasoning, read, write
        repriced = None if None in prices else sum(filter(None, prices))
    stored = units(cost) if isinstance(cost, (int, float)) else 0
    completed = time_of(info, "completed") or 0
    return UsageEntry(name, role, created, completed, *model, _agent_of(info), *used, stored, repriced)


def _parts(session: str, message: str, feed: ChangeFeed) -> Iterator[Document]:
    for record in feed.message_parts(session, [message]):
        with suppress(RecordError):
            yield record.document()


def _step_tokens(parts: Iterable[Document]) -> Iterator[Document]:
    """Yield the tokens of each step of an answer."""
    for part in parts:
        tokens = as_object(part.get("tokens"))
        if part.get("type") == "step-finish" and tokens is not None:
            yield tokens


def _model_of(record: Document) -> tuple[str, str]:
    return text(record, "providerID"), text(record, "modelID")


def _agent_of(info: Document) -> str:
    return text(info, "agent") or text(info, "mode")


def _used(tokens: Document) -> Used:
    cache = object_at(tokens, "cache")
    return (
        as_whole(tokens.get("input")),
        as_whole(tokens.get("output")),
        as_whole(tokens.get("reasoning")),
        as_whole(cache.get("read")),
        as_whole(cache.get("write")),
    )


def _watch(feed: ChangeFeed, session: str, message: str, watched: dict[str, int]) -> None:
    state = feed.message_state(session, message, full=False)
    if state is not None:
        watched[message] = state.fingerprint
    elif feed.persistent:
        watched.setdefault(message, UNSTABLE)
