"""Records as rows of OpenCode's tables: the inverse of :mod:`.rows`.

A record is first brought into the form in which OpenCode 1.18 keeps it (:func:`canonical`); that form comes back when
it is read. What OpenCode has no field for survives elsewhere: unknown fields of a session, which has columns only, in
``metadata.opensesh``, errors that only opensesh knows inside an ``UnknownError``, and the format of a structured answer
in the field ``opensesh`` of its prompt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import RecordError
from ...records import EXTENSION_KEY, as_list, as_object
from ...records.codec import dumps_compact, loads
from .record_shapes import is_readable_error, validate

if TYPE_CHECKING:
    from collections.abc import Collection

    from ...records import Document
    from ..protocol import Key

Columns = dict[str, Any]
"""Values by column, as they are given to SQLite."""

DERIVED = ("cost", "tokens_input", "tokens_output", "tokens_reasoning", "tokens_cache_read", "tokens_cache_write")
"""The totals of a session, which follow its ``step-finish`` parts and are never written from a session's record."""

_SESSION_FIELDS = frozenset(
    """
    id slug projectID workspaceID directory path parentID summary cost tokens share title agent model version metadata
    time permission revert
    """.split()
)
_OTHER_FIELDS = "fields"
"""The field of ``metadata.opensesh`` for fields of a session that have no column."""
_FORMAT = "format"
_OWNERS = {"message": "sessionID", "part": "messageID", "session": "projectID"}
"""The field with the second component of a record's key."""


def canonical(key: Key, value: Any, path: str) -> Any:
    """Return a copy of a record in OpenCode's form; raise :class:`RecordError` if OpenCode could not read it."""
    record = loads(dumps_compact(value))
    kind, document, items = key[0], as_object(record), as_list(record)
    if kind == "message" and document is not None:
        record = document = _canonical_message(document)
    elif kind == "todo" and items is not None:
        record = [_without(item, "id") for item in items]
    validate(kind, record, path)
    if document is not None and kind in _OWNERS and (document["id"], document[_OWNERS[kind]]) != (key[-1], key[1]):
        raise RecordError(f"the record of {document['id']} cannot be stored here", path=path, place="$.id")
    return record


def session_columns(session: Document, present: Collection[str]) -> Columns:
    """Return the columns of a session, without its totals; ``present`` are those that the database has."""
    time, summary = session["time"], as_object(session.get("summary")) or {}
    diffs, path = summary.get("diffs"), session.get("path")
    columns: Columns = {
        "id": session["id"],
        "project_id": session["projectID"],
        "workspace_id": session.get("workspaceID"),
        "parent_id": session.get("parentID"),
        "slug": session["slug"],
        "directory": _slashes(session["directory"]),
        "path": path.replace("\\", "/") if path and _is_windows(session["directory"]) else path,
        "title": session["title"],
        "version": session["version"],
        "share_url": (as_object(session.get("share")) or {}).get("url"),
        **{f"summary_{name}": summary.get(name) for name in ("additions", "deletions", "files")},
        "metadata": _json(_metadata(session)),
        "revert": _json(session.get("revert")),
        "permission": _json(session.get("permission")),
        "agent": session.get("agent"),
        "model": _json(session.get("model")),
        **{f"time_{name}": time.get(name) for name in ("created", "updated", "compacting", "archived")},
    }
    if diffs is not None:
        columns["summary_diffs"] = _json(diffs)
    unknown = sorted(session.keys() - _SESSION_FIELDS - {EXTENSION_KEY})
    if unknown and "metadata" not in present:
        raise RecordError(f"a database of this version of OpenCode has no column for {', '.join(unknown)}")
    return {name: _text(value) for name, value in columns.items() if name in present}


def total_columns(session: Document) -> Columns:
    """Return the totals that a session's record states, if it states any."""
    tokens = as_object(session.get("tokens")) or {}
    cache = as_object(tokens.get("cache")) or {}
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
    time, icon = project["time"], as_object(project.get("icon")) or {}
    columns: Columns = {
        "id": project["id"],
        "worktree": _slashes(project["worktree"]),
        "vcs": project.get("vcs"),
        "name": project.get("name"),
        "icon_url": icon.get("url"),
        "icon_url_override": icon.get("override"),
        "icon_color": icon.get("color"),
        "time_created": time["created"],
        "time_updated": time.get("updated", time["created"]),
        "time_initialized": time.get("initialized"),
        "sandboxes": _json([_slashes(folder) for folder in project["sandboxes"]]),
        "commands": _json(project.get("commands")),
    }
    return {name: _text(value) for name, value in columns.items() if name in present}


def data_of(record: Document, *identity: str) -> str:
    """Return the column ``data`` of a message or part: its record without the fields that have columns."""
    return dumps_compact({name: value for name, value in record.items() if name not in identity}).decode()


def restore_session(session: Document) -> Document:
    """Return a session as it was stored, from the document that OpenCode's server would return."""
    metadata = as_object(session.get("metadata"))
    own = as_object(metadata.get(EXTENSION_KEY)) if metadata else None
    if metadata is None or own is None:
        return session
    others = as_object(own.get(_OTHER_FIELDS)) or {}
    rest = {name: value for name, value in metadata.items() if name != EXTENSION_KEY}
    extension = {name: value for name, value in own.items() if name != _OTHER_FIELDS}
    restored = {name: rest if name == "metadata" else value for name, value in session.items()}
    if not rest:
        del restored["metadata"]
    return restored | others | ({EXTENSION_KEY: extension} if extension else {})


def restore_message(message: Document) -> Document:
    """Return a message as it was stored: with an error that only opensesh knows, and the format of the answer."""
    data = as_object((as_object(message.get("error")) or {}).get("data"))
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
        own = (as_object(message.get(EXTENSION_KEY)) or {}) | {_FORMAT: message["format"]}
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
    own = (as_object(session.get(EXTENSION_KEY)) or {}) | ({_OTHER_FIELDS: others} if others else {})
    return (metadata or {}) | {EXTENSION_KEY: own} if own else metadata


def _without(item: Any, name: str) -> Any:
    document = as_object(item)
    return item if document is None else {key: value for key, value in document.items() if key != name}


def _json(value: Any) -> str | None:
    return None if value is None else dumps_compact(value).decode()


def _text(value: Any) -> Any:
    """Return text with replacement characters for lone surrogates, as JavaScript stores it."""
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if isinstance(value, str) else value


def _slashes(folder: str) -> str:
    """Return a folder in the notation of the database: ``C:/Users`` for ``C:\\Users``."""
    return folder.replace("\\", "/") if _is_windows(folder) else folder


def _is_windows(folder: str) -> bool:
    return len(folder) > 2 and folder[0].isalpha() and folder[1:3] in (":\\", ":/")
