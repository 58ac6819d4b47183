"""Amounts of money, and the price of tokens by the current price table.

Amounts are integers, so that sums are exact and do not depend on the order of addition.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from ...flags import Flags
from ...storage import paths

if TYPE_CHECKING:
    from decimal import Decimal

    from ...models.catalogue import Catalogue
    from ...models.model import Price

    Used = tuple[int, int, int, int, int]
    """Tokens of one model call: input, output, reasoning, read from and written to the cache."""

DOLLAR = 10**15
"""Units in a US dollar; finer than the price of any token."""


_MAX_DOLLARS = 10**30


def dollars(amount: int) -> float:
    """Convert units to US dollars."""
    return amount / DOLLAR


def units(amount: float | Decimal) -> int:
    """Convert US dollars to units, exactly by their shortest decimal form. What cannot be a cost is 0."""
    if not amount or amount is True:
        return 0
    if isinstance(amount, float):
        whole, _, fraction = repr(amount).partition(".")
        if fraction.isdecimal() and len(fraction) <= 15 and whole.isdecimal():
            return int(whole + fraction.ljust(15, "0"))  # the same result as below, several times as fast
    from decimal import ROUND_HALF_UP, Decimal

    exact = amount if isinstance(amount, Decimal) else Decimal(repr(amount))
    if not exact.is_finite() or abs(exact) > _MAX_DOLLARS:
        return 0
    return int(exact.scaleb(15).to_integral_value(ROUND_HALF_UP))


class PriceTable(NamedTuple):
    """The name and date of a price table."""

    label: str
    date: str
    """The date of the data, ``2026-09-28``; empty without a table."""


class Repricer:
    """Prices model calls by one table, which is read when it is first needed."""

    def __init__(self, catalogue: Catalogue | None = None) -> None:
        self._catalogue = catalogue
        self._prices: dict[tuple[str, str], tuple[Price | None, Used | None]] = {}
        """The price of each provider and model, and the units for a token of each kind if they are constant."""

    @property
    def prices(self) -> PriceTable:
        """The table."""
        origin = self._opened().origin
        return PriceTable(origin.label, origin.date)

    def cost(self, provider: str, model: str, used: Used, total: float | None = None) -> int | None:
        """Return the cost of a call in units; ``None`` if the table has no price for some of its tokens.

        ``total`` is the number of all tokens that the provider reported.
        """
        key = provider, model
        if key not in self._prices:
            known_model = self._opened().known(provider, model)
            price = known_model.price if known_model else None
            self._prices[key] = price, None if price is None else _units_per_token(price)
        price, per_token = self._prices[key]
        if price is None:
            return None if any(used) else 0
        fresh, output, reasoning, read, write = used
        if reasoning > 0 and total == fresh + output + read + write:
            # Up to OpenCode 1.1.65 the output of many providers includes the reasoning; the total shows which.
            output = max(output - reasoning, 0)
        if per_token is not None and min(used) >= 0:
            # Every price is known and none depends on the size of the call: no decimals are needed.
            fresh_price, output_price, reasoning_price, read_price, write_price = per_token
            generated = output * output_price + reasoning * reasoning_price
            return fresh * fresh_price + generated + read * read_price + write * write_price
        from ...models.pricing import charge
        from ...models.stream_events import Usage

        usage = Usage(input=fresh, output=output, reasoning=reasoning, cache_read=read, cache_write=write)
        cost = charge(price, usage).cost
        return None if cost is None else units(cost)

    def window(self, provider: str, model: str) -> int:
        """Return how many tokens the context of a model holds; 0 if that is not known."""
        known_model = self._opened().known(provider, model)
        return known_model.limit.context if known_model else 0

    def _opened(self) -> Catalogue:
        if self._catalogue is None:
            from ...models.catalogue import Catalogue

            self._catalogue = Catalogue()
        return self._catalogue


def table_fingerprint() -> list[tuple[str, int, int]]:
    """Return times and sizes of all files that a price table may come from. It does not read them."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    ours = os.path.join(package, "models", "data", "models.zip")
    copies = [os.path.join(folder, "models.json") for folder in (paths.cache(), paths.opencode_cache())]
    files: list[tuple[str, int, int]] = []
    for path in (ours, *copies, Flags().models_path or ""):
        try:
            status = os.stat(path)
            files.append((path, status.st_mtime_ns, status.st_size))
        except OSError:
            files.append((path, 0, 0))
    return files


def _units_per_token(price: Price) -> Used | None:
    """Return the price of a token of each kind in units; ``None`` if it is not constant, not known or not whole."""
    rates = price.rates
    reasoning = rates.output if rates.reasoning is None else rates.reasoning
    known = (rates.input, rates.output, reasoning, rates.cache_read, rates.cache_write)
    if price.tiers or None in known:
        return None
    # The table gives dollars a million tokens.
    amounts = [units(rate or 0) for rate in known]
    if any(amount % 10**6 for amount in amounts):
        return None
    fresh, output, thought, read, write = (amount // 10**6 for amount in amounts)
    return fresh, output, thought, read, write
