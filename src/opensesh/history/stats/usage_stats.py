"""Tokens and cost by day, month, project, model, agent or session: by the time of each model call, each call once.

Costs are reported twice: as stored when the call was made, and by the price table that :class:`Statistics` names. What
is unknown stays unknown. The row of a session has its own usage; ``inclusive`` adds the subagents that it started, and
theirs. Totals are made of what each session used itself, so that nothing is counted twice.
"""

from __future__ import annotations

import csv
import time
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TextIO, get_args
from unicodedata import normalize

from ...errors import UsageError
from ...storage.families import children_by_parent, descendants
from ...storage.keys import GLOBAL
from ...storage.protocol import Damage, Store, log_damage
from ..cache.derived_cache import DerivedCache
from .money import PriceTable, dollars
from .session_usage import QUARTER_MS, SessionInfo, UsageBucket, UsageEntry, UsageTotals, buckets_of
from .usage_layer import UsageTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ...records import Document
    from ..discovery import ProjectFilter

_TOKENS = ("input", "output", "reasoning", "cache_read", "cache_write")
_TOOL_COLUMNS = ("calls", "errors", "open", "seconds", "characters", "messages", "sessions")
_FORMULA_STARTS = ("=", "+", "-", "@", "|", "%")

By = Literal["day", "month", "project", "model", "agent", "session"]

UNKNOWN = "(unknown)"
"""The key of an unknown group: the project of a session without a record, the agent of an old message, the day of an
invalid time."""


class UsageFilter(NamedTuple):
    """Criteria for the messages that count."""

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


def of_project(project: ProjectFilter) -> Callable[[SessionInfo | None], bool]:
    """Return a test for the sessions of a project, for :attr:`UsageFilter.session`."""
    return lambda info: info is not None and project.matches(info.project, info.directory, info.title)


class StatsRow(NamedTuple):
    """One group and its totals."""

    key: str
    totals: UsageTotals = UsageTotals()
    sessions: int = 0
    """How many sessions contribute."""
    inclusive: UsageTotals | None = None
    """The totals of a session and all its subagents; ``None`` for other groups."""
    title: str | None = None
    """The title of a session; ``None`` for other groups, and if the session has no record."""
    project: str = ""
    parent: str = ""

    def plus(self, buckets: Sequence[UsageBucket]) -> StatsRow:
        """Return the row with the buckets of one more session."""
        totals = self.totals
        for bucket in buckets:
            totals = totals.plus(bucket.totals)
        return self._replace(totals=totals, sessions=self.sessions + 1)

    def document(self) -> Document:
        """Return JSON data."""
        row: Document = {"key": self.key, **self.totals.document(), "sessions": self.sessions}
        if self.title is not None:
            row |= {"title": self.title, "projectID": self.project, "parentID": self.parent or None}
        if self.inclusive is not None:
            row["inclusive"] = self.inclusive.document()
        return row


class CopiedUsage(NamedTuple):
    """The usage that forks copied from other sessions, which is not counted."""

    sessions: int
    """How many forks have copies."""
    totals: UsageTotals


class Statistics(NamedTuple):
    """The result: rows, their total, and what forks copied."""

    by: str
    rows: list[StatsRow]
    total: StatsRow
    prices: PriceTable
    copied: CopiedUsage

    def document(self) -> Document:
        """Return JSON data."""
        return {
            "by": self.by,
            "prices": {"table": self.prices.label, "date": self.prices.date},
            "rows": [row.document() for row in self.rows],
            "total": self.total.document(),
            "copied": self.copied.totals.document() | {"sessions": self.copied.sessions},
        }


