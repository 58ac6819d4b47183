"""Rows of OpenCode's tables as the documents that its server returns, with the same order of fields."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NoReturn

from ...errors import RecordError
from ...records import (
    PART_TYPES,
    AssistantMessage,
    CacheTokens,
    Completed,
    Failed,
    OtherPart,
    Pending,
    Running,
    Tokens,
    UserMessage,
    created,
)
from ...records.codec import as_list, as_object, loads, loads_object
from .encoding import restore_message, restore_session

if TYPE_CHECKING:
    from ...records import Document

Row = dict[str, Any]
"""Columns by name, as stored by SQLite; text is bytes, and a column that this database does not have is ``None``."""

PROJECT = (
    "id", "worktree", "vcs", "name", "icon_url", "icon_url_override", "icon_color",
    "time_created", "time_updated", "time_initialized", "sandboxes", "commands",
)  # fmt: skip
SESSION = (
    "id", "project_id", "workspace_id", "parent_id", "slug", "directory", "path", "title", "version", "share_url",
    "summary_additions", "summary_deletions", "summary_files", "metadata", "cost", "tokens_input", "tokens_output",
    "tokens_reasoning", "tokens_cache_read", "tokens_cache_write", "revert", "permission", "agent", "model",
    "time_created", "time_updated", "time_compacting", "time_archived",
)  # fmt: skip
MESSAGE = ("id", "session_id", "time_created", "data")
PART = ("id", "message_id", "session_id", "data")
SHARE = ("session_id", "id", "secret", "url")

_MESSAGE_FIELDS = {
    "user": UserMessage.__struct_encode_fields__,
    "assistant": AssistantMessage.__struct_encode_fields__,
}
_PART_FIELDS = {kind: view.__struct_encode_fields__ for kind, view in PART_TYPES.items()}
_STATE_FIELDS = {
    str(view.__struct_config__.tag): ("status", *view.__struct_encode_fields__)
    for view in (Pending, Running, Completed, Failed)
}
_WINDOWS = re.compile(r"[A-Za-z]:/")


def project_document(row: Row) -> Document:
    """Return ``project/<id>``."""
    icon = known(
        {
            "url": text(row, "icon_url"),
            "override": text(row, "icon_url_override"),
            "color": text(row, "icon_color"),
        }
    )
    sandboxes = as_list(decoded(row, "sandboxes")) or []
    return known(
        {
            "id": text(row, "id"),
            "worktree": native(text(row, "worktree")),
            "vcs": text(row, "vcs"),
            "name": text(row, "name"),
            "icon": icon or None,
            "commands": decoded(row, "commands"),
            "time": known(
                {
                    "created": number(row, "time_created"),
                    "updated": number(row, "time_updated"),
                    "initialized": number(row, "time_initialized"),
                }
            ),
            "sandboxes": [native(folder) if isinstance(folder, str) else folder for folder in sandboxes],
        }
    )


def session_record(row: Row) -> Document:
    """Return ``session/<projectID>/<id>``, with fields that opensesh keeps in its metadata."""
    return restore_session(session_document(row))


def session_document(row: Row) -> Document:
    """Return a session as OpenCode's server does, without fields for which this version has no column."""
    directory = text(row, "directory")
    below = text(row, "path")
    url = text(row, "share_url")
    return known(
        {
            "id": text(row, "id"),
            "slug": text(row, "slug"),
            "projectID": text(row, "project_id"),
            "workspaceID": text(row, "workspace_id"),
            "directory": native(directory),
            "path": below.replace("/", "\\") if below and directory and _WINDOWS.match(directory) else below,
            "parentID": text(row, "parent_id"),
            "summary": _summary(row),
            "cost": number(row, "cost"),
            "tokens": _tokens(row),
            "share": {"url": url} if url else None,
            "title": text(row, "title"),
            "agent": text(row, "agent"),
            "model": decoded(row, "model"),
            "version": text(row, "version"),
            "metadata": decoded(row, "metadata"),
            "time": _session_time(row),
            "permission": decoded(row, "permission"),
            "revert": decoded(row, "revert"),
        }
    )


def message_document(row: Row) -> Document:
    """Return ``message/<sessionID>/<id>``, with the time of the row if its data has none."""
    data = content(row)
    time = as_object(data.get("time")) or {}
    if not isinstance(time.get("created"), (int, float)):
        data["time"] = {**time, "created": number(row, "time_created")}
    created(data)
    document = {**data, "id": text(row, "id"), "sessionID": text(row, "session_id")}
    _arrange_tokens(document)
    fields = _MESSAGE_FIELDS.get(str(data.get("role")), _MESSAGE_FIELDS["user"])
    return arrange(restore_message(document), fields)


