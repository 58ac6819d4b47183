"""The figures of one session: cost, tokens, how full the context is, todo list, subagents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..records import Document, as_whole, object_at, objects_in
from ..storage import keys
from ..storage.protocol import StoredMessage, read_or_none
from .formatting import text
from .stats.money import PriceTable, Repricer, dollars
from .stats.session_usage import UsageTotals

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from .library import Library, SessionEntry


class Subagent(NamedTuple):
    """A session that this one started."""

    id: str
    title: str
    cost: Decimal


class SessionFigures(NamedTuple):
    """The cost, tokens, context, todo list and subagents of one session."""

    usage: UsageTotals
    """The usage of its own model calls, without those that a fork copied."""
    inclusive: Decimal
    """The cost with all subagents, as stored."""
    prices: PriceTable
    """The table by which calls were priced again."""
    context: int
    """Tokens of the last request and its answer."""
    window: int
    """Tokens that the model of the last answer takes; 0 if it is not known."""
    model: str
    todos: list[Document]
    subagents: list[Subagent]

    @property
    def repriced(self) -> float | None:
        """The cost by the price table, in US dollars; ``None`` if it lacks a price."""
        return None if self.usage.unpriced else dollars(self.usage.repriced)


def session_figures(library: Library, entry: SessionEntry, messages: Sequence[StoredMessage]) -> SessionFigures:
    """Return the figures of a session with these messages, oldest first."""
    repricer = Repricer()
    usage = UsageTotals()
    for call in library.counted_calls.usage_of(entry.record.document, messages, repricer):
        usage = usage.plus(call.totals)
    infos = (message.info for message in reversed(messages))
    last: Document = next((info for info in infos if _context_tokens(info)), dict[str, Any]())
    provider, model = text(last, "providerID"), text(last, "modelID")
    return SessionFigures(
        usage,
        entry.inclusive_cost,
        repricer.prices,
        _context_tokens(last),
        repricer.window(provider, model),
        "/".join(filter(None, (provider, model))),
        _todos(library, entry.id),
        [Subagent(child.id, child.title, child.cost) for child in entry.children()],
    )


def _context_tokens(info: Document) -> int:
    if info.get("role") != "assistant" or info.get("summary") is True:
        return 0
    tokens = object_at(info, "tokens")
    cache = object_at(tokens, "cache")
    counts = [tokens.get("input"), tokens.get("output"), cache.get("read"), cache.get("write")]
    return sum(map(as_whole, counts))


def _todos(library: Library, session_id: str) -> list[Document]:
    todos = objects_in(read_or_none(library.store, keys.todo(session_id)))
    return [todo | {name: str(todo.get(name, "")) for name in ("content", "status")} for todo in todos]
