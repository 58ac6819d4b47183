"""What was used: a message's share, and the sums of a session by quarter of an hour.

All of it is plain tuples and numbers, so that a ledger of thousands of sessions is read back in no time.
"""

from __future__ import annotations

from array import array
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from .figures import QUARTER, UsageTotals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .figures import Sums


class _Numbers(dict[str, int]):
    """A number for every text, the same in every process; texts are few."""

    def __missing__(self, text: str) -> int:
        number = self[text] = crc32(text.encode(errors="surrogatepass"))
        return number


_NUMBERS = _Numbers()


class UsageEntry(NamedTuple):
    """One message, or a call beside it: who, when, with which model, and what it used."""

    id: str
    role: str
    """``user``, ``assistant``, or ``call`` for a model call that led to no answer: it made a title."""
    created: int
    completed: int
    """0 for a prompt, and for an answer that never ended."""
    provider: str
    model: str
    agent: str
    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: int = 0
    """As stored, in units of :mod:`opensesh.history.stats.money`."""
    repriced: int | None = 0
    """By the price table in use; ``None`` if that has no price for some of it."""

    @property
    def fingerprint(self) -> int:
        """The same for a message and its copy in a fork, which has other identifiers but the same moments and sums.

        The same in every process too: what Python makes of numbers alone does not change from one to the next.
        """
        _, role, created, completed, provider, model, agent, fresh, output, reasoning, read, write, cost, _ = self
        who, what, how = _NUMBERS[provider], _NUMBERS[model], _NUMBERS[agent]
        return hash((_NUMBERS[role], created, completed, who, what, how, fresh, output, reasoning, read, write, cost))


class UsageBucket(NamedTuple):
    """What one model and agent used in a session within one quarter of an hour."""

    first: int
    """When the earliest of its messages was made, in milliseconds."""
    last: int
    provider: str
    model: str
    agent: str
    sums: Sums

    @property
    def slot(self) -> int:
        """Which quarter of an hour, counted from 1970."""
        return self.first // QUARTER


class SessionUsage(NamedTuple):
    """A session's messages, summed up."""

    session: str
    cells: list[UsageBucket]
    first: int
    """When its earliest message was made."""
    id_hashes: bytes
    """One number a message, in the order of the entries; see :func:`numbers`."""
    fingerprints: bytes
    """The same of :attr:`Entry.fingerprint`."""
    entries: list[UsageEntry] | None = None
    """The messages themselves, where they are likely to be asked for."""


def account(session: str, entries: Iterable[UsageEntry], *, keep: Callable[[int], bool]) -> SessionUsage:
    """Sum up a session. Its entries are kept if ``keep``, which is told when the earliest was made, says that it may
    hold copies of another's messages."""
    ordered = in_time(entries)
    first = ordered[0].created if ordered else 0
    return SessionUsage(
        session=session,
        cells=cells(ordered),
        first=first,
        id_hashes=array("q", [crc32(entry.id.encode(errors="surrogatepass")) for entry in ordered]).tobytes(),
        fingerprints=array("q", [entry.fingerprint for entry in ordered]).tobytes(),
        entries=ordered if keep(first) else None,
    )


def in_time(entries: Iterable[UsageEntry]) -> list[UsageEntry]:
    """Entries by when they were made."""
    return sorted(entries, key=attrgetter("created", "id"))


def cells(entries: Iterable[UsageEntry]) -> list[UsageBucket]:
    """The sums of entries that are in order of time."""
    found: dict[tuple[int, str, str, str], list[UsageEntry]] = {}
    for entry in entries:
        key = (entry.created // QUARTER, entry.provider, entry.model, entry.agent)
        if key in found:
            found[key].append(entry)
        else:
            found[key] = [entry]
    return [
        UsageBucket(some[0].created, some[-1].created, provider, model, agent, _sums(some))
        for (_, provider, model, agent), some in found.items()
    ]


def _sums(entries: Iterable[UsageEntry]) -> Sums:
    totals = UsageTotals()
    for entry in entries:
        totals.count(entry)
    return totals.sums


def numbers(data: bytes) -> array[int]:
    """What :attr:`Account.id_hashes` and :attr:`Account.fingerprints` hold."""
    found = array("q")
    found.frombytes(data)
    return found