def statistics(
    store: Store,
    by: By = "day",
    usage_filter: UsageFilter | None = None,
    *,
    utc: bool = False,
    fresh: bool = False,
    report: Callable[[Damage], None] = log_damage,
) -> Statistics:
    """Add up what a store's sessions used. Days are those of the local time zone unless ``utc``.

    With ``fresh``, everything is read and no cache is used.
    """
    if by not in get_args(By):
        raise UsageError(f"statistics are by one of {', '.join(get_args(By))}, not {by!r}")
    cache = DerivedCache(store=store, temporary=fresh)
    try:
        usage = UsageTable(cache)
        for damage in usage.damage:
            report(damage)
        return add_up(usage, by, usage_filter or UsageFilter(), utc=utc)
    finally:
        cache.close()


def add_up(usage: UsageTable, by: By, usage_filter: UsageFilter, *, utc: bool = False) -> Statistics:
    """Add up usage that is already loaded."""
    copied: dict[str, list[UsageEntry]] = {}
    dates: dict[int, str] = {}
    rows: dict[str, StatsRow] = {}
    total = StatsRow("total")
    for session, info, buckets in _counted_sessions(usage, usage_filter, copied):
        groups: dict[str, list[UsageBucket]] = {}
        for bucket in buckets:
            if by in ("day", "month"):
                key = dates.get(bucket.slot) or dates.setdefault(bucket.slot, _date(bucket.slot, by, utc=utc))
            else:
                key = _group(session, info, bucket, by)
            groups.setdefault(key, []).append(bucket)
        for key, group in groups.items():
            rows[key] = rows.get(key, StatsRow(key)).plus(group)
        total = total.plus(buckets) if buckets else total
    if by == "session":
        _add_inclusive(usage, rows)

    def order(row: StatsRow) -> Any:
        """Sort days and months by time, everything else by cost, then by tokens."""
        totals = row.inclusive or row.totals
        return row.key if by in ("day", "month") else (-totals.cost, -totals.total_tokens, row.key)

    copied_totals = UsageTotals()
    for entry in (entry for entries in copied.values() for entry in entries):
        copied_totals = copied_totals.plus(entry.totals)
    copied_usage = CopiedUsage(len(copied), copied_totals)
    return Statistics(by, sorted(rows.values(), key=order), total, usage.prices, copied_usage)


def add_up_over_time(usage: UsageTable, by: By, usage_filter: UsageFilter) -> dict[str, dict[str, UsageTotals]]:
    """Return the totals of each day of the local time zone, by group."""
    dates: dict[int, str] = {}
    table: dict[str, dict[str, UsageTotals]] = {}
    for session, info, buckets in _counted_sessions(usage, usage_filter, {}):
        for bucket in buckets:
            date = dates.get(bucket.slot) or dates.setdefault(bucket.slot, _date(bucket.slot, "day", utc=False))
            row, key = table.setdefault(date, {}), _group(session, info, bucket, by)
            row[key] = row.get(key, UsageTotals()).plus(bucket.totals)
    return table


def _counted_sessions(
    usage: UsageTable, usage_filter: UsageFilter, copied: dict[str, list[UsageEntry]]
) -> Iterator[tuple[str, SessionInfo | None, list[UsageBucket]]]:
    """Yield what counts of each session; what forks copied is added to ``copied``. Messages are read if need be."""
    for session, buckets in usage.buckets.items():
        info, copies = usage.infos.get(session), usage.copied.get(session, ())
        if not usage_filter.matches_session(info):
            continue
        if not copies and not any(usage_filter.matches_some(bucket) for bucket in buckets):
            yield session, info, [bucket for bucket in buckets if usage_filter.matches_all(bucket)]
            continue
        own: list[UsageEntry] = []
        for entry in usage.entries(session):
            if usage_filter.matches_time(entry.created):
                (copied.setdefault(session, []) if entry.id in copies else own).append(entry)
        yield session, info, buckets_of(own)


def _date(slot: int, by: str, *, utc: bool) -> str:
    """Return the day or month of a quarter of an hour; unknown if it is out of range."""
    seconds = slot * QUARTER_MS // 1000
    try:
        day = time.gmtime(seconds) if utc else time.localtime(seconds)
    except (OverflowError, ValueError, OSError):
        return UNKNOWN
    if not 0 < day.tm_year < 10_000:
        return UNKNOWN
    month = f"{day.tm_year:04}-{day.tm_mon:02}"
    return month if by == "month" else f"{month}-{day.tm_mday:02}"


