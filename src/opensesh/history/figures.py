"""What was used: a message's share, sums of them, and the sums of a session by quarter of an hour."""

from __future__ import annotations

from array import array
from hashlib import blake2b
from typing import TYPE_CHECKING

from msgspec import Struct, field

from .money import dollars

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..records import Document

QUARTER = 900_000
"""Milliseconds in a quarter of an hour: every time zone in use begins its days on one."""


class Entry(Struct, frozen=True, array_like=True, gc=False):
    """One message: who, when, with which model, and what it used."""

    id: str
    role: str
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
    def name(self) -> int:
        """A short form of the identifier, for sets of them."""
        return _digest(self.id)

    @property
    def likeness(self) -> int:
        """The same for a message and its copy in a fork, which has other identifiers but the same moments and sums."""
        told = (self.role, self.created, self.completed, self.provider, self.model, self.agent)
        counts = (self.input, self.output, self.reasoning, self.cache_read, self.cache_write, self.cost)
        return _digest(repr((told, counts)))


class Figures(Struct, array_like=True, gc=False):
    """Sums over messages. Buckets of tokens are as stored."""

    messages: int = 0
    answers: int = 0
    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: int = 0
    costless: int = 0
    """Answers that used tokens and are stored with a cost of 0: free, paid for otherwise, or of unknown price."""
    repriced: int = 0
    """Over the answers that the price table has a price for."""
    unpriced: int = 0
    """Answers that it has none for."""

    def count(self, entry: Entry) -> None:
        """Add one message."""
        self.messages += 1
        if entry.role != "assistant":
            return
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

    def add(self, other: Figures) -> None:
        """Add a sum."""
        self.messages += other.messages
        self.answers += other.answers
        self.input += other.input
        self.output += other.output
        self.reasoning += other.reasoning
        self.cache_read += other.cache_read
        self.cache_write += other.cache_write
        self.cost += other.cost
        self.costless += other.costless
        self.repriced += other.repriced
        self.unpriced += other.unpriced

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


class Cell(Struct, array_like=True, gc=False):
    """What one model and agent used in a session within one quarter of an hour."""

    first: int
    """When the earliest of its messages was made, in milliseconds."""
    last: int
    provider: str
    model: str
    agent: str
    figures: Figures = field(default_factory=Figures)

    @property
    def slot(self) -> int:
        """Which quarter of an hour, counted from 1970."""
        return self.first // QUARTER


class Account(Struct, array_like=True):
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
        names=array("q", [entry.name for entry in ordered]).tobytes(),
        likenesses=array("q", [entry.likeness for entry in ordered]).tobytes(),
        entries=ordered if keep else None,
    )


def in_time(entries: Iterable[Entry]) -> list[Entry]:
    """Entries by when they were made."""
    return sorted(entries, key=lambda entry: (entry.created, entry.id))


def cells(entries: Iterable[Entry]) -> list[Cell]:
    """The sums of entries that are in order of time."""
    found: dict[tuple[int, str, str, str], Cell] = {}
    for entry in entries:
        key = (entry.created // QUARTER, entry.provider, entry.model, entry.agent)
        cell = found.get(key)
        if cell is None:
            cell = found[key] = Cell(entry.created, entry.created, entry.provider, entry.model, entry.agent)
        cell.last = max(cell.last, entry.created)
        cell.figures.count(entry)
    return list(found.values())


def numbers(data: bytes) -> array[int]:
    """What :attr:`Account.names` and :attr:`Account.likenesses` hold."""
    found = array("q")
    found.frombytes(data)
    return found


def _digest(text: str) -> int:
    digest = blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
