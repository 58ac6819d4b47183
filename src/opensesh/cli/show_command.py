"""Read a session: the conversation, with its tool calls in a line each."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ..errors import NotFoundError, UsageError
from ..history.library import Library
from ..history.transcript import (
    FileBlock,
    MarkerBlock,
    ReasoningBlock,
    SubtaskBlock,
    TextBlock,
    ToolBlock,
    TranscriptOptions,
)
from ..records import Session, view
from ..storage.keys import is_plain
from . import output
from .arguments import SESSION, count

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from ..history.transcript import Block, Transcript, TranscriptMessage
    from .arguments import Parser

_MOST_PRETTY = 2_000_000


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.add_argument("session", metavar="S", help=SESSION)
    parser.add_argument("--full", action="store_true", help="everything: also files, and text nobody typed")
    parser.add_argument("--reasoning", action="store_true", help="what the model thought")
    parser.add_argument("--outputs", action="store_true", help="what the tools answered")
    parser.add_argument("--children", action="store_true", help="what subagents did, inside the calls that began them")
    parser.add_argument("--context", action="store_true", help="what the model gets to see, and what it takes")
    parser.add_argument("--step", metavar="N|MESSAGE", help="with --context: of which step, instead of the next")
    parser.add_argument("--last", type=count, default=0, metavar="N", help="only the N newest messages")


def run(options: Namespace) -> int:
    """Print the session."""
    library = Library(options.store)
    session = _find(library, options.session)
    if options.context:
        from . import context

        return context.run(library.store, session, options)
    if options.step:
        raise UsageError("--step goes with --context")
    if options.json:
        messages = library.store.messages(session.id, last=options.last, report=library.report)
        shape = [{"info": message.info, "parts": message.parts} for message in messages]
        output.print_json({"info": session.document, "messages": shape})
    else:
        wanted = (
            TranscriptOptions.everything() if options.full else TranscriptOptions(options.reasoning, options.outputs)
        )
        found = library.transcript(session, wanted, children=options.children, last=options.last)
        from .paging import page

        reverted, hidden = _reverted(library, session)
        page(_rendered(session, _marked(found, hidden), reverted, utc=options.utc))
    output.tell_damage(library.damage)
    return 0


def _find(library: Library, word: str) -> Session:
    try:
        return library.session(word).record
    except NotFoundError:
        messages = library.store.messages(word, last=1) if word.startswith("ses_") and is_plain(word) else ()
        if not messages:
            raise
        moment = messages[0].info["time"]["created"]
        return view({"id": word, "title": "(the record of this session is lost)", "time": {"created": moment}}, Session)


def _reverted(library: Library, session: Session) -> tuple[str, frozenset[str]]:
    """That messages are hidden which are shown here all the same, and what becomes of them; empty if none are. And
    which they are."""
    if session.revert is None:
        return "", frozenset()
    from ..workspace.revert_plan import recorded_point

    history = library.store.messages(session.id)
    point = recorded_point(history, session.revert)
    if point is None:
        return f"reverted to before {session.revert.message_id}, which is no longer here", frozenset()
    hidden = [str(message.info.get("id")) for message in history[point.message :]]
    are = "is" if len(hidden) == 1 else "are"
    what = f"{output.pluralize(len(hidden), 'message')} from there on {are} hidden from the model"
    where = f"before {'a part of ' if point.part else ''}message {point.message + 1}"
    how = f"'opensesh session unrevert {session.id}' brings back what was taken, the next prompt makes it final"
    return f"reverted to {where}: {what}; {how}", frozenset(hidden)


def _marked(found: Transcript, hidden: frozenset[str]) -> Transcript:
    """The transcript with a mark where what is hidden begins."""
    turns = list(found.messages)
    for number, turn in enumerate(turns):
        if turn.id in hidden:
            turns[number] = turn._replace(blocks=(MarkerBlock("reverted", "from here on"), *turn.blocks))
            break
    return found._replace(messages=tuple(turns))


def _rendered(session: Session, found: Transcript, reverted: str, *, utc: bool) -> str:
    read = f"{output.pluralize(len(found.messages), 'message')} to read{', archived' if session.archived else ''}"
    link = session.share.url if session.share else ""
    head = [
        output.paint(output.clip(session.title, 1000), 1),
        output.paint(f"{session.id}  {session.directory}", 2),
        output.paint(f"{output.when(session.time.created, utc=utc)}, {read}", 2),
        *([output.paint(f"shared at {output.clip(link, 500)}", 2)] if link else []),
        *([output.paint(reverted, 33)] if reverted else []),
    ]
    if sys.stdout.isatty() and output.coloured() and _length(found) < _MOST_PRETTY:
        from .pretty import pretty

        drawn = pretty(found, output.terminal_columns(), utc=utc)
        if drawn is not None:
            return "\n".join([*head, drawn])
    text = "\n".join([*head, *_lines(found, utc=utc)])
    if sys.stdout.isatty():
        from .terminal import tame

        # Colour is ours, and only where nobody else can have written an escape sequence.
        return text if output.coloured() and "\x1b" not in "".join(_words(found)) else tame(text)
    return text


def _lines(found: Transcript, *, utc: bool) -> Iterator[str]:
    for turn in found.messages:
        yield ""
        yield f"{heading(turn)}  {output.paint(output.when(turn.created, utc=utc), 2)}"
        for block in turn.blocks:
            yield from _block(block, utc=utc)
        if turn.failure:
            yield output.paint(f"! {turn.failure}", 31)


def heading(turn: TranscriptMessage) -> str:
    """Who speaks."""
    if turn.role == "assistant":
        return output.paint(f"assistant  {turn.agent}  {turn.model}", 36)
    return output.paint("user", 32, 1)


def _block(block: Block, *, utc: bool) -> list[str]:
    match block:
        case TextBlock(text=text):
            return text.splitlines()
        case ReasoningBlock(text=text):
            return [output.paint(f"  {line}", 2, 3) for line in text.splitlines()]
        case ToolBlock():
            return _call(block, utc=utc)
        case FileBlock(mime=mime, name=name, url=url):
            return [output.paint(f"[{mime}] {name or url[:60]}", 35)]
        case SubtaskBlock(agent=agent, text=text):
            return [output.paint(f"[subtask for {agent}] {text}", 35)]
        case MarkerBlock(kind=kind, text=text):
            return [output.paint(f"[{kind}] {text}".rstrip(), 2)]


def _call(call: ToolBlock, *, utc: bool) -> list[str]:
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


def _words(found: Transcript) -> Iterator[str]:
    for turn in found.messages:
        for block in turn.blocks:
            shown = (block.mime, block.name or block.url[:60]) if isinstance(block, FileBlock) else block
            yield from (value for value in shown if isinstance(value, str))
            if isinstance(block, ToolBlock) and block.child is not None:
                yield from _words(block.child)
        yield turn.failure


def _length(found: Transcript) -> int:
    return sum(len(word) for word in _words(found))
