"""Writing the usage layer: reading the fields of messages that say who, when and how much, and adding them up."""

from __future__ import annotations

import json
import time
from array import array
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import msgspec

from ...errors import RecordError
from ...records import as_object, as_whole
from ...records.view import View
from ...sessions import removed_calls
from ...storage.change_feeds import UNSTABLE, RawRecord
from ...storage.protocol import Damage
from .forks import may_be_fork
from .money import units
from .session_usage import UsageEntry, buckets_of, session_info

if TYPE_CHECKING:
    from collections.abc import Sequence
    from sqlite3 import Connection

    from ...records import Document
    from ...storage.change_feeds import ChangeFeed, StoredSession
    from .money import Repricer, Used

_MAX_TIME = 1 << 62  # SQLite stores 64 bits; damaged records may have any number
_REPLACE = "INSERT OR REPLACE INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"

Number = int | float


class _Cache(View, frozen=True, kw_only=True, gc=False):
    read: Number | None = 0
    write: Number | None = 0


class _Tokens(View, frozen=True, kw_only=True, gc=False):
    """A count that was not a number is stored as null."""

    total: Number | None = None
    input: Number | None = 0
    output: Number | None = 0
    reasoning: Number | None = 0
    cache: _Cache | None = None


class _Time(View, frozen=True, kw_only=True, gc=False):
    created: Number
    completed: Number | None = None


class _Model(View, frozen=True, kw_only=True, gc=False):
    provider_id: str = ""
    model_id: str = ""


class _Call(View, frozen=True, kw_only=True, gc=False):
    time: _Time
    agent: str = ""
    provider_id: str = ""
    model_id: str = ""
    cost: Number | None = None
    tokens: _Tokens = _Tokens()


class _Extension(View, frozen=True, kw_only=True, gc=False):
    calls: list[_Call] = []


class _Info(View, frozen=True, kw_only=True, gc=False):
    role: Literal["user", "assistant"]
    time: _Time
    agent: str | None = None
    mode: str | None = None
    model: _Model | None = None
    provider_id: str | None = None
    model_id: str | None = None
    cost: Number | None = None
    tokens: _Tokens | None = None
    finish: str | None = None
    opensesh: _Extension | None = None


class _Step(View, frozen=True, kw_only=True, gc=False):
    type: str = ""
    cost: Number | None = None
    tokens: _Tokens | None = None


_NOTHING: Used = (0, 0, 0, 0, 0)

_NO_MODEL = _Model()
_NO_CACHE = _Cache()

_decode = msgspec.json.Decoder(_Info).decode
_make = UsageEntry._make


class SessionUsage(NamedTuple):
    """The messages of a session, read from every store that has it."""

    entries: list[UsageEntry]
    """In the order of time."""
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
        entries = usage.entries
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
        reader = UsageReader(repricer, feed, session)
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
    merged = copies[0] if len(copies) == 1 else _merge(copies)
    for info in removed_calls.read([feed.store_id for feed in feeds], session):
        if (name := str(info.get("id"))) not in merged:
            reader = UsageReader(repricer, feeds[0], session)
            try:
                answer, *side_calls = reader.read(RawRecord(name, "", name, {"finish": "unknown", **info}))
            except RecordError:
                continue
            merged[name] = [answer._replace(role="removed"), *side_calls] if answer.role == "assistant" else side_calls
    in_order = sorted((entry for group in merged.values() for entry in group), key=attrgetter("created", "id"))
    return SessionUsage(in_order, watched, damage, damaged)


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


