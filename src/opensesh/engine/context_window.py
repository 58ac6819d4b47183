"""The context window: what fills it, when it is full, which messages are visible, and which outputs are pruned.

Compaction and pruning are views. Nothing they hide is deleted: :func:`visible` decides what is sent, from records that
stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import ids
from ..models import options
from ..models.request import System, ToolResults
from ..models.token_estimates import estimate
from ..records import as_object, object_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..config import Config
    from ..models.model import Model
    from ..models.request import Request
    from ..records import Document
    from ..sessions import Sessions
    from ..storage.protocol import StoredMessage

PROTECTED_TOKENS = 40_000
"""Tokens of the newest tool outputs that are never pruned."""
MIN_PRUNED_TOKENS = 20_000
"""Pruning less than this is not worth a cache miss."""
_PROTECTED_TOOLS = ("skill",)
_RESERVED_TOKENS = 20_000
_INSTRUCTIONS = "\n\nInstructions from: "


# -- sizes -------------------------------------------------------------------------------------------------------------


def request_tokens(request: Request) -> dict[str, int]:
    """Estimate the tokens of a request by kind, the largest first."""
    sizes = overhead(request)
    for message in request.messages:
        if not isinstance(message, System):
            name = "tool results" if isinstance(message, ToolResults) else "messages"
            sizes[name] = sizes.get(name, 0) + message.tokens
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def overhead(request: Request) -> dict[str, int]:
    """Estimate the tokens that every request of a session holds, however short the conversation is."""
    sizes = {"the tools on offer": sum(spec.tokens for spec in request.tools), "the system prompt": 0}
    for message in request.messages:
        if not isinstance(message, System):
            break
        at = message.text.find(_INSTRUCTIONS)
        sizes["the system prompt"] += estimate(message.text if at < 0 else message.text[:at])
        if at >= 0:
            sizes["instruction files"] = estimate(message.text[at:])
    return sizes


# -- how much fits -----------------------------------------------------------------------------------------------------


def usable(model: Model, config: Config) -> int:
    """Return how many tokens a conversation may fill; 0 if the model's limits are not known."""
    if model.limit.context == 0:
        return 0
    output = options.max_output_tokens(model, config.flags.output_token_max)
    configured = config.settings.compaction.reserved
    if model.limit.input:
        reserved = min(_RESERVED_TOKENS, output) if configured is None else configured
        return max(model.limit.input - reserved, 0)
    return max(model.limit.context - max(output, configured or 0), 0)


def is_full(tokens: Document, model: Model, config: Config) -> bool:
    """Whether a step that used ``tokens`` left no space for the next request; never if automatic compaction is off."""
    cache = object_at(tokens, "cache")
    counts = (tokens.get("input"), tokens.get("output"), tokens.get("reasoning"), cache.get("read"), cache.get("write"))
    used = tokens.get("total") or sum(count or 0 for count in counts)
    limit = usable(model, config)
    return config.settings.compaction.auto is not False and limit > 0 and used >= limit


# -- what is visible ---------------------------------------------------------------------------------------------------


def visible(messages: Sequence[StoredMessage]) -> list[StoredMessage]:
    """Return the messages that a model sees: the newest compaction that has a summary, the tail that it kept, and
    everything after it. A summary that failed hides nothing."""
    summarised = set[Any]()
    for at in range(len(messages) - 1, -1, -1):
        request = messages[at]
        if is_summary(request.info):
            summarised.add(request.info.get("parentID"))
        elif request.info["id"] in summarised and compaction_part(request):
            break
    else:
        return list(messages)
    rest = messages[at + 1 :]
    answers = [message for message in rest if message.info.get("parentID") == request.info["id"]]
    newer = [message for message in rest if message.info.get("parentID") != request.info["id"]]
    # The tail: the newest messages that the compaction kept, without earlier compactions among them.
    start = (compaction_part(request) or {}).get("tail_start_id")
    first = next((index for index in range(at) if start and messages[index].info["id"] == start), at)
    tail = [kept for kept in messages[first:at] if not compaction_part(kept) and kept.info.get("summary") is not True]
    return [request, *answers, *tail, *newer]


def compaction_part(message: StoredMessage) -> Document | None:
    """Return the compaction part of a message, if the message requests a compaction."""
    for part in message.parts:
        if part.get("type") == "compaction":
            return part
    return None


def is_kept(view: Iterable[StoredMessage], message: StoredMessage) -> bool:
    """Whether a visible message is older than the summary that the view begins with, and so was kept verbatim."""
    first = next(iter(view), None)
    return (
        first is not None
        and compaction_part(first) is not None
        and message.info["time"]["created"] < first.info["time"]["created"]
    )


def is_summary(info: Document) -> bool:
    """Whether a message is a summary that succeeded."""
    is_answer = info.get("role") == "assistant" and bool(info.get("finish"))
    return bool(info.get("summary")) and is_answer and "error" not in info


# -- pruning -----------------------------------------------------------------------------------------------------------


def prune(sessions: Sessions, messages: Sequence[StoredMessage]) -> int:
    """Mark old tool outputs as pruned, if there are enough of them, and return how many. Only a mark is set: the model
    sees that there was an output, and the output stays stored."""
    parts = prunable(messages)
    for part in parts:
        sessions.update_part(_with_mark(part, ids.now_ms()))
    return len(parts)


def prunable(messages: Sequence[StoredMessage]) -> list[Document]:
    """Return the tool parts to prune: none, or enough to be worth a cache miss. They are before the last two prompts
    and after the last summary, and the newest outputs among them are protected."""
    prompts, total, freed = 0, 0, 0
    parts: list[Document] = []
    outputs: list[Document] = []
    for message in reversed(messages):
        prompts += message.info.get("role") == "user"
        if prompts >= 2 and message.info.get("role") == "assistant" and message.info.get("summary"):
            break
        if prompts >= 2:
            outputs += [part for part in reversed(message.parts) if _is_output(part)]
    for part in outputs:
        if part.get("tool") in _PROTECTED_TOOLS:
            continue
        if part["state"]["time"].get("compacted"):
            break
        size = estimate(part["state"]["output"])
        total += size
        if total > PROTECTED_TOKENS:
            freed += size
            parts.append(part)
    return parts if freed > MIN_PRUNED_TOKENS else []


def is_pruned(part: Document) -> bool:
    """Whether a part is a tool output that was pruned."""
    return _is_output(part) and bool(part["state"]["time"].get("compacted"))


def unpruned(part: Document, *, since: int) -> Document:
    """Return the part as it was at the time ``since``: without its mark, if it was pruned then or later."""
    pruned = part["state"]["time"].get("compacted") if _is_output(part) else None
    return _with_mark(part, None) if pruned is not None and pruned >= since else part


def _is_output(part: Document) -> bool:
    state = object_at(part, "state")
    is_done = part.get("type") == "tool" and state.get("status") == "completed"
    return is_done and isinstance(state.get("output"), str) and as_object(state.get("time")) is not None


def _with_mark(part: Document, pruned_ms: int | None) -> Document:
    time = {key: value for key, value in part["state"]["time"].items() if key != "compacted"}
    if pruned_ms is not None:
        time["compacted"] = pruned_ms
    return part | {"state": part["state"] | {"time": time}}
