"""Hugging Face's Session Trace Simple Format: a header line, then a line a message, for the trace viewer of the Hub.

Of the session, ``id``, ``name`` (its title) and ``harness`` (``opencode``) are mapped; as further metadata, which the
Hub ignores, ``cwd``, ``timestamp``, ``version`` and ``parentId``. Of a message ``role``, ``content`` (its texts, and
the names of files that came with them, for which the format has no field), ``reasoningContent``, ``toolCalls`` with
their arguments, ``timestamp`` and ``model``. A tool's answer, or its error, is a message of the role ``tool`` right
behind the one that called it. What has no value is left out. A file holds one session, and in it every call has a
name of its own, even where the provider gave two the same: by it the viewer finds the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...records import as_object, dumps_compact
from ..formatting import text, tool_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...records import Document
    from ...storage.protocol import StoredMessage
    from . import ExportedSession, FormatOptions


class TracesFormat:
    """STS-Format."""

    suffix = ".jsonl"
    together = None
    nests = False
    reads = None

    def __init__(self, options: FormatOptions) -> None:
        self._reasoning = options.reasoning
        self._tools = options.tools

    def pieces(self, session: ExportedSession) -> Iterator[bytes]:
        """The header, then the messages."""
        info = session.info
        header: Document = {
            "type": "session",
            "harness": "opencode",
            "id": session.id,
            "name": text(info, "title"),
            "cwd": text(info, "directory"),
            "timestamp": _moment(info, "created"),
            "version": text(info, "version"),
            "parentId": text(info, "parentID"),
        }
        yield dumps_compact(_said(header)) + b"\n"
        taken: set[str] = set()
        for message in session.messages:
            for line in self._messages(message, taken):
                yield dumps_compact({"type": "message", "message": line}) + b"\n"

    def _messages(self, message: StoredMessage, taken: set[str]) -> Iterator[Document]:
        info = message.info
        answers = info.get("role") == "assistant"
        tools = [part for part in message.parts if part.get("type") == "tool"] if answers and not self._tools else []
        names = [_name(part, taken) for part in tools]
        content = "\n\n".join(filter(None, (self._words(part) for part in message.parts)))
        line: Document = {
            "role": "assistant" if answers else "user",
            "content": content,
            "reasoningContent": _thoughts(message.parts) if self._reasoning else "",
            "toolCalls": [_call(part, name) for part, name in zip(tools, names, strict=True)],
            "timestamp": _moment(info, "created"),
            "model": text(info, "modelID"),
        }
        if content or line["reasoningContent"] or tools:
            yield {"role": line.pop("role"), "content": line.pop("content"), **_said(line)}
        for part, name in zip(tools, names, strict=True):
            yield from _result(part, name)

    def _words(self, part: Document) -> str:
        match part.get("type"):
            case "text" if not part.get("ignored"):
                return text(part, "text")
            case "file":
                return f"[attached: {text(part, 'filename') or text(part, 'mime') or 'a file'}]"
            case "tool" if self._tools == "summary":
                return tool_line(part)
            case _:
                return ""


def _said(line: Document) -> Document:
    """A line without what has no value."""
    return {name: value for name, value in line.items() if value or value == 0}


def _thoughts(parts: list[Document]) -> str:
    return "\n\n".join(filter(None, (text(part, "text") for part in parts if part.get("type") == "reasoning")))


def _moment(held: Document, name: str) -> int | None:
    moment = (as_object(held.get("time")) or {}).get(name)
    return int(moment) if isinstance(moment, (int, float)) and not isinstance(moment, bool) else None


def _name(part: Document, taken: set[str]) -> str:
    """What a call is known by: as the provider called it, unless another call of the session is called so."""
    name = text(part, "callID")
    if not name or name in taken:
        name = text(part, "id")
    taken.add(name)
    return name


def _call(part: Document, name: str) -> Document:
    given = (as_object(part.get("state")) or {}).get("input")
    arguments = dumps_compact(given if given is not None else {}).decode(errors="replace")
    return {"id": name, "function": {"name": text(part, "tool"), "arguments": arguments}}


def _result(part: Document, name: str) -> Iterator[Document]:
    state = as_object(part.get("state")) or {}
    said = {"completed": text(state, "output"), "error": text(state, "error")}.get(text(state, "status"))
    if said is None:
        return
    ended = _moment(state, "end")
    line: Document = {"role": "tool", "toolCallId": name, "content": said}
    yield line if ended is None else line | {"timestamp": ended}
