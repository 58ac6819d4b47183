"""The edits that tools recorded of themselves: enough to undo them where there are no snapshots.

``edit``, ``multiedit``, ``write`` and ``apply_patch`` leave in their part which file they changed, what it held before
and what it held after. What is not recorded (a shell's doings; what ``write`` wrote over) cannot be undone from here.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Any, NamedTuple

from ..records import as_list, as_object
from .grounds import Grounds
from .states import ABSENT, State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..project import Place
    from ..records import Document
    from ..storage.store import StoredMessage

    Children = Callable[[str], Sequence[StoredMessage]]

LARGEST_TEXT = 1 << 20
_TOO_MANY = 200_000_000
_LOST = "\ufffd"
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


class Edit(NamedTuple):
    """One file, before and after. A text, ``ABSENT`` for no file, ``None`` for what was not recorded."""

    path: str
    before: str | State | None
    after: str | State | None


def of_part(part: Document) -> list[Edit]:
    """The edits that a tool call made, in order; none if it did not complete."""
    state = as_object(part.get("state")) or {}
    if part.get("type") != "tool" or state.get("status") != "completed":
        return []
    metadata = as_object(state.get("metadata")) or {}
    given = as_object(state.get("input")) or {}
    match part.get("tool"):
        case "edit":
            return _edited(metadata, given)
        case "multiedit":
            results = [as_object(result) or {} for result in as_list(metadata.get("results")) or []]
            return [edit for result in results for edit in _edited(result, {})]
        case "write":
            return _written(metadata, given)
        case "apply_patch":
            return [edit for file in as_list(metadata.get("files")) or [] for edit in _patched(as_object(file) or {})]
        case _:
            return []


def of_call(part: Document, children: Children | None) -> Iterator[Edit]:
    """The edits of a tool call and, if it gave a task to a subagent, those of the subagent."""
    yield from of_part(part)
    state = as_object(part.get("state")) or {}
    child = (as_object(state.get("metadata")) or {}).get("sessionId")
    if part.get("tool") != "task" or children is None or not isinstance(child, str):
        return
    time = as_object(state.get("time")) or {}
    start, end = time.get("start", 0), time.get("end") or float("inf")
    for message in children(child):
        # A subagent may be asked again later; only what it did for this call belongs to it.
        if start <= message.info["time"]["created"] <= end:
            for each in message.parts:
                yield from of_call(each, children)


def file_diffs(messages: Sequence[StoredMessage], place: Place) -> list[Document]:
    """The files that the tools changed, from the first time to the last, as OpenCode keeps them."""
    grounds = Grounds(place)
    ends: dict[str, tuple[str | State | None, str | State | None]] = {}
    for message in messages:
        for part in message.parts:
            for edit in of_part(part):
                name = grounds.name(edit.path, message.info)
                if name is not None:
                    first, _ = ends.get(name, (edit.before, None))
                    ends[name] = (first, edit.after)
    return [_file_diff(name, *both) for name, both in sorted(ends.items()) if both[0] != both[1]]


def encoded(text: str, like: bytes) -> bytes | None:
    """``text`` written down as the file that holds ``like`` is; ``None`` if the record of it is not exact."""
    if _LOST in text:
        return None
    for mark, encoding in _MARKS:
        if like.startswith(mark):
            return mark + text.removeprefix("\ufeff").encode(encoding, "surrogatepass")
    try:
        return text.encode()
    except UnicodeEncodeError:
        return None


def _edited(metadata: Document, given: Document) -> list[Edit]:
    diff = as_object(metadata.get("filediff")) or {}
    path, before, after = diff.get("file"), diff.get("before"), diff.get("after")
    if not isinstance(path, str):
        return []
    # An edit that replaces nothing makes the file.
    return [Edit(path, ABSENT if given.get("oldString") == "" else _text(before), _text(after))]


def _written(metadata: Document, given: Document) -> list[Edit]:
    recorded = _edited(metadata, {})
    path = metadata.get("filepath")
    if not isinstance(path, str):
        return recorded
    if metadata.get("exists") is False:
        return [Edit(path, ABSENT, _text(given.get("content")))]
    return recorded or [Edit(path, None, _text(given.get("content")))]


def _patched(file: Document) -> list[Edit]:
    path, target = file.get("filePath"), file.get("movePath")
    before, after = _text(file.get("before")), _text(file.get("after"))
    if not isinstance(path, str):
        return []
    match file.get("type"):
        case "add":
            return [Edit(path, ABSENT, after)]
        case "delete":
            return [Edit(path, before, ABSENT)]
        case "move" if isinstance(target, str):
            return [Edit(path, before, ABSENT), Edit(target, ABSENT, after)]
        case _:
            return [Edit(path, before, after)]


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _file_diff(name: str, before: str | State | None, after: str | State | None) -> Document:
    old, new = (text if isinstance(text, str) else "" for text in (before, after))
    additions, deletions = line_counts(old, new)
    fits = len(old) + len(new) <= LARGEST_TEXT
    return {
        "file": name,
        "before": old if fits else "",
        "after": new if fits else "",
        "additions": additions,
        "deletions": deletions,
        "status": "added" if before is ABSENT else "deleted" if after is ABSENT else "modified",
    }


def line_counts(before: str, after: str) -> tuple[int, int]:
    """How many lines came and how many went."""
    from rapidfuzz.distance import LCSseq

    old, new = before.split("\n"), after.split("\n")
    start = _common(old, new)
    end = _common(old[start:][::-1], new[start:][::-1])
    old, new = old[start : len(old) - end], new[start : len(new) - end]
    if len(old) * len(new) > _TOO_MANY:
        return len(new), len(old)
    numbers: dict[str, int] = {}
    first, second = ([numbers.setdefault(line, len(numbers)) for line in lines] for lines in (old, new))
    common = LCSseq.similarity(first, second)
    return len(new) - common, len(old) - common


def _common(old: Sequence[str], new: Sequence[str]) -> int:
    """How many lines both begin with."""
    count = 0
    for one, other in zip(old, new, strict=False):
        if one != other:
            break
        count += 1
    return count
