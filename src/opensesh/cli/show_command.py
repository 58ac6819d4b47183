"""Print a session: the conversation, with one line for each tool call."""

from __future__ import annotations

import sys
import threading
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

from ..errors import NotFoundError, UsageError
from ..history.library import Library
from ..history.transcript import (
    Block,
    FileBlock,
    MarkerBlock,
    ReasoningBlock,
    SubtaskBlock,
    TextBlock,
    ToolBlock,
    Transcript,
    TranscriptMessage,
    TranscriptOptions,
)
from ..records import Session, view
from ..storage.keys import is_plain
from ..storage.protocol import LiveEvents, member_stores
from ..text import pluralize
from . import output
from .command_arguments import SESSION, CommandParser, count, named_session
from .terminal import escape_control, escape_except_colours, is_coloured, unescaped

_MAX_RICH_CHARACTERS = 2_000_000
"""Longer transcripts are printed plain: rich would take too long."""
_POLL_SECONDS = 0.1
"""How often a store is read that does not report what others write."""
_NEWEST_MESSAGES = 20


def configure(parser: CommandParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "session", metavar="S", help=f"{SESSION}; or a message or part that 'opensesh search' prints, to show its turn"
    )
    parser.add_argument("--full", action="store_true", help="everything, including file contents and synthetic text")
    parser.add_argument("--reasoning", action="store_true", help="include the model's reasoning")
    parser.add_argument("--outputs", action="store_true", help="include the outputs of tools")
    parser.add_argument("--children", action="store_true", help="include subagent sessions, inside their tool calls")
    parser.add_argument("--context", action="store_true", help="show what the model is sent, and its size in tokens")
    parser.add_argument("--step", metavar="N|MESSAGE", help="with --context: this step instead of the next one")
    parser.add_argument("--follow", action="store_true", help="also print what is added from now on, until Ctrl-C")
    parser.add_argument("--last", type=count, default=0, metavar="N", help="only the N newest messages")


def run(options: Namespace) -> int:
    """Print the session."""
    library = Library(options.store)
    if options.session.startswith(("msg_", "prt_")):
        return _show_turn(library, options)
    session = _named_or_damaged(library, options.session)
    if options.context:
        from . import show_context  # loads the engine

        return show_context.run(library.store, session, options)
    if options.step:
        raise UsageError("--step needs --context")
    if options.follow and options.json:
        raise UsageError("--follow prints text, and cannot be combined with --json")
    if options.json:
        messages = library.store.messages(session.id, last=options.last, report=library.report)
        documents = [{"info": message.info, "parts": message.parts} for message in messages]
        output.print_json({"info": session.document, "messages": documents})
    else:
        content = _content(options)
        transcript = library.transcript(session, content, children=options.children, last=options.last)
        notice, hidden = _revert_notice(library, session)
        for number, turn in enumerate(transcript.messages):
            if turn.id in hidden:
                marked = turn._replace(blocks=(MarkerBlock("reverted", "from here on"), *turn.blocks))
                messages = (*transcript.messages[:number], marked, *transcript.messages[number + 1 :])
                transcript = transcript._replace(messages=messages)
                break
        total = len(library.store.list(("message", session.id))) if options.last else 0
        page = _render(library, session, transcript, notice, total, options.utc)
        if options.follow:
            if sys.stdout.isatty():
                text = escape_except_colours(page.text, any_style=page.any_style)
                print(text, file=unescaped(sys.stdout), flush=True)
            else:
                print(page.text, flush=True)
            follow(library, session, content, transcript, utc=options.utc)
        else:
            output.page(page.text, any_style=page.any_style)
    output.report_damage(library.damage)
    return 0


def _named_or_damaged(library: Library, word: str) -> Session:
    """Return the session that ``word`` names, also if only the messages of a damaged one are left."""
    try:
        return named_session(library, word).record
    except NotFoundError:
        messages = library.store.messages(word, last=1) if word.startswith("ses_") and is_plain(word) else ()
        if not messages:
            raise
        created = messages[0].info["time"]["created"]
        return view({"id": word, "title": "(the session record is missing)", "time": {"created": created}}, Session)


