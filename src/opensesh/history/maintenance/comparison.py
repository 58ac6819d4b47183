"""What each store of a data folder holds, and what only one of them has."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from ...storage.merged import duplicate_messages
from ...text import pluralize
from .findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ...records import Document
    from ...storage.protocol import Store
    from .inventory import Inventory


class StoreSummary(NamedTuple):
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


class StoreContents(NamedTuple):
    """What a store holds, by name."""

    place: str
    sessions: set[str]
    messages: Mapping[str, str]
    """The session of each."""
    parts: int


def store_contents(store: Store) -> StoreContents:
    """What any store holds."""
    sessions = {key[-1] for key in store.list(("session",))}
    messages = {key[-1]: key[1] for key in store.list(("message",))}
    return StoreContents(store.place, sessions, messages, len(store.list(("part",))))


def inventory_contents(found: Inventory) -> StoreContents:
    """What a tree holds that was looked at already."""
    sessions = {item.name for item in found.of("session")} | {name for _, name in found.damaged("session")}
    damaged = {name: folder for folder, name in found.damaged("message") if name not in found.owners}
    return StoreContents(found.root, sessions, found.owners | damaged if damaged else found.owners, found.files["part"])


def compare_stores(stores: Sequence[StoreContents]) -> list[StoreSummary]:
    """What each holds, and what it has alone."""
    having: Counter[str] = Counter(name for each in stores for name in each.sessions)
    saying: Counter[str] = Counter() if len(stores) == 1 else Counter(name for each in stores for name in each.messages)
    spare = duplicate_messages([each.messages.keys() for each in stores])
    return [
        StoreSummary(
            place,
            len(sessions),
            len(messages),
            parts,
            sum(having[name] == 1 for name in sessions),
            sum(saying[name] == 1 and having[owner] > 1 and name not in spare for name, owner in messages.items()),
        )
        for place, sessions, messages, parts in stores
    ]


def check_stores(holdings: Sequence[StoreSummary]) -> Iterator[Finding]:
    """A line for what only one store has."""
    if len(holdings) < 2:
        return
    for each in holdings:
        if each.only:
            text = f"{pluralize(each.only, 'session')} in this store alone"
            yield Finding("stores", each.place, text, "note", remedy=_remedy(each.place))
        if each.only_messages:
            text = f"{pluralize(each.only_messages, 'message')} here alone, of sessions that another store has too"
            yield Finding("stores", each.place, text, "note", remedy=_remedy(each.place))


def _remedy(place: str) -> str:
    if place.endswith(".db"):
        return f"opensesh shows all together; 'opensesh import {place}' copies them to the tree"
    return "opensesh shows all together; 'opensesh export --format opencode --split DIR' takes them to a newer OpenCode"
