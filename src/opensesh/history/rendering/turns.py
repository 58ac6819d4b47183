"""Messages and parts of a session as HTML.

A message is a turn: ``<article class="turn" id="t-MESSAGE">`` with its parts, ``id="p-PART"``. A tool call is one line,
``<details class="call">``: its tool, its subject, and how it ended. On a page of the server its body is loaded when it
is unfolded; in an exported page it is there.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from datetime import UTC, datetime
from functools import cache, partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ...records import Document, dumps
from ...text import pluralize
from ..formatting import format_duration, relative_path, text, when
from ..transcript import (
    Block,
    MarkerBlock,
    ReasoningBlock,
    TextBlock,
    ToolBlock,
    TranscriptMessage,
    TranscriptOptions,
    part_block,
    transcript_message,
)
from .diff_html import count_changes, diff_html
from .highlighting import highlighted, language_of_path
from .markdown_html import is_plain, markdown_html, typed_html
from .pictures import picture_url
from .visible_text import code, one_line, prose, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ...storage.protocol import StoredMessage

SHOWN_LINES = 200
"""Lines of an output that are shown before all of them are asked for."""
_SHOWN_LENGTH = 40_000
_MAX_HIGHLIGHTED_LINES = 500
_LOOKUPS = {"read": "file", "grep": "search", "glob": "search", "list": "search", "ls": "search"}
"""Tools whose calls are folded into one line where several follow each other."""
_NUMBERED = re.compile(r"^(?:<content>)?\d+[:|] ?", re.MULTILINE)
"""A line of a file as ``read`` returns it, today and up to OpenCode 1.1. The lines around them are not in the file."""
_FOLDED_CALLS = 3


class RenderOptions(NamedTuple):
    """Options for rendering turns."""

    address: str = ""
    """The address of the session's page, from which bodies are loaded; empty if they are part of the result."""
    user: str = "You"
    """The name of the user."""
    utc: bool = False
    show: frozenset[str] = frozenset()
    """What is unfolded: ``reasoning``, ``outputs`` (of tools), ``marks`` (steps, snapshots, added text)."""
    tools: Literal["", "skip", "summary"] = ""
    reasoning: bool = True
    """Whether there is reasoning at all."""
    is_prompt: bool = False
    """Whether texts are those of a user, which are shown as they were typed."""
    position: int = 0
    """How many messages are before the turn, if it is known."""
    directory: str = ""
    """The folder of the session; paths below it are shown without it."""
    child: Callable[[str], Markup] | None = None
    """Renders the session of a subagent below the call that started it; the body of the call if ``None``."""


class CallGroup(NamedTuple):
    """Calls that look something up, one after the other, as one line."""

    label: str
    calls: list[ToolBlock]


class ShownText(NamedTuple):
    """A text, or its beginning."""

    text: str
    lines: int
    """The number of lines of the whole text."""
    is_whole: bool


TurnItem: TypeAlias = "Block | CallGroup"


def render_turn(
    message: StoredMessage,
    options: RenderOptions | None = None,
    *,
    previous: StoredMessage | None = None,
    is_reverted: bool = False,
) -> Markup:
    """Render a message. ``previous`` is the one before it: a new day is announced, and a further step marked as one."""
    return render_message(
        transcript_message(message, TranscriptOptions.everything()),
        options or RenderOptions(),
        previous=transcript_message(previous, TranscriptOptions()) if previous is not None else None,
        is_reverted=is_reverted,
    )


def render_message(
    message: TranscriptMessage,
    options: RenderOptions,
    *,
    previous: TranscriptMessage | None = None,
    is_reverted: bool = False,
) -> Markup:
    """Render a message of a transcript that contains everything; see :func:`render_turn`."""
    options = options._replace(is_prompt=message.role == "user")
    items = list(_items(message.blocks, options))
    day = when(message.created or None, utc=options.utc)[:10]
    previous_day = when(previous.created or None, utc=options.utc)[:10] if previous is not None else day
    classes = _turn_classes(message, items, previous) + (" reverted" if is_reverted else "")
    return _macros().turn(message, items, options, classes, day if day != previous_day else "")


def _turn_classes(message: TranscriptMessage, items: Sequence[TurnItem], previous: TranscriptMessage | None) -> str:
    is_prompt = message.role == "user"
    states = {
        "prompt": is_prompt,
        "answer": not is_prompt,
        "summary": message.is_summary,
        # A further step of the same answer has the same author, who is not named again.
        "step": previous is not None
        and previous.role == message.role == "assistant"
        and (previous.agent, previous.model, previous.is_summary) == (message.agent, message.model, message.is_summary),
        "blank": not items and not message.failure and (is_prompt or message.completed is not None),
        "separator": len(items) == 1 and isinstance(items[0], MarkerBlock) and items[0].kind == "compaction",
    }
    return " ".join(name for name, holds in states.items() if holds)


def render_part(part: Document, options: RenderOptions) -> Markup:
    """Render one part, folded if it is a tool call; empty if it has nothing to show."""
    block = part_block(part)
    items = list(_items((block,), options)) if block is not None else []
    return _macros().item(items[0], options) if items else Markup("")


