"""What a session did to files: by the snapshots of its steps and, for the rest, by what its tools recorded.

``edit``, ``write`` and ``apply_patch`` (and OpenCode's ``multiedit``) leave in their part which file they changed and
what it held before and after. Our tools record the ids of kept contents, exact to the byte; OpenCode's record texts,
and not what ``write`` overwrote. Of what a shell command changed, at best the names are known.
"""

from __future__ import annotations

import codecs
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from ..records import as_list, as_object, object_at
from .attribution import call_targets, comparable
from .files import ABSENT, FileState, blob_id
from .originals import recorded_writes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ..records import Document
    from ..storage.protocol import StoredMessage
    from .attribution import CallTarget
    from .files import ProjectFolder
    from .git import SnapshotObjects
    from .originals import Originals
    from .revert_plan import RevertPoint

    ChildMessages = Callable[[str], Sequence[StoredMessage]]
    """Returns the messages of a subagent's session."""
    Writer = Callable[[str, int, int], str]
    """Returns another session that wrote a file in a span of time; empty if none did."""

Known = FileState | str | None
"""What is known of a file: its state, a text that a tool recorded, or nothing."""

_EDITING = frozenset(("apply_patch", "edit", "multiedit", "write"))
_READING = frozenset(
    """
    batch codesearch glob grep invalid list lsp plan_enter plan_exit question read recall skill StructuredOutput
    todoread todowrite webfetch websearch
    """.split()
)
"""Tools that change no file. The calls that a batch makes have parts of their own."""
_REPLACEMENT_CHARACTER = "\ufffd"
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class RecordedEdit(NamedTuple):
    """A file before and after a tool call. ``ABSENT``: no such file; ``None``: not recorded."""

    path: str
    before: Known
    after: Known
    by_command: bool = False
    """Whether a shell command changed it, so that its content before is unknown."""


class FileChange(NamedTuple):
    """A file before and after a step, or a tool call."""

    name: str
    before: Known
    after: Known
    began: int
    """When the message that changed it began, in milliseconds."""
    ended: int
    """When that message ended."""
    in_snapshot: bool = False
    """Whether a patch part lists it, so that the snapshot before the step has the file's state."""
    by_command: bool = False
    """Whether a shell command changed it outside of any snapshot."""
    rules_changed: bool = False
    """Whether the step also changed a .gitignore, so that a file may only seem to be new."""
    other_session: str = ""
    """The id of another session that wrote it meanwhile."""


class FileHistory(NamedTuple):
    """All changes of one file, as one."""

    before: Known
    """Before the first change."""
    after: Known
    """After the last change."""
    interrupted: bool
    """Whether something else changed it between two changes of the session."""
    first: FileChange
    last: FileChange


# -- tool calls --------------------------------------------------------------------------------------------------------


def call_edits(part: Document, originals: Originals | None = None) -> list[RecordedEdit]:
    """Return the edits that a tool call recorded, in order.

    A call that did not complete counts only if it recorded its writes before it made them.
    """
    if part.get("type") != "tool":
        return []
    edits = _text_edits(part) if object_at(part, "state").get("status") == "completed" else []
    writes = recorded_writes(part)
    if writes is None:
        return edits
    texts = {edit.path: edit for edit in reversed(edits)}
    exact: list[RecordedEdit] = []
    for write in writes:
        before, after, edit = write.before, write.after, texts.get(write.file)
        if edit is not None:  # the recorded text serves where a content is unknown or gone
            gone = before is None or (before.oid and (originals is None or not originals.has(before.oid)))
            before = edit.before if gone else before
            after = edit.after if after is None else after
        exact.append(RecordedEdit(write.file, before, after, by_command=write.before is None and edit is None))
    return exact


def is_unwatched(part: Document) -> bool:
    """Return whether a tool call may have changed files that it did not record."""
    return part.get("type") == "tool" and part.get("tool") == "bash" and recorded_writes(part) is None


def accounts_for_all(part: Document) -> bool:
    """Return whether a tool call can have changed no file but those that :func:`call_edits` returns."""
    if part.get("tool") in _READING:
        return True
    is_known = object_at(part, "state").get("status") == "completed" or recorded_writes(part) is not None
    return part.get("tool") in _EDITING and is_known


