"""What each store of a data folder holds, and what only one of them has."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from ...storage.union import Union
from .findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...records import Document
    from ...storage.store import Store


class Holding(NamedTuple):
    """One store."""

    place: str
    sessions: int
    messages: int
    parts: int
    only: int
    """Sessions that no other store has."""
    only_messages: int
    """Messages that no other store has, of sessions that another has too."""

    def document(self) -> Document:
        """For machines."""
        return {
            "place": self.place,
            "sessions": self.sessions,
            "messages": self.messages,
            "parts": self.parts,
            "onlyHere": self.only,
            "messagesOnlyHere": self.only_messages,
        }


def compare_stores(store: Store) -> list[Holding]:
    """What each member holds."""
    members: Sequence[Store] = store.members if isinstance(store, Union) else (store,)
    sessions = [{key[-1] for key in member.list(("session",))} for member in members]
    messages = [{key[-1]: key[1] for key in member.list(("message",))} for member in members]
    having: Counter[str] = Counter(name for names in sessions for name in names)
    saying: Counter[str] = Counter(name for names in messages for name in names)
    return [
        Holding(
            member.place,
            len(sessions[number]),
            len(messages[number]),
            len(member.list(("part",))),
            sum(having[name] == 1 for name in sessions[number]),
            sum(saying[name] == 1 and having[owner] > 1 for name, owner in messages[number].items()),
        )
        for number, member in enumerate(members)
    ]


def check_stores(holdings: Sequence[Holding]) -> Iterator[Finding]:
    """A line for what only one store has."""
    if len(holdings) < 2:
        return
    for each in holdings:
        if each.only:
            text = f"{each.only} sessions are in this store alone"
            yield Finding("stores", each.place, text, "note", remedy=_remedy(each.place))
        if each.only_messages:
            text = f"{each.only_messages} messages of sessions that another store has too are here alone"
            yield Finding("stores", each.place, text, "note", remedy=_remedy(each.place))


def _remedy(place: str) -> str:
    if place.endswith(".db"):
        return f"opensesh shows all together; 'opensesh import {place}' copies them to the tree"
    return "opensesh shows all together; 'opensesh export --format opencode --split DIR' takes them to a newer OpenCode"
