"""What was used: a message's share, and the sums of a session by quarter of an hour.

All of it is plain tuples and numbers, so that a ledger of thousands of sessions is read back in no time.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

from .figures import QUARTER, Figures

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .figures import Sums


class Entry(NamedTuple):
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
    """As stored, in units of :mod:`opensesh.history.money`."""
    repriced: int | None = 0
    """By the price table in use; ``None`` if that has no price for some of it."""

    @property
    def used(self) -> bool:
        """Whether any token went through a model."""
        return bool(self.input or self.output or self.reasoning or self.cache_read or self.cache_write)

    @property
    def likeness(self) -> str:
        """The same for a message and its copy in a fork, which has other identifiers but the same moments and sums."""
        return repr(self[1:-1])


class Cell(NamedTuple):
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


class Account(NamedTuple):
    """A session's messages, summed up."""

    session: str
    cells: list[Cell]
    first: int
    """When its earliest message was made."""
    names: bytes
    likenesses: bytes
    """One number a message, in the order of the entries; see :func:`numbers`."""
    entries: list[Entry] | None = None
    """The messages themselves, where they are likely to be asked for."""


def account(session: str, entries: Iterable[Entry], *, keep: bool = False) -> Account:
    """Sum up a session. ``keep`` its entries if it may hold copies of another's messages."""
    ordered = in_time(entries)
    return Account(
        session=session,
        cells=cells(ordered),
        first=ordered[0].created if ordered else 0,
        names=_digests(entry.id for entry in ordered).tobytes(),
        likenesses=likenesses(ordered).tobytes(),
        entries=ordered if keep else None,
    )


def in_time(entries: Iterable[Entry]) -> list[Entry]:
    """Entries by when they were made."""
    return sorted(entries, key=_when)


def cells(entries: Iterable[Entry]) -> list[Cell]:
    """The sums of entries that are in order of time."""
    found: dict[tuple[int, str, str, str], tuple[Entry, Figures]] = {}
    last: dict[tuple[int, str, str, str], int] = {}
    for entry in entries:
        key = (entry.created // QUARTER, entry.provider, entry.model, entry.agent)
        if key not in found:
            found[key] = (entry, Figures())
        found[key][1].count(entry)
        last[key] = entry.created
    return [
        Cell(first.created, last[key], first.provider, first.model, first.agent, figures.sums)
        for key, (first, figures) in found.items()
    ]


def numbers(data: bytes) -> array[int]:
    """What :attr:`Account.names` and :attr:`Account.likenesses` hold."""
    found = array("q")
    found.frombytes(data)
    return found


def _when(entry: Entry) -> tuple[int, str]:
    return entry.created, entry.id


def likenesses(entries: Iterable[Entry]) -> array[int]:
    """One number an entry, equal for those that are alike."""
    return _digests(entry.likeness for entry in entries)


def _digests(texts: Iterable[str]) -> array[int]:
    from hashlib import blake2b  # only for what is read anew

    digests = [blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest() for text in texts]
    return numbers(b"".join(digests))
