"""The content of a message of OpenCode 2.x, as parts in the format of 1.x.

Nothing is dropped: what a part of 1.x has no field for stands under ``v2``, by its own name, and what has no
counterpart at all becomes a part of its own type with the original under ``data``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ...records import PART_TYPES, object_at
from ...records.codec import as_list, as_object, dumps_compact
from ..keys import made_part
from .rows import known

if TYPE_CHECKING:
    from ...records import Document


class During(NamedTuple):
    """The time of a message, for its parts without a time of their own."""

    start: int
    end: int | None


class Parts:
    """The parts of one message, numbered as they are added.

    A part's identifier is the message's with its number: the same on every reading, in order by name, and near the
    message's time for those who decode it. ``-`` sorts before all else that identifiers are made of, so a derived name
    comes before the next name that does not derive from it.
    """

    def __init__(self, session_id: str, message_id: str) -> None:
        self.session_id = session_id
        self.message_id = message_id
        self.documents: list[Document] = []

    @property
    def next_id(self) -> str:
        """The id of the next part."""
        return made_part(self.message_id, len(self.documents))

    def add(self, kind: str, fields: Document, rest: Document | None = None) -> None:
        """Add a part; ``rest`` are values without a field in 1.x."""
        self.documents.append({**self.head(self.next_id, kind), **known(fields), **({"v2": rest} if rest else {})})

    def keep(self, kind: object, data: Any) -> None:
        """Add an item without a counterpart in 1.x, as it is and under its own type."""
        # Never under a type of 1.x, whose fields readers would expect.
        name = kind if isinstance(kind, str) and kind else "unknown"
        self.add(f"v2-{name}" if name in PART_TYPES else name, {"data": data})

    def head(self, part_id: str, kind: str) -> Document:
        """The fields that every part begins with."""
        return {"id": part_id, "sessionID": self.session_id, "messageID": self.message_id, "type": kind}


def add_content(parts: Parts, items: list[Any], during: During) -> None:
    """Add the content of an assistant message: text, reasoning, tool calls. ``during`` are the times of the message."""
    for value in items:
        item = as_object(value) or {}
        match item:
            case {"type": "text", "text": str()}:
                rest = _without(item, "type", "text")
                parts.add("text", {"text": item["text"], "metadata": _provider_state(rest)}, rest)
            case {"type": "reasoning", "text": str()}:
                _add_reasoning(parts, item, during)
            case {"type": "tool", "id": str(), "name": str(), "state": {"status": str()}}:
                _add_tool(parts, item, during)
            case _:
                parts.keep(item.get("type"), value)


def add_attachments(parts: Parts, data: Document) -> None:
    """Add the files, mentioned agents and skills of a prompt, and remove them from ``data``."""
    for item in take_list(data, "files"):
        file = as_object(item)
        if file is None or not isinstance(file.get("mime"), str):
            parts.keep("file", item)
        else:
            _add_file(parts, file)
    for item in take_list(data, "agents"):
        agent = as_object(item)
        if agent is None or not isinstance(agent.get("name"), str):
            parts.keep("agent", item)
        else:
            rest = _without(agent, "name")
            parts.add("agent", {"name": agent["name"], "source": _mention(rest)}, rest)
    for item in take_list(data, "skills"):
        parts.keep("skill", item)


def add_shell(parts: Parts, data: Document, during: During) -> None:
    """Add a command that the user ran, in 1.x a call of the ``bash`` tool, and remove it from ``data``."""
    data |= take_object(data, "shell") or {}
    call = data.pop("shellID", None) or data.pop("callID", None)
    command, status, code = data.pop("command", None), data.pop("status", None), data.pop("exit", None)
    stored = data.pop("output", None)
    about = as_object(stored)
    output = str((about.get("output") if about is not None else stored) or "")
    state: Document = {"status": "running", "input": {"command": str(command or "")}}
    if status == "running" or (status is None and during.end is None):
        state |= known({"metadata": {"output": output} if output else None, "time": {"start": during.start}})
    else:
        metadata = known({"output": output, "description": "", "exit": code, "status": status})
        state |= {"status": "completed", "output": output, "title": "", "metadata": metadata}
        state["time"] = {"start": during.start, "end": during.start if during.end is None else during.end}
    fields = {"callID": str(call or ""), "tool": "bash", "state": state}
    parts.add("tool", fields, {"output": _without(about, "output")} if about else None)


def take_object(data: Document, *names: str) -> Document | None:
    """Remove the first of ``names`` that is an object from ``data`` and return it."""
    for name in names:
        if as_object(data.get(name)) is not None:
            return data.pop(name)
    return None


def take_list(data: Document, name: str) -> list[Any]:
    """Remove an array from ``data`` and return it; an empty one if there is none."""
    return data.pop(name) if as_list(data.get(name)) is not None else []


def moment(time: Document | None, *names: str) -> int | None:
    """Return the first of ``names`` that is a number, in whole milliseconds."""
    for name in names:
        value = (time or {}).get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e15:
            return int(value)
    return None


def _add_reasoning(parts: Parts, item: Document, during: During) -> None:
    rest = _without(item, "type", "text")
    time = take_object(rest, "time") or {}
    start, end = moment(time, "created"), moment(time, "completed")
    if start is None:
        start, end = during
    if beyond := _without(time, "created", "completed"):
        rest["time"] = beyond
    fields = {"text": item["text"], "metadata": _provider_state(rest), "time": known({"start": start, "end": end})}
    parts.add("reasoning", fields, rest)


def _add_tool(parts: Parts, item: Document, during: During) -> None:
    rest = _without(item, "type", "id", "name", "state")
    time = take_object(rest, "time") or {}
    state = _tool_state(parts, item["state"], time, during)
    if state is None:
        parts.keep("tool", item)
        return
    before = object_at(rest, "provider")
    metadata = _provider_state(rest) or as_object(before.get("metadata"))
    if rest.pop("executed", None) or before.get("executed"):
        metadata = {**(metadata or {}), "providerExecuted": True}
    if state["status"] == "pending" or time.keys() - {"created", "completed"}:
        rest |= known({"time": time or None})
    parts.add("tool", {"callID": item["id"], "tool": item["name"], "state": state, "metadata": metadata}, rest)


def _tool_state(parts: Parts, stored: Document, time: Document, during: During) -> Document | None:
    """Return the state in the format of 1.x, or ``None`` for one that 1.x does not have."""
    rest = _without(stored, "status", "input")
    arguments = stored.get("input")
    state: Document = {"status": stored["status"], "input": as_object(arguments) or {}}
    if arguments is not None and as_object(arguments) is None:
        rest["input"] = arguments
    start = moment(time, "ran", "created") or during.start
    end = moment(time, "completed") or during.end or start
    match stored["status"]:
        case "streaming" | "pending":
            state |= {"status": "pending", "raw": rest.pop("input") if isinstance(arguments, str) else ""}
        case "running":
            state |= {"metadata": take_object(rest, "metadata", "structured"), "time": {"start": start}}
        case "completed":
            state |= _completed(parts, rest) | {"time": {"start": start, "end": end}}
            state |= {"attachments": state.pop("attachments")}
        case "error":
            state |= _failed(rest) | {"time": {"start": start, "end": end}}
        case _:
            return None
    return known({**state, "v2": rest or None})


def _completed(parts: Parts, rest: Document) -> Document:
    bare = "structured" in rest
    metadata = take_object(rest, "metadata", "structured") or {}
    items = take_list(rest, "content")
    output, files = _output(items)
    if not all(map(_has_fields, items)):
        rest["content"] = items
    if bare and not items:
        output = [dumps_compact(rest.get("result", rest.get("structured", metadata))).decode()]
    attachments = [
        parts.head(f"{parts.next_id}-{number:02d}", "file")
        | known({"mime": file.get("mime", ""), "filename": file.get("name"), "url": file["uri"]})
        for number, file in enumerate(files)
    ]
    return {"output": "\n".join(output), "title": "", "metadata": metadata, "attachments": attachments or None}


def _failed(rest: Document) -> Document:
    error = rest.get("error")
    about = as_object(error)
    message = str(about.get("message", "")) if about is not None else str(error or "")
    if about is None:
        rest.pop("error", None)
    metadata = take_object(rest, "metadata", "structured")
    output, _ = _output(as_list(rest.get("content")) or [])
    if output and "output" not in (metadata or {}):
        metadata = {**(metadata or {}), "output": "\n".join(output)}
    return {"error": message, "metadata": metadata}


def _output(items: list[Any]) -> tuple[list[str], list[Document]]:
    objects = [as_object(item) or {} for item in items]
    texts = [item["text"] for item in objects if item.get("type") == "text" and isinstance(item.get("text"), str)]
    files = [item for item in objects if item.get("type") == "file" and isinstance(item.get("uri"), str)]
    return texts, files


def _has_fields(item: Any) -> bool:
    """Return whether 1.x has a field for everything in an item of a result."""
    match item:
        case {"type": "text", "text": str(), **more}:
            return not more
        case {"type": "file", "uri": str(), **more}:
            return more.keys() <= {"mime", "name"}
        case _:
            return False


def _add_file(parts: Parts, file: Document) -> None:
    rest = _without(file, "mime", "name")
    origin = object_at(file, "source")
    uri = origin.get("uri", file.get("uri"))
    if isinstance(data := rest.get("data"), str):
        url = f"data:{file['mime']};base64,{data}"
        del rest["data"]
    else:
        url = uri if isinstance(uri, str) else ""
    if origin.get("type") in ("uri", "inline"):
        del rest["source"]
    if url == rest.get("uri"):
        del rest["uri"]
    mention = _mention(rest)
    source = _file_source(uri, mention) if isinstance(uri, str) or mention else None
    parts.add("file", {"mime": file["mime"], "filename": file.get("name"), "url": url, "source": source}, rest)


def _file_source(uri: object, mention: Document | None) -> Document:
    from urllib.parse import unquote, urlsplit

    source_text = mention or {"value": "", "start": 0, "end": 0}
    if not isinstance(uri, str):
        return {"text": source_text, "type": "file", "path": source_text["value"].removeprefix("@")}
    if uri.startswith("file:"):
        return {"text": source_text, "type": "file", "path": unquote(urlsplit(uri).path)}
    return {"text": source_text, "type": "resource", "clientName": "", "uri": uri}


def _mention(rest: Document) -> Document | None:
    """Return where the prompt mentions a file: ``mention`` in 2.x, ``source`` in its previews."""
    for name in ("mention", "source"):
        match rest.get(name):
            case {"start": int(start), "end": int(end), "text": str(value)}:
                del rest[name]
                return {"value": value, "start": start, "end": end}
            case _:
                continue
    return None


def _provider_state(rest: Document) -> Document | None:
    """Return what must be sent back to a provider: ``metadata`` in 1.x, several names in 2.x."""
    return take_object(rest, "state", "providerState", "native", "providerMetadata")


def _without(document: Document, *names: str) -> Document:
    return {name: value for name, value in document.items() if name not in names}
