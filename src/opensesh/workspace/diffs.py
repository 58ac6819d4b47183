"""What changed between two snapshots, or in a part of a session's history, and the summaries that record it."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, NamedTuple

from .. import events
from ..errors import NotFoundError, SnapshotError
from ..line_changes import count_lines, line_changes, split_lines, whole_file_patch
from ..records import EXTENSION_KEY, object_at
from ..storage import keys
from ..storage.protocol import CompositeStore, conventions_of
from .changes import ChangeCollector, call_edits
from .files import ABSENT, FileState, ProjectFolder
from .git import SnapshotObjects, split
from .originals import Originals
from .revert_plan import RevertPoint

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ..events import Publish
    from ..project import ProjectLocation
    from ..records import Document, Session
    from ..sessions import Sessions
    from ..storage.protocol import StoredMessage
    from .changes import ChildMessages, Known
    from .git import Git
    from .snapshots import Snapshots

log = logging.getLogger("opensesh.workspace")
MAX_TEXT_BYTES = 1 << 20
"""Of a larger file only the line counts are kept, not the texts: they would be stored once a step."""
MAX_TOTAL_BYTES = 8 << 20
"""The same for all texts of one list together."""
_STATUS = {"A": "added", "D": "deleted"}
_NO_BLOB = "0" * 40
_TREE_ID = re.compile(r"[0-9a-f]{40}")


class ChangedFile(NamedTuple):
    """A file that differs between two snapshots."""

    name: str
    """Relative to the checkout."""
    letter: str
    """A, D, M or T, as git prints it."""
    before: str
    """The id of the content; zeros for none."""
    after: str
    additions: int | None = None
    """``None`` for a binary file."""
    deletions: int | None = None


# -- two snapshots -----------------------------------------------------------------------------------------------------


def changed_files(git: Git, before: str, after: str, scope: str = ".") -> list[ChangedFile]:
    """Return the files that differ, in git's order."""
    return _parse_raw(_diff_tree(git, before, after, scope, "--raw"))[0]


def counted_files(git: Git, before: str, after: str, scope: str = ".") -> list[ChangedFile]:
    """Return the files that differ, with the number of added and deleted lines."""
    files, rest = _parse_raw(_diff_tree(git, before, after, scope, "--raw", "--numstat"))
    counts: dict[str, tuple[int | None, ...]] = {}
    for line in rest:
        *numbers, name = line.split("\t", 2)
        counts[name] = tuple(None if number == "-" else int(number) for number in numbers)
    return [file._replace(additions=counts[file.name][0], deletions=counts[file.name][1]) for file in files]


def file_diffs(
    git: Git,
    before: str,
    after: str,
    scope: str = ".",
    *,
    without: Collection[str] = (),
    max_total_bytes: int = MAX_TOTAL_BYTES,
) -> list[Document]:
    """Return the files that differ as OpenCode 1.1.65 stores them: with both texts, empty for binary files."""
    files = [file for file in counted_files(git, before, after, scope) if file.name not in without]
    oids = [oid for file in files if file.additions is not None for oid in (file.before, file.after)]
    sizes = _blob_sizes(git, [oid for oid in dict.fromkeys(oids) if oid != _NO_BLOB])
    bytes_left = max_total_bytes
    diffs: list[Document] = []
    with SnapshotObjects(git) as objects:
        for file in files:
            size = sizes.get(file.before, 0) + sizes.get(file.after, 0)
            fits = file.additions is not None and size <= min(MAX_TEXT_BYTES, bytes_left)
            bytes_left -= size if fits else 0
            diffs.append(
                {
                    "file": file.name,
                    "before": _blob_text(objects, file.before) if fits else "",
                    "after": _blob_text(objects, file.after) if fits else "",
                    "additions": file.additions or 0,
                    "deletions": file.deletions or 0,
                    "status": _STATUS.get(file.letter, "modified"),
                }
            )
    return diffs


def unified_diff(git: Git, before: str, after: str, scope: str = ".") -> str:
    """Return the difference as ``git diff`` shows it, with renames, without the last line break."""
    options = ("--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=all")
    return git.run("diff", *options, _tree(before), _tree(after), "--", scope).decode("utf-8", "replace").strip()


def _diff_tree(git: Git, before: str, after: str, scope: str, *formats: str) -> list[str]:
    options = ("-r", "-z", "--no-renames", "--ignore-submodules=all", "--no-ext-diff", *formats)
    return split(git.run("diff-tree", *options, _tree(before), _tree(after), "--", scope))


def _tree(name: str) -> str:
    """Return ``name`` if it can be a snapshot's id. A stored record may hold anything, even an option of git's."""
    if _TREE_ID.fullmatch(name) is None:
        raise SnapshotError(f"{name!r:.60} is not the id of a snapshot")
    return name


