"""Read a session: the conversation, with its tool calls in a line each."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from ..errors import RecordError
from ..records import (
    AssistantMessage,
    Completed,
    Failed,
    FilePart,
    Message,
    MessageOutputLengthError,
    Part,
    ReasoningPart,
    SubtaskPart,
    TextPart,
    ToolPart,
    read_message,
    read_part,
)
from ..storage import open_store
from ..storage.store import Damage, StoredMessage
from . import output
from .choose import find_session

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Sequence

    from ..records import Session
    from .app import Parser

_KEY_INPUTS = ("filePath", "file_path", "path", "command", "pattern", "url", "query", "description", "name")


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.add_argument("session", metavar="S", help="an id, its beginning or end, a slug, or 'last'")
    parser.add_argument("--full", action="store_true", help="everything: reasoning, outputs, and text nobody typed")
    parser.add_argument("--reasoning", action="store_true", help="what the model thought")
    parser.add_argument("--outputs", action="store_true", help="what the tools answered")
    parser.add_argument("--last", type=int, default=0, metavar="N", help="only the N newest messages")


def run(options: Namespace) -> int:
    """Print the session."""
    store = open_store(options.store)
    session = find_session(store, options.session)
    damage: list[Damage] = []
    messages = store.messages(session.id, last=options.last, report=damage.append)
    if options.json:
        shape = [{"info": message.info, "parts": message.parts} for message in messages]
        output.print_json({"info": session.document, "messages": shape})
    else:
        _page("\n".join(_transcript(session, messages, options, damage)))
    output.tell_damage(damage)
    return 0


def _transcript(
    session: Session, messages: Sequence[StoredMessage], options: Namespace, damage: list[Damage]
) -> Iterator[str]:
    yield output.paint(session.title, 1)
    yield output.paint(f"{session.id}  {session.directory}", 2)
    yield output.paint(f"{output.when(session.time.created, utc=options.utc)}, {len(messages)} messages", 2)
    for message in messages:
        try:
            info = read_message(message.info)
            yield from _message(info, [read_part(part) for part in message.parts], options)
        except RecordError as error:
            damage.append(Damage(str(message.info.get("id")), f"{error.place}: {error.reason}"))


def _message(info: Message, parts: list[Part], options: Namespace) -> Iterator[str]:
    lines = [line for part in parts for line in _part(part, options)]
    if isinstance(info, AssistantMessage):
        head = output.paint(f"assistant  {info.agent_name}  {info.provider_id}/{info.model_id}", 36)
        lines += _failure(info)
    else:
        head = output.paint("user", 32, 1)
    if lines:
        yield ""
        yield f"{head}  {output.paint(output.when(info.time.created, utc=options.utc), 2)}"
        yield from lines


def _failure(info: AssistantMessage) -> list[str]:
    failure = info.failure
    if failure is None:
        return []
    words = "the answer was cut off" if isinstance(failure, MessageOutputLengthError) else failure.message
    return [output.paint(f"! {words}", 31)]


def _part(part: Part, options: Namespace) -> list[str]:
    match part:
        case TextPart(text=text) if options.full or not part.synthetic:
            return text.splitlines() if text.strip() else []
        case ReasoningPart(text=text) if options.full or options.reasoning:
            return [output.paint(f"  {line}", 2, 3) for line in text.splitlines()]
        case ToolPart():
            return _tool(part, outputs=options.full or options.outputs)
        case FilePart():
            return [output.paint(f"[{part.mime}] {part.filename or part.url[:60]}", 35)]
        case SubtaskPart():
            return [output.paint(f"[subtask for {part.agent}] {part.description or part.prompt}", 35)]
        case _:
            return []


def _tool(part: ToolPart, *, outputs: bool) -> list[str]:
    state = part.state
    lines = [f"{output.paint('> ' + part.tool, 33)} {output.clip(_key_input(state.input), 100)}"]
    match state:
        case Failed(error=error):
            lines.append(output.paint(f"  ! {output.clip(error, 200)}", 31))
        case Completed(output=text) if outputs:
            lines += [output.paint(f"  {line}", 2) for line in text.splitlines()]
        case Completed():
            pass
        case _:
            lines.append(output.paint("  (never finished)", 2))
    return lines


def _key_input(given: dict[str, Any]) -> str:
    for name in _KEY_INPUTS:
        if isinstance(given.get(name), str):
            return given[name]
    return ", ".join(f"{name}={value!r}" for name, value in given.items())


def _page(text: str) -> None:
    """To the terminal, through the pager if it is longer than the screen."""
    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        from shutil import get_terminal_size

        if text.count("\n") >= get_terminal_size().lines:
            from pydoc import pager

            os.environ.setdefault("LESS", "FRX")
            pager(text)
            return
    sys.stdout.buffer.write(text.encode(errors="replace") + b"\n")
    sys.stdout.buffer.flush()
