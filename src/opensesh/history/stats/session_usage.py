"""Usage of messages and sessions: tokens, cost, and totals by quarter of an hour."""

from __future__ import annotations

from array import array
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from .money import dollars

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ...records import Document

    Sums = Sequence[int]

QUARTER_MS = 900_000
"""Milliseconds in a quarter of an hour: in every time zone in use, days begin on one."""


class UsageTotals:
    """Totals over messages, with tokens as stored."""

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
        """Calls that used tokens and are stored with a cost of 0: free, a subscription, or of unknown price."""
        self.repriced = 0
        """The cost by the price table, of the calls that it has a price for."""
        self.unpriced = 0
        """Calls that the price table has no price for."""

    def count(self, entry: UsageEntry) -> None:
        """Add one message, or a model call without a message."""
        _, role, _, _, _, _, _, fresh, output, reasoning, read, write, cost, repriced = entry
        if role == "user":
            self.messages += 1
            return
        if role == "assistant":
            self.messages += 1
            self.answers += 1
        self.input += fresh
        self.output += output
        self.reasoning += reasoning
        self.cache_read += read
        self.cache_write += write
        self.cost += cost
        if fresh or output or reasoning or read or write:
            self.costless += not cost
            self.unpriced += repriced is None
        self.repriced += repriced or 0

    @property
    def sums(self) -> Sums:
        """All totals, in the order that :meth:`add` takes."""
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
        """Add other totals."""
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
        """The tokens in the form that records have."""
        cache = {"read": self.cache_read, "write": self.cache_write}
        return {"input": self.input, "output": self.output, "reasoning": self.reasoning, "cache": cache}

    @property
    def total_tokens(self) -> int:
        """The sum of all tokens."""
        return self.input + self.output + self.reasoning + self.cache_read + self.cache_write

    def document(self) -> Document:
        """Return JSON data: money in US dollars, ``repriced`` null if the price of some calls is unknown."""
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


class _Checksums(dict[str, int]):
    """Checksums of texts, computed once: there are few different ones."""

    def __missing__(self, text: str) -> int:
        number = self[text] = crc32(text.encode(errors="surrogatepass"))
        return number


_CHECKSUMS = _Checksums()


class UsageEntry(NamedTuple):
    """The usage of one message, or of a model call beside it."""

    id: str
    role: str
    """``user``, ``assistant``, or ``call`` for a model call without an answer, such as one for a title."""
    created: int
    completed: int
    """0 for a prompt, and for an unfinished answer."""
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
    """By the price table in use; ``None`` if it has no price for some of the tokens."""

    @property
    def fingerprint(self) -> int:
        """A number that a message and its copy in a fork share: the copy has another id, but the same times and usage.

        It is the same in every process: Python's hash of numbers does not depend on the hash seed.
        """
        _, role, created, completed, provider, model, agent, fresh, output, reasoning, read, write, cost, _ = self
        who, what, how = _CHECKSUMS[provider], _CHECKSUMS[model], _CHECKSUMS[agent]
        return hash((_CHECKSUMS[role], created, completed, who, what, how, fresh, output, reasoning, read, write, cost))


class UsageBucket(NamedTuple):
    """The usage of one model and agent in a session within one quarter of an hour."""

    first: int
    """The time of its first message, in milliseconds."""
    last: int
    provider: str
    model: str
    agent: str
    sums: Sums

    @property
    def slot(self) -> int:
        """The number of the quarter of an hour since 1970."""
        return self.first // QUARTER_MS


def in_time_order(entries: Iterable[UsageEntry]) -> list[UsageEntry]:
    """Sort entries by time."""
    return sorted(entries, key=attrgetter("created", "id"))


def buckets_of(entries: Iterable[UsageEntry]) -> list[UsageBucket]:
    """Add up entries, which are in the order of time, by quarter of an hour, model and agent."""
    groups: dict[tuple[int, str, str, str], list[UsageEntry]] = {}
    for entry in entries:
        groups.setdefault((entry.created // QUARTER_MS, entry.provider, entry.model, entry.agent), []).append(entry)
    buckets: list[UsageBucket] = []
    for (_, provider, model, agent), group in groups.items():
        totals = UsageTotals()
        for entry in group:
            totals.count(entry)
        buckets.append(UsageBucket(group[0].created, group[-1].created, provider, model, agent, totals.sums))
    return buckets


def numbers(data: bytes) -> array[int]:
    """Decode numbers that were stored as bytes."""
    decoded = array("q")
    decoded.frombytes(data)
    return decoded
