"""Tokens and cost: by when they were spent, every model call once, forks and subagents included.

The cost is given as stored when the call was made, and beside it by the newest price table on this machine, which is
named below. Unknown means that nobody said; 0 may mean free, a subscription, or a model without a price.
"""

from __future__ import annotations

import os
import sys

from ..errors import UsageError
from ..loading import load_msgspec
from ..storage.locations import find_stores
from . import output
from .arguments import PROJECT, TIMES, count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Mapping, Sequence

    from ..history.library import Library
    from ..history.stats.figures import UsageTotals
    from ..history.stats.ledger import Ledger, SessionInfo
    from ..history.stats.results import Statistics, StatsRow
    from ..history.stats.usage_stats import UsageFilter
    from ..storage.locations import StoreLocations
    from ..storage.protocol import Damage
    from .arguments import Parser

GROUPS = ("day", "month", "project", "model", "agent", "tool", "session")
_LEAST_WANTED = ("CACHE-W", "CACHE-R", "REASON", "RE-PRICED", "MSGS", "INPUT", "OUTPUT")
_HEADS = ("MSGS", "INPUT", "OUTPUT", "REASON", "CACHE-R", "CACHE-W", "COST", "RE-PRICED")
_APART = (*_HEADS[:-2], "OWN COST", *_HEADS[-2:])


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.add_argument("--by", choices=GROUPS, default="day", help="what to sum up by (day)")
    parser.add_argument("--since", metavar="T", help=f"spent since: {TIMES}")
    parser.add_argument("--until", metavar="T", help="spent before")
    parser.add_argument("--project", metavar="NAME", help=f"only in this project: {PROJECT}")
    parser.add_argument("--children", action="store_true", help="by session: a row for each subagent's session too")
    parser.add_argument("--limit", type=count, default=40, metavar="N", help="rows at the most; 0 for all (40)")
    parser.add_argument("--csv", action="store_true", help="comma-separated values, all rows")
    parser.add_argument("--bytes", action="store_true", help="instead: what takes the room on the disk")
    parser.add_argument("--fresh", action="store_true", help="read everything again, whatever the cache says")


def run(options: Namespace) -> int:
    """Print the sums."""
    if options.csv and (options.json or options.bytes):
        raise UsageError(f"--csv or {'--json' if options.json else '--bytes'}, not both")
    if options.bytes:
        from .disk_usage import run as run_bytes

        if options.by != "day" or options.since or options.until or options.project or options.children:
            raise UsageError("--bytes measures whole stores: of the other options, only --limit goes with it")
        return run_bytes(options)
    found = find_stores(options.store)
    if options.by == "tool" or options.fresh or options.since or options.until or options.project:
        damage = _counted(found, options)
    else:
        damage = _recalled(found, options)
    output.tell_damage(damage)
    return 0


def _recalled(found: StoreLocations, options: Namespace) -> Sequence[tuple[str, str]]:
    """Everything, of which the sums are kept as long as nothing changes; what could not be read."""
    from ..history.stats.sums_cache import SumsCache

    cache = SumsCache(found, options.by, utc=options.utc)
    known = cache.load()
    if known is not None:
        _print(known[0], options)
        return known[1]
    load_msgspec()  # there is something to read
    from ..history.stats.ledger import ledger_at
    from ..history.stats.usage_stats import UsageFilter, summed

    damage: list[Damage] = []
    ledger = ledger_at(found, report=damage.append)
    answer = summed(ledger, options.by, UsageFilter(), utc=options.utc)
    cache.save(answer, ledger.watched, damage)
    _print(answer, options)
    return damage


def _counted(found: StoreLocations, options: Namespace) -> Sequence[tuple[str, str]]:
    """What was asked for; what could not be read."""
    from ..history.stats.ledger import ledger_at

    damage: list[Damage] = []
    choice = _choice(options)
    ledger = ledger_at(found, fresh=options.fresh, report=damage.append)
    if options.by == "tool":
        _tools(ledger, choice, options)
    else:
        from ..history.stats.usage_stats import summed

        _print(summed(ledger, options.by, choice, utc=options.utc), options)
    return damage


def _choice(options: Namespace) -> UsageFilter:
    from ..history.stats.usage_stats import UsageFilter
    from .list_command import moment

    return UsageFilter(
        since=moment(options.since, utc=options.utc) if options.since else None,
        until=moment(options.until, utc=options.utc) if options.until else None,
        session=_in_named_project(options) if options.project else _anything,
    )


def _anything(_: SessionInfo | None) -> bool:
    return True


def _in_named_project(options: Namespace) -> Callable[[SessionInfo | None], bool]:
    from ..history.library import Library

    return in_project(Library(options.store), options.project)