class UsageReader:
    """Reads the usage of messages."""

    def __init__(self, repricer: Repricer, feed: ChangeFeed, session: str) -> None:
        """Read messages of ``session``; ``feed`` has the parts of the few messages whose own tokens are incomplete."""
        self._repricer = repricer
        self._feed = feed
        self._session = session

    def read(self, record: RawRecord) -> list[UsageEntry]:
        """Return the usage of a message, and of the side calls stored with it, such as one for a title.

        A field of the wrong type is ignored. Raises :class:`RecordError` if the record is not a message.
        """
        name, content = record.id, record.content
        try:
            info = _decode(content) if isinstance(content, bytes) else msgspec.convert(content, _Info)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            info = _salvaged(record.document(), record.path)
        if info.opensesh is None:
            return [self._entry(name, info)]
        entries = [self._entry(name, info)]
        for position, call in enumerate(info.opensesh.calls):
            used = _used(call.tokens)
            repriced = self._repricer.cost(call.provider_id, call.model_id, used, call.tokens.total)
            times = int(call.time.created), int(call.time.completed or 0)
            origin = call.provider_id, call.model_id, call.agent
            cost = units(call.cost) if call.cost else 0
            entries.append(UsageEntry(f"{name}#{position}", "call", *times, *origin, *used, cost, repriced))
        return entries

    def _entry(self, name: str, info: _Info) -> UsageEntry:
        agent, created = info.agent or info.mode or "", int(info.time.created)
        if info.role == "user":
            chosen = info.model or _NO_MODEL
            return _make((name, "user", created, 0, chosen.provider_id, chosen.model_id, agent, *_NOTHING, 0, 0))
        model = (info.provider_id or "", info.model_id or "")
        used, repriced = _NOTHING, 0
        if info.tokens is not None:
            used = _used(info.tokens)
            if used != _NOTHING or info.cost:
                used, repriced = self._spent(name, info, used, model)
        cost = units(info.cost) if info.cost else 0
        return _make((name, "assistant", created, int(info.time.completed or 0), *model, agent, *used, cost, repriced))

    def _spent(self, name: str, info: _Info, used: Used, model: tuple[str, str]) -> tuple[Used, int | None]:
        """Return the tokens of an answer and their price.

        Before OpenCode 1.0.69 an answer had several model calls and kept only the tokens of the last one. Such answers
        have no finish reason.
        """
        calls: list[tuple[Used, Number | None]] = []
        for record in self._feed.message_parts(self._session, [name]) if info.finish is None else ():
            try:
                part = _convert(record.document(), _Step)
            except RecordError:
                continue
            if part and part.type == "step-finish" and part.tokens:
                calls.append((_used(part.tokens), part.tokens.total))
        if len(calls) < 2:
            return used, self._repricer.cost(*model, used, info.tokens and info.tokens.total)
        prices = [self._repricer.cost(*model, call, total) for call, total in calls]
        sums = cast("Used", tuple(map(sum, zip(*(call for call, _ in calls), strict=True))))
        known = [price for price in prices if price is not None]
        return sums, sum(known) if len(known) == len(prices) else None


def _used(tokens: _Tokens) -> Used:
    cache = tokens.cache or _NO_CACHE
    fresh, output, reasoning = as_whole(tokens.input), as_whole(tokens.output), as_whole(tokens.reasoning)
    return fresh, output, reasoning, as_whole(cache.read), as_whole(cache.write)


def _convert(document: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(document, kind)
    except (msgspec.ValidationError, UnicodeError):
        return None


def _salvaged(document: Document, path: str) -> _Info:
    time = _convert(document.get("time"), _Time)
    role = document.get("role")
    if role not in ("user", "assistant"):
        raise RecordError(f"a message's role is user or assistant, not {role!r}", path=path, place="$.role")
    if time is None:
        raise RecordError("expected milliseconds, found nothing", path=path, place="$.time.created")
    fields = {name: document.get(name) for name in ("agent", "mode", "providerID", "modelID", "finish")}
    texts = {name: value for name, value in fields.items() if isinstance(value, str)}
    cost = document.get("cost")
    return _Info(
        role=role,
        time=cast("_Time", time),
        agent=texts.get("agent"),
        mode=texts.get("mode"),
        provider_id=texts.get("providerID"),
        model_id=texts.get("modelID"),
        finish=texts.get("finish"),
        model=_convert(document.get("model"), _Model),
        cost=cost if isinstance(cost, (int, float)) else None,
        tokens=_convert(as_object(document.get("tokens")), _Tokens),
        opensesh=_convert(document.get("opensesh"), _Extension),
    )


def _watch(feed: ChangeFeed, session: str, message: str, watched: dict[str, int]) -> None:
    state = feed.message_state(session, message, full=False)
    if state is not None:
        watched[message] = state.fingerprint
    elif feed.persistent:
        watched.setdefault(message, UNSTABLE)
