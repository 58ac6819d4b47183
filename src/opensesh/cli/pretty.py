"""A transcript drawn for a terminal: Markdown, code and diffs as such."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..history.transcript import FileBlock, MarkerBlock, ReasoningBlock, SubtaskBlock, TextBlock, ToolBlock
from . import output
from .terminal import tame

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..history.transcript import Block, Transcript, TranscriptMessage


def pretty(found: Transcript, columns: int, *, utc: bool) -> str | None:
    """The transcript, at most so wide; ``None`` where nothing is installed to draw it with.

    Everything a session holds is tamed before it is drawn: no escape sequence of a model or a tool gets through.
    """
    try:
        from rich.console import Console
    except ImportError:
        return None
    from io import StringIO

    console = Console(file=StringIO(), force_terminal=True, width=columns, highlight=False, emoji=False, markup=False)
    with console.capture() as drawn:
        for each in _transcript(found, utc=utc):
            console.print(each)
    return drawn.get()


def _transcript(found: Transcript, *, utc: bool) -> list[RenderableType]:
    return [drawn for turn in found.messages for drawn in _turn(turn, utc=utc)]


def _turn(turn: TranscriptMessage, *, utc: bool) -> list[RenderableType]:
    from rich.rule import Rule
    from rich.text import Text

    who = f"assistant  {turn.agent}  {turn.model}".rstrip() if turn.role == "assistant" else "user"
    head = Text(
        f"{tame(who)}  {output.when(turn.created, utc=utc)}", "cyan" if turn.role == "assistant" else "bold green"
    )
    drawn: list[RenderableType] = [Rule(head, align="left", style="dim")]
    for block in turn.blocks:
        if isinstance(block, TextBlock) and turn.role == "user":  # people type lines, not Markdown
            drawn.append(Text(tame(block.text)))
        else:
            drawn += _block(block, utc=utc)
    if turn.failure:
        drawn.append(Text(f"! {tame(turn.failure)}", "red"))
    return drawn


def _block(block: Block, *, utc: bool) -> list[RenderableType]:
    from rich.markdown import Markdown
    from rich.padding import Padding
    from rich.text import Text

    match block:
        case TextBlock(text=text):
            return [Markdown(tame(text), hyperlinks=False)]
        case ReasoningBlock(text=text):
            return [Padding(Text(tame(text), "dim italic"), (0, 0, 0, 2))]
        case ToolBlock():
            return _call(block, utc=utc)
        case FileBlock(mime=mime, name=name, url=url):
            return [Text(tame(f"[{mime}] {name or url[:60]}"), "magenta")]
        case SubtaskBlock(agent=agent, text=text):
            return [Text(tame(f"[subtask for {agent}] {text}"), "magenta")]
        case MarkerBlock(kind=kind, text=text):
            return [Text(tame(f"[{kind}] {text}").rstrip(), "dim")]


def _call(call: ToolBlock, *, utc: bool) -> list[RenderableType]:
    from rich.console import Group
    from rich.padding import Padding
    from rich.syntax import Syntax
    from rich.text import Text

    line = Text.assemble((f"> {tame(call.tool)}", "yellow"), " ", output.clip(call.subject, 100))
    inside: list[RenderableType] = []
    if call.todos:
        inside.append(Text(tame(call.todos)))
    if call.diff:
        inside.append(Syntax(tame(call.diff).rstrip(), "diff", background_color="default", word_wrap=True))
    if call.status == "error":
        inside.append(Text(f"! {output.clip(call.error, 200)}", "red"))
    elif call.status != "completed":
        inside.append(Text("(never finished)", "dim"))
    if call.output:
        inside.append(Text(tame(call.output).rstrip(), "dim"))
    if call.child is not None:
        inside.append(Group(*_transcript(call.child, utc=utc)))
    return [line, *(Padding(each, (0, 0, 0, 2)) for each in inside)]