def in_project(library: Library, name: str) -> Callable[[SessionInfo | None], bool]:
    """Whether a session belongs to what ``name`` means, as for every command that takes ``--project``."""
    chosen = library.resolve_project(name)
    return lambda facts: facts is not None and chosen.matches(facts.project, facts.directory, facts.title)


def _print(found: Statistics, options: Namespace) -> None:
    if options.json:
        output.print_json(found.document())
    elif options.csv:
        _print_csv(found)
    else:
        _print_table(found, options)


def _print_table(found: Statistics, options: Namespace) -> None:
    rows = found.rows if options.children else _tops(found.rows)
    if not rows:
        print(f"Nothing was spent{' in that time' if options.since or options.until else ''}.", file=sys.stderr)
        return
    shown = rows[-options.limit :] if found.by in ("day", "month") else rows[: options.limit or None]
    if found.by == "day":
        from ..history.stats.results import UNKNOWN
        from .charts import LEGEND, calendar

        days = {row.key: _weight(_sums(row)) for row in rows if row.key != UNKNOWN}
        if picture := calendar(days, output.terminal_columns()):
            print("\n".join(picture))
            print(output.paint(LEGEND, 2), end="\n\n")
    own = [row.totals for row in shown]
    _table(found.by, _names(shown, found.by, options), [_sums(row) for row in shown], own, found.total.totals)
    for note in _notes(found, len(shown), len(rows)):
        print(output.paint(note, 2))


def _tops(rows: Sequence[StatsRow]) -> list[StatsRow]:
    """The rows that no other shown row includes: not those of subagents, unless nothing else of their tree is left."""
    known = {row.key: row for row in rows}
    return [row for row in rows if not _is_below_another(row, known)]


def _is_below_another(row: StatsRow, rows: Mapping[str, StatsRow]) -> bool:
    seen: set[str] = set()
    above = row
    while above.parent in rows and above.key not in seen:  # in a circle, which only damage can make, all are shown
        seen.add(above.key)
        above = rows[above.parent]
    return above is not row


def _sums(row: StatsRow) -> UsageTotals:
    return row.inclusive or row.totals


def _weight(sums: UsageTotals) -> float:
    """What bars and shades show: money, or tokens where no money is known."""
    return float(sums.cost or sums.repriced) / 1e15 or sums.total_tokens / 1e12


def _cells(sums: UsageTotals, own: UsageTotals | None) -> tuple[str, ...]:
    counts = (sums.input, sums.output, sums.reasoning, sums.cache_read, sums.cache_write)
    itself = (money(own.cost),) if own else ()
    return (f"{sums.messages:,}", *map(short, counts), *itself, money(sums.cost), _repriced(sums))


def _repriced(sums: UsageTotals) -> str:
    if not sums.unpriced:
        return money(sums.repriced)
    return "unknown" if not sums.repriced else f"{money(sums.repriced)} + ?"


