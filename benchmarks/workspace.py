"""Time and size of a snapshot of 50,000 files, relative to ``git add`` and ``git write-tree``; a revert of 1,000 files.

The reference is what OpenCode 1.1.65 runs: ``git add .`` and ``git write-tree`` in a separate repository.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from opensesh import ids
from opensesh.project import resolve
from opensesh.sessions import Sessions
from opensesh.storage.json_tree.store import JsonTree
from opensesh.workspace.revert import Reverts
from opensesh.workspace.snapshots import Snapshots

from .report import interleaved, line

if TYPE_CHECKING:
    from collections.abc import Callable

FILES = 50_000
REVERTED = 1_000


def run() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        os.environ["XDG_STATE_HOME"] = str(folder / "state")
        project = _project(folder / "work")
        _snapshots(folder, project)
        _reverting(folder, project)


def _project(folder: Path) -> Path:
    for number in range(FILES):
        path = folder / f"pkg{number % 250:03}" / f"file{number:06}.py"
        if number < 250:
            path.parent.mkdir(parents=True)
        path.write_text(f"def f{number}():\n    return {number}\n" * 12)
    _git(folder, {}, "init", "-q")
    _git(folder, {}, "add", "-A")
    _git(folder, {}, "-c", "user.name=T", "-c", "user.email=t@example.invalid", "commit", "-qm", "first")
    _git(folder, {}, "repack", "-a", "-d", "-q", "--window=0")  # like a cloned repository
    return folder


def _snapshots(folder: Path, project: Path) -> None:
    store = folder / "bare"
    around = {"GIT_DIR": str(store), "GIT_WORK_TREE": str(project)}
    _git(project, around, "init", "-q")
    snapshots = Snapshots(resolve(project), data=str(folder / "data"))

    def theirs() -> None:
        _git(project, around, "add", ".")
        _git(project, around, "write-tree")

    first = interleaved(theirs, snapshots.track, rounds=1)
    line(f"the first snapshot of {FILES:,} files", first[1] / first[0], "git add, git write-tree", 1.0)
    size = _size(Path(snapshots.repository.store)) / _size(store)
    line("its size on disk", size, "a separate repository", 0.1)
    again = interleaved(theirs, snapshots.track)
    line("an unchanged snapshot", again[1] / again[0], "git add, git write-tree", 1.0)
    changed = interleaved(lambda: _change(project, theirs), lambda: _change(project, snapshots.track))
    line("a snapshot of 100 changed files", changed[1] / changed[0], "git add, git write-tree", 1.0)


def _change(project: Path, act: Callable[[], object]) -> None:
    for number in range(100):
        (project / f"pkg{number:03}" / f"file{number:06}.py").write_text(f"{perf_counter()}\n")
    act()


def _reverting(folder: Path, project: Path) -> None:
    sessions = Sessions(JsonTree(folder / "data" / "storage", durability="relaxed"), resolve(project))
    snapshots = Snapshots(sessions.location, data=str(folder / "data"))
    session, prompt = _session(sessions, snapshots, project)
    reverts = Reverts(sessions, snapshots)
    copy = interleaved(lambda: _write_all(folder / "copy"), rounds=1)[0]
    revert = interleaved(lambda: reverts.revert(session, prompt), rounds=1)[0]
    unrevert = interleaved(lambda: reverts.unrevert(session), rounds=1)[0]
    line(f"reverting {REVERTED:,} files ({revert:.1f} s)", revert / copy, "writing them with fsync")
    line(f"unreverting them ({unrevert:.1f} s)", unrevert / copy, "the same")


def _write_all(folder: Path) -> None:
    """Write the files durably, the minimum for any revert that survives a power failure."""
    folder.mkdir()
    for number in range(REVERTED):
        with (folder / str(number)).open("wb") as file:
            file.write(b"x" * 400)
            os.fsync(file.fileno())


def _size(store: Path) -> int:
    return sum(path.stat().st_size for path in (store / "objects").rglob("*") if path.is_file())


def _session(sessions: Sessions, snapshots: Snapshots, project: Path) -> tuple[str, str]:
    """Create a session with one answer that changed a thousand files."""
    session = sessions.create(title="T").id
    now = ids.now_ms()
    asked: dict[str, Any] = {"id": ids.ascending("msg"), "sessionID": session, "role": "user", "time": {"created": now}}
    answer = asked | {"id": ids.ascending("msg"), "role": "assistant", "parentID": asked["id"]}
    answer["path"] = {"cwd": str(project), "root": str(project)}
    for message in (asked, answer):
        sessions.update_message(message)
    before = snapshots.track()
    for number in range(REVERTED):
        (project / f"pkg{number % 250:03}" / f"file{number:06}.py").write_text(f"{number}\n")
    after = snapshots.track()
    patch = snapshots.changed(str(before), str(after))
    for part in (
        {"type": "step-start", "snapshot": before},
        {"type": "step-finish", "reason": "stop", "snapshot": after},
        {"type": "patch", "hash": patch.hash, "files": list(patch.files)},
    ):
        sessions.update_part({"id": ids.ascending("prt"), "sessionID": session, "messageID": answer["id"]} | part)
    return session, asked["id"]


def _git(folder: Path, around: dict[str, str], *words: str) -> None:
    subprocess.run(("git", *words), cwd=folder, env=os.environ | around, check=True, capture_output=True)
