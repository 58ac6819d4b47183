"""Print tokens and cost. Every model call counts once, at the time it was made, including forks and subagents.

COST is as stored when the call was made; RE-PRICED is by the newest price table on this machine, which is named below
the table. A cost of 0 may mean free, a subscription, or a model without a price.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..history.cache.derived_cache import open_cache
from ..history.discovery import project_title
from ..history.stats.money import dollars
from ..history.stats.session_usage import UsageTotals
from ..history.stats.usage_layer import UsageTable
from ..history.stats.usage_stats import (
    UNKNOWN,
    Statistics,
    StatsRow,
    UsageFilter,
    add_up,
    of_project,
    without_included,
    write_csv,
    write_tool_csv,
)
from ..history.user_times import TIMES, parse_time
from ..storage import open_store
from ..storage.protocol import Damage
from ..text import format_bytes, format_count, pluralize
from . import output
from .command_arguments import PROJECT, CommandParser, count

if TYPE_CHECKING:
    from ..history.maintenance.disk_usage import StoreDiskUsage, UsageTotal

GROUPS = ("day", "month", "project", "model", "agent", "tool", "session")
_HEADS = ("MSGS", "INPUT", "OUTPUT", "REASON", "CACHE-R", "CACHE-W", "COST", "RE-PRICED")
_HEADS_WITH_OWN_COST = (*_HEADS[:-2], "OWN COST", *_HEADS[-2:])
_DROPPED_FIRST = ("CACHE-W", "CACHE-R", "REASON", "RE-PRICED", "MSGS", "INPUT", "OUTPUT")
"""The columns that a narrow terminal does without, in this order."""


def configure(parser: CommandParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--by", choices=GROUPS, default="day", help="what to group by (default: day)")
    parser.add_argument("--since", metavar="T", help=f"calls made at this time or later: {TIMES}")
    parser.add_argument("--until", metavar="T", help="calls made before this time")
    parser.add_argument("--project", metavar="NAME", help=f"only this project: {PROJECT}")
    parser.add_argument(
        "--children", action="store_true", help="with --by session: a row for each subagent session too"
    )
    parser.add_argument(
        "--limit", type=count, default=40, metavar="N", help="maximum number of rows (default 40; 0 = all)"
    )
    parser.add_argument("--csv", action="store_true", help="print all rows as comma-separated values")
    parser.add_argument("--bytes", action="store_true", help="show disk usage instead")
    parser.add_argument("--fresh", action="store_true", help="read everything again instead of using the cache")


def run(options: Namespace) -> int:
    """Print the sums."""
    if options.csv and (options.json or options.bytes):
        raise UsageError(f"--csv and {'--json' if options.json else '--bytes'} cannot be combined")
    if options.bytes:
        return _print_disk_usage(options)
    cache = open_cache(options.store, temporary=options.fresh)
    try:
        usage_filter = UsageFilter(
            since=parse_time(options.since, utc=options.utc) if options.since else None,
            until=parse_time(options.until, utc=options.utc) if options.until else None,
        )
        if options.project:
            from ..history.library import Library  # loads msgspec

            project = Library(options.store).resolve_project(options.project)
            usage_filter = usage_filter._replace(session=of_project(project))
        usage = UsageTable(cache)
        if options.by == "tool":
            _print_tools(usage, usage_filter, options)
            output.report_damage(usage.damage)
            return 0
        statistics = add_up(usage, options.by, usage_filter, utc=options.utc)
        if options.json:
            output.print_json(statistics.document())
        elif options.csv:
            write_csv(statistics, sys.stdout)
        else:
            _print_table(statistics, options)
        output.report_damage(usage.damage)
    finally:
        cache.close()
    return 0


# -- the table ---------------------------------------------------------------------------------------------------------


def _print_table(statistics: Statistics, options: Namespace) -> None:
    rows = statistics.rows if options.children else without_included(statistics.rows)
    if not rows:
        print(f"No model calls{' in that time' if options.since or options.until else ''}.", file=sys.stderr)
        return
    shown = rows[-options.limit :] if statistics.by in ("day", "month") else rows[: options.limit or None]
    names = [row.key for row in shown]
    if statistics.by == "day":
        days = {row.key: _weight(_inclusive(row)) for row in rows if row.key != UNKNOWN}
        if picture := output.calendar(days, output.terminal_columns()):
            print("\n".join(picture))
            print(output.paint(output.CALENDAR_LEGEND, 2), end="\n\n")
    elif statistics.by == "session":
        names = [row.key if row.title is None else f"{row.key[-6:]} {row.title}" for row in shown]
    elif statistics.by == "project":
        from ..history.library import Library  # loads msgspec

        titles = {project.id: project_title(project) for project in Library(options.store).projects}
        names = [titles.get(key) or os.path.basename(key) or key for key in names]
    _print_rows(statistics, shown, names)
    for note in _notes(statistics, len(shown), len(rows)):
        print(output.paint(note, 2))


def _inclusive(row: StatsRow) -> UsageTotals:
    return row.inclusive or row.totals


def _weight(sums: UsageTotals) -> float:
    """Return the value of a bar or shade: the cost, or the tokens if no cost is known."""
    return dollars(sums.cost or sums.repriced) or sums.total_tokens / 1e12


def _print_rows(statistics: Statistics, shown: Sequence[StatsRow], names: Sequence[str]) -> None:
    """Print the names, the figures right-aligned, and a bar as wide as there is space."""
    total = statistics.total.totals
    sums = [_inclusive(row) for row in shown]
    own = [row.totals for row in shown]
    max_name = min(36, max(output.terminal_columns() // 2, 12)) if sys.stdout.isatty() else 36
    names = [output.clip(name, max_name) for name in (*names, "total")]
    # The own cost of a session is shown only where subagents make a difference.
    with_own = any(both.cost != alone.cost for both, alone in zip(sums, own, strict=True))
    heads = _HEADS_WITH_OWN_COST if with_own else _HEADS
    cells: list[tuple[str, ...]] = []
    for row, alone in zip((*sums, total), (*own, total), strict=True):
        counts = (row.input, row.output, row.reasoning, row.cache_read, row.cache_write)
        own_cost = (money(alone.cost),) if with_own else ()
        repriced = money(row.repriced)
        if row.unpriced:
            repriced = f"{repriced} + ?" if row.repriced else "unknown"
        cells.append((f"{row.messages:,}", *map(format_count, counts), *own_cost, money(row.cost), repriced))
    weights = [_weight(row) for row in sums]
    widths = [max(len(head), *(len(row[i]) for row in cells)) for i, head in enumerate(heads)]
    key = statistics.by.upper()
    first = max(output.width(name) for name in (*names, key))
    columns = list(range(len(heads)))
    for head in _DROPPED_FIRST:
        if not sys.stdout.isatty() or first + sum(widths[i] + 2 for i in columns) <= output.terminal_columns():
            break
        columns.remove(heads.index(head))
    space = output.terminal_columns() - first - sum(widths[i] + 2 for i in columns) - 2
    print(output.paint(f"{key.ljust(first)}  {'  '.join(heads[i].rjust(widths[i]) for i in columns)}", 2))
    for number, (name, row) in enumerate(zip(names, cells, strict=True)):
        is_total = number == len(shown)
        figures = "  ".join(row[i].rjust(widths[i]) for i in columns)
        bar = "" if is_total or space < 4 else output.bar(weights[number], max(weights), min(space, 30))
        line = f"{name}{' ' * (first - output.width(name))}  {figures}  {bar}".rstrip()
        print(output.paint(line, 1) if is_total else line)


def _notes(statistics: Statistics, shown: int, total: int) -> list[str]:
    notes = [f"Re-priced with models.dev prices of {statistics.prices.date} ({statistics.prices.label})."]
    if statistics.copied.sessions:
        copied = statistics.copied.totals
        messages = f"{pluralize(copied.messages, 'message')} ({money(copied.cost)})"
        notes.append(f"{messages} copied by {pluralize(statistics.copied.sessions, 'fork')}: counted once.")
    sums = statistics.total.totals
    if sums.costless:
        notes.append(f"{pluralize(sums.costless, 'call')} stored with a cost of 0: free, a subscription, or unknown.")
    if sums.unpriced:
        notes.append(f"{pluralize(sums.unpriced, 'call')} to models without a known price.")
    if statistics.by == "session":
        notes.append("The row of a session includes its subagents; the total counts each call once.")
    if shown < total:
        notes.append(f"{shown} of {total:,} rows; --limit 0 shows all.")
    return notes


# -- tools and disk usage ----------------------------------------------------------------------------------------------


def _print_tools(usage: UsageTable, usage_filter: UsageFilter, options: Namespace) -> None:
    from ..history.stats.tool_stats import by_tool  # loads msgspec; only for --by tool

    tools = by_tool(usage, usage_filter)
    if options.json:
        output.print_json({"by": "tool", "rows": [tool.document() for tool in tools]})
        return
    if options.csv:
        write_tool_csv((tool.document() for tool in tools), sys.stdout)
        return
    if not tools:
        print("No tool calls in that time.", file=sys.stderr)
        return
    shown = tools[: options.limit or None]
    rows = [
        (
            output.clip(tool.calls.tool, 30),
            f"{tool.calls.calls:,}",
            f"{tool.calls.errors:,}",
            f"{tool.calls.milliseconds / 1000:,.1f}",
            format_count(tool.calls.characters),
            f"{len(tool.sessions):,}",
        )
        for tool in shown
    ]
    calls = [tool.calls.calls for tool in shown]
    output.table_with_bars(("TOOL", "CALLS", "ERRORS", "SECONDS", "CHARACTERS", "SESSIONS"), rows, calls, max(calls))
    if len(shown) < len(tools):
        print(output.paint(f"{len(shown)} of {len(tools):,} rows; --limit 0 shows all.", 2))


def _print_disk_usage(options: Namespace) -> int:
    if options.by != "day" or options.since or options.until or options.project or options.children:
        raise UsageError("--bytes measures whole stores; of the other options, only --limit can be combined with it")
    from ..history.maintenance.disk_usage import measure  # only for --bytes

    damage: list[Damage] = []
    usages = measure(open_store(options.store, report=damage.append), report=damage.append)
    if options.json:
        output.print_json({"stores": [usage.document() for usage in usages]})
    else:
        for number, usage in enumerate(usages):
            gap = "\n" if number else ""
            records = pluralize(usage.total.records, "record")
            title = output.paint(f"{usage.place}: {format_bytes(usage.total.bytes)} in {records}", 1)
            print(f"{gap}{title}")
            _print_usage_sections(usage, options.limit)
            largest = usage.largest()
            rows = [
                (
                    entry.session,
                    format_bytes(entry.own.bytes),
                    format_bytes(entry.inclusive),
                    f"{entry.own.records:,}",
                    entry.info.title if entry.info else "",
                )
                for entry in largest[: options.limit or None]
            ]
            if rows:
                print()
                output.table(("SESSION", "OWN", "WITH CHILDREN", "RECORDS", "TITLE"), rows)
            if len(rows) < len(largest):
                print(output.paint(f"{len(rows)} of {len(largest):,} sessions; --limit 0 shows all.", 2))
    output.report_damage(damage)
    return 0


def _print_usage_sections(usage: StoreDiskUsage, limit: int) -> None:
    included = {
        "attachments": usage.attachments,
        "subagent sessions": usage.children,
        "without a session": usage.orphans,
    }
    sections: tuple[tuple[str, Mapping[str, UsageTotal]], ...] = (
        ("RECORDS", usage.kinds),
        ("PARTS", usage.parts),
        ("TOOLS", usage.tools),
        ("OF WHICH", {name: share for name, share in included.items() if share.records}),
    )
    for head, shares in sections:
        ranked = sorted(shares.items(), key=lambda item: -item[1].bytes)[: limit or None]
        if ranked:
            rows = [
                (
                    output.clip(name or "(unnamed)", 30),
                    format_bytes(share.bytes),
                    f"{share.records:,}",
                    f"{100 * share.bytes / (usage.total.bytes or 1):.1f}%",
                )
                for name, share in ranked
            ]
            print()
            values = [share.bytes for _, share in ranked]
            output.table_with_bars((head, "BYTES", "RECORDS", "SHARE"), rows, values, usage.total.bytes)
    for name, size in usage.beside.items():
        print(output.paint(f"outside of the sessions, {name}: {format_bytes(size)}", 2))


# -- numbers -----------------------------------------------------------------------------------------------------------


def money(units: int) -> str:
    """Return an amount in US dollars; small amounts with more digits."""
    amount = dollars(units)
    if 0 < amount < 0.00005:
        return "<$0.0001"
    return f"${amount:,.2f}" if not amount or abs(amount) >= 1 else f"${amount:.4f}"
