"""Families of sessions: those that a session started through its subagents, and those that these started."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def children_by_parent(parents: Iterable[tuple[str, str | None]]) -> dict[str, list[str]]:
    """Return the children of each session, in their order, from pairs of a session and its parent if it has one."""
    children: dict[str, list[str]] = {}
    for session, parent in parents:
        if parent:
            children.setdefault(parent, []).append(session)
    return children


def descendants(session: str, children: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the sessions below one, at any depth, each before its own. Damaged records may form a cycle, which is
    cut."""
    names: dict[str, None] = {}
    waiting = [*children.get(session, ())][::-1]
    while waiting:
        name = waiting.pop()
        if name != session and name not in names:
            names[name] = None
            waiting += children.get(name, ())[::-1]
    return list(names)
