"""What takes the room on the disk, for ``opensesh stats --bytes``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import output

if TYPE_CHECKING:
    from argparse import Namespace

    from ..history.maintenance.disk_usage import StoreDiskUsage, UsageTotal
    from ..storage.protocol import Damage


def run(options: Namespace) -> int:
    """Print what each store takes."""
    from ..history.maintenance.disk_usage import measure
    from ..storage import open_store

    damage: list[Damage] = []
    usages = measure(open_store(options.store, report=damage.append), report=damage.append)
    if options.json:
        output.print_json({"stores": [usage.document() for usage in usages]})
    else:
        for number, usage in enumerate(usages):
            if number:
                print()
            _print(usage, options.limit)
    output.tell_damage(damage)
    return 0


def size(count: int) -> str:
    """Bytes as people read them."""
    amount = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 999.95 or (unit == "B" and amount < 1000):
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def _print(usage: StoreDiskUsage, limit: int) -> None:
    records = output.pluralize(usage.total.records, "record")
    print(output.paint(f"{usage.place}: {size(usage.total.bytes)} in {records}", 1))
    for what, shares in (("records", usage.kinds), ("parts", usage.parts), ("tools", usage.tools)):
        if shares:
            print()
            _shares(what, shares, usage.total.bytes, limit)
    others = {
        "attachments": usage.attachments,
        "subagents' sessions": usage.children,
        "without a session": usage.orphans,
    }
    if within := {name: share for name, share in others.items() if share.records}:
        print()
        _shares("of which", within, usage.total.bytes, limit)
    for name, amount in usage.beside.items():
        print(output.paint(f"beside the sessions, {name}: {size(amount)}", 2))
    largest = usage.largest()
    rows = [
        (
            each.session,
            size(each.own.bytes),
            size(each.inclusive),
            f"{each.own.records:,}",
            each.facts.title if each.facts else "",
        )
        for each in largest[: limit or None]
    ]
    if rows:
        print()
        output.table(("SESSION", "OWN", "WITH CHILDREN", "RECORDS", "TITLE"), rows)
    if len(rows) < len(largest):
        print(output.paint(f"{len(rows)} of {len(largest):,} sessions; --limit 0 shows all.", 2))


def _shares(what: str, shares: dict[str, UsageTotal], total: int, limit: int) -> None:
    from .charts import with_bars

    ranked = sorted(shares.items(), key=lambda each: -each[1].bytes)[: limit or None]
    rows = [
        (
            output.clip(name or "(unnamed)", 30),
            size(share.bytes),
            f"{share.records:,}",
            f"{100 * share.bytes / (total or 1):.1f}%",
        )
        for name, share in ranked
    ]
    if rows:
        heads = (what.upper(), "BYTES", "RECORDS", "SHARE")
        output.table(*with_bars(heads, rows, [share.bytes for _, share in ranked], total))
