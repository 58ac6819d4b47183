"""Records of any vintage, filled in until OpenCode 1.18 accepts them. What is there stays as it is, wherever it can."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import RecordError
from ...records import as_list, as_object, as_whole, dumps_compact, read_failure, write_failure
from ...records.part import PART_TYPES
from ...storage.protocol import StoredMessage

if TYPE_CHECKING:
    from ...records import Document

_UNKNOWN = "unknown"
_ERRORS = (
    "ProviderAuthError", "UnknownError", "MessageOutputLengthError", "MessageAbortedError", "StructuredOutputError",
    "ContextOverflowError", "ContentFilterError", "APIError",
)  # fmt: skip
_ACTIONS = ("allow", "deny", "ask")


def complete_session(info: Document, name: str, project: str) -> Document:
    """A session's record."""
    info = _without_nulls(info)
    given = as_object(info.get("time")) or {}
    created = as_whole(given.get("created"))
    time = {key: as_whole(value) for key, value in given.items() if isinstance(value, (int, float))}
    done = info | {
        "id": named("ses", name),
        "slug": _text(info, "slug", f"session-{name[-6:].lower()}"),
        "version": _text(info, "version", _UNKNOWN),
        "projectID": _text(info, "projectID", project),
        "directory": _text(info, "directory", "/"),
        "title": _text(info, "title", "Untitled"),
        "time": {"created": created, "updated": time.get("updated") or created} | time,
    }
    summary = as_object(info.get("summary"))
    if summary is not None:
        counts = {key: as_whole(summary.get(key)) for key in ("additions", "deletions", "files")}
        done["summary"] = summary | counts
    if "permission" in info:
        done["permission"] = [rule for rule in as_list(info["permission"]) or [] if _is_rule(rule)]
    return done


def complete_message(message: StoredMessage, session: Document, parent: str) -> StoredMessage:
    """A message and its parts; ``parent`` is the prompt before it."""
    info = _without_nulls(message.info)
    given = as_object(info.get("time")) or {}
    time = {key: as_whole(value) for key, value in given.items() if isinstance(value, (int, float))}
    created = time.setdefault("created", 0)
    name, owner = named("msg", str(info.get("id", ""))), named("ses", str(session.get("id", "")))
    done: Document = info | {"id": name, "sessionID": owner, "time": time}
    done |= _answer(done, session, parent) if info.get("role") == "assistant" else _prompt(done)
    if "error" in info:
        done["error"] = _failure(info["error"])
    return StoredMessage(done, [_part(part, owner, name, created) for part in message.parts])


def _without_nulls(record: Document) -> Document:
    """A record without the fields that are null: what may be missing may not be that."""
    return {name: value for name, value in record.items() if value is not None}


def named(prefix: str, name: str) -> str:
    """An identifier with the prefix that it must have."""
    return name if name.startswith(prefix) else f"{prefix}_{name}"


def _prompt(info: Document) -> Document:
    model = as_object(info.get("model")) or {}
    return {
        "role": "user",
        "agent": _text(info, "agent", "build"),
        "model": {"providerID": _UNKNOWN, "modelID": _UNKNOWN} | model,
    }


def _answer(info: Document, session: Document, parent: str) -> Document:
    folder = _text(session, "directory", "/")
    agent = _text(info, "agent", _text(info, "mode", "build"))
    cost = info.get("cost")
    return {
        "parentID": named("msg", _text(info, "parentID", parent or str(info["id"]))),
        "modelID": _text(info, "modelID", _UNKNOWN),
        "providerID": _text(info, "providerID", _UNKNOWN),
        "mode": _text(info, "mode", agent),
        "agent": agent,
        "path": {"cwd": folder, "root": folder} | (as_object(info.get("path")) or {}),
        "cost": cost if isinstance(cost, (int, float)) else 0,
        "tokens": _tokens(info.get("tokens")),
    }


def _tokens(held: Any) -> Document:
    given = as_object(held) or {}
    tokens: Document = {"input": 0, "output": 0, "reasoning": 0} | given
    return tokens | {"cache": {"read": 0, "write": 0} | (as_object(given.get("cache")) or {})}


