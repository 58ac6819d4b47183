"""The edits that tools recorded of themselves: enough to undo them where there are no snapshots.

``edit``, ``multiedit``, ``write`` and ``apply_patch`` leave in their part which file they changed, what it held before
and what it held after: ours by the names of contents that were put aside, to the byte; OpenCode's as texts, and not
what ``write`` wrote over. Of what a shell's command changed, at best the names are known.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Any, NamedTuple

from ..records import EXTENSION_KEY, as_list, as_object
from .diffs import LARGEST_TEXT
from .files import ABSENT, FileState, ProjectFolder
from .originals import recorded_writes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..project import ProjectLocation
    from ..records import Document
    from ..storage.protocol import StoredMessage
    from .originals import FileWrite, Originals

    Children = Callable[[str], Sequence[StoredMessage]]

_TOO_MANY = 200_000_000
_LOST = "\ufffd"
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


_EDITING = frozenset(("apply_patch", "edit", "multiedit", "write"))
_READING = frozenset(
    """
    batch codesearch glob grep invalid list lsp plan_enter plan_exit question read recall skill StructuredOutput
    todoread todowrite webfetch websearch
    """.split()
)
"""Tools that change no file. The calls that a batch makes have parts of their own."""


class RecordedEdit(NamedTuple):
    """One file, before and after. A text, ``ABSENT`` for no file, ``None`` for what was not recorded."""

    path: str
    before: str | FileState | None
    after: str | FileState | None
    by_command: bool = False
    """Whether a command did it, so that nobody can tell what the file held before."""


def of_part(part: Document, originals: Originals | None = None) -> list[RecordedEdit]:
    """The edits that a tool call made, in order; none that a call which did not complete may have made, unless it said
    so beforehand."""
    state = as_object(part.get("state")) or {}
    if part.get("type") != "tool":
        return []
    metadata = as_object(state.get("metadata")) or {}
    told = _told(part, state, metadata) if state.get("status") == "completed" else []
    own = recorded_writes(metadata)
    if own is None:
        return told
    texts = {edit.path: edit for edit in reversed(told)}
    return [_exact(write, texts.get(write.file), originals) for write in own]


def is_unwatched(part: Document) -> bool:
    """Whether a call may have changed files of which nobody has a list."""
    state = as_object(part.get("state")) or {}
    metadata = as_object(state.get("metadata")) or {}
    return part.get("type") == "tool" and part.get("tool") == "bash" and recorded_writes(metadata) is None


def accounts_for_all(part: Document) -> bool:
    """Whether a call can have changed no file but those that :func:`of_part` tells of."""
    state = as_object(part.get("state")) or {}
    if part.get("tool") in _READING:
        return True
    is_known = state.get("status") == "completed" or recorded_writes(as_object(state.get("metadata")) or {}) is not None
    return part.get("tool") in _EDITING and is_known


def _exact(write: FileWrite, told: RecordedEdit | None, originals: Originals | None) -> RecordedEdit:
    """By the names of contents; by the text that the tool recorded where the content is no longer there."""
    by_command = write.before is None and told is None
    gone = write.before is None or (write.before.oid and (originals is None or not originals.has(write.before.oid)))
    before = told.before if told is not None and gone else write.before
    after = told.after if told is not None and write.after is None else write.after
    return RecordedEdit(write.file, before, after, by_command)


def _told(part: Document, state: Document, metadata: Document) -> list[RecordedEdit]:
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


def of_call(part: Document, children: Children | None, originals: Originals | None = None) -> Iterator[RecordedEdit]:
    """The edits of a tool call and, if it gave a task to a subagent, those of the subagent."""
    yield from of_part(part, originals)
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
                yield from of_call(each, children, originals)


def file_diffs(
    messages: Sequence[StoredMessage], place: ProjectLocation, originals: Originals | None = None
) -> list[Document]:
    """The files that the tools changed, from the first time to the last, as OpenCode keeps them."""
    folder = ProjectFolder(place)
    ends: dict[str, tuple[str | FileState | None, str | FileState | None]] = {}
    for message in messages:
        for part in message.parts:
            texts = {edit.path: edit.after for edit in of_part(part | {"state": _without_own(part)})}
            for edit in of_part(part, originals):
                name = folder.name(edit.path, message.info)
                if name is not None and not edit.by_command:
                    first, _ = ends.get(name, (_readable(edit.before, originals), None))
                    ends[name] = (first, texts.get(edit.path, edit.after))
    return [_file_diff(name, *both) for name, both in sorted(ends.items()) if both[0] != both[1]]


def _without_own(part: Document) -> Document:
    state = as_object(part.get("state")) or {}
    metadata = as_object(state.get("metadata")) or {}
    return state | {"metadata": {name: value for name, value in metadata.items() if name != EXTENSION_KEY}}


def _readable(known: str | FileState | None, originals: Originals | None) -> str | FileState | None:
    """The text of a content that was put aside."""
    if not isinstance(known, FileState) or not known.oid:
        return known
    data = originals.content(known.oid) if originals is not None else None
    return data.decode("utf-8", "replace") if data is not None else None


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


def _edited(metadata: Document, given: Document) -> list[RecordedEdit]:
    diff = as_object(metadata.get("filediff")) or {}
    path, before, after = diff.get("file"), diff.get("before"), diff.get("after")
    if not isinstance(path, str):
        return []
    # An edit that replaces nothing makes the file.
    return [RecordedEdit(path, ABSENT if given.get("oldString") == "" else _text(before), _text(after))]


def _written(metadata: Document, given: Document) -> list[RecordedEdit]:
    with_texts = _edited(metadata, {})
    path = metadata.get("filepath")
    if not isinstance(path, str):
        return with_texts
    if metadata.get("exists") is False:
        return [RecordedEdit(path, ABSENT, _text(given.get("content")))]
    return with_texts or [RecordedEdit(path, None, _text(given.get("content")))]


def _patched(file: Document) -> list[RecordedEdit]:
    path, target = file.get("filePath"), file.get("movePath")
    before, after = _text(file.get("before")), _text(file.get("after"))
    if not isinstance(path, str):
        return []
    match file.get("type"):
        case "add":
            return [RecordedEdit(path, ABSENT, after)]
        case "delete":
            return [RecordedEdit(path, before, ABSENT)]
        case "move" if isinstance(target, str):
            return [RecordedEdit(path, before, ABSENT), RecordedEdit(target, ABSENT, after)]
        case _:
            return [RecordedEdit(path, before, after)]


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _file_diff(name: str, before: str | FileState | None, after: str | FileState | None) -> Document:
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

    old, new = _lines(before), _lines(after)
    start = _common(old, new)
    end = _common(old[start:][::-1], new[start:][::-1])
    old, new = old[start : len(old) - end], new[start : len(new) - end]
    if len(old) * len(new) > _TOO_MANY:
        return len(new), len(old)
    numbers: dict[str, int] = {}
    first, second = ([numbers.setdefault(line, len(numbers)) for line in lines] for lines in (old, new))
    common = LCSseq.similarity(first, second)
    return len(new) - common, len(old) - common


def _lines(text: str) -> list[str]:
    """As git counts them: the end of a line belongs to it, and no line comes after the last end."""
    *lines, last = text.split("\n")
    return [f"{line}\n" for line in lines] + ([last] if last else [])


def _common(old: Sequence[str], new: Sequence[str]) -> int:
    """How many lines both begin with."""
    count = 0
    for one, other in zip(old, new, strict=False):
        if one != other:
            break
        count += 1
    return count
