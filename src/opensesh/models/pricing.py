"""The cost of model calls, to the last digit that OpenCode stores.

Prices are US dollars per million tokens. The arithmetic is decimal, with 20 digits and rounding half up at each step:
for each bucket tokens times rate, divided by a million; then the sum, in the order input, output, cache reads, cache
writes, reasoning. OpenCode does the same, so both get the same number.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING

from msgspec import Struct

from ..records import CacheTokens, Tokens
from .model import Price, Rates

if TYPE_CHECKING:
    from .stream_events import Usage

_BUCKETS = ("input", "output", "cache_read", "cache_write", "reasoning")
_MILLION = Decimal(1_000_000)
_digits = Context(prec=20, rounding=ROUND_HALF_UP)


class Charge(Struct, frozen=True):
    """The cost of one model call, with its details."""

    known: Decimal
    """The sum over the buckets whose rate is known."""
    unpriced: tuple[str, ...]
    """Buckets with tokens but without a rate, such as ``cache_read``; all of them if the model has no price."""
    rates: Rates
    """The rates that apply; all unknown if the model has no price."""
    above: int | None
    """The context size of the tier they belong to; ``None`` for the base rates."""

    @property
    def cost(self) -> Decimal | None:
        """US dollars, or ``None`` if some of it is unknown."""
        return None if self.unpriced else self.known

    @property
    def stored(self) -> float:
        """The number to store; as in OpenCode, buckets without a rate add nothing."""
        return float(self.known)


def charge(price: Price | None, usage: Usage) -> Charge:
    """Return the cost of ``usage`` with the rates that apply and the buckets without one."""
    if price is None:
        return Charge(Decimal(0), _BUCKETS, Rates(), None)
    rates, above = rates_for(price, usage)
    known = Decimal(0)
    unpriced: list[str] = []
    for bucket in _BUCKETS:
        tokens = max(getattr(usage, bucket), 0)
        rate: float | None = getattr(rates, bucket)
        if rate is None and bucket == "reasoning":
            rate = rates.output
        if rate is not None:
            term = _digits.divide(_digits.multiply(Decimal(tokens), Decimal(repr(rate))), _MILLION)
            known = _digits.add(known, term)
        elif tokens:
            unpriced.append(bucket)
    return Charge(known, tuple(unpriced), rates, above)


def rates_for(price: Price, usage: Usage) -> tuple[Rates, int | None]:
    """Return the rates for a call, and above which context size they apply (``None``: the base rates).

    The context size is input plus cache reads; a tier applies when it is strictly larger.
    """
    context = max(usage.input, 0) + max(usage.cache_read, 0)
    rates, above = price.rates, None
    for tier in price.tiers:
        if context > tier.above >= (above or 0):
            rates, above = tier.rates, tier.above
    return rates, above


def tokens(usage: Usage) -> Tokens:
    """Return usage as it is stored. No bucket is negative, even if the provider reports one."""
    return Tokens(
        total=None if usage.total is None else max(usage.total, 0),
        input=max(usage.input, 0),
        output=max(usage.output, 0),
        reasoning=max(usage.reasoning, 0),
        cache=CacheTokens(read=max(usage.cache_read, 0), write=max(usage.cache_write, 0)),
    )
