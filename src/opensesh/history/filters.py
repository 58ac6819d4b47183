"""Selection of sessions for bulk operations: by id, or by project and time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..records import as_object
from ..storage.families import children_by_parent, descendants
from ..storage.protocol import Damage, log_damage
from .stats.session_usage import session_info

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..storage.protocol import Key, Store
    from .stats.session_usage import SessionInfo

    Report = Callable[[Damage], None]


class Selection(NamedTuple):
    """Criteria for sessions. The default selects all, including subagent and archived sessions."""

    ids: tuple[str, ...] = ()
    """Only these sessions."""
    matches: Callable[[SessionInfo], bool] | None = None
    """Only sessions for which this returns true."""
    since: int = 0
    """Updated at or after this time, in milliseconds."""
    until: int | None = None
    """Updated before this time."""
    children: bool | None = None
    """Whether to include subagent sessions; by default not those below the sessions in ``ids``, and otherwise yes."""


class SelectedSession(NamedTuple):
    """A selected session: its key, parent and times, so that thousands fit in memory."""

    key: Key
    id: str
    parent: str
    created: int
    updated: int
    archived: bool = False


class SelectionResult(NamedTuple):
    """The selected sessions."""

    sessions: list[SelectedSession]
    """Oldest first."""
    excluded_children: int
    """How many sessions were left out only because they are subagent sessions."""


def select(store: Store, selection: Selection, *, report: Report = log_damage) -> SelectionResult:
    """Return the sessions of a store that match a selection."""
    sessions: dict[str, SelectedSession] = {}
    matching: set[str] = set()
    for key, value in store.scan(("session",), report=report):
        document = as_object(value)
        if document is None:
            report(Damage(store.locate(key), "$: expected an object"))
            continue
        info = session_info(document, key[1], key[-1])
        session = SelectedSession(key, key[-1], info.parent, info.created, info.updated, info.archived)
        sessions[session.id] = session
        in_time = info.updated >= selection.since and (selection.until is None or info.updated < selection.until)
        if in_time and (selection.matches is None or selection.matches(info)):
            matching.add(session.id)
        else:
            matching.discard(session.id)
    if selection.ids:
        children = children_by_parent((session.id, session.parent) for session in sessions.values())
        with_children = {id_ for root in selection.ids for id_ in (root, *descendants(root, children))}
        matching = with_children & sessions.keys()
        selected = matching if selection.children else matching.intersection(selection.ids)
    else:
        selected = {id_ for id_ in matching if selection.children is not False or not sessions[id_].parent}
    ordered = sorted((sessions[id_] for id_ in selected), key=lambda session: (session.created, session.id))
    return SelectionResult(ordered, len(matching) - len(selected))
