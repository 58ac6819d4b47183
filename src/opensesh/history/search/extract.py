"""Extract what is searched from records: texts by field, and the files that they name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from zlib import crc32

from ...ids import LATEST_MS

if TYPE_CHECKING:
    from ...records import Document

COLUMNS = ("said", "tool", "input", "output", "error", "paths")
"""The fields of a part in the full-text table. Search results name them, so their names do not change."""

_PATH_INPUTS = ("filePath", "file_path", "path", "notebook_path", "filepath")
_PATCHED_FILE = re.compile(r"^\*\*\* (?:Add|Update|Delete|Move to)(?: File)?: (.+)$", re.MULTILINE)
_MAX_DEPTH = 40


class ExtractedText(NamedTuple):
    """The searchable content of a part."""

    kind: str
    """prompt, answer, context, reasoning, tool, file, patch, subtask, retry, error or title."""
    fields: tuple[str, str, str, str, str, str]
    """The texts of the part, in the order of :data:`COLUMNS`."""
    paths: tuple[str, ...] = ()
    """Files that it read, wrote, changed or attached."""
    tool: str = ""
    time: int = 0
    """Milliseconds; 0 if only the message has a time."""
    unfinished: bool = False
    """Whether it may still change in place."""


TYPES_OF_KINDS = {"prompt": "text", "answer": "text", "context": "text"}
"""The types of parts whose kinds have other names."""


def of_part(part: Document, role: str) -> ExtractedText | None:
    """Extract the content of a part; ``None`` if there is nothing to search."""
    text: ExtractedText | None = None
    match part.get("type"):
        case "text" | "reasoning":
            text = _text(part, role)
        case "tool":
            text = _tool(part)
        case "file":
            path, url = _string(_object_at(part, "source").get("path")), _string(part.get("url"))
            if not path and url.startswith("file://"):
                from urllib.parse import unquote, urlsplit

                path = unquote(urlsplit(url).path)
            paths = (path,) if path else ()
            name = "" if path else _string(part.get("filename"))
            text = ExtractedText("file", _fields(text=name, paths=paths), paths)
        case "patch":
            files = tuple(file for file in _list(part.get("files")) if isinstance(file, str) and file)
            text = ExtractedText("patch", _fields(paths=files), files) if files else None
        case "retry":
            text = ExtractedText("retry", _fields(error=_failure(part)))
        case "subtask":
            lines = filter(None, (_string(part.get(name)) for name in ("description", "prompt")))
            text = ExtractedText("subtask", _fields(text="\n".join(lines)))
        case _:
            pass
    return text


def of_message(info: Document) -> ExtractedText | None:
    """Extract the error of a message, if it has one."""
    error = _failure(info)
    return ExtractedText("error", _fields(error=error)) if error else None


def of_title(title: str) -> ExtractedText | None:
    """Extract a session's title."""
    return ExtractedText("title", _fields(text=title)) if title else None


def is_unfinished(info: Document) -> bool:
    """Whether a message is an answer that is still being written, or was interrupted."""
    ended = "completed" in _object_at(info, "time") or bool(info.get("error"))
    return info.get("role") == "assistant" and not ended


def model_of(info: Document) -> str:
    """Return ``provider/model`` of a message of either role."""
    ref = _object_at(info, "model") or info
    return "/".join(filter(None, (_string(ref.get("providerID")), _string(ref.get("modelID")))))


def timestamp(record: Document, name: str) -> int:
    """Return one of the times of a record in milliseconds; 0 if it has none."""
    value = _object_at(record, "time").get(name)
    return int(value) if isinstance(value, (int, float)) and 0 <= value <= LATEST_MS else 0


def agent_of(info: Document) -> str:
    """Return the agent of a message; old records call it the mode."""
    return _string(info.get("agent")) or _string(info.get("mode"))


def digest_of(text: ExtractedText | None) -> int:
    """Return a digest of everything that is searched in a part."""
    if text is None:
        return 0
    joined = "\0".join((text.kind, text.tool, str(text.time), str(text.unfinished), *text.fields))
    # The length makes it less likely that a changed text keeps its digest. SQLite has signed integers of 64 bits.
    return crc32(joined.encode(errors="replace")) | (len(joined) & 0x3FFFFFFF) << 32


def _object_at(record: Document, name: str) -> Document:
    """Return the object in a field; an empty one if there is none. The codec has this too, but takes long to import."""
    value = record.get(name)
    return cast("Document", value) if isinstance(value, dict) else {}


def _text(part: Document, role: str) -> ExtractedText | None:
    text = _string(part.get("text"))
    time = _object_at(part, "time")
    unfinished = "start" in time and "end" not in time
    if not text and not unfinished:
        return None
    if part.get("type") == "reasoning":
        kind = "reasoning"
    else:
        kind = "answer" if role == "assistant" else "context" if part.get("synthetic") else "prompt"
    return ExtractedText(kind, _fields(text=text), time=timestamp(part, "start"), unfinished=unfinished)


def _tool(part: Document) -> ExtractedText:
    state = _object_at(part, "state")
    inputs, metadata = _object_at(state, "input"), _object_at(state, "metadata")
    tool = _string(part.get("tool"))
    named = [_string(inputs.get(name)) for name in _PATH_INPUTS]
    named += _PATCHED_FILE.findall(_string(inputs.get("patchText")) or _string(inputs.get("patch")))
    named.append(_string(metadata.get("filepath")))
    files = cast("list[Document]", [file for file in _list(metadata.get("files")) if isinstance(file, dict)])
    named += [_string(file.get("filePath")) for file in files]
    paths = tuple(dict.fromkeys(name.strip() for name in named if name.strip()))
    fields = _fields(
        tool=tool,
        inputs="\n".join([_string(state.get("title")), *_leaves(inputs)]).strip(),
        output=_string(state.get("output")),
        error=_string(state.get("error")),
        paths=paths,
    )
    unfinished = state.get("status") in ("pending", "running")
    return ExtractedText("tool", fields, paths, tool, timestamp(state, "start"), unfinished)


def _failure(record: Document) -> str:
    """Return the name and the message of a record's error."""
    fields = _object_at(record, "error")
    data = _object_at(fields, "data") or fields
    return " ".join(filter(None, (_string(fields.get("name")), _string(data.get("message")))))


def _leaves(value: Any, depth: int = 0) -> list[str]:
    """Return every text and number inside a value."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict) and depth < _MAX_DEPTH:
        return [leaf for item in cast("Document", value).values() for leaf in _leaves(item, depth + 1)]
    if isinstance(value, list) and depth < _MAX_DEPTH:
        return [leaf for item in cast("list[Any]", value) for leaf in _leaves(item, depth + 1)]
    return [str(value)] if isinstance(value, (int, float)) and not isinstance(value, bool) else []


def _fields(
    text: str = "", tool: str = "", inputs: str = "", output: str = "", error: str = "", paths: tuple[str, ...] = ()
) -> tuple[str, str, str, str, str, str]:
    return text, tool, inputs, output, error, "\n".join(paths)


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
