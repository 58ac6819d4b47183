"""A session to read, in Markdown: prompts, answers, tool calls and what came of them, subagents in their place."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...records import as_object, dumps
from ..formatting import when
from ..transcript import ReasoningBlock, TextBlock, ToolBlock
from .turns import Child, Image, Note, turns, who

if TYPE_CHECKING:
    from collections.abc import Iterator

    from . import ExportedSession, FormatOptions
    from .turns import Piece

_TICKS = re.compile(r"^[ ]{0,3}(`{3,})", re.MULTILINE)


class MarkdownFormat:
    """One document a session."""

    suffix = ".md"
    together = (b"", b"\n", b"")
    nests = True
    reads = None

    def __init__(self, options: FormatOptions) -> None:
        self._options = options

    def pieces(self, session: ExportedSession) -> Iterator[bytes]:
        """A heading, then turn by turn."""
        for piece in self._session(session, 1):
            yield piece.encode(errors="replace")

    def _session(self, session: ExportedSession, level: int) -> Iterator[str]:
        info, utc = session.info, self._options.utc
        time = as_object(info.get("time")) or {}
        yield f"{'#' * level} {_line(info.get('title')) or session.id}\n\n"
        yield f"- session: `{session.id}`\n- folder: `{_line(info.get('directory'))}`\n"
        yield f"- created {when(time.get('created'), utc=utc)}, updated {when(time.get('updated'), utc=utc)}\n\n"
        for turn, pieces in turns(session, self._options):
            name = "User" if turn.role == "user" else f"Assistant · {_line(who(turn))}"
            yield f"{'#' * (level + 1)} {name} · {when(turn.created or None, utc=utc)}\n\n"
            for piece in pieces:
                yield from self._piece(piece, level)
            if turn.failure:
                yield f"> **Error:** {_line(turn.failure)}\n\n"

    def _piece(self, piece: Piece, level: int) -> Iterator[str]:
        match piece:
            case TextBlock(text=text):
                yield f"{text.strip()}\n\n"
            case ReasoningBlock(text=text):
                yield "".join(f"> {line}\n" for line in ("*Thinking*", "", *text.strip().splitlines())) + "\n"
            case Image(name=name):
                yield f"*attached: {_line(name)}*\n\n"
            case Note(text=text):
                yield f"*{_line(text)}*\n\n"
            case ToolBlock():
                yield from _tool(piece)
            case Child(session=session):
                yield from self._session(session, min(level + 2, 5))


def _tool(call: ToolBlock) -> Iterator[str]:
    yield f"**{_line(call.tool)}** {_code(call.subject)}{'' if call.status == 'completed' else f' ({call.status})'}\n\n"
    if call.diff:
        yield _fenced(call.diff, "diff")
    elif call.todos:
        yield "".join(f"- {line}\n" for line in call.todos.splitlines()) + "\n"
    elif call.input:
        yield _fenced(dumps(call.input).decode(errors="replace"), "json")
    if call.error:
        yield _fenced(call.error, "text")
    elif call.output and not call.diff and not call.todos:
        yield _fenced(call.output, "text")


def _fenced(text: str, language: str) -> str:
    """A code block that its own content cannot end."""
    longest = max((len(found) for found in _TICKS.findall(text)), default=2)
    fence = "`" * max(longest + 1, 3)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}\n\n"


def _code(text: str) -> str:
    line = _line(text)
    if not line:
        return ""
    ticks = "`" * (max((len(found) for found in re.findall(r"`+", line)), default=0) + 1)
    pad = " " if "`" in (line[0], line[-1]) else ""
    return f"{ticks}{pad}{line}{pad}{ticks}"


def _line(value: object) -> str:
    return " ".join(value.split()) if isinstance(value, str) else ""