def _parse_raw(words: Sequence[str]) -> tuple[list[ChangedFile], Sequence[str]]:
    """Parse pairs of ``:mode mode oid oid letter`` and a name; also return the words after them."""
    files: list[ChangedFile] = []
    at = 0
    while at < len(words) and words[at].startswith(":"):
        _, _, before, after, letter = words[at].split(" ")
        files.append(ChangedFile(words[at + 1], letter[0], before, after))
        at += 2
    return files, words[at:]


def _blob_sizes(git: Git, oids: Sequence[str]) -> dict[str, int]:
    if not oids:
        return {}
    output = git.run("cat-file", "--batch-check", stdin="".join(f"{oid}\n" for oid in oids).encode())
    lines = (line.split() for line in output.decode().splitlines())
    return {line[0]: int(line[2]) for line in lines if len(line) == 3}


def _blob_text(objects: SnapshotObjects, oid: str) -> str:
    data = objects.content(oid) if oid != _NO_BLOB else b""
    return (data or b"").decode("utf-8", "replace")


# -- a part of a history -----------------------------------------------------------------------------------------------


def snapshot_range(messages: Sequence[StoredMessage]) -> tuple[str, str] | None:
    """Return the first snapshot before a step and the last one after a step; ``None`` if either is missing."""
    before = after = ""
    for message in messages:
        for part in message.parts:
            snapshot = part.get("snapshot")
            if not isinstance(snapshot, str) or not snapshot:
                continue
            if part.get("type") == "step-start" and not before:
                before = snapshot
            elif part.get("type") == "step-finish":
                after = snapshot
    return (before, after) if before and after else None


def turn_messages(messages: Sequence[StoredMessage], prompt_id: str) -> list[StoredMessage]:
    """Return a prompt and the assistant messages that answer it."""
    return [
        message
        for message in messages
        if message.info.get("id") == prompt_id
        or (message.info.get("role") == "assistant" and message.info.get("parentID") == prompt_id)
    ]


def snapshots_in(revert: Document, messages: Sequence[StoredMessage]) -> set[str]:
    """Return every snapshot that messages, and a revert of them, refer to."""
    records = [revert, *(part for message in messages for part in message.parts)]
    values = (record.get(field) for record in records for field in ("snapshot", "hash"))
    return {value for value in values if isinstance(value, str)}


def totals(diffs: Sequence[Document]) -> Document:
    """Return a session's ``summary``: the totals of its diffs."""
    additions = deletions = 0
    for diff in diffs:
        additions += diff.get("additions", 0)
        deletions += diff.get("deletions", 0)
    return {"additions": additions, "deletions": deletions, "files": len(diffs)}


def history_diffs(
    messages: Sequence[StoredMessage],
    snapshots: Snapshots,
    originals: Originals | None = None,
    children: ChildMessages | None = None,
) -> list[Document]:
    """Return the files that a part of a history changed.

    From the snapshots before and after it; where there are none, from what the tools recorded and, with
    ``originals``, from the contents that were kept. Without files that others changed meanwhile.
    """
    ends = snapshot_range(messages)
    if ends is None or not snapshots.readable:
        return recorded_diffs(messages, snapshots.location, originals)
    own = changed_names(messages, snapshots.location, children)
    return [diff for diff in snapshots.diff(*ends) if diff["file"] in own]


def history_diffs_or_empty(
    messages: Sequence[StoredMessage],
    snapshots: Snapshots,
    originals: Originals | None = None,
    children: ChildMessages | None = None,
) -> list[Document]:
    """Return :func:`history_diffs`, or an empty list if a snapshot was deleted."""
    try:
        return history_diffs(messages, snapshots, originals, children)
    except SnapshotError as error:
        log.info("%s", error)
        return []


def changed_names(
    messages: Sequence[StoredMessage], location: ProjectLocation, children: ChildMessages | None = None
) -> set[str]:
    """Return the files that the tools and commands in a part of a history changed, as far as that can be shown."""
    collector = ChangeCollector(ProjectFolder(location), None, children, writer=lambda path, began, ended: "")
    return {change.name for change in collector.since(messages, RevertPoint(0))}


def recorded_diffs(
    messages: Sequence[StoredMessage], location: ProjectLocation, originals: Originals | None = None
) -> list[Document]:
    """Return the files that tools recorded as changed, from the first change to the last, as OpenCode stores them."""
    folder = ProjectFolder(location)
    ends: dict[str, tuple[Known, Known]] = {}
    for message in messages:
        for part in message.parts:
            # Without our exact record, OpenCode's texts remain.
            state, metadata = object_at(part, "state"), object_at(part, "state", "metadata")
            metadata = {name: value for name, value in metadata.items() if name != EXTENSION_KEY}
            texts = {edit.path: edit.after for edit in call_edits(part | {"state": state | {"metadata": metadata}})}
            for edit in call_edits(part, originals):
                name = folder.name(edit.path, message.info)
                if name is not None and not edit.by_command:
                    first, _ = ends.get(name, (_readable(edit.before, originals), None))
                    ends[name] = (first, texts.get(edit.path, edit.after))
    return [_recorded_diff(name, *both) for name, both in sorted(ends.items()) if both[0] != both[1]]


