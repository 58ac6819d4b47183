"""Tokens and cost by day, month, project, model, agent or session: by the time of each model call, each call once.

Costs are reported twice: as stored when the call was made, and by the price table that :class:`Statistics` names. What
is unknown stays unknown. The row of a session has its own usage; ``inclusive`` adds the subagents that it started, and
theirs. Totals are made of what each session used itself, so that nothing is counted twice.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ...storage.keys import GLOBAL
from ...storage.protocol import Damage, log_damage
from ..cache.derived_cache import DerivedCache
from .forks import copied_messages
from .results import UNKNOWN, CopiedUsage, Statistics, StatsRow, day_of, month_of, restored
from .session_usage import UsageBucket, UsageTotals, buckets_of
from .usage_layer import UsageLayer, UsageTable, damage_of, infos_by_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from sqlite3 import Connection

    from ...storage.protocol import Store
    from .repricing import Repricer
    from .session_info import SessionInfo
    from .session_usage import UsageEntry

By = Literal["day", "month", "project", "model", "agent", "session"]


class UsageFilter(NamedTuple):
    """Which messages count."""

    since: int | None = None
    """Made at this time or later, in milliseconds."""
    until: int | None = None
    """Made before this time."""
    session: Callable[[SessionInfo | None], bool] | None = None

    def matches_session(self, info: SessionInfo | None) -> bool:
        """Whether the messages of a session may count."""
        return self.session is None or self.session(info)

    def matches_time(self, created: int) -> bool:
        """Whether a message of this time counts."""
        return (self.since is None or created >= self.since) and (self.until is None or created < self.until)

    def matches_all(self, bucket: UsageBucket) -> bool:
        """Whether all messages of a bucket count."""
        return self.matches_time(bucket.first) and self.matches_time(bucket.last)

    def matches_some(self, bucket: UsageBucket) -> bool:
        """Whether some messages of a bucket may count and others do not."""
        if self.matches_all(bucket):
            return False
        return (self.since is None or bucket.last >= self.since) and (self.until is None or bucket.first < self.until)


def statistics(
    store: Store,
    by: By = "day",
    usage_filter: UsageFilter | None = None,
    *,
    utc: bool = False,
    fresh: bool = False,
    repricer: Repricer | None = None,
    report: Callable[[Damage], None] = log_damage,
) -> Statistics:
    """Add up what a store's sessions used. Days are those of the local time zone unless ``utc``.

    With ``fresh`` or a ``repricer``, everything is read and no cache is used.
    """
    cache = DerivedCache(store=store, temporary=fresh or repricer is not None)
    try:
        usage = UsageTable(cache, UsageLayer(repricer))
        for damage in usage.damage:
            report(damage)
        return add_up(usage, by, usage_filter or UsageFilter(), utc=utc)
    finally:
        cache.close()


def cached_statistics(cache: DerivedCache, by: By, *, utc: bool = False) -> tuple[Statistics, list[Damage], bool]:
    """Add up everything, or return the stored result if nothing has changed since; and what could not be read.

    The last value says whether the result was stored.
    """
    layer = UsageLayer()
    cache.refresh(layer)
    question = f"{by} utc" if utc else by

    def load(db: Connection) -> tuple[int, str | None]:
        (generation,) = db.execute("SELECT value FROM meta WHERE name = 'generation usage'").fetchone()
        sql = "SELECT value FROM answer WHERE question = ? AND generation = ?"
        row = db.execute(sql, [question, generation]).fetchone()
        return generation, row and row[0]

    generation, stored = cache.query(layer, load)
    if stored is not None:
        result = restored(json.loads(stored))
        if by not in ("day", "month") or _days_are_right(result, utc=utc):
            return result, damage_of(cache, layer), True
    usage = UsageTable(cache, layer)
    result = add_up(usage, by, UsageFilter(), utc=utc)
    values = [question, generation, json.dumps(result.plain)]
    sql = "INSERT OR REPLACE INTO answer VALUES (?, ?, ?)"
    cache.write(lambda db: db.execute(sql, values), wait=False)
    return result, usage.damage, False


def add_up(usage: UsageTable, by: By, usage_filter: UsageFilter, *, utc: bool = False) -> Statistics:
    """Add up usage that is already loaded."""
    copied_positions = copied_messages(usage)
    copied = CopiedUsage()
    keys = _GroupKeys(usage, by, utc=utc)
    rows: dict[str, StatsRow] = {}
    total = StatsRow("total")
    for session in usage.sessions:
        if not usage_filter.matches_session(usage.infos.get(session)):
            continue
        for bucket in _counted_buckets(usage, session, copied_positions.get(session), usage_filter, copied):
            key = keys.of(session, bucket)
            row = rows.get(key)
            if row is None:
                row = rows[key] = StatsRow(key)
            row.add(session, bucket)
            total.add(session, bucket)
    if by == "session":
        _add_inclusive(usage, rows)
    return Statistics(by, sorted(rows.values(), key=_order(by)), total, usage.prices, copied)


def _counted_buckets(
    usage: UsageTable, session: str, copied_positions: set[int] | None, usage_filter: UsageFilter, copied: CopiedUsage
) -> Iterable[UsageBucket]:
    """Return what counts of a session; what it copied is added to ``copied``. Messages are read only if need be."""
    buckets = usage.buckets(session)
    if copied_positions is None and not any(usage_filter.matches_some(bucket) for bucket in buckets):
        return [bucket for bucket in buckets if usage_filter.matches_all(bucket)]
    own: list[UsageEntry] = []
    others: list[UsageEntry] = []
    for position, entry in enumerate(usage.entries(session)):
        if usage_filter.matches_time(entry.created):
            (others if copied_positions is not None and position in copied_positions else own).append(entry)
    for entry in others:
        copied.totals.count(entry)
    copied.sessions += bool(others)
    return buckets_of(own)


class _GroupKeys:
    """Determines the group of a bucket."""

    def __init__(self, usage: UsageTable, by: By, *, utc: bool) -> None:
        self._infos = usage.infos
        self._utc = utc
        self._days: dict[int, str] = {}
        self._by = by

    def of(self, session: str, bucket: UsageBucket) -> str:
        """Return the key of the group."""
        match self._by:
            case "day":
                return self._day(bucket.slot)
            case "month":
                return month_of(self._day(bucket.slot))
            case "project":
                return self._project(session)
            case "model":
                return f"{bucket.provider}/{bucket.model}" if bucket.provider or bucket.model else UNKNOWN
            case "agent":
                return bucket.agent or UNKNOWN
            case _:
                return session

    def _day(self, slot: int) -> str:
        if slot not in self._days:
            self._days[slot] = day_of(slot, utc=self._utc)
        return self._days[slot]

    def _project(self, session: str) -> str:
        info = self._infos.get(session)
        if info is None:
            return UNKNOWN
        # Sessions outside of any repository are grouped by their folder.
        return info.directory or GLOBAL if info.project == GLOBAL else info.project


def _add_inclusive(usage: UsageTable, rows: dict[str, StatsRow]) -> None:
    """Add to every session's row the totals of its subagents. Cycles, which only damage can cause, are cut."""
    children = infos_by_parent(usage.infos)
    for session in list(rows):
        for parent in _ancestors(usage, session):
            if parent not in rows and parent in usage.infos:
                rows[parent] = StatsRow(parent)
    for session, row in rows.items():
        row.describe(usage.infos.get(session))
        row.inclusive = UsageTotals()
        seen = {session}
        waiting = [session]
        while waiting:
            current = waiting.pop()
            if current in rows:
                row.inclusive.add(rows[current].totals.sums)
            below = [child for child in children.get(current, ()) if child not in seen]
            seen.update(below)
            waiting += below


def _ancestors(usage: UsageTable, session: str) -> Iterator[str]:
    seen = {session}
    info = usage.infos.get(session)
    while info and info.parent and info.parent not in seen:
        seen.add(info.parent)
        yield info.parent
        info = usage.infos.get(info.parent)


def _order(by: By) -> Callable[[StatsRow], Any]:
    """Sort days and months by time, everything else by cost, then by tokens."""
    if by in ("day", "month"):
        return lambda row: row.key

    def most_first(row: StatsRow) -> tuple[int, int, str]:
        totals = row.inclusive or row.totals
        return -totals.cost, -totals.total_tokens, row.key

    return most_first


def _days_are_right(result: Statistics, *, utc: bool) -> bool:
    """Whether the first and last quarter of an hour of each row are on its day in the present time zone."""
    name = month_of if result.by == "month" else str
    edges = ((row.key, edge) for row in result.rows for edge in (row.first, row.last) if edge is not None)
    return all(name(day_of(edge, utc=utc)) == key for key, edge in edges)
