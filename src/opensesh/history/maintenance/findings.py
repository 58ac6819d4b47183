"""Findings of ``doctor``, and the checks of whole stores: what only one of them has, and pending revocations."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from typing import TYPE_CHECKING, Literal, NamedTuple

from ...storage import find_stores, revocations
from ...storage.copies import duplicate_messages
from ...storage.locations import default_place
from ...storage.protocol import Damage, Store, store_ids
from ...text import pluralize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ...records import Document
    from ...sessions.undo import Change
    from .inventory import Inventory

Level = Literal["damage", "odd", "note"]
"""``damage``: something cannot be read or reached; ``odd``: it should be different; ``note``: not a fault."""
_REVOCATION_REASONS = {"removed": "the session is gone", "unshared": "it was to be unshared"}


class Finding(NamedTuple):
    """One result of a check, with its repair if there is one."""

    kind: str
    """``database``, ``torn``, ``orphan``, ``duplicate``, ``misplaced``, ``foreign``, ``stale``, ``lease``,
    ``leftover``, ``project``, ``folder``, ``permissions``, ``migration``, ``stores`` or ``share``."""
    path: str
    message: str
    level: Level = "odd"
    changes: Sequence[Change] = ()
    """The repair, as changes that can be undone."""
    rows_of: Store | None = None
    """The store whose rows the changes name; without one, they are changes of the tree."""
    edit: Callable[[Document], object] | None = None
    """The repair of the record at ``path``, made in place; several edits of one record are applied together."""
    act: Callable[[], None] | None = None
    """The repair, if it does not change the tree."""
    remedy: str = ""
    """What the user can do, if ``--fix`` does nothing."""

    @property
    def fixable(self) -> bool:
        """Whether there is a safe repair."""
        return bool(self.changes) or self.edit is not None or self.act is not None

    @property
    def repairs(self) -> list[str]:
        """The changes that ``--fix`` makes, in words."""
        texts = ["the record is corrected; the old content is kept"] if self.edit is not None else []
        for change in self.changes:
            if change.mode is not None:
                texts.append(f"{change.path}: the permissions become {change.mode:o}")
            elif change.aside:
                texts.append(f"{change.path} is moved to the quarantine")
            elif change.to:
                texts.append(f"{change.path} becomes {change.to}")
            else:
                texts.append(f"{change.path} is written anew; what was there is kept")
        return texts if self.act is None else [*texts, "the leftover is removed"]

    def document(self, *, fixed: bool) -> Document:
        """Return the finding as JSON."""
        return {
            "kind": self.kind,
            "level": self.level,
            "path": self.path,
            "message": self.message,
            "fixable": self.fixable,
            "fixed": fixed and self.fixable,
            "repairs": self.repairs,
            "remedy": self.remedy or None,
        }


class StoreSummary(NamedTuple):
    """The number of records of one store."""

    place: str
    sessions: int
    messages: int
    parts: int
    only: int
    """Sessions that no other store has."""
    only_messages: int
    """Messages that no other store has, of sessions that another store has as well."""

    def document(self) -> Document:
        """Return the summary as JSON."""
        return {
            "place": self.place,
            "sessions": self.sessions,
            "messages": self.messages,
            "parts": self.parts,
            "onlyHere": self.only,
            "messagesOnlyHere": self.only_messages,
        }


class StoreContents(NamedTuple):
    """The ids of the records in a store."""

    place: str
    sessions: set[str]
    messages: Mapping[str, str]
    """The session of each message."""
    parts: int


def store_contents(store: Store) -> StoreContents:
    """Return the contents of any store."""
    sessions = {key[-1] for key in store.list(("session",))}
    messages = {key[-1]: key[1] for key in store.list(("message",))}
    return StoreContents(store.place, sessions, messages, len(store.list(("part",))))


def inventory_contents(inventory: Inventory) -> StoreContents:
    """Return the contents of a tree, from its inventory."""
    sessions = {item.name for item in inventory.of("session")} | {name for _, name in inventory.damaged("session")}
    damaged = {name: folder for folder, name in inventory.damaged("message") if name not in inventory.owners}
    messages = inventory.owners | damaged if damaged else inventory.owners
    return StoreContents(inventory.root, sessions, messages, inventory.files["part"])


def compare_stores(stores: Sequence[StoreContents]) -> list[StoreSummary]:
    """Count the records of each store, and those that no other store has."""
    sessions = Counter(id_ for store in stores for id_ in store.sessions)
    messages: Counter[str] = Counter()
    if len(stores) > 1:
        messages.update(id_ for store in stores for id_ in store.messages)
    duplicates = duplicate_messages([store.messages.keys() for store in stores])
    return [
        StoreSummary(
            store.place,
            len(store.sessions),
            len(store.messages),
            store.parts,
            sum(sessions[id_] == 1 for id_ in store.sessions),
            sum(
                messages[id_] == 1 and sessions[session_id] > 1 and id_ not in duplicates
                for id_, session_id in store.messages.items()
            ),
        )
        for store in stores
    ]


def check_stores(summaries: Sequence[StoreSummary], target: str) -> Iterator[Finding]:
    """Yield a note for each store that has something which no other has, except the one that new sessions go to."""
    for path, _, _, _, sessions, messages in summaries if len(summaries) > 1 else ():
        if path == target:
            continue
        remedy = "opensesh shows all stores together"
        if target:
            remedy += f"; 'opensesh import {shlex.quote(path)}' copies them to {target}"
        if sessions:
            yield Finding("stores", path, f"{pluralize(sessions, 'session')} only in this store", "note", remedy=remedy)
        if messages:
            text = f"{pluralize(messages, 'message')} only in this store, of sessions that another store has as well"
            yield Finding("stores", path, text, "note", remedy=remedy)


def unshare_command(store: Store) -> str:
    """Return the command that removes the shares of a store whose removal is pending."""
    default, store_id = default_place(), store_ids(store)[0]
    if "://" not in default:
        locations = find_stores(default)
        default = os.path.realpath(locations.tree or locations.path)
    if default == store_id:
        return "opensesh session unshare --pending"
    return f"opensesh session unshare --pending --store {shlex.quote(store_id)}"


def check_shares(store: Store) -> Iterator[Finding]:
    """Yield the shares of a store whose removal is pending, and unreadable records of such shares."""
    damage: list[Damage] = []
    for session, share in revocations.waiting(store, report=damage.append):
        reason = _REVOCATION_REASONS.get(revocations.reason_of(share), "the session is gone, or was to be unshared")
        text = f"{reason}, but {share.url} may still be public"
        yield Finding("share", session, text, "odd", remedy=unshare_command(store))
    for path, reason in damage:
        yield Finding("share", path, f"a share that was to be removed: {reason}", "damage")
