"""What was used: a message's share, sums of them, and the sums of a session by quarter of an hour.

All of it is plain tuples and numbers, so that a ledger of thousands of sessions is read back in no time.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

from .money import dollars

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..records import Document

    Sums = tuple[int, ...]

QUARTER = 900_000
"""Milliseconds in a quarter of an hour: every time zone in use begins its days on one."""


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


class Figures:
    """Sums over messages. Buckets of tokens are as stored."""

    __slots__ = (
        "answers",
        "cache_read",
        "cache_write",
        "cost",
        "costless",
        "input",
        "messages",
        "output",
        "reasoning",
        "repriced",
        "unpriced",
    )

    def __init__(self) -> None:
        self.messages = 0
        self.answers = 0
        self.input = 0
        self.output = 0
        self.reasoning = 0
        self.cache_read = 0
        self.cache_write = 0
        self.cost = 0
        self.costless = 0
        """Answers that used tokens and are stored with a cost of 0: free, paid for otherwise, or of unknown price."""
        self.repriced = 0
        """Over the answers that the price table has a price for."""
        self.unpriced = 0
        """Answers that it has none for."""

    def count(self, entry: Entry) -> None:
        """Add one message, or a call that led to none."""
        if entry.role == "user":
            self.messages += 1
            return
        if entry.role == "assistant":
            self.messages += 1
            self.answers += 1
        self.input += entry.input
        self.output += entry.output
        self.reasoning += entry.reasoning
        self.cache_read += entry.cache_read
        self.cache_write += entry.cache_write
        self.cost += entry.cost
        if entry.used:
            self.costless += not entry.cost
            self.unpriced += entry.repriced is None
        self.repriced += entry.repriced or 0

    @property
    def sums(self) -> Sums:
        """All of it, in the order that :meth:`add` takes."""
        return (
            self.messages,
            self.answers,
            self.input,
            self.output,
            self.reasoning,
            self.cache_read,
            self.cache_write,
            self.cost,
            self.costless,
            self.repriced,
            self.unpriced,
        )

    def add(self, sums: Sums) -> None:
        """Add what others summed up."""
        messages, answers, fresh, output, reasoning, read, write, cost, costless, repriced, unpriced = sums
        self.messages += messages
        self.answers += answers
        self.input += fresh
        self.output += output
        self.reasoning += reasoning
        self.cache_read += read
        self.cache_write += write
        self.cost += cost
        self.costless += costless
        self.repriced += repriced
        self.unpriced += unpriced

    @property
    def tokens(self) -> Document:
        """The buckets as records have them."""
        cache = {"read": self.cache_read, "write": self.cache_write}
        return {"input": self.input, "output": self.output, "reasoning": self.reasoning, "cache": cache}

    @property
    def total_tokens(self) -> int:
        """All buckets together."""
        return self.input + self.output + self.reasoning + self.cache_read + self.cache_write

    def document(self) -> Document:
        """For machines: money in US dollars, ``repriced`` null where some of it is unknown."""
        return {
            "messages": self.messages,
            "answers": self.answers,
            "tokens": self.tokens,
            "cost": dollars(self.cost),
            "repriced": None if self.unpriced else dollars(self.repriced),
            "repricedKnown": dollars(self.repriced),
            "unpriced": self.unpriced,
            "costless": self.costless,
        }


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
