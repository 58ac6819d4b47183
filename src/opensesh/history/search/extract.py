"""What of a record is searched: its words, by field, and the files it names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from .feeds import as_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from .feeds import Document

COLUMNS = ("said", "tool", "input", "output", "error", "paths")
"""The fields of one part, as the index keeps them apart."""

_PATH_INPUTS = ("filePath", "file_path", "path", "notebook_path", "filepath")
_PATCHED = re.compile(r"^\*\*\* (?:Add|Update|Delete|Move to)(?: File)?: (.+)$", re.MULTILINE)
_DEEPEST = 40


class Extract(NamedTuple):
    """A part, taken apart."""

    kind: str
    """prompt, answer, context, reasoning, tool, file, patch, subtask, retry, error or title."""
    fields: tuple[str, str, str, str, str, str]
    """In the order of :data:`COLUMNS`."""
    paths: tuple[str, ...] = ()
    """Files it read, wrote, changed or brought along."""
    tool: str = ""
    time: int = 0
    """Milliseconds; 0 where only the message can say."""
    unfinished: bool = False
    """Whether it may still grow."""


TYPES_OF_KINDS = {"prompt": "text", "answer": "text", "context": "text"}
"""The type of the part that a kind comes from, where the two differ."""


def of_part(part: Document, role: str) -> Extract | None:
    """What there is to search in a part; ``None`` if nothing."""
    take = _TAKERS.get(str(part.get("type")))
    return take(part, role) if take else None


def of_message(info: Document) -> Extract | None:
    """What went wrong with a message, if anything did."""
    said = _failure(info.get("error"))
    return Extract("error", _fields(error=said)) if said else None


def of_title(title: str) -> Extract | None:
    """A session's title."""
    return Extract("title", _fields(said=title)) if title else None


def is_unfinished(info: Document) -> bool:
    """Whether a message is an answer that is still being written, or was when its writer died."""
    ended = "completed" in as_object(info.get("time")) or bool(info.get("error"))
    return info.get("role") == "assistant" and not ended


def model_of(info: Document) -> str:
    """``provider/model`` of a message, wherever this kind of message keeps it."""
    ref = as_object(info.get("model")) or info
    return "/".join(filter(None, (_string(ref.get("providerID")), _string(ref.get("modelID")))))


def moment(record: Document, name: str) -> int:
    """One of the times of a record, in milliseconds; 0 if it does not say."""
    return _number(as_object(record.get("time")).get(name))


def agent_of(info: Document) -> str:
    """The agent of a message, also in records too old to have one by that name."""
    return _string(info.get("agent")) or _string(info.get("mode"))


def _text(part: Document, role: str) -> Extract | None:
    said = _string(part.get("text"))
    time = as_object(part.get("time"))
    unfinished = "start" in time and "end" not in time
    if not said and not unfinished:
        return None
    if part.get("type") == "reasoning":
        kind = "reasoning"
    else:
        kind = "answer" if role == "assistant" else "context" if part.get("synthetic") else "prompt"
    return Extract(kind, _fields(said=said), time=moment(part, "start"), unfinished=unfinished)


def _tool(part: Document, _: str) -> Extract:
    state = as_object(part.get("state"))
    given = as_object(state.get("input"))
    tool = _string(part.get("tool"))
    paths = _touched(given, as_object(state.get("metadata")))
    fields = _fields(
        tool=tool,
        given="\n".join([_string(state.get("title")), *_leaves(given)]).strip(),
        output=_string(state.get("output")),
        error=_string(state.get("error")),
        paths=paths,
    )
    unfinished = state.get("status") in ("pending", "running")
    return Extract("tool", fields, paths, tool, moment(state, "start"), unfinished)


def _file(part: Document, _: str) -> Extract:
    source = as_object(part.get("source"))
    path = _string(source.get("path"))
    url = _string(part.get("url"))
    if not path and url.startswith("file://"):
        from urllib.parse import unquote, urlsplit

        path = unquote(urlsplit(url).path)
    name = _string(part.get("filename"))
    paths = (path,) if path else ()
    return Extract("file", _fields(said="" if path else name, paths=paths), paths)


def _patch(part: Document, _: str) -> Extract | None:
    files = _strings(part.get("files"))
    return Extract("patch", _fields(paths=files), files) if files else None


def _subtask(part: Document, _: str) -> Extract:
    return Extract("subtask", _fields(said=_lines(part, "description", "prompt")))


def _retry(part: Document, _: str) -> Extract:
    return Extract("retry", _fields(error=_failure(part.get("error"))))


_TAKERS: dict[str, Callable[[Document, str], Extract | None]] = {
    "text": _text,
    "reasoning": _text,
    "tool": _tool,
    "file": _file,
    "patch": _patch,
    "subtask": _subtask,
    "retry": _retry,
}


def _touched(given: Document, metadata: Document) -> tuple[str, ...]:
    """The files a tool call was about."""
    named = [_string(given.get(name)) for name in _PATH_INPUTS]
    named += _PATCHED.findall(_string(given.get("patchText")) or _string(given.get("patch")))
    named.append(_string(metadata.get("filepath")))
    for each in _list(metadata.get("files")):
        named.append(_string(as_object(each).get("filePath")))
    return tuple(dict.fromkeys(name.strip() for name in named if name.strip()))


def _failure(error: Any) -> str:
    found = as_object(error)
    data = as_object(found.get("data")) or found
    return " ".join(filter(None, (_string(found.get("name")), _string(data.get("message"))))) if found else ""


def _leaves(value: Any, depth: int = 0) -> list[str]:
    """Every text and number inside a value."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict) and depth < _DEEPEST:
        return [leaf for each in cast("Document", value).values() for leaf in _leaves(each, depth + 1)]
    if isinstance(value, list) and depth < _DEEPEST:
        return [leaf for each in cast("list[Any]", value) for leaf in _leaves(each, depth + 1)]
    return [str(value)] if isinstance(value, (int, float)) and not isinstance(value, bool) else []


def _fields(
    said: str = "", tool: str = "", given: str = "", output: str = "", error: str = "", paths: tuple[str, ...] = ()
) -> tuple[str, str, str, str, str, str]:
    return said, tool, given, output, error, "\n".join(paths)


def _lines(part: Document, *names: str) -> str:
    return "\n".join(filter(None, (_string(part.get(name)) for name in names)))


def _strings(value: Any) -> tuple[str, ...]:
    return tuple(each for each in _list(value) if isinstance(each, str) and each)


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> int:
    return int(value) if isinstance(value, (int, float)) and abs(value) < 1 << 60 else 0


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
