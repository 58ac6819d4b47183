"""Which messages are copies, so that every model call is billed once.

A fork is a session of its own that begins with a copy of another's messages. The copies have identifiers of their own,
but keep their moments, tokens and costs. What gives a fork away is that it holds messages older than itself; that its
title counts forks, or that its record names where it came from (as in 2.x). A message is taken for a copy only if its
session is such a one *and* another session holds the like of it; it is billed to the session that made it or, when that
is gone, to the oldest that still has it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from .accounts import numbers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .accounts import UsageEntry
    from .ledger import Ledger, SessionInfo

_TITLE = re.compile(r".+ \(fork #\d+\)", re.ASCII | re.DOTALL)

_MADE, _MADE_SINCE, _UNCLEAR, _INHERITED = range(4)


class Holder(NamedTuple):
    """A session that holds a message of some fingerprint; the least of several is the one that pays."""

    rank: int
    """From made here for certain to inherited for certain."""
    created: int
    session: str
    position: int
    """Of the message, in the session's entries."""


def is_suspect(facts: SessionInfo | None, first: int) -> bool:
    """Whether a session whose earliest message is of ``first`` may be a fork."""
    if facts is None:
        return False
    return bool(facts.fork or first < facts.created or (facts.title[-1:] == ")" and _TITLE.fullmatch(facts.title)))


def copies(ledger: Ledger) -> dict[str, set[int]]:
    """The messages that are not to be billed, as positions in each session's entries."""
    suspects = {
        session: ledger.facts[session]
        for session, account in ledger.accounts.items()
        if is_suspect(ledger.facts.get(session), account.first)
    }
    if not suspects:
        return {}
    entries = {session: ledger.entries(session) for session in suspects}
    found: dict[str, set[int]] = {}
    for holders in _holders(ledger, suspects, entries).values():
        payer = min(holders)
        for holder in holders:
            if holder.session != payer.session and holder.rank >= _UNCLEAR:
                found.setdefault(holder.session, set()).add(holder.position)
    return found


def _holders(
    ledger: Ledger, suspects: Mapping[str, SessionInfo], entries: Mapping[str, list[UsageEntry]]
) -> dict[int, list[Holder]]:
    holders: dict[int, list[Holder]] = {}
    for session, facts in suspects.items():
        inherits = bool(entries[session]) and entries[session][0].created < facts.created
        for position, entry in enumerate(entries[session]):
            rank = _rank(entry, facts, inherits=inherits)
            holders.setdefault(entry.fingerprint, []).append(Holder(rank, facts.created, session, position))
    wanted = holders.keys()
    for session, account in ledger.accounts.items():
        if session not in suspects:
            for fingerprint in wanted & set(numbers(account.fingerprints)):
                holders[fingerprint].append(Holder(_MADE, account.first, session, -1))
    return holders


def _rank(entry: UsageEntry, facts: SessionInfo, *, inherits: bool) -> int:
    if entry.created < facts.created:
        return _INHERITED
    return _MADE_SINCE if inherits else _UNCLEAR
