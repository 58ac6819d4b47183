"""Selection of sessions for bulk operations: by id, or by project and time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..records import as_object
from ..storage.families import children_by_parent, descendants
from ..storage.protocol import Damage, Store, log_damage
from .stats.session_usage import SessionInfo, session_info

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..storage.protocol import Report


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


def select(store: Store, selection: Selection, *, report: Report = log_damage) -> tuple[list[SessionInfo], int]:
    """Return the sessions of a store that match a selection, oldest first, and how many others were left out only
    because they are subagent sessions."""
    sessions: dict[str, SessionInfo] = {}
    matching: set[str] = set()
    for key, value in store.scan(("session",), report=report):
        document = as_object(value)
        if document is None:
            report(Damage(store.locate(key), "$: expected an object"))
            continue
        info = sessions[key[-1]] = session_info(document, key[1], key[-1])
        in_time = info.updated >= selection.since and (selection.until is None or info.updated < selection.until)
        if in_time and (selection.matches is None or selection.matches(info)):
            matching.add(info.id)
        else:
            matching.discard(info.id)
    if selection.ids:
        children = children_by_parent((session.id, session.parent) for session in sessions.values())
        with_children = {id_ for root in selection.ids for id_ in (root, *descendants(root, children))}
        matching = with_children & sessions.keys()
        selected = matching if selection.children else matching.intersection(selection.ids)
    else:
        selected = {id_ for id_ in matching if selection.children is not False or not sessions[id_].parent}
    ordered = sorted((sessions[id_] for id_ in selected), key=lambda session: (session.created, session.id))
    return ordered, len(matching) - len(selected)
