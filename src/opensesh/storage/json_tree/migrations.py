"""Bring an old tree to the layout of OpenCode 1.1.65.

The file ``migration`` in the tree counts the steps already taken; :func:`prepare` writes it to a new tree, and migrates
an old one, before the first write. Step 0 gathers the trees of the time before 0.6.0,
one a project, into one; step 1 moves the diffs out of the session records. A step writes everything aside first, so
that it either finishes or leaves the tree as it was and raises :class:`MigrationError`; then it can be repeated. A step
that was killed while it put files in place is completed by the next command. Sources are never deleted, nor are files
that a step does not understand: the result names them.
"""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from ... import ids
from ...errors import InvalidKeyError, MigrationError, NotFoundError, OpenseshError, RecordError, StoreTooNewError
from ...records import as_list, as_object, codec
from ..disk import Disk, names_in, read_file
from ..keys import GLOBAL, check_key
from ..locations import old_projects
from ..memory import Memory
from ..project_ids import project_id
from ..protocol import Damage, FileTree, ignore_damage
from .journal import journaled

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from ..protocol import Batch, Key
    from .store import JsonTree

log = logging.getLogger("opensesh.storage")
LAYOUT = 2
"""The layout this version reads and writes."""


class MigrationOutcome(NamedTuple):
    """The result of a migration."""

    steps: int
    written: int
    left: list[Damage]
    """Files that were skipped, with the reason."""


def version(tree: FileTree) -> int:
    """Return how many steps the tree has completed; 0 if it has no counter."""
    try:
        text = read_file(_counter(tree)).decode().strip().strip('"')
    except (OSError, UnicodeDecodeError):
        return 0
    return int(text[:9]) if text.isdecimal() else 0


def pending(tree: FileTree) -> bool:
    """Return whether a migration would change anything."""
    if os.path.exists(_counter(tree)):
        return version(tree) < LAYOUT
    # A tree without a counter is not necessarily old: one that was created with this layout has none.
    sessions = tree.scan(("session",), report=ignore_damage)
    return bool(old_projects(os.path.dirname(tree.root))) or any(_diffs(session) is not None for _, session in sessions)


def left_behind(tree: FileTree) -> list[str]:
    """Return the trees of before 0.6 of which a migrated tree has neither the project nor a session.

    OpenCode leaves out the projects whose folder does not exist or has no commit, and counts the step as taken.
    """
    sources = old_projects(os.path.dirname(tree.root)) if version(tree) == LAYOUT else []
    if not sources:
        return []
    present = {key[-1] for key in tree.list(("session",))}
    projects = [as_object(project) or {} for _, project in tree.scan(("project",), report=ignore_damage)]
    worktrees = {project.get("worktree") for project in projects if project.get("id") != GLOBAL}
    names = {source: set(session_names(source)) for source in sources if worktree_of(source) not in worktrees}
    return [source for source in names if names[source] and not names[source] & present]


def session_names(source: str) -> list[str]:
    """Return the ids of the sessions in a tree of before 0.6."""
    names = names_in(os.path.join(source, "info"))
    return [name.removesuffix(".json") for name in names if name.endswith(".json") and name[0] != "."]


def refuse_newer(tree: FileTree) -> None:
    """Raise :class:`StoreTooNewError` for a tree of a newer layout, which is only read."""
    layout = version(tree)
    if layout > LAYOUT:
        message = f"{tree.root} has layout {layout}; this version of opensesh supports {LAYOUT} and only reads it"
        raise StoreTooNewError(message, layout=layout)


def prepare(tree: FileTree, disk: Disk, *, creates: bool) -> None:
    """Bring a tree to this layout before it is written to: an old one is migrated, a new one gets its counter.
    One that does not exist is created only with ``creates``.

    Raises :class:`StoreTooNewError` for one of a newer layout.
    """
    refuse_newer(tree)
    if version(tree) == LAYOUT:
        return
    if not pending(tree):
        if not creates and not os.path.isdir(tree.root):
            return
        with tree.locks.hold():
            if not version(tree):
                disk.replace(_counter(tree), str(LAYOUT).encode())
        return
    outcome = migrate(tree)
    for path, reason in outcome.left:
        log.warning("%s was not migrated: %s", path, reason)
    log.warning("%s was migrated to the layout of OpenCode 1.1: %d records written", tree.root, outcome.written)


