"""Which sessions are meant: some by name, or those of a project and a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..records import as_object
from ..storage.protocol import Damage, log_damage
from .discovery import descendants
from .stats.session_info import session_info

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..storage.protocol import Key, Store
    from .stats.session_info import SessionInfo

    Report = Callable[[Damage], None]


class Selection(NamedTuple):
    """Which sessions. Without anything: all of them, subagents' and archived ones too."""

    names: tuple[str, ...] = ()
    """Only these, by identifier."""
    fits: Callable[[SessionInfo], bool] | None = None
    """Only those that fit, by what their records say."""
    since: int = 0
    """Updated at or after this moment, in milliseconds."""
    until: int | None = None
    """Updated before this one."""
    children: bool | None = None
    """Whether subagents' sessions are meant: by default not below those that were named, and otherwise yes."""


class SelectedSession(NamedTuple):
    """A session that is meant, where its record is, and how it stands to the others."""

    key: Key
    id: str
    parent: str
    created: int
    updated: int
    archived: bool = False


class SelectionResult(NamedTuple):
    """What a selection comes to."""

    sessions: list[SelectedSession]
    """Oldest first."""
    without: int
    """How many are not among them only because a subagent led them."""


def select(store: Store, selection: Selection, *, report: Report = log_damage) -> SelectionResult:
    """The sessions that are meant.

    Only what is in :class:`SelectedSession` is held of each, so that any number can be worked through.
    """
    found = {each.id: (each, fits) for each, fits in _read(store, selection, report)}
    if selection.names:
        below = _below(found)
        named = {name for start in selection.names for name in (start, *descendants(start, below))}
        everything = named & found.keys()
        wanted = everything if selection.children else everything.intersection(selection.names)
    else:
        everything = {name for name, (each, fits) in found.items() if fits and _is_in_time(each, selection)}
        wanted = {name for name in everything if selection.children is not False or not found[name][0].parent}
    chosen = [found[name][0] for name in wanted]
    return SelectionResult(sorted(chosen, key=lambda each: (each.created, each.id)), len(everything) - len(wanted))


def _is_in_time(each: SelectedSession, selection: Selection) -> bool:
    return each.updated >= selection.since and (selection.until is None or each.updated < selection.until)


def _read(store: Store, selection: Selection, report: Report) -> Iterator[tuple[SelectedSession, bool]]:
    for key, value in store.scan(("session",), report=report):
        document = as_object(value)
        if document is None:
            report(Damage(store.locate(key), "$: expected an object"))
            continue
        facts = session_info(document, key[1], key[-1])
        chosen = SelectedSession(key, key[-1], facts.parent, facts.created, facts.updated, facts.archived)
        yield chosen, selection.fits is None or selection.fits(facts)


def _below(found: dict[str, tuple[SelectedSession, bool]]) -> dict[str, list[str]]:
    below: dict[str, list[str]] = {}
    for each, _ in found.values():
        below.setdefault(each.parent, []).append(each.id)
    return below