def part_document(row: Row) -> Document:
    """Return ``part/<messageID>/<id>``."""
    document = {
        **content(row),
        "id": text(row, "id"),
        "sessionID": text(row, "session_id"),
        "messageID": text(row, "message_id"),
    }
    state = as_object(document.get("state"))
    if state is not None:
        document["state"] = arrange(state, _STATE_FIELDS.get(str(state.get("status")), ()))
    _arrange_tokens(document)
    return arrange(document, _PART_FIELDS.get(str(document.get("type")), OtherPart.__struct_encode_fields__))


def diff_document(row: Row) -> list[Any]:
    """Return ``session_diff/<sessionID>``."""
    diffs = as_list(decoded(row, "summary_diffs"))
    if diffs is None:
        raise RecordError("expected an array", place="summary_diffs")
    return diffs


def todo_document(row: Row) -> list[Document]:
    """Return ``todo/<sessionID>``, from lines of position, content, status and priority."""
    lines: list[list[Any]] = decoded(row, "lines")
    return [dict(zip(("content", "status", "priority"), line[1:], strict=True)) for line in sorted(lines)]


def share_document(row: Row) -> Document:
    """Return ``session_share/<sessionID>``."""
    return known({name: text(row, name) for name in ("id", "secret", "url")})


def text(row: Row, name: str) -> str | None:
    """Return a text column."""
    value = row[name]
    if value is None:
        return None
    if not isinstance(value, bytes):
        _refuse(value, "text", name)
    try:
        return value.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise RecordError(f"not UTF-8 text at byte {error.start}", place=name) from None


def identifier(row: Row, name: str) -> str:
    """Return a column of the key."""
    return text(row, name) or _refuse(None, "an identifier", name)


def number(row: Row, name: str) -> int | float | None:
    """Return a number column; a whole number as an integer, even if SQLite stores a float."""
    value = row[name]
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if value is None or isinstance(value, int):
        return value
    return _refuse(value, "a number", name)


def decoded(row: Row, name: str) -> Any:
    """Return a decoded JSON column; ``None`` also for ``null``."""
    value = row[name]
    if value is None:
        return None
    if not isinstance(value, bytes):
        _refuse(value, "JSON", name)
    try:
        return loads(value)
    except RecordError as error:
        origin = f"{name}, {error.place}" if error.place else name
        raise RecordError(error.reason, place=origin) from None


def content(row: Row) -> Document:
    """Return the object in the column ``data``."""
    value = row["data"]
    if not isinstance(value, bytes):
        _refuse(value, "JSON", "data")
    if not value:
        raise RecordError("empty", place="data")
    return loads_object(value)


def known(fields: Document) -> Document:
    """Return ``fields`` without those that are ``None``, as JavaScript omits undefined."""
    return {name: value for name, value in fields.items() if value is not None}


def arrange(document: Document, names: tuple[str, ...]) -> Document:
    """Return ``document`` with the fields ``names`` first, in that order, and then the others."""
    return {name: document[name] for name in names if name in document} | document


def native(folder: str | None) -> str | None:
    """Return a folder in the notation of its machine: OpenCode stores ``C:/Users`` for ``C:\\Users``."""
    return folder.replace("/", "\\") if folder and _WINDOWS.match(folder) else folder


def _arrange_tokens(document: Document) -> None:
    if "tokens" in document and (tokens := as_object(document["tokens"])):
        if cache := as_object(tokens.get("cache")):
            tokens["cache"] = arrange(cache, CacheTokens.__struct_encode_fields__)
        document["tokens"] = arrange(tokens, Tokens.__struct_encode_fields__)


def _summary(row: Row) -> Document | None:
    counts = {name: number(row, f"summary_{name}") for name in ("additions", "deletions", "files")}
    if all(count is None for count in counts.values()):
        return None
    return {name: count or 0 for name, count in counts.items()}


def _tokens(row: Row) -> Document | None:
    used = {name: number(row, f"tokens_{name}") for name in ("input", "output", "reasoning")}
    cache = {name: number(row, f"tokens_cache_{name}") for name in ("read", "write")}
    if all(count is None for count in (*used.values(), *cache.values())):
        return None
    tokens: Document = {name: count or 0 for name, count in used.items()}
    return tokens | {"cache": {name: count or 0 for name, count in cache.items()}}


def _session_time(row: Row) -> Document:
    names = ("created", "updated", "compacting", "archived")
    time = known({name: number(row, f"time_{name}") for name in names})
    if "created" not in time:
        raise RecordError("expected milliseconds, found nothing", place="time_created")
    return time


def _refuse(value: object, expected: str, name: str) -> NoReturn:
    raise RecordError(f"expected {expected}, found {value!r:.60}", place=name)