def _readable(known: Known, originals: Originals | None) -> Known:
    """Return the text of a kept content instead of its state."""
    if not isinstance(known, FileState) or not known.oid:
        return known
    data = originals.content(known.oid) if originals is not None else None
    return data.decode("utf-8", "replace") if data is not None else None


def _recorded_diff(name: str, before: Known, after: Known) -> Document:
    old, new = (text if isinstance(text, str) else "" for text in (before, after))
    additions, deletions = line_counts(old, new)
    fits = len(old) + len(new) <= MAX_TEXT_BYTES
    return {
        "file": name,
        "before": old if fits else "",
        "after": new if fits else "",
        "additions": additions,
        "deletions": deletions,
        "status": "added" if before is ABSENT else "deleted" if after is ABSENT else "modified",
    }


def line_counts(before: str, after: str) -> tuple[int, int]:
    """Return how many lines were added and deleted, counted as git does."""
    return count_lines(line_changes(split_lines(before), split_lines(after)))


# -- summaries ---------------------------------------------------------------------------------------------------------


def summarize(
    sessions: Sessions,
    snapshots: Snapshots,
    session_id: str,
    *prompt_ids: str,
    publish: Publish,
) -> list[Document]:
    """Store and publish what the session changed, and what each of the prompts changed; return the session's diffs.

    Called at the end of every prompt. If a snapshot is gone, the list of files is empty.
    """
    messages = sessions.messages(session_id)
    originals = Originals(sessions.store)
    diffs = history_diffs_or_empty(messages, snapshots, originals, sessions.messages)
    record_summary(sessions, session_id, diffs, publish=publish)
    for prompt_id in prompt_ids:
        turn_diffs = history_diffs_or_empty(turn_messages(messages, prompt_id), snapshots, originals, sessions.messages)
        _record_prompt_diffs(sessions, session_id, prompt_id, turn_diffs, publish)
    return diffs


def record_no_changes(sessions: Sessions, session_id: str, prompt_id: str, *, publish: Publish) -> None:
    """Store and publish, as OpenCode does, that neither the session nor the prompt has changed a file."""
    record_summary(sessions, session_id, [], publish=publish)
    _record_prompt_diffs(sessions, session_id, prompt_id, [], publish)


def _record_prompt_diffs(
    sessions: Sessions, session_id: str, prompt_id: str, diffs: list[Document], publish: Publish
) -> None:
    stored = _stored_diffs(sessions, session_id, diffs)

    def edit(info: Document) -> None:
        info["summary"] = object_at(info, "summary") | {"diffs": stored}

    try:
        info = sessions.store.update(keys.message(session_id, prompt_id), edit)
    except NotFoundError:
        return  # the prompt was reverted meanwhile
    publish(events.MessageUpdated(info=info))


def record_summary(
    sessions: Sessions,
    session_id: str,
    diffs: list[Document],
    *,
    publish: Publish,
    change: Callable[[Document], object] | None = None,
    summary: Document | None = None,
) -> Session:
    """Store and publish a session's diffs, and their totals or another ``summary``; ``change`` edits the session's
    record in the same write."""
    stored = _stored_diffs(sessions, session_id, diffs)
    sessions.store.write(keys.diff(session_id), stored)
    publish(events.SessionDiff(session_id=session_id, diff=stored))

    def edit(info: Document) -> None:
        if change is not None:
            change(info)
        info["summary"] = totals(diffs) if summary is None else summary

    return sessions.update(session_id, edit)


def _stored_diffs(sessions: Sessions, session_id: str, diffs: list[Document]) -> list[Document]:
    """Return diffs in the form of the OpenCode that uses the session's store: both texts of a file, or a patch."""
    store = sessions.store
    member = store.store_for_write(keys.diff(session_id)) if isinstance(store, CompositeStore) else store
    if not conventions_of(member).diffs_are_patches:
        return diffs
    names = ("file", "patch", "additions", "deletions", "status")
    return [{name: _patch(diff) if name == "patch" else diff[name] for name in names} for diff in diffs]


def _patch(diff: Document) -> str:
    """Return a unified diff with the whole file as context, as OpenCode stores it; empty if the texts are not known."""
    before, after = diff["before"], diff["after"]
    if not before and not after and (diff["status"] == "modified" or diff["additions"] or diff["deletions"]):
        return ""
    return whole_file_patch(diff["file"], before, after)