def calls_in(part: Document, children: ChildMessages | None) -> Iterator[Document]:
    """Yield a tool call and, for a ``task`` call, the calls of the subagent."""
    if part.get("type") != "tool":
        return
    yield part
    child = object_at(part, "state", "metadata").get("sessionId")
    if part.get("tool") != "task" or children is None or not isinstance(child, str):
        return
    time = object_at(part, "state", "time")
    start, end = time.get("start", 0), time.get("end") or float("inf")
    for message in children(child):
        # A subagent's session can be continued by a later call; only what it did for this one belongs to it.
        if start <= message.info["time"]["created"] <= end:
            for child_part in message.parts:
                yield from calls_in(child_part, children)


def encode_like(text: str, sample: bytes) -> bytes | None:
    """Encode ``text`` as the file with the content ``sample`` is; ``None`` if the recorded text is not exact."""
    if _REPLACEMENT_CHARACTER in text:
        return None
    for mark, encoding in _BYTE_ORDER_MARKS:
        if sample.startswith(mark):
            return mark + text.removeprefix("\ufeff").encode(encoding, "surrogatepass")
    try:
        return text.encode()
    except UnicodeEncodeError:
        return None


def _text_edits(part: Document) -> list[RecordedEdit]:
    """Return the edits whose texts the tool recorded, as OpenCode's tools do."""
    metadata, arguments = object_at(part, "state", "metadata"), object_at(part, "state", "input")
    match part.get("tool"):
        case "edit":
            return _edited(metadata, arguments)
        case "multiedit":
            results = [as_object(result) or {} for result in as_list(metadata.get("results")) or []]
            return [edit for result in results for edit in _edited(result, {})]
        case "write":
            path, content = metadata.get("filepath"), _text(arguments.get("content"))
            if isinstance(path, str) and metadata.get("exists") is False:
                return [RecordedEdit(path, ABSENT, content)]
            return _edited(metadata, {}) or ([RecordedEdit(path, None, content)] if isinstance(path, str) else [])
        case "apply_patch":
            return [edit for file in as_list(metadata.get("files")) or [] for edit in _patched(as_object(file) or {})]
        case _:
            return []


def _edited(metadata: Document, arguments: Document) -> list[RecordedEdit]:
    diff = object_at(metadata, "filediff")
    path, before, after = diff.get("file"), diff.get("before"), diff.get("after")
    if not isinstance(path, str):
        return []
    # An edit that replaces the empty string creates the file.
    return [RecordedEdit(path, ABSENT if arguments.get("oldString") == "" else _text(before), _text(after))]


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


# -- steps -------------------------------------------------------------------------------------------------------------