def _show_turn(library: Library, options: Namespace) -> int:
    """Print the turn with a message or a part: a prompt and its answers."""
    if options.context or options.follow or options.last:
        raise UsageError("--context, --follow and --last need a session, not a message or part")
    entry, message_id = library.message(options.session)
    history = library.store.messages(entry.id, report=library.report)
    prompts = [number for number, message in enumerate(history) if message.info.get("role") == "user"]
    position = next(number for number, message in enumerate(history) if message.info.get("id") == message_id)
    start = max((number for number in prompts if number <= position), default=0)
    turn = history[start : min((number for number in prompts if number > position), default=len(history))]
    if options.json:
        documents = [{"info": message.info, "parts": message.parts} for message in turn]
        output.print_json({"info": entry.record.document, "messages": documents})
    else:
        transcript = library.transcript(entry.record, _content(options), children=options.children)
        ids = {message.info.get("id") for message in turn}
        shown = transcript._replace(messages=tuple(one for one in transcript.messages if one.id in ids))
        notice = _revert_notice(library, entry.record)[0]
        page = _render(library, entry.record, shown, notice, len(history), options.utc)
        output.page(page.text, any_style=page.any_style)
    output.report_damage(library.damage)
    return 0


def _content(options: Namespace) -> TranscriptOptions:
    return TranscriptOptions.everything() if options.full else TranscriptOptions(options.reasoning, options.outputs)


def _revert_notice(library: Library, session: Session) -> tuple[str, frozenset[str]]:
    """Return a line about the revert of a session, and the ids of the messages that it hides from the model."""
    if session.revert is None:
        return "", frozenset()
    from ..workspace.revert_plan import recorded_point  # only for sessions that are reverted

    history = library.store.messages(session.id)
    point = recorded_point(history, session.revert)
    if point is None:
        return f"reverted to before {session.revert.message_id}, which no longer exists", frozenset()
    hidden = [str(message.info.get("id")) for message in history[point.message :]]
    where = f"before {'a part of ' if point.part else ''}message {point.message + 1}"
    how = f"'opensesh session unrevert {session.id}' restores them, the next prompt makes the revert final"
    messages = pluralize(len(hidden), "message")
    return f"reverted to {where}: {messages} hidden from the model; {how}", frozenset(hidden)


class _Page(NamedTuple):
    text: str
    any_style: bool = False
    """Whether its escape sequences are its own, of any style."""


def _render(
    library: Library, session: Session, transcript: Transcript, revert_notice: str, total: int, utc: bool
) -> _Page:
    shown = len(transcript.messages)
    messages = f"{shown:,} of {pluralize(total, 'message')}" if total > shown else pluralize(shown, "message")
    messages += ", archived" if session.archived else ""
    shared = output.clip(session.share.url, 500) if session.share else ""
    if shared:
        shared = f"{'shared at' if library.is_shared(session) else 'a copy of'} {shared}"
    head = [
        output.paint(output.clip(session.title, 1000), 1),
        output.paint(f"{session.id}  {session.directory}", 2),
        output.paint(f"{output.format_time(session.time.created, utc=utc)}, {messages}", 2),
        *([output.paint(shared, 2)] if shared else []),
        *([output.paint(revert_notice, 33)] if revert_notice else []),
    ]
    if not sys.stdout.isatty():
        return _Page("\n".join([*head, *_lines(transcript, utc=utc)]))
    content = list(_texts(transcript))
    if is_coloured(sys.stdout) and sum(map(len, content)) < _MAX_RICH_CHARACTERS:
        from .rich_transcript import render  # rich takes long to load

        shown = render(transcript, output.terminal_columns(), utc=utc)
        return _Page("\n".join([*head, shown]), any_style=True)
    text = "\n".join([*head, *_lines(transcript, utc=utc)])
    # Our own colours may stay only if no other text has brought an escape sequence along.
    is_plain = is_coloured(sys.stdout) and "\x1b" not in "".join(content)
    return _Page(text if is_plain else escape_control(text))


def _lines(transcript: Transcript, *, utc: bool) -> Iterator[str]:
    for turn in transcript.messages:
        yield from turn_lines(turn, utc=utc)


