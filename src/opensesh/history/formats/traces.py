"""Hugging Face's Session Trace Simple Format: a header line, then a line a message, for the trace viewer of the Hub.

Mapped are, of the session, ``id``, ``name`` (its title) and ``harness`` (``opencode``); as further metadata, which the
Hub ignores, ``cwd``, ``timestamp``, ``version`` and ``parentId``. Of a message ``role``, ``content`` (its text),
``reasoningContent``, ``toolCalls`` with their arguments, ``timestamp`` and ``model``. A tool's answer, or its error, is
a message of the role ``tool`` right behind the one that called it. A file holds one session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...records import as_object, dumps_compact
from .words import text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...records import Document
    from ...storage.store import StoredMessage
    from . import Exported, Options


class Traces:
    """STS-Format."""

    suffix = ".jsonl"
    together = None
    nests = False
    reads = None

    def __init__(self, options: Options) -> None:
        self._reasoning = options.reasoning

    def pieces(self, session: Exported) -> Iterator[bytes]:
        """The header, then the messages."""
        info = session.info
        header: Document = {
            "type": "session",
            "harness": "opencode",
            "id": session.id,
            "name": text(info, "title"),
            "cwd": text(info, "directory"),
            "timestamp": (as_object(info.get("time")) or {}).get("created"),
            "version": text(info, "version"),
        }
        if text(info, "parentID"):
            header["parentId"] = info["parentID"]
        yield dumps_compact(header) + b"\n"
        for message in session.messages:
            for line in self._messages(message):
                yield dumps_compact({"type": "message", "message": line}) + b"\n"

    def _messages(self, message: StoredMessage) -> Iterator[Document]:
        info, tools = message.info, [part for part in message.parts if part.get("type") == "tool"]
        line: Document = {
            "role": "assistant" if info.get("role") == "assistant" else "user",
            "content": _joined(message.parts, "text"),
        }
        reasoning = _joined(message.parts, "reasoning") if self._reasoning else ""
        if reasoning:
            line["reasoningContent"] = reasoning
        if tools:
            line["toolCalls"] = [_call(part) for part in tools]
        moment = (as_object(info.get("time")) or {}).get("created")
        if isinstance(moment, (int, float)):
            line["timestamp"] = int(moment)
        if text(info, "modelID"):
            line["model"] = info["modelID"]
        if line["content"] or reasoning or tools:
            yield line
        for part in tools:
            yield from _result(part)


def _joined(parts: list[Document], kind: str) -> str:
    texts = (text(part, "text") for part in parts if part.get("type") == kind and not part.get("ignored"))
    return "\n\n".join(filter(None, texts))


def _call(part: Document) -> Document:
    given = (as_object(part.get("state")) or {}).get("input")
    arguments = dumps_compact(given if given is not None else {}).decode(errors="replace")
    return {"id": _call_id(part), "function": {"name": text(part, "tool"), "arguments": arguments}}


def _result(part: Document) -> Iterator[Document]:
    state = as_object(part.get("state")) or {}
    said = {"completed": text(state, "output"), "error": text(state, "error")}.get(text(state, "status"))
    if said is None:
        return
    line: Document = {"role": "tool", "toolCallId": _call_id(part), "content": said}
    moment = (as_object(state.get("time")) or {}).get("end")
    if isinstance(moment, (int, float)):
        line["timestamp"] = int(moment)
    yield line


def _call_id(part: Document) -> str:
    return text(part, "callID") or text(part, "id")
