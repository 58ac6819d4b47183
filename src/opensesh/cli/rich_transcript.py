"""A transcript rendered for a terminal, with Markdown, code and diffs."""

from __future__ import annotations

from io import StringIO

from rich.console import Console, Group, RenderableType
from rich.markdown import Markdown
from rich.padding import Padding
from rich.rule import Rule
from rich.syntax import Syntax
from rich.text import Text

from ..history.transcript import (
    FileBlock,
    MarkerBlock,
    ReasoningBlock,
    SubtaskBlock,
    TextBlock,
    ToolBlock,
    Transcript,
    TranscriptMessage,
)
from . import output
from .terminal import escape_control


def render(transcript: Transcript, columns: int, *, utc: bool) -> str:
    """Return the transcript as text of that width. Control characters in it are escaped first."""
    console = Console(file=StringIO(), force_terminal=True, width=columns, highlight=False, emoji=False, markup=False)
    with console.capture() as capture:
        for turn in transcript.messages:
            console.print()
            for renderable in _render_turn(turn, utc=utc):
                console.print(renderable)
    return capture.get()


def _render_turn(turn: TranscriptMessage, *, utc: bool) -> list[RenderableType]:
    is_assistant = turn.role == "assistant"
    who = f"assistant  {turn.agent}  {turn.model}".rstrip() if is_assistant else "user"
    head = f"{escape_control(who)}  {output.format_time(turn.created, utc=utc)}"
    title = Text(head, "cyan" if is_assistant else "bold green")
    rendered: list[RenderableType] = [Rule(title, align="left", style="dim")]
    for block in turn.blocks:
        match block:
            case TextBlock(text=text):
                plain = escape_control(text)
                # Users type plain lines, not Markdown.
                rendered.append(Text(plain) if turn.role == "user" else Markdown(plain, hyperlinks=False))
            case ReasoningBlock(text=text):
                rendered.append(Padding(Text(escape_control(text), "dim italic"), (0, 0, 0, 2)))
            case ToolBlock():
                rendered += _render_call(block, utc=utc)
            case FileBlock(mime=mime, name=name, url=url):
                rendered.append(Text(escape_control(f"[{mime}] {name or url[:60]}"), "magenta"))
            case SubtaskBlock(agent=agent, text=text):
                rendered.append(Text(escape_control(f"[subtask for {agent}] {text}"), "magenta"))
            case MarkerBlock(kind=kind, text=text):
                rendered.append(Text(escape_control(f"[{kind}] {text}").rstrip(), "dim"))
    if turn.failure:
        rendered.append(Text(f"! {escape_control(turn.failure)}", "red"))
    return rendered


def _render_call(call: ToolBlock, *, utc: bool) -> list[RenderableType]:
    line = Text.assemble((f"> {escape_control(call.tool)}", "yellow"), " ", output.clip(call.subject, 100))
    inside: list[RenderableType] = []
    if call.todos:
        inside.append(Text(escape_control(call.todos)))
    if call.diff:
        diff = escape_control(call.diff).rstrip()
        inside.append(Syntax(diff, "diff", background_color="default", word_wrap=True))
    if call.status == "error":
        inside.append(Text(f"! {output.clip(call.error, 200)}", "red"))
    elif call.status != "completed":
        inside.append(Text("(never finished)", "dim"))
    if call.output:
        inside.append(Text(escape_control(call.output).rstrip(), "dim"))
    if call.child is not None:
        inside.append(Group(*(part for turn in call.child.messages for part in _render_turn(turn, utc=utc))))
    return [line, *(Padding(part, (0, 0, 0, 2)) for part in inside)]
