"""The files that a session changed, as unified diffs: of the whole session, or of one prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..errors import NotFoundError
from ..line_changes import line_changes, split_lines, texts_of_patch, unified_hunks
from ..records import Document, as_whole, object_at, objects_in
from ..storage import keys
from ..storage.protocol import Store, StoredMessage, read_or_none
from .formatting import text
from .rendering.diff_html import count_changes
from .transcript import ToolBlock, TranscriptOptions, transcript_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


_CONTEXT_LINES = 3
_MAX_TEXT_LENGTH = 4_000_000
"""Characters of a file; larger ones are listed without a diff."""
_MAX_WHOLE_LENGTH = 400_000
"""Characters of a file that can be shown as a whole."""


class OpenedLines(NamedTuple):
    """Lines of a file that its diff shows although nothing changed near them."""

    path: str
    ranges: tuple[tuple[int, int], ...]
    """Line numbers in the old text, from 0; the end of a range is not part of it."""


class FileSummary(NamedTuple):
    """The change of one file."""

    path: str
    status: str
    """added, deleted or modified."""
    additions: int
    deletions: int
    diff: str
    """Unified; empty if it is not known."""
    old_lines: int = 0
    """How many lines the old text has, if all lines are recorded and can be shown."""

    def document(self) -> Document:
        """Return it as JSON data."""
        return {name: value for name, value in self._asdict().items() if name != "old_lines"}


def session_changes(
    store: Store, session_id: str, messages: Sequence[StoredMessage], opened: OpenedLines | None = None
) -> list[FileSummary]:
    """Return the changes of a session: those that OpenCode recorded, else those of its tool calls."""
    recorded = read_or_none(store, keys.diff(session_id))
    return _recorded_changes(recorded, opened) or _called_changes(messages)


def prompt_changes(
    messages: Sequence[StoredMessage], prompt_id: str, opened: OpenedLines | None = None
) -> list[FileSummary]:
    """Return the changes between a prompt and the next one; see :func:`session_changes`."""
    names = [str(message.info.get("id")) for message in messages]
    if prompt_id not in names:
        raise NotFoundError(f"there is no message {prompt_id} in this session", id=prompt_id)
    start = names.index(prompt_id)
    end = next((at for at in range(start + 1, len(messages)) if messages[at].info.get("role") == "user"), len(messages))
    recorded = object_at(messages[start].info, "summary").get("diffs")
    return _recorded_changes(recorded, opened) or _called_changes(messages[start:end])


def unified_diff(path: str, before: str, after: str, opened: Iterable[tuple[int, int]] = ()) -> str:
    """Return the unified diff of two texts, with some lines around each change and the ``opened`` ranges."""
    old, new = split_lines(before), split_lines(after)
    changes = line_changes(old, new)
    if not changes:
        return ""
    return f"--- {path}\n+++ {path}\n{unified_hunks(old, new, changes, _CONTEXT_LINES, opened)}"


def _recorded_changes(recorded: object, opened: OpenedLines | None) -> list[FileSummary]:
    changed: list[FileSummary] = []
    for record in objects_in(recorded):
        if not (path := text(record, "file")):
            continue
        before, after, patch = (text(record, name) for name in ("before", "after", "patch"))
        is_known = "before" in record or "after" in record
        if not is_known and (texts := texts_of_patch(path, patch)):
            before, after = texts
            is_known, patch = True, ""
        length = max(len(before), len(after))
        old_lines = len(split_lines(before)) if before and after and length <= _MAX_WHOLE_LENGTH else 0
        ranges = opened.ranges if opened is not None and opened.path == path and old_lines else ()
        if ranges or (not patch and is_known and length <= _MAX_TEXT_LENGTH):
            patch = unified_diff(path, before, after, ranges)
        additions, deletions = as_whole(record.get("additions")), as_whole(record.get("deletions"))
        status = text(record, "status")
        if status not in ("added", "deleted", "modified"):
            status = "added" if is_known and not before else "deleted" if is_known and not after else "modified"
        changed.append(FileSummary(path, status, additions, deletions, patch, old_lines))
    return changed


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
