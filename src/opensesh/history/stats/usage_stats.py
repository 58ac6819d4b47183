"""Tokens and money, by day, month, project, model, agent or session: by when they were spent, each model call once.

Costs come twice: as stored when the call was made, and by the price table that :class:`Statistics` names. What nobody
knows stays unknown. A session's row holds what it used itself; ``inclusive`` adds the subagents it started, and theirs.
Totals are made of what each session used itself, so nothing is in them twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ...storage.keys import GLOBAL
from ...storage.protocol import Damage, log_damage
from .accounts import SessionUsage, UsageBucket, cells
from .figures import UsageTotals
from .forks import copies
from .ledger import Ledger, SessionInfo, open_ledger
from .results import UNKNOWN, CopiedUsage, Statistics, StatsRow, day_of, month_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ...storage.protocol import Store
    from .accounts import UsageEntry
    from .repricing import Repricer

By = Literal["day", "month", "project", "model", "agent", "session"]


class UsageFilter(NamedTuple):
    """Which messages count."""

    since: int | None = None
    """Made at or after this moment, in milliseconds."""
    until: int | None = None
    """Made before this one."""
    session: Callable[[SessionInfo | None], bool] = lambda facts: True

    def counts(self, moment: int) -> bool:
        """Whether what was made at this moment counts."""
        return (self.since is None or moment >= self.since) and (self.until is None or moment < self.until)

    def holds(self, cell: UsageBucket) -> bool:
        """Whether all of a cell's messages count as far as time goes."""
        return self.counts(cell.first) and self.counts(cell.last)

    def splits(self, cell: UsageBucket) -> bool:
        """Whether some of them count, or may."""
        if self.holds(cell):
            return False
        return (self.since is None or cell.last >= self.since) and (self.until is None or cell.first < self.until)


def statistics(
    store: Store,
    by: By = "day",
    choice: UsageFilter | None = None,
    *,
    utc: bool = False,
    fresh: bool = False,
    repricer: Repricer | None = None,
    report: Callable[[Damage], None] = log_damage,
) -> Statistics:
    """Sum up what a store's sessions used. Days are those of the local zone unless ``utc``."""
    ledger = open_ledger(store, repricer=repricer, fresh=fresh, report=report)
    return summed(ledger, by, choice or UsageFilter(), utc=utc)


def summed(ledger: Ledger, by: By, choice: UsageFilter, *, utc: bool = False) -> Statistics:
    """The same, of a ledger that is open already."""
    inherited = copies(ledger)
    copied = CopiedUsage()
    keys = _Keys(ledger, by, utc=utc)
    rows: dict[str, StatsRow] = {}
    total = StatsRow("total")
    for session, account in ledger.accounts.items():
        if not choice.session(ledger.facts.get(session)):
            continue
        for cell in _cells(ledger, account, inherited.get(session), choice, copied):
            key = keys.of(session, cell)
            row = rows.get(key)
            if row is None:
                row = rows[key] = StatsRow(key)
            row.add(session, cell)
            total.add(session, cell)
    if by == "session":
        _roll_up(ledger, rows)
    return Statistics(by, sorted(rows.values(), key=_order(by)), total, ledger.prices, copied)


def _cells(
    ledger: Ledger, account: SessionUsage, inherited: set[int] | None, choice: UsageFilter, copied: CopiedUsage
) -> Iterable[UsageBucket]:
    """A session's cells without what it copied, which is added to ``copied``, and without what does not count. Its
    messages are looked at one by one only if need be."""
    if inherited is None and not any(choice.splits(cell) for cell in account.cells):
        return [cell for cell in account.cells if choice.holds(cell)]
    made: list[UsageEntry] = []
    taken: list[UsageEntry] = []
    for position, entry in enumerate(ledger.entries(account.session)):
        if choice.counts(entry.created):
            (taken if inherited is not None and position in inherited else made).append(entry)
    for entry in taken:
        copied.totals.count(entry)
    copied.sessions += bool(taken)
    return cells(made)


class _Keys:
    """Which group a cell belongs to."""

    def __init__(self, ledger: Ledger, by: By, *, utc: bool) -> None:
        self._facts = ledger.facts
        self._utc = utc
        self._days: dict[int, str] = {}
        self.of: Callable[[str, UsageBucket], str] = {
            "day": self._day,
            "month": self._month,
            "project": self._project,
            "model": _model,
            "agent": _agent,
            "session": _session,
        }[by]

    def _day(self, _: str, cell: UsageBucket) -> str:
        slot = cell.slot
        if slot not in self._days:
            self._days[slot] = day_of(slot, utc=self._utc)
        return self._days[slot]

    def _month(self, session: str, cell: UsageBucket) -> str:
        return month_of(self._day(session, cell))

    def _project(self, session: str, _: UsageBucket) -> str:
        facts = self._facts.get(session)
        if facts is None:
            return UNKNOWN
        # What lies outside of every repository has the folder in common, if anything.
        return facts.directory or GLOBAL if facts.project == GLOBAL else facts.project


def _model(_: str, cell: UsageBucket) -> str:
    return f"{cell.provider}/{cell.model}" if cell.provider or cell.model else UNKNOWN


def _agent(_: str, cell: UsageBucket) -> str:
    return cell.agent or UNKNOWN


def _session(session: str, _: UsageBucket) -> str:
    return session


def _roll_up(ledger: Ledger, rows: dict[str, StatsRow]) -> None:
    """Give every session's row the sums of the tree below it. A circle, which only damage can make, is cut."""
    below: dict[str, list[str]] = {}
    for facts in ledger.facts.values():
        if facts.parent:
            below.setdefault(facts.parent, []).append(facts.id)
    for session in list(rows):
        for parent in _ancestors(ledger, session):
            if parent not in rows and parent in ledger.facts:
                rows[parent] = StatsRow(parent)
    for session, row in rows.items():
        row.describe(ledger.facts.get(session))
        row.inclusive = UsageTotals()
        for each in _tree(session, below):
            if each in rows:
                row.inclusive.add(rows[each].totals.sums)


def _ancestors(ledger: Ledger, session: str) -> Iterator[str]:
    seen = {session}
    facts = ledger.facts.get(session)
    while facts and facts.parent and facts.parent not in seen:
        seen.add(facts.parent)
        yield facts.parent
        facts = ledger.facts.get(facts.parent)


def _tree(session: str, below: dict[str, list[str]]) -> Iterator[str]:
    seen = {session}
    waiting = [session]
    while waiting:
        each = waiting.pop()
        yield each
        for child in below.get(each, ()):
            if child not in seen:
                seen.add(child)
                waiting.append(child)


def _order(by: By) -> Callable[[StatsRow], Any]:
    """Days and months in their order; everything else by what it cost, then by what it used."""
    if by in ("day", "month"):
        return lambda row: row.key

    def most(row: StatsRow) -> tuple[int, int, str]:
        sums = row.inclusive or row.totals
        return -sums.cost, -sums.total_tokens, row.key

    return most