def migrate(
    tree: FileTree, identify: Callable[[str], str] = project_id, *, disk: Disk | None = None
) -> MigrationOutcome:
    """Apply the missing steps; all of them to what was left behind. ``identify`` returns the project id of a worktree,
    ``global`` if it has none.

    The tree is locked exclusively meanwhile.
    """
    with tree.locks.hold():
        taken = version(tree)
        if left_behind(tree):
            taken = 0
        if taken > LAYOUT:
            raise StoreTooNewError(
                f"{tree.root} has layout {taken}; this version of opensesh supports {LAYOUT}. Nothing was changed.",
                layout=taken,
            )
        # One sync of the whole disk costs less than one of each file.
        work = _Work(tree, disk or Disk(durable=not hasattr(os, "sync")))
        for number in range(taken, LAYOUT):
            try:
                _gather(work, identify) if number == 0 else _move_diffs(work)
                work.settle(number + 1)
            except BaseException as error:
                outcome = work.undo()
                if not isinstance(error, Exception):
                    raise
                raise MigrationError(
                    f"step {number} on {tree.root} stopped. {error}\n{outcome} It can be repeated.", step=number
                ) from error
        return MigrationOutcome(LAYOUT - taken, work.written, work.left)


class _Work:
    """A migration in progress: its staged files, what it has put in place, and how to undo that."""

    def __init__(self, tree: FileTree, disk: Disk) -> None:
        self.tree = tree
        self.disk = disk
        self.written = 0
        self.left: list[Damage] = []
        self._aside: dict[str, str] = {}
        self._folders: set[str] = set()
        self._before: list[tuple[str, bytes | None]] = []

    def put(self, key: Key, data: bytes, *, over: bool = False) -> bool:
        """Stage a record. Unless ``over``, an existing one wins; return whether that is the same."""
        path = self.tree.locate(key)
        present = self._aside.get(path) or (path if os.path.exists(path) else None)
        if present and not over:
            return read_file(present) == data
        self._folders.add(os.path.dirname(path))
        self._aside[path] = self.disk.stage(path, data)
        return True

    def settle(self, steps: int) -> None:
        """Put everything that was staged in place, make it durable, and count the step."""
        counter = _counter(self.tree)
        self.written += len(self._aside)
        self._aside[counter] = self.disk.stage(counter, str(steps).encode())
        self._sync()
        with journaled(self.tree.root, self._aside.items(), durable=self.disk.durable):
            for path, temporary in self._aside.items():
                if path == counter:
                    self._sync()
                self._before.append((path, read_file(path) if os.path.exists(path) else None))
                self.disk.rename(temporary, path)
                if self.disk.durable:
                    self.disk.sync_folder(os.path.dirname(path))
            self.disk.sync_folder(self.tree.root)
        self._aside.clear()
        self._before.clear()

    def undo(self) -> str:
        """Undo the unfinished step, last change first, and return a sentence about the result."""
        outcome = "Everything is as it was."
        for path, data in reversed(self._before):
            try:
                self.disk.remove(path) if data is None else self.disk.replace(path, data)
            except OpenseshError as error:
                outcome = f"Some of it could not be undone ({error}); nothing is lost."
        for temporary in self._aside.values():
            self.disk.discard(temporary)
        for folder in self._folders | {self.tree.root}:
            empty = folder
            while empty.startswith(self.tree.root):
                self.disk.remove_empty(empty)
                empty = os.path.dirname(empty)
        return outcome

    def _sync(self) -> None:
        if len(self._aside) > 1 and not self.disk.durable and hasattr(os, "sync"):
            os.sync()


def _gather(work: _Work, identify: Callable[[str], str]) -> None:
    """Step 0: ``<data>/project/<name>/storage/session/{info,message,part}`` into the one tree."""
    left = left_behind(work.tree)
    for source, worktree, project in old_sources(os.path.join(os.path.dirname(work.tree.root), "project"), identify):
        if version(work.tree) and source not in left:
            continue  # what was removed since the migration stays removed
        for key, path in old_records(source, project, work.left):
            try:
                data = read_file(path)
            except OSError as error:
                work.left.append(Damage(path, f"cannot be read: {error.strerror or error}"))
                continue
            if not work.put(key, data):
                work.left.append(Damage(path, "the tree already has another record of that name, which was kept"))
        now = ids.now_ms()
        record: dict[str, Any] = {"id": project, "worktree": worktree}
        record |= {"vcs": "git"} if project != GLOBAL else {}
        record |= {"sandboxes": [], "time": {"created": now, "updated": now, "initialized": now}}
        work.put(("project", project), codec.dumps(record))


def old_sources(folder: str, identify: Callable[[str], str] = project_id) -> Iterator[tuple[str, str, str]]:
    """Iterate over the trees of before 0.6 below ``folder``: the folder of the records, the worktree, the project id.

    The worktree is ``/`` if it is unknown or does not exist any more.
    """
    for name in names_in(folder):
        source = os.path.join(folder, name, "storage", "session")
        if name[0] == "." or not os.path.isdir(source):
            continue
        worktree = "/" if name == GLOBAL else worktree_of(source)
        known = worktree != "/" and os.path.isdir(worktree)
        yield source, worktree if known else "/", identify(worktree) if known else GLOBAL