class ChangeCollector:
    """Collects the changes to files from a session's history."""

    def __init__(
        self,
        folder: ProjectFolder,
        objects: SnapshotObjects | None,
        children: ChildMessages | None = None,
        originals: Originals | None = None,
        *,
        writer: Writer | None = None,
        unattributed: bool = False,
    ) -> None:
        """Without ``objects``, snapshots are not used; without ``children``, subagents are left out; without
        ``originals``, only recorded texts are used.

        Without ``writer``, everything that changed while a command ran counts as changed by it. With it, only what
        :mod:`.attribution` shows does, and files that the session changed before; with ``unattributed``, also
        everything else that no other session wrote.
        """
        self._folder = folder
        self._objects = objects
        self._children = children
        self._originals = originals
        self._writer = writer
        self._include_unattributed = unattributed
        self.own: set[str] = set()
        """Files that the session changed, as far as they were collected."""
        self.outside: list[str] = []
        """Changed files that are not in the session's folder."""
        self.unattributed: dict[str, str] = {}
        """Files that changed while a command ran and are left alone, each with the session that wrote it, if known."""
        self.unwatched: list[str] = []
        """Shell commands whose changes are unknown."""

    def since(self, history: Sequence[StoredMessage], point: RevertPoint) -> Iterator[FileChange]:
        """Yield every change at or after ``point``, in order."""
        start = point.part
        for message in history[point.message :]:
            if message.info.get("role") == "assistant":
                self.unwatched += self._unwatched_commands(message, start)
                edits: list[RecordedEdit] = []
                for number, part in enumerate(message.parts[start:], start):
                    if part.get("type") == "patch":
                        yield from self._step_changes(message, number, start, edits)
                        edits = []
                    else:
                        edits += self._edits([part], message.info)
                yield from _recorded_changes(message, edits)
            start = 0

    def _unwatched_commands(self, message: StoredMessage, start: int) -> Iterator[str]:
        """Yield the commands that ran without a snapshot on both sides: none was taken, or the process died first."""
        step_start = _last_index(message.parts, "step-start")
        ended = any(part.get("type") in ("step-finish", "patch") for part in message.parts[step_start:])
        unfinished = len(message.parts) if ended or "error" in message.info else step_start
        has_snapshot = False
        for number, part in enumerate(message.parts):
            if part.get("type") == "step-start":
                has_snapshot = self._objects is not None and bool(part.get("snapshot"))
            elif number >= start and (not has_snapshot or number > unfinished) and is_unwatched(part):
                yield str(object_at(part, "state", "input").get("command", ""))

    def _step_changes(
        self, message: StoredMessage, number: int, start: int, edits: list[RecordedEdit]
    ) -> Iterator[FileChange]:
        """Yield what a patch part lists. Tool calls account for files it does not list, and for a partly kept step."""
        parts, patch = message.parts, message.parts[number]
        step_start = _last_index(parts[:number], "step-start")
        kept = self._edits(parts[step_start:start], message.info) if step_start < start else []
        whole = not any(part.get("type") == "tool" for part in parts[step_start:start])
        files = [str(file) for file in as_list(patch.get("files")) or []]
        names = dict.fromkeys(name for file in files if (name := self._name(file, message.info)) is not None)
        calls = [call for part in parts[step_start:number] for call in calls_in(part, self._children)]
        names, targets = self._own_names(names, message, calls, [*kept, *edits])
        after = _snapshot_after(parts[:number])
        rules_changed = any(os.path.basename(name) == ".gitignore" for name in names)
        # A step that is reverted as a whole goes back to the snapshot before it. In one that is kept in part, the calls
        # that stay have changed files since that snapshot, so what the reverted calls recorded comes first.
        for name, writer in names.items():
            left = self._state_in(after, name) if after else _last_text(edits, name)
            first = next((edit.before for edit in edits if edit.path == name), None)
            if not whole and first is None and left is not None and same(_last_text(kept, name), left):
                continue  # changed before the point
            before = self._state_in(patch.get("hash"), name) if whole or first is None else first
            if self._writer is not None and name not in targets:
                # What the tools recorded is exact; a snapshot may have what another session wrote around it.
                before = first if self._is_kept(first) else before
                exact = _last_text(edits, name)
                left = exact if isinstance(exact, FileState) else left
            change = _change(message, name, before, left)
            yield change._replace(in_snapshot=True, rules_changed=rules_changed, other_session=writer)
        yield from _recorded_changes(message, [edit for edit in edits if edit.path not in names])

    def _edits(self, parts: Iterable[Document], info: Document) -> list[RecordedEdit]:
        """Return the edits of tool calls, with names relative to the folder instead of paths."""
        edits: list[RecordedEdit] = []
        for call in (call for part in parts for call in calls_in(part, self._children)):
            targets = list(call_targets(call, self._directory(info))) if self._writer is not None else []
            for edit in call_edits(call, self._originals):
                name = self._name(edit.path, info)
                if name is None:
                    continue
                if self._writer is None or call.get("tool") != "bash" or self._covers(targets, name, info):
                    self.own.add(name)
                else:
                    time = object_at(call, "state", "time")
                    start = int(time.get("start") or 0)
                    if not self._is_own(name, self._writer(edit.path, start, int(time.get("end") or start))):
                        continue
                edits.append(edit._replace(path=name))
        return edits

    def _own_names(
        self,
        names: dict[str, None],
        message: StoredMessage,
        calls: Sequence[Document],
        edits: Sequence[RecordedEdit],
    ) -> tuple[dict[str, str], set[str]]:
        """Return the files of a step that the session changed, each with another session that wrote it meanwhile; and
        those of them that a call names as its target."""
        recorded = {comparable(edit.path) for edit in edits}
        recorded |= {comparable(os.path.realpath(edit.path)) for call in calls for edit in call_edits(call)}
        real = {name: comparable(os.path.realpath(self._folder.path(name))) for name in names}
        own = {name: "" for name in names if comparable(name) in recorded or real[name] in recorded}
        self.own.update(own)
        if all(accounts_for_all(call) for call in calls):
            return own, set()  # any other file that changed meanwhile, the user has changed
        if self._writer is None:
            return dict.fromkeys(names, ""), set()
        where = self._directory(message.info)
        targets = [target for call in calls for target in call_targets(call, where)]
        named = {name for name in names if self._covers(targets, name, message.info)}
        self.own.update(named)
        span = _change(message, "", None, None)
        for name in names:
            if name not in own or name in named:
                writer = self._writer(self._folder.path(name), span.began, span.ended)
                if self._is_own(name, writer):
                    own[name] = writer
        return {name: own[name] for name in names if name in own}, named

    def _is_own(self, name: str, writer: str) -> bool:
        """Return whether a change during a command counts for the session; if not, note it."""
        if name in self.own or (self._include_unattributed and not writer):
            return True
        self.unattributed[name] = writer or self.unattributed.get(name, "")
        return False

    def _covers(self, targets: Iterable[CallTarget], name: str, info: Document) -> bool:
        paths = {os.path.realpath(self._folder.path(name)), *self._folder.paths(name, info)}
        return any(target.covers(path) for target in targets for path in paths)

    def _directory(self, info: Document) -> str:
        directory = object_at(info, "path").get("cwd")
        return directory if isinstance(directory, str) and directory else self._folder.directory

    def _is_kept(self, known: Known) -> bool:
        if not isinstance(known, FileState):
            return False
        return not known.oid or (self._originals is not None and self._originals.has(known.oid))

    def _name(self, path: str, info: Document) -> str | None:
        name = self._folder.name(path, info)
        if name is None and path not in self.outside:
            self.outside.append(path)
        return name

    def _state_in(self, tree: object, name: str) -> FileState | None:
        if self._objects is None or not isinstance(tree, str):
            return None
        return self._objects.state(tree, name)


