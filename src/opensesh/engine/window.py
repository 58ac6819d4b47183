"""The context window: how much fits, when it is full, and which messages are in view.

Compaction and pruning are views. Nothing they leave out is gone: :func:`visible` decides what is sent, from records
that stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..models import options
from ..records import as_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..config import Config
    from ..models.model import Model
    from ..records import Document
    from ..storage.protocol import StoredMessage

_RESERVE = 20_000


def usable(model: Model, config: Config) -> int:
    """How many tokens a conversation may fill; 0 where nobody knows the model's limits."""
    if model.limit.context == 0:
        return 0
    output = options.max_output_tokens(model, config.flags.output_token_max)
    configured = config.settings.compaction.reserved
    if model.limit.input:
        reserved = min(_RESERVE, output) if configured is None else configured
        return max(model.limit.input - reserved, 0)
    return max(model.limit.context - max(output, configured or 0), 0)


def count(tokens: Document) -> int:
    """What a step's tokens take of the window: the provider's own count if it gave one."""
    cache = as_object(tokens.get("cache")) or {}
    parts = (tokens.get("input"), tokens.get("output"), tokens.get("reasoning"), cache.get("read"), cache.get("write"))
    return tokens.get("total") or sum(part or 0 for part in parts)


def is_full(tokens: Document, model: Model, config: Config) -> bool:
    """Whether the next request would not fit any more; never, where automatic compaction is switched off."""
    room = usable(model, config)
    return config.settings.compaction.auto is not False and room > 0 and count(tokens) >= room


def visible(messages: Sequence[StoredMessage]) -> list[StoredMessage]:
    """The messages that are in view: from the newest compaction that has its summary on, with the tail it kept.

    A summary that failed cuts nothing.
    """
    start = _cut(messages)
    if start is None:
        return list(messages)
    request, rest = messages[start], messages[start + 1 :]
    answers = [each for each in rest if each.info.get("parentID") == request.info["id"]]
    newer = [each for each in rest if each.info.get("parentID") != request.info["id"]]
    return [request, *answers, *_tail(messages[:start], request), *newer]


def compaction_part(message: StoredMessage) -> Document | None:
    """The request to compact that a message holds, if it is one."""
    return next((part for part in message.parts if part.get("type") == "compaction"), None)


def is_kept(view: Iterable[StoredMessage], message: StoredMessage) -> bool:
    """Whether a message in view is older than the summary that the view begins with, and so was kept word for word."""
    first = next(iter(view), None)
    return (
        first is not None
        and compaction_part(first) is not None
        and message.info["time"]["created"] < first.info["time"]["created"]
    )


def is_summary(info: Document) -> bool:
    """Whether a message is a summary that counts."""
    return (
        bool(info.get("summary"))
        and info.get("role") == "assistant"
        and bool(info.get("finish"))
        and "error" not in info
    )


def _cut(messages: Sequence[StoredMessage]) -> int | None:
    summarised: set[Any] = {each.info.get("parentID") for each in messages if is_summary(each.info)}
    for at in range(len(messages) - 1, -1, -1):
        if messages[at].info["id"] in summarised and compaction_part(messages[at]):
            return at
    return None


def _tail(before: Sequence[StoredMessage], request: StoredMessage) -> list[StoredMessage]:
    """The newest turns before a compaction, as it chose them; what an earlier one put in their midst is summed up."""
    start = (compaction_part(request) or {}).get("tail_start_id")
    for at, message in enumerate(before):
        if start and message.info["id"] == start:
            return [each for each in before[at:] if not compaction_part(each) and not each.info.get("summary")]
    return []
