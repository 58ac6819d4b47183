"""The text that is summarised by a compaction: a conversation as plain text, in chunks that fit into a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import RecordError
from ..models.token_estimates import estimate
from ..records import (
    AssistantMessage,
    Completed,
    Failed,
    FilePart,
    Part,
    TextPart,
    ToolPart,
    dumps_compact,
    read_message,
    read_part,
    without_surrogates,
)
from .context_window import compaction_part, is_summary, usable
from .prompts import prompt_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..config import Config
    from ..models.model import Model
    from ..storage.protocol import StoredMessage

MIN_CHUNK_TOKENS = 4_000
_WINDOW_SHARE = 0.9
"""Share of the window that a request for a summary may fill by our estimate."""
_UNKNOWN_WINDOW_TOKENS = 100_000
_MAX_OUTPUT_CHARACTERS = 2_000
_MAX_PROMPT_CHARACTERS = 2_000
_VERBATIM_TOKENS = 4_000
"""Tokens of the user's prompts that every summary repeats."""


def summary_prompt() -> str:
    """Return the prompt for a summary."""
    return prompt_text("compaction")


def summary_chunks(view: Sequence[StoredMessage], model: Model, config: Config) -> list[str]:
    """Return the conversation as text, in as many chunks as it takes requests to summarise it."""
    return split_transcript(transcript(view), max_chunk_tokens(model, config)) or [""]


def max_chunk_tokens(model: Model, config: Config) -> int:
    """Return how many tokens of conversation, with the summary so far, one request may hold."""
    window = usable(model, config) or _UNKNOWN_WINDOW_TOKENS
    return max(int(window * _WINDOW_SHARE) - estimate(summary_prompt()), MIN_CHUNK_TOKENS)


def transcript(messages: Sequence[StoredMessage]) -> list[str]:
    """Return a paragraph for every text, file and tool call; tool outputs are shortened."""
    lines: list[str] = []
    for message in messages:
        try:
            info = read_message(message.info)
            parts = [read_part(part) for part in message.parts]
        except RecordError:
            continue
        is_answer = isinstance(info, AssistantMessage)
        if compaction_part(message) or (is_answer and info.summary):
            continue
        speaker = "Assistant" if is_answer else "User"
        lines += [
            f"{speaker}: {line}" if isinstance(part, TextPart) else line for part in parts if (line := _line(part))
        ]
    return lines


def split_transcript(lines: Sequence[str], max_tokens: int) -> list[str]:
    """Join lines to texts of at most ``max_tokens``; a single line that is longer is cut."""
    chunks: list[str] = []
    while lines:
        chunk, lines = first_chunk(lines, max_tokens)
        chunks.append(chunk)
    return chunks


def first_chunk(lines: Sequence[str], max_tokens: int) -> tuple[str, Sequence[str]]:
    """Join the first lines, at least one, to a text of at most ``max_tokens``; also return the lines that are left."""
    left = max_tokens
    for at, line in enumerate(lines):
        left -= estimate(line) + 1
        if left < 0:
            return (line[: max_tokens * 4], lines[1:]) if at == 0 else ("\n\n".join(lines[:at]), lines[at:])
    return "\n\n".join(lines), ()


def user_prompts_verbatim(messages: Sequence[StoredMessage]) -> str:
    """Return the user's prompts as quotations: the first one, then as many of the newest as fit."""
    prompts: list[str] = []
    for message in messages:
        parts = message.parts if message.info.get("role") == "user" else []
        texts = [str(part["text"]) for part in parts if part.get("type") == "text" and not part.get("synthetic")]
        text = without_surrogates("\n".join(texts).strip())
        if text:
            cut = len(text) > _MAX_PROMPT_CHARACTERS
            prompts.append(f"{text[:_MAX_PROMPT_CHARACTERS]} [...]" if cut else text)
    if not prompts:
        return ""
    first, *rest = prompts
    newest: list[str] = []
    left = _VERBATIM_TOKENS - estimate(first)
    for prompt in reversed(rest):
        left -= estimate(prompt)
        if left < 0:
            newest.append("(some prompts in between are left out)")
            break
        newest.append(prompt)
    quoted = ("\n".join(f"> {line}" for line in prompt.splitlines()) for prompt in (first, *reversed(newest)))
    return "\n\n".join(quoted)


def previous_summary(messages: Sequence[StoredMessage]) -> str:
    for message in reversed(messages):
        if is_summary(message.info):
            return "\n".join(part["text"] for part in message.parts if part.get("type") == "text")
    return ""


def _line(part: Part) -> str:
    match part:
        case TextPart(text=text) if text.strip() and not part.ignored:
            return without_surrogates(text)
        case FilePart():
            return f"[attached: {part.filename or part.mime}]"
        case ToolPart(state=state):
            limit = _MAX_OUTPUT_CHARACTERS
            match state:
                case Completed(output=output) if len(output) > limit:
                    result = f"{without_surrogates(output[:limit])}\n[{len(output) - limit} more characters]"
                case Completed(output=output):
                    result = without_surrogates(output)
                case Failed(error=error):
                    result = f"failed: {without_surrogates(error[:limit])}"
                case _:
                    result = "(never finished)"
            return f"[{part.tool} {dumps_compact(state.input).decode()[:500]}]\n{result}"
        case _:
            return ""
