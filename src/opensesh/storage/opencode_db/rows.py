"""Rows of OpenCode's tables as the documents that its server returns, with the same order of fields, and the inverse.

A record is first brought into the form in which OpenCode 1.18 keeps it (:func:`canonical`); that form comes back when
it is read. What OpenCode has no field for survives elsewhere: unknown fields of a session, which has columns only, in
``metadata.opensesh``, errors that only opensesh knows inside an ``UnknownError``, and the format of a structured answer
in the field ``opensesh`` of its prompt.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NoReturn

from ...errors import RecordError
from ...records import (
    EXTENSION_KEY,
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
    object_at,
    without_surrogates,
)
from ...records.codec import as_list, as_object, dumps_compact, loads, loads_object
from ..record_ids import OWNER_FIELDS
from .record_shapes import is_readable_error, validate

if TYPE_CHECKING:
    from collections.abc import Collection

    from ...records import Document
    from ..protocol import Key

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
MESSAGE = ("id", "session_id", "time_created", "time_updated", "data")
PART = ("id", "message_id", "session_id", "time_created", "time_updated", "data")
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
Columns = dict[str, Any]
"""Values by column, as they are given to SQLite."""

DERIVED = ("cost", "tokens_input", "tokens_output", "tokens_reasoning", "tokens_cache_read", "tokens_cache_write")
"""The totals of a session, which follow its ``step-finish`` parts and are never written from a session's record."""

_SESSION_FIELDS = tuple(
    """
    id slug projectID workspaceID directory path parentID summary cost tokens share title agent model version metadata
    time permission revert
    """.split()
)
_SESSION_TEXTS = {
    "id": "id",
    "slug": "slug",
    "projectID": "project_id",
    "workspaceID": "workspace_id",
    "parentID": "parent_id",
    "title": "title",
    "agent": "agent",
    "version": "version",
}
"""The fields of a session that are text, with their columns."""
JSON_COLUMNS = frozenset(("metadata", "revert", "permission", "model", "summary_diffs", "sandboxes", "commands"))
NUMBER_COLUMNS = frozenset(
    name for name in PROJECT + SESSION if name.startswith(("time_", "tokens_", "summary_")) or name == "cost"
)
_SESSION_JSON = ("model", "metadata", "permission", "revert")
_SESSION_TIMES = ("created", "updated", "compacting", "archived")
_ICON = {"url": "icon_url", "override": "icon_url_override", "color": "icon_color"}
_OTHER_FIELDS = "fields"
"""The field of ``metadata.opensesh`` for fields of a session that have no column."""
_FORMAT = "format"


def project_document(row: Row) -> Document:
    """Return ``project/<id>``."""
    sandboxes = as_list(decoded(row, "sandboxes")) or []
    return known(
        {
            "id": text(row, "id"),
            "worktree": native(text(row, "worktree")),
            "vcs": text(row, "vcs"),
            "name": text(row, "name"),
            "icon": known({name: text(row, column) for name, column in _ICON.items()}) or None,
            "commands": decoded(row, "commands"),
            "time": known({name: number(row, f"time_{name}") for name in ("created", "updated", "initialized")}),
            "sandboxes": [native(folder) if isinstance(folder, str) else folder for folder in sandboxes],
        }
    )


def session_record(row: Row) -> Document:
    """Return ``session/<projectID>/<id>``, with fields that opensesh keeps in its metadata."""
    return restore_session(session_document(row))


def session_document(row: Row) -> Document:
    """Return a session as OpenCode's server does, without fields for which this version has no column."""
    directory, below, url = (text(row, name) for name in ("directory", "path", "share_url"))
    fields: Document = {field: text(row, column) for field, column in _SESSION_TEXTS.items()}
    fields |= {
        "directory": native(directory),
        "path": below.replace("/", "\\") if below and directory and _WINDOWS.match(directory) else below,
        "summary": _summary(row),
        "cost": number(row, "cost"),
        "tokens": _tokens(row),
        "share": {"url": url} if url else None,
        "time": known({name: number(row, f"time_{name}") for name in _SESSION_TIMES}),
        **{name: decoded(row, name) for name in _SESSION_JSON},
    }
    if "created" not in fields["time"]:
        raise RecordError("expected milliseconds, found nothing", place="time_created")
    return arrange(known(fields), _SESSION_FIELDS)


