"""Detecting messages that forks copied, so that every model call is counted once.

A fork is a session that begins with copies of another session's messages. The copies have other ids but the same times,
tokens and costs. A session may be a fork if it has messages older than itself, if its title counts forks, or if its
record names the original (2.x). A message is taken for a copy only if its session may be a fork *and* another session
has an equal message; it is counted in the session that made it or, if that is gone, in the oldest that has it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .session_usage import SessionInfo
    from .usage_layer import UsageTable

_TITLE = re.compile(r".+ \(fork #\d+\)", re.ASCII | re.DOTALL)

_MADE_HERE, _MADE_SINCE_FORK, _UNCLEAR, _COPIED = range(4)


class MessageCopy(NamedTuple):
    """One of several equal messages; the least of them is the one that counts."""

    rank: int
    """From certainly made here to certainly copied."""
    created: int
    session: str
    id: str


def may_be_fork(info: SessionInfo | None, first: int) -> bool:
    """Whether a session whose first message is of the time ``first`` may be a fork."""
    if info is None:
        return False
    return bool(info.fork or first < info.created or (info.title[-1:] == ")" and _TITLE.fullmatch(info.title)))


def copied_messages(usage: UsageTable) -> dict[str, set[str]]:
    """Return by session the ids of the messages, and of the model calls beside them, that are copies."""
    first = {session: buckets[0].first for session, buckets in usage.buckets.items()}
    forks = {
        session: usage.infos[session] for session, time in first.items() if may_be_fork(usage.infos.get(session), time)
    }
    if not forks:
        return {}
    copies: dict[int, list[MessageCopy]] = {}
    for session, info in forks.items():
        otherwise = _MADE_SINCE_FORK if first[session] < info.created else _UNCLEAR
        for entry in usage.entries(session):
            rank = _COPIED if entry.created < info.created else otherwise
            copies.setdefault(entry.fingerprint, []).append(MessageCopy(rank, info.created, session, entry.id))
    for session, fingerprints in usage.fingerprints():
        if session not in forks:
            for fingerprint in copies.keys() & set(fingerprints):
                copies[fingerprint].append(MessageCopy(_MADE_HERE, first[session], session, ""))
    copied: dict[str, set[str]] = {}
    for group in copies.values():
        # The message that certainly was made in its session; without one, that of the oldest session.
        original = min(group)
        for copy in group:
            if copy.session != original.session and copy.rank >= _UNCLEAR:
                copied.setdefault(copy.session, set()).add(copy.id)
    return copied