def old_records(source: str, project: str, left: list[Damage]) -> Iterator[tuple[Key, str]]:
    """Iterate over the records of an old tree with their new keys, which follow from the paths."""
    for path in _files(source):
        match os.path.relpath(path, source).removesuffix(".json").split(os.sep):
            case ["info", session]:
                key = ("session", project, session)
            case ["message", session, message]:
                key = ("message", session, message)
            case ["part", _, message, part]:
                key = ("part", message, part)
            case _:
                left.append(Damage(path, "not a record of the old layout"))
                continue
        try:
            yield check_key(key), path
        except InvalidKeyError as error:
            left.append(Damage(path, error.message))


def worktree_of(source: str) -> str:
    """Return the worktree of an old project, from the first message that has it."""
    for path in _files(os.path.join(source, "message")):
        try:
            root = codec.loads_object(read_file(path), path)["path"]["root"]
        except (OSError, RecordError, LookupError, TypeError):
            continue
        if isinstance(root, str) and root:
            return root
    return ""


def _move_diffs(work: _Work) -> None:
    """Step 1: ``summary.diffs`` of each session into ``session_diff/<id>``."""
    for key, session in work.tree.scan(("session",), report=work.left.append):
        diffs = _diffs(session)
        if diffs is None or len(key) != 3:
            continue
        summary = session["summary"]
        if not _kept(work, ("session_diff", key[2]), diffs):
            work.left.append(Damage(work.tree.locate(key), "keeps its diffs: session_diff already holds others"))
            continue
        changed = [diff for diff in map(as_object, diffs) if diff is not None]
        del summary["diffs"]
        summary["additions"] = sum(_count(diff, "additions") for diff in changed)
        summary["deletions"] = sum(_count(diff, "deletions") for diff in changed)
        summary["files"] = len(changed)
        work.put(key, codec.dumps(session), over=True)


def _diffs(session: Any) -> list[Any] | None:
    """Return the diffs in a session's record, which this layout stores separately."""
    summary = as_object((as_object(session) or {}).get("summary")) or {}
    return as_list(summary.get("diffs"))


def _kept(work: _Work, key: Key, diffs: list[Any]) -> bool:
    try:
        return work.tree.read(key) == diffs
    except NotFoundError:
        return work.put(key, codec.dumps(diffs))
    except RecordError:
        return False


def _count(diff: dict[str, Any], field: str) -> int:
    number = diff.get(field)
    return number if isinstance(number, int) else 0


def _counter(tree: FileTree) -> str:
    return os.path.join(tree.root, "migration")


def _files(folder: str) -> Iterator[str]:
    for base, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            if name.endswith(".json") and name[0] != ".":
                yield os.path.join(base, name)


class OldProjects(Memory):
    """The records below ``project/<name>/storage`` of a data folder, with the keys of the current layout.

    They are read into memory when the store is opened: this layout was in use for a few weeks only. The first write to
    one of their sessions migrates them, which leaves the keys as they are.
    """

    def __init__(self, folder: str, tree: JsonTree) -> None:
        """``tree`` is that of the current layout beside them. What is not a record is ignored: a migration names it."""
        super().__init__()
        self.place = os.path.join(folder, "project")
        self.id = os.path.realpath(self.place)
        self._tree = tree
        self._paths: dict[Key, str] = {}
        for source, worktree, project in old_sources(self.place):
            for key, path in old_records(source, project, []):
                try:
                    self._records[key] = read_file(path)
                    self._paths[key] = path
                except OSError:
                    continue
            self._records["project", project] = codec.dumps({"id": project, "worktree": worktree})
        tree.when_prepared(self._records.clear)

    def locate(self, key: Key) -> str:
        """Return the file of a record."""
        return self._paths.get(key, self.place)

    def write(self, key: Key, value: Any) -> None:
        """Migrate, then store the record in the tree."""
        self._tree.write(key, value)

    def update(self, key: Key, edit: Callable[[Any], None]) -> Any:
        """Migrate, then change the record in the tree."""
        self._tree.prepare()
        return self._tree.update(key, edit)

    def remove(self, key: Key) -> None:
        """Migrate, then remove the record from the tree."""
        self._tree.prepare()
        self._tree.remove(key)

    @contextmanager
    def batch(self) -> Generator[Batch]:
        """Return a batch of the tree, which migrates before it is applied."""
        with self._tree.batch() as batch:
            yield batch
