"""JSON Lines formats: conversations, and Hugging Face's session traces.

:class:`JsonlFormat` writes one line a session. The fields, in this order: ``session_id``, ``project_hash``,
``start_time``, ``last_updated``, ``source``, ``messages``; of each message ``role``, ``timestamp``, ``model``,
``content``, ``thoughts``, ``tokens``; of each thought ``subject``, ``description``, ``timestamp``. Times are ISO 8601
in UTC. ``content`` is all text of the message, concatenated; missing values are ``null``. Not lossless: tools, files
and structure are not exported.

:class:`TracesFormat` writes Hugging Face's Session Trace Simple Format, for the trace viewer of the Hub: a header line,
then a line a message. Of the session it has ``id``, ``name`` (the title), ``harness`` (``opencode``) and, as metadata
that the Hub ignores, ``cwd``, ``timestamp``, ``version`` and ``parentId``. Of a message ``role``, ``content`` (the
texts, and the names of attached files, for which the format has no field), ``reasoningContent``, ``toolCalls`` with
their arguments, ``timestamp`` and ``model``. The result of a tool, or its error, is a message of the role ``tool``
after the one that called it. Fields without a value are left out. A file holds one session; each call in it has a
unique id, even if the provider used one twice, because the viewer finds results by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...records import Document, dumps_compact, object_at
from ..formatting import iso, text, time_of, tool_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from . import ExportedSession, FormatOptions


class JsonlFormat:
    """One conversation a line."""

    suffix = ".jsonl"
    delimiters = (b"", b"", b"")
    nests = False

    def __init__(self, options: FormatOptions) -> None:
        self._summarise = options.tools == "summary"
        self.part_types = frozenset(("text", "reasoning", "tool") if self._summarise else ("text", "reasoning"))

    def chunks(self, session: ExportedSession) -> Iterator[bytes]:
        """Render one line, with its newline."""
        time = object_at(session.info, "time")
        head: Document = {
            "session_id": session.id,
            "project_hash": text(session.info, "projectID") or session.project,
            "start_time": iso(time.get("created")),
            "last_updated": iso(time.get("updated", time.get("created"))),
            "source": "opencode",
            "messages": [],
        }
        yield dumps_compact(head)[:-2]
        between = b""
        for message in session.messages:
            info = message.info
            time = object_at(info, "time")
            thoughts: list[Document] = []
            for part in message.parts:
                if part.get("type") == "reasoning":
                    subject = object_at(part, "metadata").get("subject")
                    started = object_at(part, "time").get("start", time.get("created"))
                    thought: Document = {"subject": "Thinking" if subject is None else subject}
                    thoughts.append(thought | {"description": text(part, "text"), "timestamp": iso(started)})
            line: Document = {
                "role": info.get("role"),
                "timestamp": iso(time.get("created")),
                "model": info.get("modelID"),
                "content": self._content(message.parts),
                "thoughts": thoughts,
                "tokens": info.get("tokens"),
            }
            yield between + dumps_compact(line)
            between = b","
        yield b"]}\n"

    def _content(self, parts: list[Document]) -> str:
        content = ""
        for part in parts:
            if part.get("type") == "text":
                # A reminder that the engine added is a line of its own, not the end of the user's last word.
                is_reminder = part.get("synthetic") and text(part, "text").startswith("<system-reminder>")
                content += ("\n" if is_reminder and content and not content.endswith("\n") else "") + text(part, "text")
            elif part.get("type") == "tool" and self._summarise:
                content += ("\n" if content and not content.endswith("\n") else "") + tool_line(part) + "\n"
        return content


class TracesFormat:
    """Hugging Face's Session Trace Simple Format."""

    suffix = ".jsonl"
    delimiters = None
    nests = False
    part_types = None

    def __init__(self, options: FormatOptions) -> None:
        self._reasoning = options.reasoning
        self._tools = options.tools

    def chunks(self, session: ExportedSession) -> Iterator[bytes]:
        """Render the header and the messages, a line each."""
        info = session.info
        header: Document = {
            "type": "session",
            "harness": "opencode",
            "id": session.id,
            "name": text(info, "title"),
            "cwd": text(info, "directory"),
            "timestamp": time_of(info, "created"),
            "version": text(info, "version"),
            "parentId": text(info, "parentID"),
        }
        yield dumps_compact(_without_empty(header)) + b"\n"
        used_ids: set[str] = set()
        for message in session.messages:
            info, parts = message.info, message.parts
            is_answer = info.get("role") == "assistant"
            tools = [part for part in parts if part.get("type") == "tool"] if is_answer and not self._tools else []
            calls, lines = _calls_and_results(tools, used_ids)
            content = "\n\n".join(filter(None, (self._content(part) for part in parts)))
            reasoning = filter(None, (text(part, "text") for part in parts if part.get("type") == "reasoning"))
            line: Document = {
                "reasoningContent": "\n\n".join(reasoning) if self._reasoning else "",
                "toolCalls": calls,
                "timestamp": time_of(info, "created"),
                "model": text(info, "modelID"),
            }
            if content or line["reasoningContent"] or tools:
                role = "assistant" if is_answer else "user"
                lines.insert(0, {"role": role, "content": content, **_without_empty(line)})
            for one in lines:
                yield dumps_compact({"type": "message", "message": one}) + b"\n"

    def _content(self, part: Document) -> str:
        match part.get("type"):
            case "text" if not part.get("ignored"):
                return text(part, "text")
            case "file":
                return f"[attached: {text(part, 'filename') or text(part, 'mime') or 'a file'}]"
            case "tool" if self._tools == "summary":
                return tool_line(part)
            case _:
                return ""


def _without_empty(line: Document) -> Document:
    """Return a line without the fields that have no value."""
    return {name: value for name, value in line.items() if value or value == 0}


def _calls_and_results(tools: list[Document], used_ids: set[str]) -> tuple[list[Document], list[Document]]:
    """Return the calls of a message, and a line for each result. The ids of the calls are added to ``used_ids``."""
    calls: list[Document] = []
    results: list[Document] = []
    for part in tools:
        call_id = text(part, "callID")
        if not call_id or call_id in used_ids:
            call_id = text(part, "id")
        used_ids.add(call_id)
        state = object_at(part, "state")
        tool_input: Any = state.get("input")
        arguments = dumps_compact(tool_input if tool_input is not None else {}).decode(errors="replace")
        calls.append({"id": call_id, "function": {"name": text(part, "tool"), "arguments": arguments}})
        content = {"completed": text(state, "output"), "error": text(state, "error")}.get(text(state, "status"))
        if content is not None:
            ended = time_of(state, "end")
            line: Document = {"role": "tool", "toolCallId": call_id, "content": content}
            results.append(line if ended is None else line | {"timestamp": ended})
    return calls, results