def file_histories(changes: Iterable[FileChange]) -> dict[str, FileHistory]:
    """Combine the changes of each file."""
    histories: dict[str, FileHistory] = {}
    for change in changes:
        history = histories.get(change.name)
        if history is None:
            histories[change.name] = FileHistory(
                change.before, change.after, bool(change.other_session), change, change
            )
        else:
            known = history.after is not None and change.before is not None
            differs = known and not same(history.after, change.before)
            interrupted = history.interrupted or differs or bool(change.other_session)
            histories[change.name] = FileHistory(history.before, change.after, interrupted, history.first, change)
    return histories


def same(one: Known, other: Known) -> bool:
    """Return whether two accounts of a file agree. A text is compared by its bytes in UTF-8."""
    if one is None or other is None:
        return False
    first, second = (
        FileState(blob_id(known.encode("utf-8", "surrogatepass"))) if isinstance(known, str) else known
        for known in (one, other)
    )
    return first.fits(second)


def _recorded_changes(message: StoredMessage, edits: Sequence[RecordedEdit]) -> Iterator[FileChange]:
    """Yield the recorded edits. A file that both a tool and a concurrent command changed counts for the tool."""
    by_tools = {edit.path for edit in edits if not edit.by_command}
    for edit in edits:
        if not edit.by_command or edit.path not in by_tools:
            yield _change(message, edit.path, edit.before, edit.after)._replace(by_command=edit.by_command)


def _change(message: StoredMessage, name: str, before: Known, after: Known) -> FileChange:
    time = object_at(message.info, "time")
    began = int(time.get("created") or 0)
    # A message that was never completed lasted at least as long as its tool calls.
    calls = [object_at(part, "state", "time") for part in message.parts]
    ended = time.get("completed") or max([began, *(int(call.get("end") or call.get("start") or 0) for call in calls)])
    return FileChange(name, before, after, began, int(ended))


def _last_index(parts: Sequence[Document], kind: str) -> int:
    """Return the index of the last part of a type; 0 if there is none."""
    return max((number for number, part in enumerate(parts) if part.get("type") == kind), default=0)


def _snapshot_after(parts: Sequence[Document]) -> str | None:
    """Return the snapshot at the end of the step that the last of ``parts`` belongs to; ``None`` if it was aborted."""
    for part in reversed(parts):
        if part.get("type") == "step-finish":
            return _text(part.get("snapshot")) or None
        if part.get("type") in ("step-start", "patch"):
            break
    return None


def _last_text(edits: Sequence[RecordedEdit], name: str) -> Known:
    return next((edit.after for edit in reversed(edits) if edit.path == name), None)
