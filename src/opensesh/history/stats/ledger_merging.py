"""One ledger of several stores that hold some of the same sessions, each message counted once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from .accounts import SessionUsage, UsageEntry, account, in_time, numbers
from .forks import is_suspect
from .ledger import Ledger, SessionInfo, accounts_of, packed_account

if TYPE_CHECKING:
    from collections.abc import Sequence


def merged(place: str, ledgers: Sequence[Ledger]) -> Ledger:
    """The ledger of them all. Of a session's records the newest counts, of a message the fuller copy."""
    facts: dict[str, SessionInfo] = {}
    holders: dict[str, list[Ledger]] = {}
    for ledger in ledgers:
        for session, found in ledger.facts.items():
            facts[session] = max(facts.get(session, found), found, key=_updated)
        for session in ledger.accounts:
            holders.setdefault(session, []).append(ledger)
    packed = {
        session: packed_account(_account(session, having, facts.get(session))) for session, having in holders.items()
    }
    return Ledger(
        place,
        facts,
        accounts_of(packed),
        ledgers[0].prices,
        lambda session: _entries(session, holders[session]),
        ledgers,
    )


def _account(session: str, holders: Sequence[Ledger], facts: SessionInfo | None) -> SessionUsage:
    fullest, *others = sorted((ledger.accounts[session] for ledger in holders), key=_size, reverse=True)
    if all(_is_within(other, fullest) for other in others):
        return fullest
    entries = _entries(session, holders)
    return account(session, entries, keep=partial(is_suspect, facts))


def _entries(session: str, holders: Sequence[Ledger]) -> list[UsageEntry]:
    found: dict[str, UsageEntry] = {}
    for ledger in holders:
        for entry in ledger.entries(session):
            held = found.get(entry.id)
            if held is None or _fullness(entry) > _fullness(held):
                found[entry.id] = entry
    return in_time(found.values())


def _is_within(one: SessionUsage, other: SessionUsage) -> bool:
    """Whether ``other`` holds every message of ``one``, each with the same sums."""
    return set(numbers(one.id_hashes)) <= set(numbers(other.id_hashes)) and set(numbers(one.fingerprints)) <= set(
        numbers(other.fingerprints)
    )


def _size(found: SessionUsage) -> int:
    return len(found.id_hashes)


def _fullness(entry: UsageEntry) -> tuple[bool, int, int]:
    return bool(entry.completed), entry.cost, entry.output


def _updated(facts: SessionInfo) -> int:
    return facts.updated