def _failure(held: Any) -> Document:
    given = as_object(held) or {}
    if given.get("name") in _ERRORS and as_object(given.get("data")) is not None:
        return given
    try:
        known = write_failure(read_failure(given))
    except RecordError:
        known = {"data": given}
    if known.get("name") in _ERRORS:
        return known
    said = (as_object(known["data"]) or {}).get("message") or dumps_compact(given).decode(errors="replace")
    return {"name": "UnknownError", "data": {"message": str(said)}}


_FIELDS: dict[str, Document] = {
    "text": {"text": ""},
    "subtask": {"prompt": "", "description": "", "agent": "general"},
    "reasoning": {"text": ""},
    "file": {"mime": "application/octet-stream", "url": ""},
    "tool": {"callID": "", "tool": _UNKNOWN},
    "step-start": {},
    "step-finish": {"reason": _UNKNOWN, "cost": 0},
    "snapshot": {"snapshot": ""},
    "patch": {"hash": "", "files": []},
    "agent": {"name": ""},
    "retry": {"attempt": 0},
    "compaction": {"auto": False},
}


def _part(part: Document, session: str, message: str, created: int) -> Document:
    kind = str(part.get("type"))
    if kind not in PART_TYPES:
        # What newer versions would refuse is kept as a note that no model is shown.
        said = f"[{kind}] {dumps_compact(part).decode(errors='replace')}"
        part = {"id": part.get("id"), "type": "text", "text": said, "synthetic": True, "ignored": True}
        kind = "text"
    head = {"id": named("prt", str(part.get("id", ""))), "sessionID": session, "messageID": message}
    part = _without_nulls(part)
    done: Document = head | _FIELDS[kind] | part | head
    match kind:
        case "reasoning":
            done["time"] = _span(part.get("time"), created, ended=False)
        case "text" if "time" in part:
            done["time"] = _span(part.get("time"), created, ended=False)
        case "tool":
            done["state"] = _state(as_object(part.get("state")) or {}, head, created)
        case "step-finish":
            done["tokens"] = _tokens(part.get("tokens"))
        case "retry":
            done["error"] = {"name": "APIError", "data": {"message": "", "isRetryable": True}} | (
                as_object(part.get("error")) or {}
            )
            done["time"] = {"created": created} | (as_object(part.get("time")) or {})
        case _:
            pass
    return done


def _state(state: Document, head: Document, created: int) -> Document:
    given: Document = {"input": as_object(state.get("input")) or {}}
    match state.get("status"):
        case "pending":
            return state | given | {"raw": _text(state, "raw", "")}
        case "running":
            return state | given | {"time": _span(state.get("time"), created, ended=False)}
        case "completed":
            done = state | given | {
                "output": _text(state, "output", ""),
                "title": _text(state, "title", ""),
                "metadata": as_object(state.get("metadata")) or {},
                "time": _span(state.get("time"), created, ended=True),
            }  # fmt: skip
            files = [as_object(each) for each in as_list(state.get("attachments")) or []]
            if files:
                done["attachments"] = [_FIELDS["file"] | head | {"type": "file"} | each for each in files if each]
            return done
        case other:
            said = _text(state, "error", f"in the state {other!r}")
            return (
                state
                | given
                | {"status": "error", "error": said, "time": _span(state.get("time"), created, ended=True)}
            )


def _span(held: Any, created: int, *, ended: bool) -> Document:
    given = as_object(held) or {}
    time = {key: as_whole(value) for key, value in given.items() if isinstance(value, (int, float))}
    time = {"start": created} | time
    return time if not ended else {"start": time["start"], "end": time["start"]} | time


def _text(held: Document, name: str, default: str) -> str:
    value = held.get(name)
    return value if isinstance(value, str) and (value or not default) else default


def _is_rule(held: Any) -> bool:
    rule = as_object(held) or {}
    known = isinstance(rule.get("permission"), str) and isinstance(rule.get("pattern"), str)
    return known and rule.get("action") in _ACTIONS
