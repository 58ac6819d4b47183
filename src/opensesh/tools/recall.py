"""Search the history that the model no longer sees: compacted messages and pruned outputs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from ..errors import ToolFailedError
from .arguments import Arguments, Positive
from .tool import BuiltinTool, Context, ToolOutput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .tool import HiddenMessage

_MAX_OUTPUT_CHARACTERS = 12_000
_MAX_RESULTS = 12
_SNIPPET_MARGIN_CHARACTERS = 240
_MAX_SNIPPETS = 4
_MAX_LINE_CHARACTERS = 120


class RecallArguments(Arguments, frozen=True):
    """A search, or a range to read."""

    query: Annotated[str | None, Meta(description="Words to look for")] = None
    start: Annotated[Positive | None, Meta(description="The number of the first message to read")] = None
    end: Annotated[Positive | None, Meta(description="The number of the last message to read")] = None
    call_id: Annotated[str | None, Meta(description="The id of the tool call whose result to read")] = None


class RecallTool(BuiltinTool[RecallArguments]):
    """Reads the session's own records, with the permission ``read``."""

    id = "recall"
    parameters = RecallArguments

    async def execute(self, args: RecallArguments, ctx: Context) -> ToolOutput:
        """Ask, and search or read."""
        await ctx.ask("read", ["recall"], always=["recall"], metadata={})
        hidden = await ctx.hidden_messages.all()
        past = [item for item in hidden if (args.start or 0) <= item.number <= (args.end or item.number)]
        if args.call_id is not None:
            for message in past:
                if message.call_id == args.call_id:
                    return ToolOutput(f"Result of {message.tool}", message.text, {"callId": args.call_id})
            raise ToolFailedError(
                f"No hidden tool call {args.call_id!r}. Call this without arguments to list what is hidden."
            )
        if args.query is not None and args.query.strip():
            return _hits(past, args.query)
        if args.start is not None or args.end is not None:
            return _read(past)
        return _contents(past)


def _hits(past: Sequence[HiddenMessage], query: str) -> ToolOutput:
    words = query.lower().split()
    ranked: list[tuple[int, int, HiddenMessage]] = []
    for message in past:
        text = message.text.lower()
        count = sum(word in text for word in words)
        if count:
            ranked.append((count, sum(min(text.count(word), 9) for word in words), message))
    ranked.sort(key=lambda entry: (-entry[0], -entry[1], -entry[2].number))
    if not ranked:
        return ToolOutput(query, f"No hidden message contains any of: {' '.join(words)}", {"matches": 0})
    shown = [f"{_head(message)}\n{_snippet(message.text, words)}" for _, _, message in ranked[:_MAX_RESULTS]]
    left = len(ranked) - len(shown)
    more = [f"({left} more; narrow it down with other words, or with start and end)"] if left > 0 else []
    return _answer(query, [*shown, *more], len(ranked))


def _read(past: Sequence[HiddenMessage]) -> ToolOutput:
    """Return whole messages up to the limit, and where to continue."""
    shown: list[str] = []
    remaining = _MAX_OUTPUT_CHARACTERS
    for message in past:
        text = f"{_head(message)}\n{message.text}"
        if len(text) > remaining:  # the hint about the rest comes on top of the limit
            whole = f"callId {message.call_id} reads this in full; " if message.call_id else ""
            hint = f"{whole}start {message.number + 1} continues with the next message"
            shown.append(f"{text[:remaining]}\n({len(text) - remaining:,} more characters; {hint})")
            break
        shown.append(text)
        remaining -= len(text)
    title = f"Messages {past[0].number} to {past[-1].number}" if past else "Nothing"
    return _answer(title, shown or ["No hidden message has such a number."], len(past))


def _contents(past: Sequence[HiddenMessage]) -> ToolOutput:
    lines: list[str] = []
    for message in past:
        text = re.sub(r"\s+", " ", message.text[: 4 * _MAX_LINE_CHARACTERS]).strip()
        rest = "..." if len(text) > _MAX_LINE_CHARACTERS else ""
        lines.append(f"{_head(message)}: {text[:_MAX_LINE_CHARACTERS]}{rest}")
    shown: list[str] = []
    remaining = _MAX_OUTPUT_CHARACTERS
    for line in reversed(lines):  # the newest matter most
        remaining -= len(line) + 1
        if remaining < 0:
            shown.append(f"({len(lines) - len(shown)} older ones; read them with start and end, or search with query)")
            break
        shown.append(line)
    text = "\n".join(reversed(shown)) or "Nothing is hidden: you see the whole conversation."
    return ToolOutput("Hidden messages", text, {"matches": len(past), "truncated": False})


def _answer(title: str, blocks: Sequence[str], matches: int) -> ToolOutput:
    return ToolOutput(title, "\n\n".join(blocks), {"matches": matches, "truncated": False})


def _head(message: HiddenMessage) -> str:
    call = f" {message.tool} (callId {message.call_id})" if message.call_id else ""
    return f"[{message.number}] {message.speaker}{call}"


def _snippet(text: str, words: Sequence[str]) -> str:
    """Return the text around the first occurrence of each word."""
    spans: list[tuple[int, int]] = []
    lower = text.lower()
    for index in sorted(lower.find(word) for word in words if word in lower):
        start = max(index - _SNIPPET_MARGIN_CHARACTERS, 0)
        end = min(index + _SNIPPET_MARGIN_CHARACTERS, len(text))
        if spans and start <= spans[-1][1]:
            spans[-1] = spans[-1][0], end
        else:
            spans.append((start, end))
    shown = " ... ".join(text[start:end].strip() for start, end in spans[:_MAX_SNIPPETS])
    return f"{'... ' if spans[0][0] else ''}{shown}{' ...' if spans[-1][1] < len(text) else ''}"
