"""Sums over messages. Nothing is imported for them: often they are all that is needed."""

from __future__ import annotations

from .money import dollars

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ...records import Document
    from .accounts import UsageEntry

    Sums = tuple[int, ...]

QUARTER = 900_000
"""Milliseconds in a quarter of an hour: every time zone in use begins its days on one."""


class UsageTotals:
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
        """Calls that used tokens and are stored with a cost of 0: free, paid for otherwise, or of unknown price."""
        self.repriced = 0
        """Over the calls that the price table has a price for."""
        self.unpriced = 0
        """Calls that it has none for."""

    def count(self, entry: UsageEntry) -> None:
        """Add one message, or a call that led to none."""
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
