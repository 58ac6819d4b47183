"""Usage of a session: the fields of its record, the usage of each message, and totals by quarter of an hour."""

from __future__ import annotations

from functools import cache
from operator import add
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from .money import dollars

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from decimal import Decimal

    from ...records import Document

QUARTER_MS = 900_000
"""Milliseconds in a quarter of an hour: in every time zone in use, days begin on one."""


class SessionInfo(NamedTuple):
    """Fields of a session's record."""

    id: str
    project: str = ""
    parent: str = ""
    title: str = ""
    directory: str = ""
    created: int = 0
    updated: int = 0
    fork: str = ""
    """The session that it was forked from; only 2.x stores it."""
    archived: bool = False


def session_info(document: Document, project: str, name: str) -> SessionInfo:
    """Return the fields of a record that is stored as the session ``name`` of ``project``."""
    from ...records import as_time, object_at  # loads msgspec, which cached statistics do without

    stamps = object_at(document, "time")
    created, updated = as_time(stamps.get("created")), as_time(stamps.get("updated"))
    fork = object_at(document, "fork")
    texts = {key: value for key in ("parentID", "title", "directory") if isinstance(value := document.get(key), str)}
    return SessionInfo(
        id=name,
        project=project,
        parent=texts.get("parentID", ""),
        title=texts.get("title", ""),
        directory=texts.get("directory", ""),
        created=created,
        updated=updated or created,
        fork=str(fork.get("sessionID") or ""),
        archived=bool(stamps.get("archived")),
    )


class UsageTotals(NamedTuple):
    """Totals over messages, with tokens as stored. Caches store them in this order."""

    messages: int = 0
    answers: int = 0
    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: int = 0
    """As stored, in units of :mod:`opensesh.history.stats.money`."""
    costless: int = 0
    """Calls that used tokens and are stored with a cost of 0: free, a subscription, or of unknown price."""
    repriced: int = 0
    """The cost by the price table, of the calls that it has a price for."""
    unpriced: int = 0
    """Calls that the price table has no price for."""

    def plus(self, other: Iterable[int]) -> UsageTotals:
        """Return the sum of these totals and others."""
        return UsageTotals._make(map(add, self, other))

    @property
    def tokens(self) -> Document:
        """The tokens in the form that records have."""
        cache = {"read": self.cache_read, "write": self.cache_write}
        return {"input": self.input, "output": self.output, "reasoning": self.reasoning, "cache": cache}

    @property
    def dollars(self) -> Decimal:
        """The cost as stored, in US dollars."""
        from decimal import Decimal  # the commands do not need it

        return Decimal(self.cost).scaleb(-15)

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


@cache
def _checksum(text: str) -> int:
    return crc32(text.encode(errors="surrogatepass"))


class UsageEntry(NamedTuple):
    """The usage of one message, or of a model call beside it."""

    id: str
    role: str
    """``user``, ``assistant``, ``call`` for a model call without an answer, such as one for a title, or ``removed`` for
    an answer that was removed from the session."""
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
    """The cost by the price table in use; ``None`` if it has no price for some of the tokens."""

    @property
    def totals(self) -> UsageTotals:
        """The totals of this entry alone."""
        _, role, _, _, _, _, _, fresh, output, reasoning, read, write, cost, repriced = self
        if role == "user":
            return UsageTotals(messages=1)
        counts = 1 if role == "assistant" else 0
        used = bool(fresh or output or reasoning or read or write)
        costless, unpriced = int(used and not cost), int(used and repriced is None)
        sums = (fresh, output, reasoning, read, write, cost, costless, repriced or 0, unpriced)
        return UsageTotals(counts, counts, *sums)

    @property
    def fingerprint(self) -> int:
        """A number that a message and its copy in a fork share: the copy has another id, but the same times and usage.

        It is the same in every process: Python's hash of numbers does not depend on the hash seed.
        """
        _, role, created, completed, provider, model, agent, fresh, output, reasoning, read, write, cost, _ = self
        role = "assistant" if role == "removed" else role  # it may have been copied before
        origin = _checksum(provider), _checksum(model), _checksum(agent)
        return hash((_checksum(role), created, completed, *origin, fresh, output, reasoning, read, write, cost))


class UsageBucket(NamedTuple):
    """The usage of one model and agent in a session within one quarter of an hour."""

    first: int
    """The time of its first message, in milliseconds."""
    last: int
    provider: str
    model: str
    agent: str
    totals: Sequence[int]
    """The values of :class:`UsageTotals`."""

    @property
    def slot(self) -> int:
        """The number of the quarter of an hour since 1970."""
        return self.first // QUARTER_MS


def buckets_of(entries: Iterable[UsageEntry]) -> list[UsageBucket]:
    """Add up entries, which are in the order of time, by quarter of an hour, model and agent."""
    groups: dict[tuple[int, str, str, str], list[UsageEntry]] = {}
    for entry in entries:
        groups.setdefault((entry.created // QUARTER_MS, entry.provider, entry.model, entry.agent), []).append(entry)
    buckets: list[UsageBucket] = []
    for (_, provider, model, agent), group in groups.items():
        totals = [sum(column) for column in zip(*(entry.totals for entry in group), strict=True)]
        buckets.append(UsageBucket(group[0].created, group[-1].created, provider, model, agent, totals))
    return buckets
