"""What a person sees of a run: the answer on standard output, everything else on standard error.

On a terminal the answer appears as it comes. Elsewhere each piece of text is written when it is complete, so that what
a failed try began to say never gets into a file.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .. import events, ids
from ..records import MessageAbortedError, as_object, read_failure
from . import output, tool_lines
from .terminal import tame

if TYPE_CHECKING:
    from ..bus import Envelope
    from ..records import Document
    from .terminal import Stream


class _Block:
    """A text or reasoning part on its way to the screen."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.received = 0
        """How much of it has come, in characters."""
        self.held = ""
        """What has come but is not shown: all of it, or the white space it may turn out to end with."""


class Screen:
    """Shows the events of one run, in their order."""

    def __init__(self, out: Stream, notes: Stream, directory: str) -> None:
        self._out = out
        self._notes = notes
        self._directory = directory
        self._one_screen = out.shares_screen(notes)
        self._depths: dict[str, int] = {}
        self._answers: set[str] = set()
        self._blocks: dict[str, _Block] = {}
        self._open: tuple[str, Stream] | None = None
        """The block whose last line is still being written, and where."""
        self._running: dict[str, Document] = {}
        self._has_status = False
        self._is_asking = False
        self._last = ""
        self._header = ""

    def follow(self, session_id: str) -> None:
        """Show this session, and what it sets in motion."""
        self._depths[session_id] = 0

    def note(self, text: str, *codes: int, kind: str = "note") -> None:
        """A line of our own."""
        self._begin_lines(kind)
        self._notes.write(self._notes.paint(self._safe(text), *codes) + "\n")
        if kind != "ask":
            self._show_status()

    def ask(self, text: str) -> None:
        """Like :meth:`note`, but what is typed next stands behind it."""
        self._begin_lines("ask")
        self._notes.write(self._notes.paint(self._safe(text), 1))
        self._is_asking = True

    def answered(self) -> None:
        """Something was typed, and with it the line ended."""
        self._is_asking = False

    def gap(self) -> None:
        """What comes next is something else, of whatever kind it is."""
        self._last = "gap" if self._last else ""

    def close(self) -> None:
        """Nothing more will come: show what was held back."""
        for part_id in list(self._blocks):
            self._end(part_id)
        self._running.clear()
        self._close_line()
        self._clear_status()

    def show(self, envelope: Envelope) -> None:
        """Show an event, if it is one that people want to see."""
        match envelope.event:
            case events.MessageUpdated(info=info):
                self._message(info)
            case events.PartUpdated(part=part):
                self._part(part)
            case events.PartDelta(part_id=part_id, delta=delta) if part_id in self._blocks:
                self._grow(part_id, delta)
            case events.PartRemoved(part_id=part_id):
                self._take_back(part_id)
            case events.SessionCreated(info=info) if info.get("parentID") in self._depths:
                self._depths[info["id"]] = self._depths[info["parentID"]] + 1
            case events.SessionStatus(session_id=session_id, status=status) if session_id in self._depths:
                self._status(status)
            case events.SessionError(error=error) if error is not None:
                self._error(error)
            case events.SessionCompacted(session_id=session_id) if session_id in self._depths:
                self.note("the conversation was summed up, to make room", 2)
            case _:
                pass

    # -- messages and their parts --------------------------------------------------------------------------------------

    def _message(self, info: Document) -> None:
        if info["role"] == "assistant" and self._depths.get(info["sessionID"]) == 0 and not info.get("summary"):
            self._answers.add(info["id"])
            header = f"{info.get('agent')}  {info.get('providerID')}/{info.get('modelID')}"
            if header != self._header:
                self._header = header
                self.note(header, 2)

    def _part(self, part: Document) -> None:
        match part.get("type"):
            case "text" | "reasoning" if part.get("messageID") in self._answers:
                self._text(part)
            case "tool" if part.get("sessionID") in self._depths:
                self._tool(part)
            case _:
                pass

    def _text(self, part: Document) -> None:
        block = self._blocks.setdefault(part["id"], _Block(part["type"]))
        self._grow(part["id"], part["text"][block.received :])
        if (as_object(part.get("time")) or {}).get("end"):
            self._end(part["id"])

    def _grow(self, part_id: str, piece: str) -> None:
        block = self._blocks[part_id]
        block.received += len(piece)
        block.held += piece
        stream = self._stream(block)
        if stream is None or not stream.is_terminal:
            return
        shown = block.held.rstrip()
        if shown:
            block.held = block.held[len(shown) :]
            self._stream_text(part_id, block, stream, shown)

    def _stream_text(self, part_id: str, block: _Block, stream: Stream, text: str) -> None:
        if not self._is_open(part_id):
            self._begin_lines(block.kind)
            self._open = part_id, stream
            text = text.lstrip("\n")
        stream.write(stream.paint(tame(text), *((2,) if block.kind == "reasoning" else ())))

    def _end(self, part_id: str) -> None:
        """A block is complete."""
        block = self._blocks.pop(part_id)
        stream = self._stream(block)
        if stream is None:
            return
        if self._is_open(part_id):
            self._close_line()
        elif block.held.strip():
            self._begin_lines(block.kind)
            stream.write(block.held.strip("\n").rstrip() + "\n")
        self._show_status()

    def _take_back(self, part_id: str) -> None:
        self._running.pop(part_id, None)
        block = self._blocks.pop(part_id, None)
        if block is not None and self._is_open(part_id):
            self._close_line()
            self.note("(this broke off, and does not count)", 2)

    def _stream(self, block: _Block) -> Stream | None:
        """Where a block goes. What a model thinks is for people who watch."""
        if block.kind == "text":
            return self._out
        return self._notes if self._notes.is_terminal else None

    def _tool(self, part: Document) -> None:
        status = (as_object(part.get("state")) or {}).get("status")
        if status in ("completed", "error"):
            self._running.pop(part["id"], None)
            self._tool_ended(part)
        elif status == "running":
            if part["tool"] == "task" and part["id"] not in self._running:
                self._tool_line(part, "", well=True)
            self._running[part["id"]] = part
            self._show_status()

    def _tool_ended(self, part: Document) -> None:
        went, well = tool_lines.outcome(part)
        self._tool_line(part, went, well=well)
        margin = "  " * (self._depths[part["sessionID"]] + 1)
        for line in tool_lines.below(part):
            self.note(output.clip(f"{margin}{line}", 200), 2, kind="tool")

    def _tool_line(self, part: Document, went: str, *, well: bool) -> None:
        self._begin_lines("tool")
        name = f"{'  ' * self._depths[part['sessionID']]}> {tool_lines.label(part, self._directory)}"
        room = max(self._notes.columns - 1, 20) if self._notes.is_terminal else 1000
        went = output.clip(went, room - 2 - min(output.width(name), room // 2))
        name = output.clip(name, room - 2 - output.width(went))
        line = f"{self._notes.paint(name, 33)}  {self._notes.paint(went, *((2,) if well else (31,)))}".rstrip()
        self._notes.write(line + "\n")
        self._show_status()

    # -- everything else -----------------------------------------------------------------------------------------------

    def _status(self, status: Document) -> None:
        if status.get("type") == "retry":
            at = int(status.get("next", 0))
            clock = time.strftime("%H:%M:%S", time.localtime(at / 1000))
            wait = tool_lines.duration(max(at - ids.now_ms(), 0))
            self.note(f"! {status.get('message')}", 33)
            self.note(f"  try {int(status.get('attempt', 0)) + 1} at {clock}, in {wait}", 33)

    def _error(self, error: Document) -> None:
        failure = read_failure(error)
        if not isinstance(failure, MessageAbortedError):
            words = getattr(failure, "message", "") or type(failure).__name__
            self.note(f"! {words}", 31)

    # -- where the cursor is -------------------------------------------------------------------------------------------

    def _begin_lines(self, kind: str) -> None:
        """Make sure that what comes next starts on a line of its own, with space around what is not of its kind."""
        self._clear_status()
        self._close_line()
        if self._one_screen and self._last and (kind != self._last or kind == "text"):
            self._notes.write("\n")
        self._last = kind

    def _is_open(self, part_id: str) -> bool:
        return self._open is not None and self._open[0] == part_id

    def _close_line(self) -> None:
        if self._is_asking:
            self._notes.write("\n")
            self._is_asking = False
        if self._open is not None:
            self._open[1].write("\n")
            self._open = None

    def _show_status(self) -> None:
        """What is running, on a line that goes away again."""
        self._clear_status()
        if self._running and self._open is None and self._notes.is_lively:
            newest = list(self._running.values())[-1]
            text = output.clip(f"… {tool_lines.label(newest, self._directory)}", max(self._notes.columns - 1, 10))
            self._notes.write(self._notes.paint(text, 2))
            self._has_status = True

    def _clear_status(self) -> None:
        if self._has_status:
            self._notes.write("\r\x1b[K")
            self._has_status = False

    def _safe(self, text: str) -> str:
        return tame(text) if self._notes.is_terminal else text
