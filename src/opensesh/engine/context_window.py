"""The context window: token estimates, when it is full, which messages are visible, and which outputs are pruned.

Compaction and pruning are views. Nothing they hide is deleted: :func:`visible` decides what is sent, from records that
stay as they are.
"""

from __future__ import annotations

import binascii
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, assert_never

from .. import ids
from ..models import options
from ..models.request import Assistant, File, Reasoning, System, Text, ToolResults, ToolUse, User
from ..records import as_object, dumps_compact

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..config import Config
    from ..models.model import Model
    from ..models.request import ModelMessage, Request, ToolSpec
    from ..records import Document
    from ..sessions import Sessions
    from ..storage.protocol import StoredMessage

PROTECTED_TOKENS = 40_000
"""Tokens of the newest tool outputs that are never pruned."""
MIN_PRUNED_TOKENS = 20_000
"""Pruning less than this is not worth a cache miss."""
_PROTECTED_TOOLS = ("skill",)
_RESERVED_TOKENS = 20_000
_PIXELS_PER_TOKEN = 750
_MAX_PIXELS = 1568 * 1568
"""Providers scale larger images down."""
_UNKNOWN_IMAGE_TOKENS = 1_500
_PAGE_TOKENS = 2_000
"""A page of a PDF counts as text and as an image."""
_MAX_PAGES = 1_000
_PDF_PAGE = rb"/Type\s*/Page(?![a-zA-Z])"
_INSTRUCTIONS = "\n\nInstructions from: "
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


# -- estimates ---------------------------------------------------------------------------------------------------------
# Providers count in their own ways. These figures are for decisions and for display, never for a bill.


def estimate(text: str) -> int:
    """Estimate the tokens of a text by its length."""
    return estimate_length(len(text))


def estimate_length(characters: int) -> int:
    """Estimate the tokens of a text of this length."""
    return (characters + 2) // 4


def request_tokens(request: Request) -> dict[str, int]:
    """Estimate the tokens of a request by kind, the largest first."""
    sizes = overhead(request)
    for message in request.messages:
        if not isinstance(message, System):
            name = "tool results" if isinstance(message, ToolResults) else "messages"
            sizes[name] = sizes.get(name, 0) + message_tokens(message)
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def overhead(request: Request) -> dict[str, int]:
    """Estimate the tokens that every request of a session holds, however short the conversation is."""
    sizes = {"the tools on offer": sum(map(tool_tokens, request.tools)), "the system prompt": 0}
    for message in request.messages:
        if isinstance(message, System):
            at = message.text.find(_INSTRUCTIONS)
            sizes["the system prompt"] += estimate(message.text if at < 0 else message.text[:at])
            if at >= 0:
                sizes["instruction files"] = estimate(message.text[at:])
    return sizes


def tool_tokens(spec: ToolSpec) -> int:
    """Estimate the tokens of a tool's name, description and parameters."""
    return estimate(f"{spec.name}{spec.description}") + estimate(dumps_compact(spec.parameters).decode())


def message_tokens(message: ModelMessage) -> int:
    """Estimate the tokens of one message of a request."""
    match message:
        case System(text=text):
            return estimate(text)
        case User(content=content):
            return sum(map(piece_tokens, content))
        case Assistant(content=content):
            return sum(map(piece_tokens, content))
        case ToolResults(content=results):
            return sum(piece_tokens(piece) for result in results for piece in result.output)
        case _:
            assert_never(message)


def piece_tokens(piece: Text | File | Reasoning | ToolUse) -> int:
    """Estimate the tokens of one piece of a message."""
    match piece:
        case Text(text=text) | Reasoning(text=text):
            return estimate(text)
        case ToolUse(name=name, input=arguments):
            return estimate(name) + estimate(dumps_compact(arguments).decode())
        case File():
            return file_tokens(piece.mime, piece.url)
        case _:
            assert_never(piece)


def file_tokens(mime: str, url: str) -> int:
    """Estimate the tokens of an attached file by its content; a guess where the URL does not hold it."""
    head, _, data = url.partition(",")
    content = b""
    if head.startswith("data:") and head.endswith(";base64"):
        with suppress(ValueError):
            content = binascii.a2b_base64(data)
    if mime == "application/pdf":
        return _PAGE_TOKENS * min(max(len(re.findall(_PDF_PAGE, content)), 1), _MAX_PAGES)
    if mime.startswith("text/"):
        return estimate_length(len(content))
    pixels = _pixels(content)
    return -(-min(pixels, _MAX_PIXELS) // _PIXELS_PER_TOKEN) if pixels else _UNKNOWN_IMAGE_TOKENS


def _pixels(content: bytes) -> int:
    """Return the number of pixels of an image from its header; 0 if that is not readable."""

    def number(at: int, size: int = 2, order: Literal["big", "little"] = "little") -> int:
        return int.from_bytes(content[at : at + size], order)

    pixels = 0
    if content.startswith(b"\x89PNG") and len(content) >= 24:
        pixels = number(16, 4, "big") * number(20, 4, "big")
    elif content.startswith(b"GIF8") and len(content) >= 10:
        pixels = number(6) * number(8)
    elif content.startswith(b"\xff\xd8"):
        pixels = _jpeg_pixels(content)
    elif content[:4] + content[8:15] == b"RIFFWEBPVP8":
        kind = content[15:16]
        if kind == b"X" and len(content) >= 30:
            pixels = (number(24, 3) + 1) * (number(27, 3) + 1)
        elif kind == b" " and len(content) >= 30:
            pixels = (number(26) & 0x3FFF) * (number(28) & 0x3FFF)
        elif kind == b"L" and len(content) >= 25:
            pixels = ((number(21, 4) & 0x3FFF) + 1) * ((number(21, 4) >> 14 & 0x3FFF) + 1)
    return pixels


def _jpeg_pixels(content: bytes) -> int:
    at = 2  # the size is in the first frame, after any number of other segments
    while at + 9 <= len(content) and content[at] == 0xFF:
        if content[at + 1] in _JPEG_FRAMES:
            return int.from_bytes(content[at + 5 : at + 7], "big") * int.from_bytes(content[at + 7 : at + 9], "big")
        at += 2 + max(int.from_bytes(content[at + 2 : at + 4], "big"), 2)
    return 0


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
    cache = as_object(tokens.get("cache")) or {}
    counts = (tokens.get("input"), tokens.get("output"), tokens.get("reasoning"), cache.get("read"), cache.get("write"))
    used = tokens.get("total") or sum(count or 0 for count in counts)
    limit = usable(model, config)
    return config.settings.compaction.auto is not False and limit > 0 and used >= limit


# -- what is visible ---------------------------------------------------------------------------------------------------


def visible(messages: Sequence[StoredMessage]) -> list[StoredMessage]:
    """Return the messages that a model sees: the newest compaction that has a summary, the tail that it kept, and
    everything after it. A summary that failed hides nothing."""
    summarised: set[Any] = {message.info.get("parentID") for message in messages if is_summary(message.info)}
    for at in range(len(messages) - 1, -1, -1):
        request = messages[at]
        if request.info["id"] in summarised and compaction_part(request):
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
    state = as_object(part.get("state")) or {}
    is_done = part.get("type") == "tool" and state.get("status") == "completed"
    return is_done and isinstance(state.get("output"), str) and as_object(state.get("time")) is not None


def _with_mark(part: Document, pruned_ms: int | None) -> Document:
    time = {key: value for key, value in part["state"]["time"].items() if key != "compacted"}
    if pruned_ms is not None:
        time["compacted"] = pruned_ms
    return part | {"state": part["state"] | {"time": time}}
