"""Transcript of a session: its messages as blocks to read, the only interpretation of parts for display and export.

By default it contains texts, and tool calls with their main argument and error. Reasoning, tool output, synthetic text,
files and markers (snapshots, patches, steps, compactions) are included on request. Records with missing fields, or of a
newer version, are read as far as possible.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ..errors import RecordError
from ..records import Document, as_amount, as_list, as_object, as_time, as_whole, object_at, objects_in, read_failure
from ..storage.protocol import Damage, StoredMessage
from .formatting import TODO_TOOL, key_input, strip_colors, text, todo_lines, todo_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ..storage.protocol import Report

    Children = Callable[[str], "Transcript | None"]


_USER_DECISIONS = {
    "(?i)the user dismissed th(is|e) question": "skipped",
    "The user (rejected permission|refused this use) ": "denied",
    r"(?s)[\w-]+ was not allowed for .*: the user refused it$": "denied",
    "Tool execution aborted": "stopped",
}
"""The errors that OpenCode and opensesh store with a call that the user ended, as patterns."""


class TranscriptOptions(NamedTuple):
    """The optional content of a transcript, besides texts and tool calls."""

    reasoning: bool = False
    outputs: bool = False
    """Output of tools."""
    synthetic: bool = False
    """Text that the program added to a prompt."""
    files: bool = False
    markers: bool = False
    """Snapshots, patches, steps, compactions, retries, and parts of unknown types."""

    @classmethod
    def everything(cls) -> TranscriptOptions:
        """Return options that include everything."""
        return cls(*[True] * len(cls._fields))


class TextBlock(NamedTuple):
    """Text, usually Markdown."""

    text: str
    synthetic: bool = False
    id: str = ""
    """The id of its part, as in every block."""
    duration: int | None = None
    """Milliseconds from its first to its last character, once it has ended."""


class ReasoningBlock(NamedTuple):
    """Reasoning of the model."""

    text: str
    duration: int | None = None
    """Milliseconds from its first to its last character."""
    id: str = ""


class ToolBlock(NamedTuple):
    """A tool call."""

    tool: str
    subject: str
    """The main argument: a path, a command, a pattern."""
    status: str
    """pending, running, completed or error."""
    input: Document
    error: str = ""
    output: str = ""
    """Empty unless requested."""
    diff: str = ""
    """The changes it made, as a unified diff, if recorded."""
    todos: str = ""
    """The todo list that it wrote, a line for each entry with its state."""
    session: str = ""
    """The session of the subagent that it started."""
    child: Transcript | None = None
    """The transcript of that session, if requested."""
    started: int | None = None
    """Milliseconds since 1970."""
    duration: int | None = None
    """Milliseconds; ``None`` until it has ended."""
    exit_code: int | None = None
    """The exit code of the command that it ran."""
    attachments: tuple[FileBlock, ...] = ()
    """Files that it returned besides its output."""
    id: str = ""

    @property
    def user_decision(self) -> str:
        """The decision of the user that ended the call: ``skipped`` (a question), ``denied`` or ``stopped``.

        Empty if the call ended in another way.
        """
        reason = self.error.removeprefix("Error: ") if self.status == "error" else ""
        return next((word for pattern, word in _USER_DECISIONS.items() if re.match(pattern, reason)), "")


class FileBlock(NamedTuple):
    """A file attached to a prompt, or returned by a tool."""

    mime: str
    name: str
    url: str
    """Its location, or its content as a ``data:`` URL."""
    id: str = ""


class SubtaskBlock(NamedTuple):
    """A task that the user gave to a subagent."""

    agent: str
    text: str
    id: str = ""


class MarkerBlock(NamedTuple):
    """A part that is neither text, tool call nor file."""

    kind: str
    text: str = ""
    id: str = ""


Block: TypeAlias = TextBlock | ReasoningBlock | ToolBlock | FileBlock | SubtaskBlock | MarkerBlock


class TranscriptMessage(NamedTuple):
    """One message."""

    id: str
    role: str
    """user or assistant."""
    created: int
    agent: str
    model: str
    blocks: tuple[Block, ...]
    failure: str = ""
    """The error that ended it, if any."""
    is_aborted: bool = False
    """Whether the user or the end of the program stopped it, which ``failure`` says."""
    cost: float = 0.0
    tokens: int = 0
    completed: int | None = None
    """When the answer was complete."""
    is_summary: bool = False
    """Whether it is the summary of a compaction."""
    summarised: tuple[int, int] = (0, 0)
    """The tokens that the model read for the summary, and those of the summary."""


class Transcript(NamedTuple):
    """The transcript of a session, or of its last messages."""

    session: str
    title: str
    messages: tuple[TranscriptMessage, ...]
    """The messages that have a block or an error."""


def transcript(
    info: Document,
    messages: Iterable[StoredMessage],
    options: TranscriptOptions | None = None,
    *,
    children: Children | None = None,
    report: Report | None = None,
) -> Transcript:
    """Return the transcript of a session's messages.

    ``children`` returns the transcript of a subagent session; without it they are left out. Parts without a valid type
    or text are passed to ``report``.
    """
    return Transcript(
        text(info, "id"), text(info, "title"), tuple(transcript_messages(messages, options, children, report))
    )


def transcript_messages(
    messages: Iterable[StoredMessage],
    options: TranscriptOptions | None = None,
    children: Children | None = None,
    report: Report | None = None,
) -> Iterator[TranscriptMessage]:
    """Yield the messages of a transcript while they are read; see :func:`transcript`."""
    reader = _TranscriptReader(options or TranscriptOptions(), children, report)
    for message in messages:
        entry = reader.message(message)
        if entry.blocks or entry.failure:
            yield entry


def transcript_message(message: StoredMessage, options: TranscriptOptions | None = None) -> TranscriptMessage:
    """Return one message, also one without blocks."""
    return _TranscriptReader(options or TranscriptOptions(), None, None).message(message)


def part_block(part: Document) -> Block | None:
    """Return the block of one part; ``None`` if it has nothing to show."""
    return next(_TranscriptReader(TranscriptOptions.everything(), None, None).blocks(part), None)


class _TranscriptReader:
    def __init__(self, options: TranscriptOptions, children: Children | None, report: Report | None) -> None:
        self._options = options
        self._children = children
        self._report = report

    def message(self, message: StoredMessage) -> TranscriptMessage:
        info = message.info
        is_answer = info.get("role") == "assistant"
        model = info if is_answer else object_at(info, "model")
        tokens = object_at(info, "tokens")
        cached = object_at(tokens, "cache")
        time = object_at(info, "time")
        counts = [*(tokens.get(name) for name in ("input", "output", "reasoning")), *map(cached.get, ("read", "write"))]
        return TranscriptMessage(
            id=text(info, "id"),
            role="assistant" if is_answer else "user",
            created=as_time(time.get("created")),
            agent=text(info, "agent") or text(info, "mode"),
            model="/".join(filter(None, (text(model, "providerID"), text(model, "modelID")))),
            blocks=tuple(block for part in message.parts for block in self.blocks(part)),
            failure=_failure(info),
            is_aborted=object_at(info, "error").get("name") == "MessageAbortedError",
            cost=as_amount(info.get("cost")),
            tokens=sum(map(as_whole, counts)),
            completed=as_time(time.get("completed")) or None,
            is_summary=is_answer and info.get("summary") is True,
            summarised=(sum(map(as_whole, (counts[0], *counts[3:]))), as_whole(counts[1])),
        )

    def blocks(self, part: Document) -> Iterator[Block]:
        match part.get("type"):
            case "text" | "reasoning":
                yield from self._text(part)
            case "tool":
                yield self._tool_call(part)
            case "file":
                if self._options.files:
                    yield _file(part)
            case "subtask":
                yield SubtaskBlock(
                    text(part, "agent"), text(part, "description") or text(part, "prompt"), text(part, "id")
                )
            case str(kind):
                if self._options.markers:
                    marker_texts = {
                        "patch": ", ".join(map(str, as_list(part.get("files")) or ())),
                        "agent": text(part, "name"),
                        "compaction": "automatic" if part.get("auto") else "requested",
                        "retry": f"attempt {part.get('attempt')}",
                    }
                    yield MarkerBlock(kind, marker_texts.get(kind, ""), text(part, "id"))
            case _:
                self._report_damage(part, "$.type: expected text")

    def _text(self, part: Document) -> Iterator[TextBlock | ReasoningBlock]:
        content, synthetic = part.get("text"), bool(part.get("synthetic") or part.get("ignored"))
        if not isinstance(content, str):
            self._report_damage(part, "$.text: expected text")
        elif not content.strip():
            return
        elif part.get("type") == "reasoning":
            if self._options.reasoning:
                yield ReasoningBlock(content, duration(part), text(part, "id"))
        elif self._options.synthetic or not synthetic:
            yield TextBlock(content, synthetic, text(part, "id"), duration(part))

    def _tool_call(self, part: Document) -> ToolBlock:
        state = object_at(part, "state")
        metadata = object_at(state, "metadata")
        tool_input = object_at(state, "input")
        is_todo_list = part.get("tool") == TODO_TOOL
        session = text(metadata, "sessionId") or text(metadata, "sessionID")
        exit_code = metadata.get("exit")
        return ToolBlock(
            tool=text(part, "tool"),
            subject=todo_progress(tool_input) if is_todo_list else key_input(state),
            status=text(state, "status"),
            input=tool_input,
            error=strip_colors(text(state, "error")),
            output=strip_colors(text(state, "output")) if self._options.outputs else "",
            diff=text(metadata, "diff"),
            todos="\n".join(todo_lines(tool_input)) if is_todo_list else "",
            session=session,
            child=self._children(session) if self._children and session else None,
            started=as_time(object_at(state, "time").get("start")) or None,
            duration=duration(state),
            exit_code=exit_code if isinstance(exit_code, int) and not isinstance(exit_code, bool) else None,
            attachments=tuple(map(_file, filter(None, objects_in(state.get("attachments"))))),
            id=text(part, "id"),
        )

    def _report_damage(self, part: Document, reason: str) -> None:
        if self._report is not None:
            self._report(Damage(str(part.get("id")), reason))


def _file(part: Document) -> FileBlock:
    return FileBlock(text(part, "mime"), text(part, "filename"), text(part, "url"), text(part, "id"))


def duration(record: Document) -> int | None:
    """Return the milliseconds between ``time.start`` and ``time.end`` of a record."""
    time = object_at(record, "time")
    start, end = as_time(time.get("start")), as_time(time.get("end"))
    return end - start if start and end >= start else None


def _failure(info: Document) -> str:
    error = as_object(info.get("error"))
    if error is None:
        return ""
    if error.get("name") == "MessageOutputLengthError":
        return "the answer was cut off"
    try:
        message = getattr(read_failure(error), "message", "")
    except RecordError:
        message = ""
    return message or text(error, "name") or "an error that cannot be read"
