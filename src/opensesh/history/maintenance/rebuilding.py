"""Records that were lost, made again from what is left: a session from its messages, a message from its parts.

And records that are whole, but that nobody can read as what they are, made to fit.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from ... import ids
from ...errors import InvalidIDError, RecordError
from ...records import Document, Project, Session, as_object, as_whole, loads_object, order, view
from ...sessions.slugs import new_slug
from ...storage.disk import read_file
from ...storage.keys import GLOBAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...storage.protocol import FileTree

_MODELS = {"step-start", "step-finish", "tool", "reasoning", "patch"}
_UNKNOWN = "unknown"
_VIEWS = {"session": Session, "project": Project}


def rebuilt_session(tree: FileTree, session: str, rebuilt: Iterable[Document], project: str = "") -> Document:
    """The record of a session whose messages are left, or ``rebuilt``; what nobody remembers is said to be unknown."""
    infos = [*_records(tree, os.path.join("message", session)), *rebuilt]
    times = [moment for info in infos if (moment := as_whole((as_object(info.get("time")) or {}).get("created")))]
    paths = [path for info in infos if (path := as_object(info.get("path")))]
    directory = next((str(path["cwd"]) for path in paths if path.get("cwd")), "/")
    root = next((str(path["root"]) for path in paths if path.get("root")), "/")
    return {
        "id": session,
        "slug": new_slug(),
        "version": _UNKNOWN,
        "projectID": project or _project_of(tree, root),
        "directory": directory,
        "title": "Recovered session",
        "time": {"created": min(times, default=0), "updated": max(times, default=0)},
    }


def rebuilt_message(tree: FileTree, session: str, message: str) -> Document | None:
    """A message whose parts are left, with the cost and tokens that they remember; ``None`` if none are."""
    parts = list(_records(tree, os.path.join("part", message)))
    if not parts:
        return None
    near = _neighbour(tree, session)
    created = _minted(message, as_whole((as_object(near.get("time")) or {}).get("created")) or ids.now_ms())
    base: Document = {"id": message, "sessionID": session}
    if not any(part.get("type") in _MODELS for part in parts):
        model = {"providerID": _UNKNOWN, "modelID": _UNKNOWN}
        return base | {"role": "user", "time": {"created": created}, "agent": "build", "model": model}
    steps = [part for part in parts if part.get("type") == "step-finish"]
    ended = max((_ended(part) for part in parts), default=created)
    return base | {
        "role": "assistant",
        "time": {"created": created, "completed": max(ended, created)},
        "parentID": str(near.get("parentID") or near.get("id") or message),
        "modelID": near.get("modelID") or _UNKNOWN,
        "providerID": near.get("providerID") or _UNKNOWN,
        "mode": near.get("mode") or "build",
        "agent": near.get("agent") or "build",
        "path": as_object(near.get("path")) or {"cwd": "/", "root": "/"},
        "cost": sum(cost for part in steps if isinstance(cost := part.get("cost"), (int, float))),
        "tokens": next((tokens for part in reversed(steps) if (tokens := as_object(part.get("tokens")))), _NO_TOKENS),
        "finish": next((str(part["reason"]) for part in reversed(steps) if part.get("reason")), _UNKNOWN),
    }


def misfit(record: Document, kind: str, name: str) -> RecordError | None:
    """Why every reader leaves out a record that is whole; ``None`` if none does."""
    try:
        if kind == "message":
            order.created(record)
        elif kind in _VIEWS:
            view(record | {"id": name}, _VIEWS[kind])
    except RecordError as error:
        return error
    return None


def make_fit(record: Document, kind: str, name: str, changed: int) -> bool:
    """Change what does not fit: a time that is none is told by the name or when the file was ``changed``, and of all
    else there is a reading without it. Whether that is enough."""
    for _ in range(len(record) + 1):
        error = misfit(record, kind, name)
        if error is None:
            return True
        field = re.split(r"[.\[]", error.place.removeprefix("$."))[0]
        if field in ("$", "time"):
            held = {
                part: whole
                for part, value in (as_object(record.get("time")) or {}).items()
                if (whole := as_whole(value))
            }
            record["time"] = {"created": _minted(name, changed)} | held
        else:
            record.pop(field, None)
    return False


_NO_TOKENS: Document = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}


def _neighbour(tree: FileTree, session: str) -> Document:
    """An answer of the same session, for what all of them have in common; or any message of it."""
    infos = list(_records(tree, os.path.join("message", session)))
    return next((info for info in infos if info.get("role") == "assistant"), infos[0] if infos else {})


def _records(tree: FileTree, folder: str) -> Iterator[Document]:
    above = os.path.join(tree.root, folder)
    for name in sorted(os.listdir(above)) if os.path.isdir(above) else ():
        if name.endswith(".json") and name[0] != ".":
            try:
                yield loads_object(read_file(os.path.join(above, name)), name)
            except (OSError, RecordError):
                continue


def _project_of(tree: FileTree, root: str) -> str:
    for key, value in tree.scan(("project",), report=lambda damage: None):
        if root != "/" and (as_object(value) or {}).get("worktree") == root:
            return key[-1]
    return GLOBAL


def _minted(name: str, near: int) -> int:
    try:
        return ids.timestamp_of(name, near)
    except InvalidIDError:
        return near


def _ended(part: Document) -> int:
    state = as_object(part.get("state")) or {}
    time = as_object(state.get("time")) or as_object(part.get("time")) or {}
    return as_whole(time.get("end"))
