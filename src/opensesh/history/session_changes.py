"""The files that a session changed, as unified diffs: of the whole session, or of one prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..errors import NotFoundError
from ..line_changes import line_changes, split_lines, unified_hunks
from ..records import as_list, as_object, as_whole
from ..storage import keys
from ..storage.protocol import read_or_none
from .formatting import text
from .rendering.diff_html import count_changes
from .transcript import ToolBlock, TranscriptOptions, transcript_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..records import Document
    from ..storage.protocol import Store, StoredMessage

_CONTEXT_LINES = 3
_MAX_TEXT_LENGTH = 4_000_000
"""Of a file; larger ones are listed without a diff."""
_MAX_WHOLE_LENGTH = 400_000
"""Of a file that is shown as a whole."""


class FileSummary(NamedTuple):
    """What happened to a file."""

    path: str
    status: str
    """added, deleted or modified."""
    additions: int
    deletions: int
    diff: str
    """Unified; empty if it is not known."""
    has_more_lines: bool = False
    """Whether the lines around the changes are recorded too."""

    def document(self) -> Document:
        """Return it as JSON data."""
        return {name: value for name, value in self._asdict().items() if name != "has_more_lines"}


def session_changes(
    store: Store, session_id: str, messages: Sequence[StoredMessage], whole: str = ""
) -> list[FileSummary]:
    """Return the changes of a session: those that OpenCode recorded, else those of its tool calls. The diff of the file
    ``whole`` has all of its lines, if they are recorded."""
    recorded = as_list(read_or_none(store, keys.diff(session_id))) or []
    return _recorded_changes(recorded, whole) or _called_changes(messages)


def prompt_changes(messages: Sequence[StoredMessage], prompt_id: str, whole: str = "") -> list[FileSummary]:
    """Return the changes between a prompt and the next one; see :func:`session_changes`."""
    names = [str(message.info.get("id")) for message in messages]
    if prompt_id not in names:
        raise NotFoundError(f"there is no message {prompt_id} in this session", id=prompt_id)
    start = names.index(prompt_id)
    end = next((at for at in range(start + 1, len(messages)) if messages[at].info.get("role") == "user"), len(messages))
    summary = as_object(messages[start].info.get("summary")) or {}
    return _recorded_changes(as_list(summary.get("diffs")) or [], whole) or _called_changes(messages[start:end])


def unified_diff(path: str, before: str, after: str, context: int = _CONTEXT_LINES) -> str:
    """Return the unified diff of two texts, with so many lines around each change."""
    old, new = split_lines(before), split_lines(after)
    changes = line_changes(old, new)
    if not changes:
        return ""
    return f"--- {path}\n+++ {path}\n{unified_hunks(old, new, changes, context)}"


def _recorded_changes(records: Iterable[object], whole: str) -> list[FileSummary]:
    changed: list[FileSummary] = []
    for record in map(as_object, records):
        if record is None or not (path := text(record, "file")):
            continue
        before, after, patch = (text(record, name) for name in ("before", "after", "patch"))
        is_known = "before" in record or "after" in record
        if not is_known and (texts := _texts_of(path, patch)):
            before, after = texts
            is_known, patch = True, ""
        length = max(len(before), len(after))
        has_more_lines = bool(before and after) and length <= _MAX_WHOLE_LENGTH
        is_whole = has_more_lines and path == whole
        if is_whole or (not patch and is_known and length <= _MAX_TEXT_LENGTH):
            patch = unified_diff(path, before, after, length if is_whole else _CONTEXT_LINES)
        additions, deletions = as_whole(record.get("additions")), as_whole(record.get("deletions"))
        status = text(record, "status")
        if status not in ("added", "deleted", "modified"):
            status = "added" if is_known and not before else "deleted" if is_known and not after else "modified"
        changed.append(FileSummary(path, status, additions, deletions, patch, has_more_lines and not is_whole))
    return changed


def _texts_of(path: str, patch: str) -> tuple[str, str] | None:
    """Return both texts of a file from a patch of OpenCode 1.14 or later, whose context is the whole file."""
    header, _, hunk = patch.partition(f"\n--- {path}\t\n+++ {path}\t\n")
    lines = split_lines(hunk)
    if not header.startswith("Index: ") or not lines or any(line.startswith("@@") for line in lines[1:]):
        return None
    sides: tuple[list[str], list[str]] = ([], [])
    last: list[list[str]] = []
    for line in lines[1:]:
        if line.startswith("\\"):  # no newline at the end of the line before
            for side in last:
                side[-1] = side[-1].removesuffix("\n")
            continue
        last = [side for side, mark in zip(sides, "-+", strict=True) if line[0] in (mark, " ")]
        for side in last:
            side.append(line[1:])
    return "".join(sides[0]), "".join(sides[1])


def _called_changes(messages: Iterable[StoredMessage]) -> list[FileSummary]:
    """Return the changes that tool calls report, one after the other for each file."""
    diffs: dict[str, list[str]] = {}
    for message in messages:
        for block in transcript_message(message, TranscriptOptions()).blocks:
            if isinstance(block, ToolBlock) and block.diff and block.status == "completed":
                path = text(block.input, "filePath") or text(block.input, "file_path") or block.subject
                diffs.setdefault(path, []).append(block.diff.strip("\n"))
    return [
        FileSummary(path, "modified", *count_changes(joined), joined)
        for path, joined in ((path, "\n".join(pieces)) for path, pieces in diffs.items())
    ]
