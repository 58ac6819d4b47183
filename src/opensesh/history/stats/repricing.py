"""What the same tokens would cost by today's price table, which is named and dated."""

from __future__ import annotations

import os

from ...flags import Flags
from ...storage import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ...models.catalogue import Catalogue
    from ...models.model import Price

    Used = tuple[int, int, int, int, int]


class Prices:
    """Which price table was used."""

    __slots__ = ("date", "label")

    def __init__(self, label: str, date: str) -> None:
        self.label = label
        self.date = date
        """The day of the data, ``2026-09-28``; empty if there was no table."""

    @property
    def plain(self) -> tuple[str, str]:
        """Both, in the order they are given."""
        return self.label, self.date


class Repricer:
    """Prices model calls by one table, which is read when first needed."""

    def __init__(self, catalogue: Catalogue | None = None) -> None:
        self._catalogue = catalogue
        self._known: dict[tuple[str, str], Price | None] = {}
        self._plain: dict[tuple[str, str], Used | None] = {}

    @property
    def prices(self) -> Prices:
        """Which table this is."""
        return Prices(*self._opened().origin)

    def cost(self, provider: str, model: str, used: Used, total: float | None = None) -> int | None:
        """What a call costs, in units; ``None`` if the table has no price for some of its tokens.

        ``used`` are fresh input, output, reasoning, and what was read from and written to the cache; ``total`` is what
        the provider said it was in all.
        """
        key = provider, model
        if key not in self._known:
            found = self._opened().known(provider, model)
            self._known[key] = found.price if found else None
            self._plain[key] = _per_token(self._known[key])
        price, plain = self._known[key], self._plain[key]
        if price is None:
            return None if any(used) else 0
        fresh, output, reasoning, read, write = used
        output = _without_reasoning(used, total)
        if plain is not None and min(used) >= 0:
            # Every price is known and none depends on the size of the call: the same sum, without decimals.
            return fresh * plain[0] + output * plain[1] + reasoning * plain[2] + read * plain[3] + write * plain[4]
        return _charged(price, (fresh, output, reasoning, read, write))

    def _opened(self) -> Catalogue:
        if self._catalogue is None:
            from ...models.catalogue import Catalogue

            self._catalogue = Catalogue()
        return self._catalogue


def table_mark() -> list[tuple[str, int, int]]:
    """Changes whenever the table that a :class:`Repricer` would use may have changed; cheap to ask for."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    ours = os.path.join(package, "models", "data", "models.zip")
    copies = [os.path.join(folder, "models.json") for folder in (paths.cache(), paths.opencode_cache())]
    named = Flags().models_path or ""
    marks: list[tuple[str, int, int]] = []
    for path in (ours, *copies, named):
        try:
            found = os.stat(path)
            marks.append((path, found.st_mtime_ns, found.st_size))
        except OSError:
            marks.append((path, 0, 0))
    return marks


def _per_token(price: Price | None) -> Used | None:
    """What a token of each kind costs, in units; ``None`` where that is not so simple."""
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
    """Output alone. Up to 1.1.65 the output of many providers holds the reasoning as well: their total tells."""
    fresh, output, reasoning, read, write = used
    if reasoning > 0 and total == fresh + output + read + write:
        return max(output - reasoning, 0)
    return output
