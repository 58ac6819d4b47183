"""What a model call costs, to the last digit that OpenCode would store.

Prices are US dollars per million tokens. The arithmetic is decimal, with 20 digits and halves rounded up at each step:
for each bucket tokens times rate, divided by a million; then the sum, in the order input, output, cache reads, cache
writes, reasoning. That is what OpenCode does, so both arrive at the same number.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING

from msgspec import Struct

from ..records import CacheTokens, Tokens
from .model import Price, Rates, Tier

if TYPE_CHECKING:
    from .stream_events import Usage

_BUCKETS = ("input", "output", "cache_read", "cache_write", "reasoning")
_MILLION = Decimal(1_000_000)
_digits = Context(prec=20, rounding=ROUND_HALF_UP)


class Charge(Struct, frozen=True):
    """The price of one model call, and how it came about."""

    known: Decimal
    """The sum over the buckets whose rate is known."""
    unpriced: tuple[str, ...]
    """Buckets that hold tokens but have no rate: ``cache_read`` and the like. Without any price: all of them."""
    rates: Rates
    """The rates used; all unknown if the model has no price."""
    above: int | None
    """The size of the tier they come from; ``None`` for the base rates."""

    @property
    def cost(self) -> Decimal | None:
        """US dollars, or ``None`` if some of it is unknown."""
        return None if self.unpriced else self.known

    @property
    def stored(self) -> float:
        """The number for the record: as in OpenCode, what has no rate adds nothing to it."""
        return stored(self.known)


def cost(price: Price | None, usage: Usage) -> Decimal | None:
    """US dollars, or ``None`` if nobody said what some of these tokens cost. Never negative."""
    return charge(price, usage).cost


def charge(price: Price | None, usage: Usage) -> Charge:
    """The cost of ``usage`` in full: the rates that apply, and the buckets that have none."""
    if price is None:
        return Charge(Decimal(0), _BUCKETS, Rates(), None)
    rates, above = rates_for(price, usage)
    known = Decimal(0)
    unpriced: list[str] = []
    for bucket in _BUCKETS:
        tokens, rate = max(getattr(usage, bucket), 0), _rate(rates, bucket)
        if rate is not None:
            term = _digits.divide(_digits.multiply(Decimal(tokens), Decimal(repr(rate))), _MILLION)
            known = _digits.add(known, term)
        elif tokens:
            unpriced.append(bucket)
    return Charge(known, tuple(unpriced), rates, above)


def rates_for(price: Price, usage: Usage) -> tuple[Rates, int | None]:
    """The rates for a call of this size, and above which size they hold (``None``: the base rates).

    The size of the context is fresh input and cache reads together; a tier applies when it is strictly larger.
    """
    context = max(usage.input, 0) + max(usage.cache_read, 0)
    reached = [tier for tier in price.tiers if context > tier.above]
    if not reached:
        return price.rates, None
    tier = max(reached, key=_size)
    return tier.rates, tier.above


def stored(amount: Decimal | None) -> float:
    """An amount as records keep it. OpenCode wants a number there, so the unknown is 0."""
    return float(amount) if amount is not None else 0.0


def tokens(usage: Usage) -> Tokens:
    """Usage as records keep it. A bucket is never below zero, whatever a provider's arithmetic came to."""
    return Tokens(
        total=None if usage.total is None else max(usage.total, 0),
        input=max(usage.input, 0),
        output=max(usage.output, 0),
        reasoning=max(usage.reasoning, 0),
        cache=CacheTokens(read=max(usage.cache_read, 0), write=max(usage.cache_write, 0)),
    )


def _rate(rates: Rates, bucket: str) -> float | None:
    rate: float | None = getattr(rates, bucket)
    return rates.output if rate is None and bucket == "reasoning" else rate


def _size(tier: Tier) -> int:
    return tier.above
