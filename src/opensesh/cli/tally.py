"""What a run cost: tokens and money of every answer it brought about, those of subagents and the title too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import ids
from ..records import Document, as_object, side_calls

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..events import Event


class Tally:
    """Adds up what the events of one run tell."""

    def __init__(self) -> None:
        self._begun = ids.now_ms()
        self._answers: dict[str, Document] = {}

    def note(self, event: Event) -> None:
        """Take an event into account. Answers of earlier runs do not count."""
        from ..events import MessageUpdated

        if not isinstance(event, MessageUpdated):
            return
        if event.info.get("role") == "assistant":
            self._note(event.info["id"], event.info)
        for number, call in enumerate(side_calls(event.info)):
            self._note(f"{event.info['id']}#{number}", call)

    def _note(self, name: str, info: Document) -> None:
        if (as_object(info.get("time")) or {}).get("created", 0) >= self._begun:
            self._answers[name] = info

    @property
    def seconds(self) -> float:
        """How long it has been."""
        return (ids.now_ms() - self._begun) / 1000

    @property
    def tokens(self) -> Document:
        """By bucket, as a message has them."""
        from ..engine.budget import BUCKETS, used

        flat = [used(info) for info in self._answers.values()]
        total = {name: sum(each[name] for each in flat) for name in BUCKETS}
        cache = {"read": total.pop("cache_read"), "write": total.pop("cache_write")}
        return {**total, "cache": cache}

    def cost(self, engine: Engine) -> float | None:
        """US dollars; ``None`` if the price of some of it is not known."""
        from ..engine.budget import spent

        total = spent(self._answers.values(), engine.runtime).cost
        return None if total is None else float(total)


def in_words(tally: Tally, cost: float | None) -> str:
    """``$0.0123  1,200 tokens in (900 of them cached), 48 out  7.4 s``."""
    tokens = tally.tokens
    cached = tokens["cache"]["read"]
    sent = tokens["input"] + cached + tokens["cache"]["write"]
    share = f" ({cached:,} of them cached)" if cached else ""
    written = tokens["output"] + tokens["reasoning"]
    return f"{money(cost)}  {sent:,} tokens in{share}, {written:,} out  {tally.seconds:.1f} s"


def money(cost: float | None) -> str:
    """US dollars, to a hundredth of a cent."""
    if cost is None:
        return "cost unknown"
    return "less than $0.0001" if 0 < cost < 0.0001 else f"${cost:.4f}"
