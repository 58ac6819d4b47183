"""What the same tokens would cost by today's price table, which is named and dated."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..storage import paths
from .money import units

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..models.catalogue import Catalogue
    from ..models.model import Price


class Prices(NamedTuple):
    """Which price table was used."""

    label: str
    date: str
    """The day of the data, ``2026-09-28``."""


class Buckets(Protocol):
    """Tokens by bucket, as stored."""

    @property
    def input(self) -> int: ...
    @property
    def output(self) -> int: ...
    @property
    def reasoning(self) -> int: ...
    @property
    def cache_read(self) -> int: ...
    @property
    def cache_write(self) -> int: ...
    @property
    def total(self) -> int | None: ...


class Repricer:
    """Prices model calls by one table, which is read when first needed."""

    def __init__(self, catalogue: Catalogue | None = None) -> None:
        self._catalogue = catalogue
        self._known: dict[tuple[str, str], Price | None] = {}

    @property
    def prices(self) -> Prices:
        """Which table this is."""
        return Prices(*self._opened().origin)

    def cost(self, provider: str, model: str, calls: Iterable[Buckets]) -> int | None:
        """In units; ``None`` if the table has no price for some of the tokens."""
        from ..models.events import Usage
        from ..models.pricing import charge

        total = 0
        for call in calls:
            usage = Usage(
                input=call.input,
                output=_without_reasoning(call),
                reasoning=call.reasoning,
                cache_read=call.cache_read,
                cache_write=call.cache_write,
            )
            cost = charge(self._price(provider, model), usage).cost
            if cost is None:
                return None
            total += units(cost)
        return total

    def _price(self, provider: str, model: str) -> Price | None:
        key = provider, model
        if key not in self._known:
            found = self._opened().known(provider, model)
            self._known[key] = found.price if found else None
        return self._known[key]

    def _opened(self) -> Catalogue:
        if self._catalogue is None:
            from ..models.catalogue import Catalogue

            self._catalogue = Catalogue()
        return self._catalogue


def table_mark() -> list[tuple[str, int, int]]:
    """Changes whenever the table that a :class:`Repricer` would use may have changed; cheap to ask for."""
    models = os.path.join(os.path.dirname(os.path.dirname(__file__)), "models", "data", "models.zip")
    copies = [os.path.join(folder, "models.json") for folder in (paths.cache(), paths.opencode_cache())]
    named = os.environ.get("OPENCODE_MODELS_PATH", "")
    marks: list[tuple[str, int, int]] = []
    for path in (models, *copies, named):
        try:
            found = os.stat(path)
            marks.append((path, found.st_mtime_ns, found.st_size))
        except OSError:
            marks.append((path, 0, 0))
    return marks


def _without_reasoning(call: Buckets) -> int:
    """Output alone. Up to 1.1.65 the output of many providers holds the reasoning as well: their total tells."""
    together = call.input + call.output + call.cache_read + call.cache_write
    if call.reasoning > 0 and call.total == together:
        return max(call.output - call.reasoning, 0)
    return call.output
