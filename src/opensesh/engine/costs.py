"""What sessions have cost: of their own, and with all that they set in motion.

The sums are decimal, and of what the answers on record say, and the notes of calls that led to none (titles). What
has no known price is never taken for free: a sum with such an answer in it says so. A fork's own cost includes that
of the answers it was made with.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..errors import ModelNotFoundError
from ..models import pricing
from ..models.stream_events import Usage
from ..records import as_object, side_calls

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..records import Document
    from .runtime import Runtime

BUCKETS = ("input", "output", "reasoning", "cache_read", "cache_write")


class Spent(Struct, frozen=True, kw_only=True):
    """A sum of answers."""

    known: Decimal = Decimal(0)
    """US dollars, of what has a price."""
    unpriced: tuple[str, ...] = ()
    """The models among them whose price is not known, as ``provider/model``."""
    tokens: Usage = Usage()

    @property
    def cost(self) -> Decimal | None:
        """US dollars; ``None`` if the price of some of it is not known."""
        return None if self.unpriced else self.known

    def __add__(self, other: Spent) -> Spent:
        both = {name: getattr(self.tokens, name) + getattr(other.tokens, name) for name in BUCKETS}
        unpriced = tuple(dict.fromkeys((*self.unpriced, *other.unpriced)))
        return Spent(known=self.known + other.known, unpriced=unpriced, tokens=Usage(**both))


class Costs(Struct, frozen=True, kw_only=True):
    """What one session cost."""

    own: Spent
    children: Spent
    """Those of its subagents, and of theirs."""

    @property
    def total(self) -> Spent:
        """Both."""
        return self.own + self.children


def costs(runtime: Runtime, session_id: str) -> Costs:
    """The costs of a session, as the store has them."""
    sessions = runtime.sessions
    below = [each.id for each in sessions.descendants(session_id)]
    return Costs(
        own=_session(runtime, session_id),
        children=sum((_session(runtime, each) for each in below), Spent()),
    )


def spent(answers: Iterable[Document], runtime: Runtime) -> Spent:
    """The sum of some answers."""
    known, unpriced = Decimal(0), dict[str, None]()
    tokens = dict.fromkeys(BUCKETS, 0)
    for info in answers:
        took = used(info)
        known += Decimal(repr(info.get("cost") or 0))
        tokens = {name: tokens[name] + took[name] for name in BUCKETS}
        if any(took.values()) and _is_unpriced(info, took, runtime):
            unpriced[f"{info.get('providerID')}/{info.get('modelID')}"] = None
    return Spent(known=known, unpriced=tuple(unpriced), tokens=Usage(**tokens))


def _session(runtime: Runtime, session_id: str) -> Spent:
    infos = [message.info for message in runtime.sessions.messages(session_id)]
    answers = [info for info in infos if info.get("role") == "assistant"]
    return spent([*answers, *(call for info in infos for call in side_calls(info))], runtime)


def _is_unpriced(info: Document, took: dict[str, int], runtime: Runtime) -> bool:
    try:
        model = runtime.model(str(info.get("providerID")), str(info.get("modelID")))
    except ModelNotFoundError:
        return True
    return pricing.cost(model.price, Usage(**took)) is None


def used(info: Document) -> dict[str, int]:
    """The tokens that an answer took, by bucket."""
    tokens = as_object(info.get("tokens")) or {}
    cache = as_object(tokens.get("cache")) or {}
    counts: dict[str, Any] = {**tokens, "cache_read": cache.get("read"), "cache_write": cache.get("write")}
    return {name: int(counts.get(name) or 0) for name in BUCKETS}
