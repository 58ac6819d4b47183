"""A run as the user sees it: the answer on standard output, everything else on standard error.

On a terminal and in a pipe the answer appears as it is streamed. In a file, and with ``--quiet``, each text is written
when it is complete, so that the text of an attempt that failed gets neither into a file nor into a script's variable.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .. import events, ids
from ..history import formatting
from ..records import APIError, Document, Failure, MessageAbortedError, as_object, object_at, read_failure
from . import output
from .terminal import Stream, error_stream, escape_control, fold

if TYPE_CHECKING:
    from ..bus import Envelope


class _StreamedBlock:
    """A text or reasoning part that is being streamed."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.received = 0
        """Characters received so far."""
        self.unshown = ""
        """Text received but not shown: all of it, or the white space that may turn out to be the end."""


class Screen:
    """Shows the events of one run, in their order."""

    def __init__(self, out: Stream, notes: Stream, directory: str, *, quiet: bool = False) -> None:
        self._out = out
        self._streams_answers = out.is_terminal or (out.is_pipe and not quiet)
        self._notes = notes
        self._directory = directory
        self._one_screen = out.shares_screen(notes)
        self._depths: dict[str, int] = {}
        self._answers: set[str] = set()
        self._blocks: dict[str, _StreamedBlock] = {}
        self._open: tuple[str, Stream] | None = None
        """The block whose last line is not ended, and the stream it is on."""
        self._running: dict[str, Document] = {}
        self._has_status = False
        self._is_asking = False
        self._last_kind = ""
        self._header = ""

    def follow(self, session_id: str) -> None:
        """Show this session and the sessions of its subagents."""
        self._depths[session_id] = 0

    def note(self, text: str, *codes: int, kind: str = "note", verbatim: bool = False) -> None:
        """Write a line to standard error; a ``verbatim`` one gets no line end that it has not."""
        self._begin_lines(kind)
        shown = self._safe(text)
        if self._notes.is_terminal and not verbatim:
            shown = fold(shown, self._notes.columns)
        self._notes.write(self._notes.paint(shown, *codes) + "\n")
        if kind != "ask":
            self._show_status()

    def error(self, text: str, *codes: int) -> None:
        """Write a line to standard error, also with ``--quiet``."""
        self._begin_lines("note")
        errors = Stream(error_stream())
        shown = fold(escape_control(text), errors.columns) if errors.is_terminal else text
        errors.write(errors.paint(shown, *codes) + "\n")
        self._show_status()

    def ask(self, text: str) -> None:
        """Write a prompt to standard error; the answer is typed on the same line."""
        self._begin_lines("ask")
        self._notes.write(self._notes.paint(self._safe(text), 1))
        self._is_asking = True

    def answered(self) -> None:
        """Note that an answer was typed, which ended the line."""
        self._is_asking = False

    def gap(self) -> None:
        """Separate the next lines from the last ones, even if they are of the same kind."""
        self._last_kind = "gap" if self._last_kind else ""

    def close(self) -> None:
        """Show what is left: the run is over."""
        for part_id in list(self._blocks):
            self._end_block(part_id)
        self._running.clear()
        self._close_line()
        self._clear_status()

    def show(self, envelope: Envelope) -> None:
        """Show an event."""
        match envelope.event:
            case events.MessageUpdated(info=info):
                self._show_message(info)
            case events.PartUpdated(part=part):
                self._show_part(part)
            case events.PartDelta(part_id=part_id, delta=delta) if part_id in self._blocks:
                self._append(part_id, delta)
            case events.PartRemoved(part_id=part_id):
                self._running.pop(part_id, None)
                if self._blocks.pop(part_id, None) is not None and self._is_open(part_id):
                    self._close_line()
                    self.note("(incomplete; discarded)", 2)
            case events.SessionCreated(info=info) if info.get("parentID") in self._depths:
                self._depths[info["id"]] = self._depths[info["parentID"]] + 1
            case events.SessionStatus(session_id=session_id, status={"type": "retry"} as status) if (
                session_id in self._depths
            ):
                at = int(status.get("next", 0))
                clock = time.strftime("%H:%M:%S", time.localtime(at / 1000))
                wait = formatting.format_duration(max(at - ids.now_ms(), 0))
                self.note(f"! {status.get('message')}", 33)
                self.note(f"  attempt {int(status.get('attempt', 0)) + 1} at {clock}, in {wait}", 33)
            case events.SessionError(error=error) if error:
                self._show_failure(read_failure(error))
            case events.SessionCompacted(session_id=session_id) if session_id in self._depths:
                self.note("the conversation was compacted, because the context window was full", 2)
            case _:
                pass

    def _show_failure(self, failure: Failure) -> None:
        if not isinstance(failure, MessageAbortedError):
            self.error(f"! {getattr(failure, 'message', '') or type(failure).__name__}", 31)
        if isinstance(failure, APIError) and failure.status_code == 401:
            self.error("  The provider refused the key; 'opensesh auth login PROVIDER' stores another one.", 31)

    # -- messages and their parts --------------------------------------------------------------------------------------

    def _show_message(self, info: Document) -> None:
        if info["role"] == "assistant" and self._depths.get(info["sessionID"]) == 0 and not info.get("summary"):
            self._answers.add(info["id"])
            header = f"{info.get('agent')}  {info.get('providerID')}/{info.get('modelID')}"
            if header != self._header:
                self._header = header
                self.note(header, 2)

    def _show_part(self, part: Document) -> None:
        state = object_at(part, "state")
        match part.get("type"):
            case "text" | "reasoning" if part.get("messageID") in self._answers:
                block = self._blocks.setdefault(part["id"], _StreamedBlock(part["type"]))
                self._append(part["id"], part["text"][block.received :])
                if object_at(part, "time").get("end"):
                    self._end_block(part["id"])
            case "tool" if part.get("sessionID") in self._depths and state.get("status") == "running":
                if part["tool"] == "task" and part["id"] not in self._running:
                    self._show_tool_line(part, "", succeeded=True)
                self._running[part["id"]] = part
                self._show_status()
            case "tool" if part.get("sessionID") in self._depths and state.get("status") in ("completed", "error"):
                self._running.pop(part["id"], None)
                self._show_tool_line(part, *tool_outcome(part))
                if part.get("tool") == formatting.TODO_TOOL and state["status"] == "completed":
                    margin = "  " * (self._depths[part["sessionID"]] + 1)
                    for line in formatting.todo_lines(object_at(state, "input")):
                        self.note(output.clip(f"{margin}{line}", 200), 2, kind="tool")
            case _:
                pass

    def _append(self, part_id: str, delta: str) -> None:
        block = self._blocks[part_id]
        block.received += len(delta)
        block.unshown += delta
        stream = self._stream(block)
        shown = block.unshown.rstrip()
        if stream is None or not shown or not (stream.is_terminal or self._streams_answers):
            return
        block.unshown = block.unshown[len(shown) :]
        if not self._is_open(part_id):
            self._begin_lines(block.kind)
            self._open = part_id, stream
            shown = shown.lstrip("\n")
        shown = escape_control(shown) if stream.is_terminal else shown
        stream.write(stream.paint(shown, *((2,) if block.kind == "reasoning" else ())))

    def _end_block(self, part_id: str) -> None:
        block = self._blocks.pop(part_id)
        stream = self._stream(block)
        if stream is None:
            return
        if self._is_open(part_id):
            self._close_line()
        elif block.unshown.strip():
            self._begin_lines(block.kind)
            stream.write(block.unshown.strip("\n").rstrip() + "\n")
        self._show_status()

    def _stream(self, block: _StreamedBlock) -> Stream | None:
        """Return where a block goes: reasoning only to a terminal."""
        if block.kind == "text":
            return self._out
        return self._notes if self._notes.is_terminal else None

    def _show_tool_line(self, part: Document, outcome: str, succeeded: bool) -> None:
        self._begin_lines("tool")
        name = f"{'  ' * self._depths[part['sessionID']]}> {tool_label(part, self._directory)}"
        columns = max(self._notes.columns - 1, 20) if self._notes.is_terminal else 1000
        outcome = output.clip(outcome, columns - 2 - min(output.width(name), columns // 2))
        name = output.clip(name, columns - 2 - output.width(outcome))
        line = f"{self._notes.paint(name, 33)}  {self._notes.paint(outcome, 2 if succeeded else 31)}".rstrip()
        self._notes.write(line + "\n")
        self._show_status()

    # -- where the cursor is -------------------------------------------------------------------------------------------

    def _begin_lines(self, kind: str) -> None:
        """Begin a new line, after an empty one if the last lines were of another kind."""
        self._clear_status()
        self._close_line()
        if self._one_screen and self._last_kind and (kind != self._last_kind or kind == "text"):
            self._notes.write("\n")
        self._last_kind = kind

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
        """Show the newest running tool on a line that is erased later."""
        self._clear_status()
        if self._running and self._open is None and self._notes.can_erase:
            newest = list(self._running.values())[-1]
            text = output.clip(f"… {tool_label(newest, self._directory)}", max(self._notes.columns - 1, 10))
            self._notes.write(self._notes.paint(text, 2))
            self._has_status = True

    def _clear_status(self) -> None:
        if self._has_status:
            self._notes.write("\r\x1b[K")
            self._has_status = False

    def _safe(self, text: str) -> str:
        return escape_control(text) if self._notes.is_terminal else text


# -- tool calls in one line --------------------------------------------------------------------------------------------


def tool_label(part: Document, directory: str) -> str:
    """Return the tool and its subject, such as ``read src/a.py``, with paths relative to ``directory``."""
    tool, state = str(part.get("tool")), object_at(part, "state")
    tool_input = object_at(state, "input")
    match tool:
        case "invalid":
            return str(tool_input.get("tool"))
        case formatting.TODO_TOOL:
            subject = formatting.todo_progress(tool_input)
        case "task":
            subject = f"{tool_input.get('description', '')} (@{tool_input.get('subagent_type', '')})"
        case "grep" if isinstance(tool_input.get("path"), str):
            subject = f"{tool_input.get('pattern')} in {formatting.relative_path(tool_input['path'], directory)}"
        case _:
            subject = formatting.key_input(state)
            if formatting.main_argument(tool_input) in ("filePath", "path"):
                subject = formatting.relative_path(subject, directory)
    return f"{tool} {subject}".rstrip()


def tool_outcome(part: Document) -> tuple[str, bool]:
    """Return how a finished call went (exit code, changed lines, duration), and whether it succeeded."""
    state = object_at(part, "state")
    span = object_at(state, "time")
    metadata = object_at(state, "metadata")
    duration = formatting.format_duration(span.get("end", 0) - span.get("start", 0))
    if part.get("tool") == "invalid":
        return str(object_at(state, "input").get("error")), False
    if state.get("status") == "error":
        return f"{duration}  {str(state.get('error', '')).removeprefix('Error: ')}", False
    code = metadata.get("exit")
    changes = as_object(metadata.get("filediff"))
    facts = [f"exit {code}"] if isinstance(code, int) and code else []
    facts += [f"+{changes.get('additions', 0)} -{changes.get('deletions', 0)}"] if changes else []
    return "  ".join([*facts, duration]), not code
