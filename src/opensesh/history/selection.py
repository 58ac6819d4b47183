"""Which sessions are meant: some by name, or those of a project and a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..records import as_object
from ..storage.store import Damage, log_damage
from .stats.ledger_reading import session_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..storage.store import Key, Store
    from .stats.ledger import Facts

    Report = Callable[[Damage], None]


class Selection(NamedTuple):
    """Which sessions. Without anything: all of them, subagents' and archived ones too."""

    names: tuple[str, ...] = ()
    """Only these, by identifier."""
    fits: Callable[[Facts], bool] = lambda facts: True
    since: int = 0
    """Updated at or after this moment, in milliseconds."""
    until: int | None = None
    """Updated before this one."""
    children: bool | None = None
    """Whether subagents' sessions are meant: by default not below those that were named, and otherwise yes."""


class Chosen(NamedTuple):
    """A session that is meant, where its record is, and how it stands to the others."""

    key: Key
    id: str
    parent: str
    created: int
    updated: int


def choose(store: Store, selection: Selection, *, report: Report = log_damage) -> list[Chosen]:
    """The sessions that are meant, oldest first; a child after its parent if that is meant too.

    Only what is in :class:`Chosen` is held of each, so that any number can be worked through.
    """
    found = {each.id: (each, fits) for each, fits in _read(store, selection, report)}
    if selection.names:
        below = _below(found) if selection.children else {}
        wanted = {name for start in selection.names for name in _tree(start, below) if name in found}
    else:
        wanted = {name for name, (each, fits) in found.items() if fits and _is_meant(each, selection)}
    chosen = [found[name][0] for name in wanted]
    return sorted(chosen, key=lambda each: (each.created, each.id))


def _is_meant(each: Chosen, selection: Selection) -> bool:
    in_time = each.updated >= selection.since and (selection.until is None or each.updated < selection.until)
    return in_time and (selection.children is not False or not each.parent)


def _read(store: Store, selection: Selection, report: Report) -> Iterator[tuple[Chosen, bool]]:
    for key, value in store.scan(("session",), report=report):
        document = as_object(value)
        if document is None:
            report(Damage(store.locate(key), "$: expected an object"))
            continue
        facts = session_facts(document, key[1], key[-1])
        yield Chosen(key, key[-1], facts.parent, facts.created, facts.updated), selection.fits(facts)


def _below(found: dict[str, tuple[Chosen, bool]]) -> dict[str, list[str]]:
    below: dict[str, list[str]] = {}
    for each, _ in found.values():
        below.setdefault(each.parent, []).append(each.id)
    return below


def _tree(start: str, below: dict[str, list[str]]) -> Sequence[str]:
    seen = dict.fromkeys([start])
    waiting = [start]
    while waiting:
        for child in below.get(waiting.pop(), ()):
            if child not in seen:
                seen[child] = None
                waiting.append(child)
    return list(seen)