def turn_lines(turn: TranscriptMessage, *, utc: bool, head: bool = True) -> Iterator[str]:
    """Yield the lines of a message; without ``head``, only those of its blocks."""
    if head:
        who, codes = (
            (f"assistant  {turn.agent}  {turn.model}", (36,)) if turn.role == "assistant" else ("user", (32, 1))
        )
        yield ""
        yield f"{output.paint(who, *codes)}  {output.paint(output.format_time(turn.created, utc=utc), 2)}"
    for block in turn.blocks:
        match block:
            case TextBlock(text=text):
                yield from text.splitlines()
            case ReasoningBlock(text=text):
                yield from (output.paint(f"  {line}", 2, 3) for line in text.splitlines())
            case ToolBlock():
                yield from _call_lines(block, utc=utc)
            case FileBlock(mime=mime, name=name, url=url):
                yield output.paint(f"[{mime}] {name or url[:60]}", 35)
            case SubtaskBlock(agent=agent, text=text):
                yield output.paint(f"[subtask for {agent}] {text}", 35)
            case MarkerBlock(kind=kind, text=text):
                yield output.paint(f"[{kind}] {text}".rstrip(), 2)
    if turn.failure:
        yield output.paint(f"! {turn.failure}", 31)


def _call_lines(call: ToolBlock, *, utc: bool) -> list[str]:
    lines = [f"{output.paint('> ' + call.tool, 33)} {output.clip(call.subject, 100)}"]
    lines += [f"  {output.clip(line, 200)}" for line in call.todos.splitlines()]
    match call.status:
        case "error":
            lines.append(output.paint(f"  ! {output.clip(call.error, 200)}", 31))
        case "completed":
            lines += [output.paint(f"  {line}", 2) for line in call.output.splitlines()]
        case _:
            lines.append(output.paint("  (never finished)", 2))
    if call.child is not None:
        lines += [f"  | {line}".rstrip() for line in _lines(call.child, utc=utc)]
    return lines


def _texts(transcript: Transcript) -> Iterator[str]:
    """Yield every text of a transcript that would be printed."""
    for turn in transcript.messages:
        for block in turn.blocks:
            shown = (block.mime, block.name or block.url[:60]) if isinstance(block, FileBlock) else block
            yield from (value for value in shown if isinstance(value, str))
            if isinstance(block, ToolBlock) and block.child is not None:
                yield from _texts(block.child)
        yield turn.failure


# -- following ---------------------------------------------------------------------------------------------------------


def follow(library: Library, session: Session, content: TranscriptOptions, shown: Transcript, *, utc: bool) -> None:
    """Print every block of a session that ends after ``shown`` was read, until the user interrupts."""
    printed = {block.id for turn in shown.messages for block in _finished(turn)}
    begun = {turn.id for turn in shown.messages if turn.blocks}
    changed = threading.Event()
    members = member_stores(library.store)
    with ExitStack() as subscriptions:
        for member in members:
            if isinstance(member, LiveEvents):
                subscriptions.callback(member.subscribe(lambda changes: changed.set()))
        is_live = all(isinstance(member, LiveEvents) for member in members)
        changed.set()  # by what was written before the subscription
        while True:
            if changed.wait(_POLL_SECONDS) or not is_live:
                changed.clear()
                transcript = library.transcript(session, content, last=_NEWEST_MESSAGES)
                for turn in transcript.messages:
                    new = tuple(block for block in _finished(turn) if block.id not in printed)
                    if new:
                        for line in turn_lines(turn._replace(blocks=new), utc=utc, head=turn.id not in begun):
                            print(escape_control(line), flush=True)
                        printed.update(block.id for block in new)
                        begun.add(turn.id)


def _finished(turn: TranscriptMessage) -> Iterator[Block]:
    """Yield the blocks of a message that will not change any more, as far as that is known."""
    is_over = turn.role == "user" or turn.completed is not None or bool(turn.failure)
    for number, block in enumerate(turn.blocks):
        match block:
            case ToolBlock():
                has_ended = block.status in ("completed", "error")
            case TextBlock(duration=duration) | ReasoningBlock(duration=duration):
                has_ended = duration is not None or number < len(turn.blocks) - 1
            case _:
                has_ended = number < len(turn.blocks) - 1
        if not is_over and not has_ended:
            return
        yield block
