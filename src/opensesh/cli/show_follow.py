"""``opensesh show --follow``: print what is added to a session while another program, or this one, runs it."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ..history.transcript import ReasoningBlock, TextBlock, ToolBlock
from ..storage.protocol import LiveEvents, member_stores
from .show_command import turn_lines
from .terminal import escape_control

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..history.library import Library
    from ..history.transcript import Block, Transcript, TranscriptMessage, TranscriptOptions
    from ..records import Session

_POLL_SECONDS = 0.1
"""How often a store is read that does not report what others write."""
_NEWEST_MESSAGES = 20


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