def message_record(row: Row) -> Document:
    """Return ``message/<sessionID>/<id>``, with what only opensesh knows of its error and its answer's format."""
    record = restore_message(message_document(row))
    return arrange(record, _message_fields(record))


def message_document(row: Row) -> Document:
    """Return a message as it is stored, with the time of the row if its data has none."""
    data = content(row)
    time = object_at(data, "time")
    if not isinstance(time.get("created"), (int, float)):
        data["time"] = {**time, "created": number(row, "time_created")}
    created(data)
    document = {**data, "id": text(row, "id"), "sessionID": text(row, "session_id")}
    _arrange_tokens(document)
    return arrange(document, _message_fields(document))


def _message_fields(message: Document) -> tuple[str, ...]:
    return _MESSAGE_FIELDS.get(str(message.get("role")), _MESSAGE_FIELDS["user"])


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


def _refuse(value: object, expected: str, name: str) -> NoReturn:
    shown = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    raise RecordError(f"expected {expected}, found {shown!r:.60}", place=name)


# -- records as rows ---------------------------------------------------------------------------------------------------


def canonical(key: Key, value: Any, path: str) -> Any:
    """Return a copy of a record in OpenCode's form; raise :class:`RecordError` if OpenCode could not read it."""
    record = loads(dumps_compact(value))
    kind, document, items = key[0], as_object(record), as_list(record)
    if kind == "message" and document is not None:
        record = document = _canonical_message(document)
    elif kind == "todo" and items is not None:
        record = [_without(item, "id") for item in items]
    validate(kind, record, path)
    owner = OWNER_FIELDS.get(kind)
    if document is not None and owner and (document["id"], document[owner]) != (key[-1], key[1]):
        raise RecordError(f"the record of {document['id']} cannot be stored here", path=path, place="$.id")
    return record


def session_columns(session: Document, present: Collection[str]) -> Columns:
    """Return the columns of a session, without its totals; ``present`` are those that the database has."""
    time, summary = session["time"], object_at(session, "summary")
    diffs, path = summary.get("diffs"), session.get("path")
    columns: Columns = {column: session.get(field) for field, column in _SESSION_TEXTS.items()}
    columns |= {
        "directory": _slashes(session["directory"]),
        "path": path.replace("\\", "/") if path and _is_windows(session["directory"]) else path,
        "share_url": object_at(session, "share").get("url"),
        **{f"summary_{name}": summary.get(name) for name in ("additions", "deletions", "files")},
        **{name: _json(_metadata(session) if name == "metadata" else session.get(name)) for name in _SESSION_JSON},
        **{f"time_{name}": time.get(name) for name in _SESSION_TIMES},
    }
    if diffs is not None:
        columns["summary_diffs"] = _json(diffs)
    unknown = sorted(session.keys() - {*_SESSION_FIELDS, EXTENSION_KEY})
    if unknown and "metadata" not in present:
        raise RecordError(f"a database of this version of OpenCode has no column for {', '.join(unknown)}")
    # As JavaScript stores text.
    return {name: without_surrogates(value) for name, value in columns.items() if name in present}


def total_columns(session: Document) -> Columns:
    """Return the totals that a session's record states, if it states any."""
    tokens = object_at(session, "tokens")
    cache = object_at(tokens, "cache")
    if "cost" not in session and not tokens:
        return {}
    return {
        "cost": session.get("cost", 0),
        **{f"tokens_{name}": int(tokens.get(name, 0)) for name in ("input", "output", "reasoning")},
        **{f"tokens_cache_{name}": int(cache.get(name, 0)) for name in ("read", "write")},
    }


def step_totals(part: Document) -> Columns:
    """Return what a part adds to the totals of its session; nothing unless it ends a step."""
    return total_columns(part) if part.get("type") == "step-finish" else {}


