"""Pricing tokens by the current price table, which has a name and a date."""

from __future__ import annotations

import os

from ...flags import Flags
from ...storage import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ...models.catalogue import Catalogue
    from ...models.model import Price

    Used = tuple[int, int, int, int, int]


class PriceTable:
    """The name and date of a price table."""

    __slots__ = ("date", "label")

    def __init__(self, label: str, date: str) -> None:
        self.label = label
        self.date = date
        """The date of the data, ``2026-09-28``; empty without a table."""

    @property
    def plain(self) -> tuple[str, str]:
        """Both values as a tuple."""
        return self.label, self.date


class Repricer:
    """Prices model calls by one table, which is read when it is first needed."""

    def __init__(self, catalogue: Catalogue | None = None) -> None:
        self._catalogue = catalogue
        self._known: dict[tuple[str, str], Price | None] = {}
        self._plain: dict[tuple[str, str], Used | None] = {}

    @property
    def prices(self) -> PriceTable:
        """The table."""
        return PriceTable(*self._opened().origin)

    def cost(self, provider: str, model: str, used: Used, total: float | None = None) -> int | None:
        """Return the cost of a call in units; ``None`` if the table has no price for some of its tokens.

        ``used`` are the tokens of input, output, reasoning, cache read and cache write; ``total`` is the number of all
        tokens that the provider reported.
        """
        key = provider, model
        if key not in self._known:
            known_model = self._opened().known(provider, model)
            self._known[key] = known_model.price if known_model else None
            self._plain[key] = _per_token(self._known[key])
        price, plain = self._known[key], self._plain[key]
        if price is None:
            return None if any(used) else 0
        fresh, output, reasoning, read, write = used
        output = _without_reasoning(used, total)
        if plain is not None and min(used) >= 0:
            # Every price is known and none depends on the size of the call: no decimals are needed.
            return fresh * plain[0] + output * plain[1] + reasoning * plain[2] + read * plain[3] + write * plain[4]
        return _charged(price, (fresh, output, reasoning, read, write))

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
    named = Flags().models_path or ""
    files: list[tuple[str, int, int]] = []
    for path in (ours, *copies, named):
        try:
            status = os.stat(path)
            files.append((path, status.st_mtime_ns, status.st_size))
        except OSError:
            files.append((path, 0, 0))
    return files


def _per_token(price: Price | None) -> Used | None:
    """Return the price of a token of each kind in units; ``None`` if it is not constant or not known."""
    if price is None or price.tiers:
        return None
    from .money import units

    rates = price.rates
    reasoning = rates.output if rates.reasoning is None else rates.reasoning
    known = (rates.input, rates.output, reasoning, rates.cache_read, rates.cache_write)
    if None in known:
        return None
    # The table gives dollars a million tokens.
    fresh, output, thought, read, write = (units(rate or 0) for rate in known)
    if any(rate % 10**6 for rate in (fresh, output, thought, read, write)):
        return None
    return fresh // 10**6, output // 10**6, thought // 10**6, read // 10**6, write // 10**6


def _charged(price: Price, used: Used) -> int | None:
    from ...models.pricing import charge
    from ...models.stream_events import Usage
    from .money import units

    fresh, output, reasoning, read, write = used
    usage = Usage(input=fresh, output=output, reasoning=reasoning, cache_read=read, cache_write=write)
    cost = charge(price, usage).cost
    return None if cost is None else units(cost)


def _without_reasoning(used: Used, total: float | None) -> int:
    """Return the output without reasoning. Up to 1.1.65 the output of many providers includes it; the total shows."""
    fresh, output, reasoning, read, write = used
    if reasoning > 0 and total == fresh + output + read + write:
        return max(output - reasoning, 0)
    return output
