"""A conversation as plain text, small enough to be summed up: in one piece, or in several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import RecordError
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
)
from .projection import clean
from .tokens import estimate
from .window import compaction_part, is_summary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..storage.protocol import StoredMessage

_LONGEST_OUTPUT = 2_000
_LONGEST_PROMPT = 2_000
_OWN_WORDS = 4_000
"""Tokens of the user's own prompts that go into every summary, to the letter."""


def transcript(messages: Sequence[StoredMessage]) -> list[str]:
    """A paragraph for everything that was said and done; tool outputs shortened."""
    return [line for message in messages for line in _lines(message)]


def pieces(lines: Sequence[str], most: int) -> list[str]:
    """The lines in as few texts as have at most ``most`` tokens each; a single line that is longer is cut."""
    found: list[str] = []
    while lines:
        text, lines = first_piece(lines, most)
        found.append(text)
    return found


def first_piece(lines: Sequence[str], most: int) -> tuple[str, Sequence[str]]:
    """As many lines as have at most ``most`` tokens, as one text, at least one line; and the lines that are left."""
    room = most
    for at, line in enumerate(lines):
        room -= estimate(line) + 1
        if room < 0:
            if at == 0:
                return line[: most * 4], lines[1:]
            return "\n\n".join(lines[:at]), lines[at:]
    return "\n\n".join(lines), ()


def user_prompts_verbatim(messages: Sequence[StoredMessage]) -> str:
    """What the user asked for, word for word: the first prompt, then as many of the newest as there is room for."""
    prompts = [text for message in messages if (text := _prompt(message))]
    if not prompts:
        return ""
    first, *rest = prompts
    kept: list[str] = []
    room = _OWN_WORDS - estimate(first)
    for prompt in reversed(rest):
        room -= estimate(prompt)
        if room < 0:
            kept.append("(some prompts in between are left out)")
            break
        kept.append(prompt)
    return "\n\n".join(_quoted(prompt) for prompt in (first, *reversed(kept)))


def previous_summary(messages: Sequence[StoredMessage]) -> str:
    """The newest summary among these messages."""
    for message in reversed(messages):
        if is_summary(message.info):
            return "\n".join(part["text"] for part in message.parts if part.get("type") == "text")
    return ""


def _lines(message: StoredMessage) -> Iterator[str]:
    try:
        info = read_message(message.info)
        parts = [read_part(part) for part in message.parts]
    except RecordError:
        return
    if compaction_part(message) or (isinstance(info, AssistantMessage) and info.summary):
        return
    speaker = "Assistant" if isinstance(info, AssistantMessage) else "User"
    for part in parts:
        line = _line(part)
        if line:
            yield f"{speaker}: {line}" if isinstance(part, TextPart) else line


def _line(part: Part) -> str:
    match part:
        case TextPart(text=text) if text.strip() and not part.ignored:
            return clean(text)
        case FilePart():
            return f"[attached: {part.filename or part.mime}]"
        case ToolPart():
            return f"[{part.tool} {dumps_compact(part.state.input).decode()[:500]}]\n{_outcome(part)}"
        case _:
            return ""


def _outcome(part: ToolPart) -> str:
    match part.state:
        case Completed(output=output) if len(output) > _LONGEST_OUTPUT:
            return f"{clean(output[:_LONGEST_OUTPUT])}\n[{len(output) - _LONGEST_OUTPUT} more characters]"
        case Completed(output=output):
            return clean(output)
        case Failed(error=error):
            return f"failed: {clean(error[:_LONGEST_OUTPUT])}"
        case _:
            return "(never finished)"


def _prompt(message: StoredMessage) -> str:
    if message.info.get("role") != "user":
        return ""
    texts = [str(part["text"]) for part in message.parts if part.get("type") == "text" and not part.get("synthetic")]
    text = clean("\n".join(texts).strip())
    return text if len(text) <= _LONGEST_PROMPT else f"{text[:_LONGEST_PROMPT]} [...]"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines())