def project_columns(project: Document, present: Collection[str]) -> Columns:
    """Return the columns of a project."""
    time, icon = project["time"], object_at(project, "icon")
    columns: Columns = {
        "id": project["id"],
        "worktree": _slashes(project["worktree"]),
        "vcs": project.get("vcs"),
        "name": project.get("name"),
        **{column: icon.get(name) for name, column in _ICON.items()},
        "time_created": time["created"],
        "time_updated": time.get("updated", time["created"]),
        "time_initialized": time.get("initialized"),
        "sandboxes": _json([_slashes(folder) for folder in project["sandboxes"]]),
        "commands": _json(project.get("commands")),
    }
    # As JavaScript stores text.
    return {name: without_surrogates(value) for name, value in columns.items() if name in present}


def data_of(record: Document, *identity: str) -> str:
    """Return the column ``data`` of a message or part: its record without the fields that have columns."""
    return dumps_compact({name: value for name, value in record.items() if name not in identity}).decode()


def restore_session(session: Document) -> Document:
    """Return a session as it was stored, from the document that OpenCode's server would return."""
    metadata = as_object(session.get("metadata"))
    own = as_object(metadata.get(EXTENSION_KEY)) if metadata else None
    if metadata is None or own is None:
        return session
    others = object_at(own, _OTHER_FIELDS)
    rest = {name: value for name, value in metadata.items() if name != EXTENSION_KEY}
    extension = {name: value for name, value in own.items() if name != _OTHER_FIELDS}
    restored = {name: rest if name == "metadata" else value for name, value in session.items()}
    if not rest:
        del restored["metadata"]
    return restored | others | ({EXTENSION_KEY: extension} if extension else {})


def restore_message(message: Document) -> Document:
    """Return a message as it was stored: with an error that only opensesh knows, and the format of the answer."""
    data = as_object(object_at(message, "error").get("data"))
    error = as_object(data.get(EXTENSION_KEY)) if data else None
    if error:
        message = message | {"error": error}
    own = as_object(message.get(EXTENSION_KEY))
    if own and _FORMAT in own:
        rest = {name: value for name, value in own.items() if name != _FORMAT}
        message = _without(message, EXTENSION_KEY) | {_FORMAT: own[_FORMAT]} | ({EXTENSION_KEY: rest} if rest else {})
    return message


def _canonical_message(message: Document) -> Document:
    if message.get("role") == "user" and "variant" in message:
        # OpenCode 1.2 and later keep the variant with the model.
        variant, model = message["variant"], as_object(message.get("model"))
        message = _without(message, "variant")
        if model is not None and variant:
            message["model"] = model | {"variant": variant}
    if "format" in message:
        # OpenCode 1.18 stores the format of a structured answer and then cannot show the session any more.
        own = object_at(message, EXTENSION_KEY) | {_FORMAT: message["format"]}
        message = _without(message, _FORMAT) | {EXTENSION_KEY: own}
    error = as_object(message.get("error"))
    if error is not None and not is_readable_error(error):
        text = (as_object(error.get("data")) or error).get("message")
        data = {"message": text if isinstance(text, str) else str(error.get("name", "")), EXTENSION_KEY: error}
        message = message | {"error": {"name": "UnknownError", "data": data}}
    return message


def _metadata(session: Document) -> Document | None:
    metadata: Document | None = session.get("metadata")
    others = {name: value for name, value in session.items() if name not in _SESSION_FIELDS and name != EXTENSION_KEY}
    own = object_at(session, EXTENSION_KEY) | ({_OTHER_FIELDS: others} if others else {})
    return (metadata or {}) | {EXTENSION_KEY: own} if own else metadata


def _without(item: Any, name: str) -> Any:
    document = as_object(item)
    return item if document is None else {key: value for key, value in document.items() if key != name}


def _json(value: Any) -> str | None:
    return None if value is None else dumps_compact(value).decode()


def _slashes(folder: str) -> str:
    """Return a folder in the notation of the database: ``C:/Users`` for ``C:\\Users``."""
    return folder.replace("\\", "/") if _is_windows(folder) else folder


def _is_windows(folder: str) -> bool:
    return len(folder) > 2 and folder[0].isalpha() and folder[1:3] in (":\\", ":/")