def _group(session: str, info: SessionInfo | None, bucket: UsageBucket, by: By) -> str:
    """Return the key of the row that a bucket belongs to."""
    match by:
        case "project" if info and info.project == GLOBAL:
            return info.directory or GLOBAL  # sessions outside of any repository are grouped by their folder
        case "project":
            return info.project if info else UNKNOWN
        case "model":
            return f"{bucket.provider}/{bucket.model}" if bucket.provider or bucket.model else UNKNOWN
        case "agent":
            return bucket.agent or UNKNOWN
        case _:
            return session


def _add_inclusive(usage: UsageTable, rows: dict[str, StatsRow]) -> None:
    """Add to every session's row the totals of its subagents. Cycles, which only damage can cause, are cut."""
    children = children_by_parent((info.id, info.parent) for info in usage.infos.values())
    for session in list(rows):
        info = usage.infos.get(session)
        while info and info.parent in usage.infos and info.parent not in rows:
            rows[info.parent] = StatsRow(info.parent)
            info = usage.infos[info.parent]
    own = {session: row.totals for session, row in rows.items()}
    for session, row in rows.items():
        inclusive = own[session]
        for subagent in descendants(session, children):
            inclusive = inclusive.plus(own.get(subagent, UsageTotals()))
        info = usage.infos.get(session)
        about = {} if info is None else {"title": info.title, "project": info.project, "parent": info.parent}
        rows[session] = row._replace(inclusive=inclusive, **about)


def without_included(rows: Sequence[StatsRow]) -> list[StatsRow]:
    """Return the rows that no other row includes: a subagent's session only if its ancestors have no row."""
    by_key = {row.key: row for row in rows}

    def is_included(row: StatsRow) -> bool:
        seen: set[str] = set()
        ancestor = row
        while ancestor.parent in by_key and ancestor.key not in seen:  # damaged parents may form a circle
            seen.add(ancestor.key)
            ancestor = by_key[ancestor.parent]
        return ancestor is not row

    return [row for row in rows if not is_included(row)]


# -- comma-separated values --------------------------------------------------------------------------------------------


def write_csv(statistics: Statistics, file: TextIO) -> None:
    """Write all rows of statistics."""
    writer = csv.writer(file, lineterminator="\n")
    more = ("title", "parent", "inclusive_cost", "inclusive_repriced") if statistics.by == "session" else ()
    writer.writerow((statistics.by, "messages", "answers", *_TOKENS, "cost", "repriced", "unpriced", "sessions", *more))
    for row in statistics.rows:
        sums = row.totals
        repriced = "" if sums.unpriced else dollars(sums.repriced)
        counts = [getattr(sums, name) for name in _TOKENS]
        figures = [sums.messages, sums.answers, *counts, dollars(sums.cost), repriced, sums.unpriced]
        rest: list[object] = []
        if row.inclusive is not None:
            inclusive = "" if row.inclusive.unpriced else dollars(row.inclusive.repriced)
            rest = [_as_text(row.title or ""), _as_text(row.parent), dollars(row.inclusive.cost), inclusive]
        writer.writerow((_as_text(row.key), *figures, row.sessions, *rest))


def write_tool_csv(rows: Iterable[Document], file: TextIO) -> None:
    """Write the documents of :class:`~opensesh.history.stats.tool_stats.ToolRow`."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("tool", *_TOOL_COLUMNS))
    for row in rows:
        writer.writerow([_as_text(str(row["key"])), *(row[name] for name in _TOOL_COLUMNS)])


def _as_text(cell: str) -> str:
    """Return a cell that spreadsheets do not take for a formula: a title may begin with ``=`` or ``@``."""
    # Spreadsheets read full-width signs as signs too.
    return f"'{cell}" if normalize("NFKC", cell).lstrip().startswith(_FORMULA_STARTS) else cell