def _table(
    by: str, names: Sequence[str], rows: Sequence[UsageTotals], own: Sequence[UsageTotals], total: UsageTotals
) -> None:
    """Numbers to the right, the name before them, a bar behind them as wide as there is room."""
    from .charts import bar

    most_name = min(36, max(output.terminal_columns() // 2, 12)) if sys.stdout.isatty() else 36
    names = [output.clip(name, most_name) for name in (*names, "total")]
    # What a session used itself stands beside the sum only where subagents make a difference.
    apart = any(sums.cost != alone.cost for sums, alone in zip(rows, own, strict=True))
    heads = _APART if apart else _HEADS
    pairs = [*zip(rows, own, strict=True), (total, total)]
    cells = [_cells(sums, alone if apart else None) for sums, alone in pairs]
    weights = [_weight(sums) for sums in rows]
    widths = [max(len(head), *(len(row[i]) for row in cells)) for i, head in enumerate(heads)]
    first = max(output.width(name) for name in (*names, by.upper()))
    shown = _fitting(first, widths, heads)
    room = output.terminal_columns() - first - sum(widths[i] + 2 for i in shown) - 2
    named = "  ".join(heads[i].rjust(widths[i]) for i in shown)
    print(output.paint(f"{by.upper().ljust(first)}  {named}", 2))
    for number, (name, row) in enumerate(zip(names, cells, strict=True)):
        is_total = number == len(rows)
        totals = "  ".join(row[i].rjust(widths[i]) for i in shown)
        picture = "" if is_total or room < 4 else bar(weights[number], max(weights), min(room, 30))
        line = f"{name}{' ' * (first - output.width(name))}  {totals}  {picture}".rstrip()
        print(output.paint(line, 1) if is_total else line)


def _fitting(first: int, widths: Sequence[int], heads: Sequence[str]) -> list[int]:
    """The columns that there is room for on a terminal; what matters least is left out first."""
    shown = list(range(len(heads)))
    for head in _LEAST_WANTED:
        if not sys.stdout.isatty() or first + sum(widths[i] + 2 for i in shown) <= output.terminal_columns():
            break
        shown.remove(heads.index(head))
    return shown


def _names(rows: Sequence[StatsRow], by: str, options: Namespace) -> list[str]:
    if by == "session":
        return [row.key if row.title is None else f"{row.key[-6:]} {row.title}" for row in rows]
    if by != "project":
        return [row.key for row in rows]
    from ..history.discovery import project_title
    from ..history.library import Library

    titles = {each.id: project_title(each) for each in Library(options.store).projects}
    return [titles.get(row.key) or os.path.basename(row.key) or row.key for row in rows]


def _notes(found: Statistics, shown: int, total: int) -> list[str]:
    notes = [f"Re-priced by models.dev as of {found.prices.date} ({found.prices.label})."]
    if found.copied.sessions:
        copied, forks = found.copied.totals, output.pluralize(found.copied.sessions, "fork")
        told = f"{output.pluralize(copied.messages, 'message')} ({money(copied.cost)}) that {forks} copied"
        notes.append(f"Counted once, where they were made: {told}.")
    sums = found.total.totals
    if sums.costless:
        calls = output.pluralize(sums.costless, "call")
        notes.append(f"Free, a subscription, or unknown: {calls} stored with a cost of 0.")
    if sums.unpriced:
        notes.append(f"{output.pluralize(sums.unpriced, 'call')} went to models that the table has no price for.")
    if found.by == "session":
        notes.append("A session's row includes the subagents it started; the total counts each once.")
    if shown < total:
        notes.append(_some(shown, total))
    return notes


def _some(shown: int, total: int) -> str:
    return f"{shown} of {total:,} rows; --limit 0 shows all."


def _print_csv(found: Statistics) -> None:
    import csv

    from ..history.stats.money import dollars

    writer = csv.writer(sys.stdout, lineterminator="\n")
    buckets = ("input", "output", "reasoning", "cache_read", "cache_write")
    more = ("title", "parent", "inclusive_cost", "inclusive_repriced") if found.by == "session" else ()
    writer.writerow((found.by, "messages", "answers", *buckets, "cost", "repriced", "unpriced", "sessions", *more))
    for row in found.rows:
        sums, rest = row.totals, []
        if row.inclusive is not None:
            known = "" if row.inclusive.unpriced else dollars(row.inclusive.repriced)
            rest = [row.title or "", row.parent, dollars(row.inclusive.cost), known]
        repriced = "" if sums.unpriced else dollars(sums.repriced)
        counts = [getattr(sums, bucket) for bucket in buckets]
        totals = [sums.messages, sums.answers, *counts, dollars(sums.cost), repriced, sums.unpriced]
        writer.writerow((row.key, *totals, row.sessions, *rest))


def _tools(ledger: Ledger, choice: UsageFilter, options: Namespace) -> None:
    from ..history.stats.tool_stats import by_tool

    rows = by_tool(ledger, choice, fresh=options.fresh)
    documents = [row.document() for row in rows]
    if options.json:
        output.print_json({"by": "tool", "rows": documents})
    elif options.csv:
        import csv

        names = ("key", "calls", "errors", "open", "seconds", "characters", "messages", "sessions")
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(("tool", *names[1:]))
        writer.writerows([[document[name] for name in names] for document in documents])
    elif rows:
        shown = documents[: options.limit or None]
        _tool_table(shown)
        if len(shown) < len(documents):
            print(output.paint(_some(len(shown), len(documents)), 2))
    else:
        print("No tool was called in that time.", file=sys.stderr)


def _tool_table(documents: Sequence[dict[str, object]]) -> None:
    from .charts import with_bars

    calls = [float(str(each["calls"])) for each in documents]
    lines = [
        (
            output.clip(str(each["key"]), 30),
            f"{each['calls']:,}",
            f"{each['errors']:,}",
            f"{float(str(each['seconds'])):,.1f}",
            short(int(str(each["characters"]))),
            f"{each['sessions']:,}",
        )
        for each in documents
    ]
    heads = ("TOOL", "CALLS", "ERRORS", "SECONDS", "CHARACTERS", "SESSIONS")
    output.table(*with_bars(heads, lines, calls, max(calls)))


def short(number: int) -> str:
    """A count in few characters: 950, 12.3K, 4.5M."""
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "K")):
        if abs(number) >= size * 0.99995:  # what would be rounded up to 1000.0 of the unit below
            return f"{number / size:.1f}{unit}"
    return str(number)


def money(units: int) -> str:
    """An amount as people read it; small ones with the digits that matter."""
    from ..history.stats.money import dollars

    amount = dollars(units)
    if 0 < amount < 0.00005:
        return "<$0.0001"
    return f"${amount:,.2f}" if not amount or abs(amount) >= 1 else f"${amount:.4f}"
