"""Look up what is no longer in view: messages that were summed up, and outputs that were pruned."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from ..errors import ToolFailedError
from .arguments import Arguments, Positive
from .tool import BuiltinTool, Context, ToolOutput

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .services import HiddenMessage

_MOST = 12_000
"""Characters of an answer."""
_MOST_HITS = 12
_AROUND = 240
_MOST_SPANS = 4
_LINE = 120


class RecallArguments(Arguments, frozen=True):
    """What to look for, or what to read."""

    query: Annotated[str | None, Meta(description="Words to look for")] = None
    start: Annotated[Positive | None, Meta(description="The number of the first message to read")] = None
    end: Annotated[Positive | None, Meta(description="The number of the last message to read")] = None
    call_id: Annotated[str | None, Meta(description="The id of the tool call whose result to read")] = None


class RecallTool(BuiltinTool[RecallArguments]):
    """Reads the session's own records; whoever may read files may do so."""

    id = "recall"
    parameters = RecallArguments

    async def execute(self, args: RecallArguments, ctx: Context) -> ToolOutput:
        """Ask, and look it up."""
        await ctx.ask("read", ["recall"], always=["recall"], metadata={})
        past = [each for each in await ctx.hidden_messages.all() if _is_within(each, args)]
        if args.call_id is not None:
            return _call(past, args.call_id)
        if args.query is not None and args.query.strip():
            return _hits(past, args.query)
        if args.start is not None or args.end is not None:
            return _read(past)
        return _contents(past)


def _is_within(original: HiddenMessage, args: RecallArguments) -> bool:
    return (args.start or 0) <= original.number <= (args.end or original.number)


def _call(past: Sequence[HiddenMessage], call_id: str) -> ToolOutput:
    for original in past:
        if original.call_id == call_id:
            return ToolOutput(f"Result of {original.tool}", original.text, {"callId": call_id})
    raise ToolFailedError(f"No tool call {call_id!r} is out of view. Call this without arguments to see what is.")


def _hits(past: Sequence[HiddenMessage], query: str) -> ToolOutput:
    words = query.lower().split()
    ranked: list[tuple[int, int, HiddenMessage]] = []
    for original in past:
        text = original.text.lower()
        found = sum(word in text for word in words)
        if found:
            ranked.append((found, sum(min(text.count(word), 9) for word in words), original))
    ranked.sort(key=lambda each: (-each[0], -each[1], -each[2].number))
    if not ranked:
        return ToolOutput(query, f"Nothing that is out of view holds any of: {' '.join(words)}", {"matches": 0})
    shown = [f"{_head(original)}\n{_snippet(original.text, words)}" for _, _, original in ranked[:_MOST_HITS]]
    left = len(ranked) - len(shown)
    more = [f"({left} more; narrow it down with other words, or with start and end)"] if left > 0 else []
    return _answer(query, [*shown, *more], len(ranked))


def _read(past: Sequence[HiddenMessage]) -> ToolOutput:
    """Whole messages, as many as there is room for, and where to go on."""
    shown: list[str] = []
    room = _MOST
    for original in past:
        text = f"{_head(original)}\n{original.text}"
        if len(text) > room:  # what there is to say of the rest comes on top
            shown.append(f"{text[:room]}\n({_rest(original, len(text) - room)})")
            break
        shown.append(text)
        room -= len(text)
    title = f"Messages {past[0].number} to {past[-1].number}" if past else "Nothing"
    return _answer(title, shown or ["No message with such a number is out of view."], len(past))


def _rest(original: HiddenMessage, length: int) -> str:
    onward = f"start {original.number + 1} goes on with the next message"
    whole = f"callId {original.call_id} reads this in full; " if original.call_id else ""
    return f"{length:,} more characters; {whole}{onward}"


def _contents(past: Sequence[HiddenMessage]) -> ToolOutput:
    lines = [f"{_head(original)}: {_line(original.text)}" for original in past]
    shown: list[str] = []
    room = _MOST
    for line in reversed(lines):  # the newest matter most
        room -= len(line) + 1
        if room < 0:
            shown.append(f"({len(lines) - len(shown)} older ones; read them with start and end, or search with query)")
            break
        shown.append(line)
    text = "\n".join(reversed(shown)) or "Nothing is out of view: all of this conversation is in front of you."
    return ToolOutput("What is out of view", text, {"matches": len(past), "truncated": False})


def _answer(title: str, blocks: Sequence[str], matches: int) -> ToolOutput:
    return ToolOutput(title, "\n\n".join(blocks), {"matches": matches, "truncated": False})


def _head(original: HiddenMessage) -> str:
    call = f" {original.tool} (callId {original.call_id})" if original.call_id else ""
    return f"[{original.number}] {original.speaker}{call}"


def _snippet(text: str, words: Sequence[str]) -> str:
    """What stands around the first place of each word."""
    spans: list[tuple[int, int]] = []
    for place in sorted(_places(text.lower(), words)):
        start, end = max(place - _AROUND, 0), min(place + _AROUND, len(text))
        if spans and start <= spans[-1][1]:
            spans[-1] = spans[-1][0], end
        else:
            spans.append((start, end))
    shown = " ... ".join(text[start:end].strip() for start, end in spans[:_MOST_SPANS])
    return f"{'... ' if spans[0][0] else ''}{shown}{' ...' if spans[-1][1] < len(text) else ''}"


def _places(text: str, words: Sequence[str]) -> Iterator[int]:
    for word in words:
        place = text.find(word)
        if place >= 0:
            yield place


def _line(text: str) -> str:
    plain = re.sub(r"\s+", " ", text[: 4 * _LINE]).strip()
    return plain if len(plain) <= _LINE else f"{plain[:_LINE]}..."
