"""Compares what two implementations stored for the same scenario.

Both sides are normalised first: identifiers, timestamps, paths and call names are replaced by placeholders. Then every
field is compared, and the order of the fields in each record.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from opensesh.errors import RecordError
from opensesh.project import resolve
from opensesh.sessions import Sessions
from opensesh.storage.json_tree.store import JsonTree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from opensesh.storage.protocol import Damage

    from .sides import Played, Side

Json = dict[str, Any]
T = TypeVar("T")

MISSING = "(not there)"

_ID = re.compile(r"\b(ses|msg|prt|per|que|tool)_[0-9a-f]{12}[0-9A-Za-z]{14}\b")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")

_TREE = re.compile(r"[0-9a-f]{40}")


class Difference(NamedTuple):
    """A position at which the sides differ."""

    where: str
    theirs: Any
    ours: Any

    def __str__(self) -> str:
        return f"{self.where}\n    OpenCode: {self.theirs!r}\n    opensesh: {self.ours!r}"


def compare(theirs: Played, ours: Played) -> list[Difference]:
    """Return every difference between the stored records and the requests of two sides."""
    left, right = normal(theirs), normal(ours)
    return [difference for difference in _differences("", left, right) if not _was_unlucky(difference)]


def _was_unlucky(difference: Difference) -> bool:
    """Whether OpenCode's git failed, as it does occasionally on a busy machine: the snapshot is empty then."""
    return difference.where.endswith(".snapshot") and difference.theirs == ""


def normal(played: Played) -> Json:
    """Return the records and requests in normalised form."""
    sessions = Sessions(JsonTree(played.side.data / "storage"), resolve(played.side.project))
    documents = [_session(sessions, name) for name in _family(sessions, played.sessions)]
    names = _Names(played.side)
    return names.clean({"session": documents, "request": list(played.requests)})


def _family(sessions: Sessions, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        yield name
        yield from whole(lambda name=name: [child.id for child in sessions.descendants(name)])


def _session(sessions: Sessions, name: str) -> Json:
    info, stored = whole(lambda: (sessions.get(name).document, sessions.messages(name, report=_give_up)))
    changed = any(part["type"] == "patch" for message in stored for part in message.parts)
    messages = [
        {**_compacted(message.info, changed=changed), "parts": [_part(part) for part in message.parts]}
        for message in stored
    ]
    document = {**_compacted(info, changed=changed), "todo": sessions.todos(name), "messages": messages}
    return document | ({"diff": sessions.diff(name)} if changed else {})


def _compacted(info: Json, *, changed: bool) -> Json:
    """Return a record without a summary of changes that is empty, which only OpenCode stores, and without the title of
    a prompt, which OpenCode stores but does not show."""
    kept = {key: value for key, value in info.items() if key != "summary"}
    if not changed or "summary" not in info:
        return kept
    if not isinstance(info["summary"], dict):
        return info
    summary = {key: value for key, value in cast("Json", info["summary"]).items() if key != "title"}
    return kept | ({"summary": summary} if summary.get("diffs", True) else {})


def whole(read: Callable[[], T]) -> T:
    """Return what ``read`` returns once no record is half written: OpenCode writes in place, and continues in the
    background."""
    for _ in range(100):
        with suppress(RecordError):
            return read()
        time.sleep(0.02)
    return read()


def _give_up(damage: Damage) -> None:
    raise RecordError(damage.reason, path=damage.path)


def _part(part: Json) -> Json:
    return {key: value for key, value in part.items() if key != "id"}


class _Names:
    """Replaces values that differ in every run by placeholders."""

    def __init__(self, side: Side) -> None:
        self._paths = {str(side.project): "<project>", str(side.data): "<data>"}
        self._known: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def clean(self, value: Any, key: str = "") -> Any:
        match value:
            case dict():
                return {name: self._field(name, item, key) for name, item in cast("Json", value).items()}
            case list():
                return [self.clean(item, key) for item in cast("list[Any]", value)]
            case str():
                return self._words(value)
            case _:
                return value

    def _field(self, name: str, value: Any, above: str) -> Any:
        if above == "time" and isinstance(value, int):
            return "<moment>"
        if name in ("slug", "version"):
            return f"<{name}>"
        if name in ("snapshot", "hash") and isinstance(value, str) and _TREE.fullmatch(value):
            return self._named(value, "tree")
        if name in ("callID", "tool_call_id") or (name == "id" and above == "tool_calls"):
            return self._named(value, "call")
        return self.clean(value, name)

    def _words(self, text: str) -> str:
        for path, name in self._paths.items():
            text = text.replace(path, name)
        text = _ID.sub(lambda result: self._named(result[0], result[1]), text)
        return _MOMENT.sub("<moment>", text)

    def _named(self, name: str, kind: str) -> str:
        if name not in self._known:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._known[name] = f"<{kind} {self._counts[kind]}>"
        return self._known[name]


def _differences(where: str, theirs: Any, ours: Any) -> Iterator[Difference]:
    match theirs, ours:
        case dict(), dict():
            yield from _of_objects(where, cast("Json", theirs), cast("Json", ours))
        case list(), list():
            yield from _of_lists(where, cast("list[Any]", theirs), cast("list[Any]", ours))
        case _:
            if theirs != ours or type(theirs) is not type(ours):
                yield Difference(where, theirs, ours)


def _of_objects(where: str, theirs: Json, ours: Json) -> Iterator[Difference]:
    shared = [key for key in theirs if key in ours], [key for key in ours if key in theirs]
    if shared[0] != shared[1]:
        yield Difference(f"{where} order", *shared)
    for key in [*theirs, *(key for key in ours if key not in theirs)]:
        yield from _differences(f"{where}.{key}".lstrip("."), theirs.get(key, MISSING), ours.get(key, MISSING))


def _of_lists(where: str, theirs: list[Any], ours: list[Any]) -> Iterator[Difference]:
    """Compare lists of records, aligned by the kinds of the records, so that one more record is one difference."""
    left, right = [_kind(their) for their in theirs], [_kind(our) for our in ours]
    for tag, start, end, begin, stop in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if tag == "equal":
            for at, (one, other) in enumerate(zip(theirs[start:end], ours[begin:stop], strict=True), start):
                yield from _differences(f"{where}.{at}{_suffix(left[at])}", one, other)
            continue
        for at in range(start, end):
            yield Difference(f"{where}.{at}{_suffix(left[at])}", theirs[at], MISSING)
        for at in range(begin, stop):
            yield Difference(f"{where}.+{at}{_suffix(right[at])}", MISSING, ours[at])


def _kind(value: Any) -> str:
    match value:
        case {"type": "tool", "tool": str(name)}:
            return f"tool-{name}"
        case {"role": str(kind)} | {"type": str(kind)}:
            return kind
        case dict() | list():
            return ""
        case _:
            return repr(value)


def _suffix(kind: str) -> str:
    return f"-{kind}" if re.fullmatch(r"[\w-]+", kind) else ""