def render_body(part: Document, options: RenderOptions, *, whole: bool = False) -> Markup:
    """Render what is inside a folded part: input and output of a tool call, reasoning, or a long text.

    An output is cut after :data:`SHOWN_LINES` lines unless ``whole``.
    """
    block = part_block(part)
    return _macros().body(block, options, whole) if block is not None else Markup("")


@cache
def template_environment(folders: tuple[str, ...]) -> Environment:
    """Return the templates in some folders, with the settings of all pages."""
    return Environment(
        loader=FileSystemLoader(folders),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )


@cache
def _macros() -> Any:
    environment = template_environment((os.path.join(os.path.dirname(__file__), "templates"),))
    functions = {
        "kind_of": _kind_of,
        "outcome": call_outcome,
        "subject": _subject,
        "duration": format_duration,
        "arguments": _arguments,
        "shown": _shown,
        "is_plain": is_plain,
        "markdown": markdown_html,
        "typed": typed_html,
        "diff": diff_html,
        "highlighted": partial(highlighted, max_lines=_MAX_HIGHLIGHTED_LINES),
        "picture_url": picture_url,
        "when": when,
        "machine_time": _machine_time,
        "visible": visible,
        "one_line": one_line,
        "pluralize": pluralize,
        "code": code,
        "prose": prose,
    }
    return environment.get_template("turn.html", globals=functions).module


def _kind_of(item: TurnItem) -> str:
    return type(item).__name__


def _items(blocks: Iterable[Block], options: RenderOptions) -> Iterator[TurnItem]:
    """Choose what is shown, with the calls that look something up in groups."""
    for is_lookup, group in groupby(
        blocks, lambda block: isinstance(block, ToolBlock) and block.tool in _LOOKUPS and block.status == "completed"
    ):
        run = [block for block in group if _is_shown(block, options)]
        calls = [block for block in run if isinstance(block, ToolBlock)]
        if is_lookup and len(calls) >= _FOLDED_CALLS and not options.tools:
            yield CallGroup(_group_label(calls), calls)
        else:
            yield from run


def _is_shown(block: Block, options: RenderOptions) -> bool:
    match block:
        case TextBlock(synthetic=True):
            return "marks" in options.show
        case MarkerBlock(kind=kind):
            return kind in ("compaction", "retry") or "marks" in options.show
        case ReasoningBlock():
            return options.reasoning
        case ToolBlock():
            return options.tools != "skip" or options.child is not None
        case _:
            return True


def _group_label(calls: Sequence[ToolBlock]) -> str:
    counts = Counter(_LOOKUPS[call.tool] for call in calls)
    words = [f"read {pluralize(counts['file'], 'file')}"] if counts["file"] else []
    searches = counts["search"]
    return ", ".join([*words, *([f"{searches} search{'es' if searches > 1 else ''}"] if searches else [])])


def _subject(call: ToolBlock, directory: str) -> str:
    """Return what a call is about. A search is for a pattern first, and in a folder second."""
    pattern, folder = text(call.input, "pattern"), text(call.input, "path")
    if pattern and call.subject == pattern and folder and folder != directory:
        return f"{pattern} in {relative_path(folder, directory)}"
    return relative_path(call.subject, directory)


def call_outcome(call: ToolBlock) -> list[tuple[str, str]]:
    """Return how a call ended, as words with a CSS class: status, exit code, changed lines, duration."""
    words: list[tuple[str, str]] = []
    if call.user_decision:
        words.append(("", call.user_decision))
    elif call.status == "error":
        words.append(("bad", "failed"))
    elif call.status != "completed":
        words.append(("live" if call.status == "running" else "", visible(one_line(call.status)) or "unknown"))
    if call.exit_code:
        words.append(("bad", f"exit {call.exit_code}"))
    if call.diff:
        added, removed = count_changes(call.diff)
        words.append(("", f"+{added} \N{MINUS SIGN}{removed}"))
    if call.tool == "read" and call.status == "completed" and (lines := len(_NUMBERED.findall(call.output))):
        words.append(("", pluralize(lines, "line")))
    if call.duration is not None:
        words.append(("", format_duration(call.duration)))
    return words


def _arguments(call: ToolBlock) -> list[tuple[str, str, str]]:
    """Return the arguments of a call: name, value as text, and its language."""
    path = text(call.input, "filePath") or text(call.input, "file_path") or text(call.input, "path")
    languages = {"command": "bash", "content": language_of_path(path), "newString": language_of_path(path)}
    languages["oldString"] = languages["newString"]
    return [
        (name, value, languages.get(name, ""))
        if isinstance(value, str)
        else (name, dumps(value).decode(errors="replace"), "json")
        for name, value in call.input.items()
    ]


def _shown(content: str, whole: bool) -> ShownText:
    """Return a text, or its first lines if it is long and not wanted as a ``whole``."""
    lines = content.count("\n") + 1
    if whole or (lines <= SHOWN_LINES and len(content) <= _SHOWN_LENGTH):
        return ShownText(content, lines, True)
    beginning = content[:_SHOWN_LENGTH].split("\n", SHOWN_LINES)[:SHOWN_LINES]
    return ShownText("\n".join(beginning), lines, False)


def _machine_time(milliseconds: int) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%MZ")
    except (ValueError, OverflowError, OSError):
        return ""
