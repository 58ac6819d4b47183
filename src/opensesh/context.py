"""What a model sees of a session and what it costs: OpenCode's ``filterCompacted``, ``isOverflow``, ``Token.estimate``
and ``getUsage``. Pure functions over records; nothing is read or sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .engine.context_window import is_full, visible
from .models.pricing import Charge, charge
from .models.token_estimates import estimate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .config import Config
    from .models.model import Model
    from .models.stream_events import Usage
    from .records import Document
    from .storage.protocol import StoredMessage

__all__ = ["Charge", "estimate_tokens", "is_overflow", "usage_cost", "visible_messages"]


def visible_messages(messages: Sequence[StoredMessage]) -> list[StoredMessage]:
    """Return the messages that a model sees: the newest compaction with a summary, the tail that it kept, and what
    follows. ``messages`` are those of a session, oldest first (OpenCode: ``MessageV2.filterCompacted``)."""
    return visible(messages)


def is_overflow(tokens: Document, model: Model, config: Config) -> bool:
    """Return whether a step that used ``tokens`` left no space for the next request; never if automatic compaction is
    off. ``tokens`` are those of an answer's record, ``model`` and ``config`` those of an engine: ``engine.model()``,
    ``engine.config`` (OpenCode: ``SessionCompaction.isOverflow``)."""
    return is_full(tokens, model, config)


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text: a quarter of its characters (OpenCode: ``Token.estimate``)."""
    return estimate(text)


def usage_cost(model: Model, usage: Usage) -> Charge:
    """Return what a model call costs in US dollars: ``cost``, and which kinds of tokens have no known price
    (OpenCode: ``Session.getUsage``)."""
    return charge(model.price, usage)
