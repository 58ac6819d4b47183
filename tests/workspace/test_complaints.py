from __future__ import annotations

import json
import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from opensesh.errors import RevertConflictError
from opensesh.records import Rule
from opensesh.workspace.revert import Reverts
from opensesh.workspace.snapshots import SnapshotLimits
from opensesh.workspace.tidying import tidy_snapshots

from ..engine.harness import open_harness
from .project_setup import FileChange, Workspace, call, contents, edits, git, new_repository, write, writes
from .test_quota import age, is_there
from .test_revert_crash import Died, DyingDisk

ALLOW = [Rule(permission="*", pattern="*", action="allow")]


def turn(workspace: Workspace, session: str, *changes: FileChange) -> str:
    prompt = workspace.prompt(session)
    workspace.step(session, prompt, *changes)
    return prompt


# -- T7.1: it destroys the user's work ---------------------------------------------------------------------------------


def test_t7_1_a_file_that_was_there_before_is_never_deleted(workspace: Workspace) -> None:
    session = workspace.session()
    prompt = turn(workspace, session, edits("README.md", "edited\n"))
    workspace.reverts.revert(session, prompt)
    assert contents(workspace.folder)["README.md"] == "hello\n"


def test_t7_1_what_was_committed_meanwhile_stays(workspace: Workspace) -> None:
    session = workspace.session()
    prompt = turn(workspace, session, writes({"made.txt": "1\n"}))
    write(workspace.folder, {"weeks.py": "of work\n" * 1300, "src/main.py": "print(2)\n"})
    git(workspace.folder, "add", "-A")
    git(workspace.folder, "commit", "-qm", "weeks of work")
    head = git(workspace.folder, "rev-parse", "HEAD")
    workspace.reverts.revert(session, prompt)
    assert "made.txt" not in contents(workspace.folder)
    assert contents(workspace.folder)["weeks.py"] == "of work\n" * 1300
    assert contents(workspace.folder)["src/main.py"] == "print(2)\n"
    assert git(workspace.folder, "rev-parse", "HEAD") == head


def test_t7_1_a_turn_that_changed_nothing_rewrites_nothing(workspace: Workspace) -> None:
    session = workspace.session()
    turn(workspace, session, writes({"a": "1"}))
    prompt = turn(workspace, session)
    write(workspace.folder, {"README.md": "the user's own\n"})
    before = {path: path.stat().st_mtime_ns for path in workspace.folder.rglob("*") if path.is_file()}
    workspace.reverts.revert(session, prompt)
    assert {path: path.stat().st_mtime_ns for path in workspace.folder.rglob("*") if path.is_file()} == before


def test_t7_1_other_directories_of_a_monorepo_are_left_alone(tmp_path: Path) -> None:
    top = new_repository(tmp_path / "mono", {"one/a.txt": "1\n", "two/b.txt": "1\n"})
    workspace = Workspace(tmp_path / "home", top / "one")
    session = workspace.session()
    prompt = turn(workspace, session, writes({"a.txt": "2\n", "../two/b.txt": "2\n"}))
    write(top, {"two/c.txt": "the user's\n"})
    workspace.reverts.revert(session, prompt)
    assert contents(top) == {"one/a.txt": "1\n", "two/b.txt": "2\n", "two/c.txt": "the user's\n"}


def test_t7_1_no_edit_is_lost_for_good(workspace: Workspace) -> None:
    session = workspace.session()
    first = turn(workspace, session, writes({"a": "1"}), edits("README.md", "edited\n"))
    turn(workspace, session, writes({"a": "2", "b": "2"}))
    before = contents(workspace.folder)
    workspace.reverts.revert(session, first)
    workspace.reverts.unrevert(session)
    assert contents(workspace.folder) == before


def test_t7_1_what_the_user_changed_since_is_not_written_over(workspace: Workspace) -> None:
    session = workspace.session()
    prompt = turn(workspace, session, writes({"a": "1", "b": "1"}))
    write(workspace.folder, {"a": "the user's own"})
    with pytest.raises(RevertConflictError):
        workspace.reverts.revert(session, prompt)
    assert contents(workspace.folder)["b"] == "1"


# -- T7.2: it claims success and does nothing --------------------------------------------------------------------------


async def test_t7_2_folders_without_git_are_reverted_too() -> None:
    Path("a.txt").write_text("one\n")
    path = json.dumps(os.path.abspath("a.txt"))
    script = f'CALL read {{"filePath": {path}}}\n---\nCALL write {{"filePath": {path}, "content": "two"}}\n---\nSAY ok'
    async with open_harness(script, rules=ALLOW) as harness:
        await harness.ask()
        Reverts(harness.engine.sessions, harness.engine.components.snapshots).revert(
            harness.session, harness.messages()[0].info["id"]
        )
        assert Path("a.txt").read_text() == "one\n"


def test_t7_2_the_first_run_in_a_repository_without_commits_is_reverted(tmp_path: Path) -> None:
    folder = tmp_path / "fresh"
    folder.mkdir()
    git(folder, "init", "-q")
    write(folder, {"a": "1"})
    workspace = Workspace(tmp_path / "home", folder)
    session = workspace.session()
    prompt = turn(workspace, session, writes({"a": "2"}))
    workspace.reverts.revert(session, prompt)
    assert contents(folder) == {"a": "1"}


def test_t7_2_snapshots_outlive_a_week_and_opencodes_tidying(workspace: Workspace) -> None:
    session = workspace.session()
    prompt = turn(workspace, session, writes({"README.md": "changed\n"}))
    age(workspace, 8)
    store = workspace.snapshots.repository.store
    subprocess.run(("git", "gc", "--prune=7.days"), cwd=store, env=os.environ | {"GIT_DIR": store}, check=True)
    tree = next(part["snapshot"] for part in workspace.history(session)[1].parts if "snapshot" in part)
    assert is_there(workspace.snapshots, tree)
    workspace.reverts.revert(session, prompt)
    assert contents(workspace.folder)["README.md"] == "hello\n"


def test_t7_2_what_cannot_be_brought_back_is_named_with_its_reason(plain: Workspace) -> None:
    write(plain.folder, {"a": "1"})
    session = plain.session()
    theirs = call("write", {"content": "2"}, {"filepath": str(plain.folder / "a"), "exists": True})

    def act(folder: Path) -> dict[str, object]:
        write(folder, {"a": "2"})
        return theirs

    prompt = turn(plain, session, act)
    (left,) = plain.reverts.revert(session, prompt).left_alone
    assert left.name == "a"
    assert "not recorded" in left.reason


# -- T7.3: a crash leaves it half done ---------------------------------------------------------------------------------


def test_t7_3_a_cleaning_that_is_interrupted_hides_its_messages_all_the_same(workspace: Workspace) -> None:
    session = workspace.session()
    turn(workspace, session, writes({"a": "1"}))
    second = turn(workspace, session, writes({"a": "2"}))
    workspace.reverts.revert(session, second)
    kept = [message.info["id"] for message in workspace.history(session)[:2]]
    for point in range(1, 12):
        dying = Workspace(workspace.home, workspace.folder, disk=DyingDisk(point))
        with suppress(Died):
            dying.reverts.cleanup(session)
        revert = workspace.sessions.get(session).revert
        left = [message.info["id"] for message in workspace.history(session)]
        assert left[:2] == kept
        assert left == kept or (revert is not None and revert.message_id == second), "the boundary goes last"
    workspace.reverts.cleanup(session)
    assert [message.info["id"] for message in workspace.history(session)] == kept


def test_t7_3_a_restore_that_broke_off_is_finished(workspace: Workspace) -> None:
    session = workspace.session()
    prompt = turn(workspace, session, writes({f"{number}.txt": "x" for number in range(6)}))
    before = contents(workspace.folder)
    dying = Workspace(workspace.home, workspace.folder, disk=DyingDisk(5))
    with pytest.raises(Died):
        dying.reverts.revert(session, prompt)
    workspace.reverts.recover(session)
    assert contents(workspace.folder) in (before, {"README.md": "hello\n", "src/main.py": "print(1)\n"})


def test_t7_3_redo_goes_forward(workspace: Workspace) -> None:
    session = workspace.session()
    prompts = [turn(workspace, session, writes({"a": str(number)})) for number in range(3)]
    workspace.reverts.revert(session, prompts[0])
    seen: list[str | None] = []
    for prompt in prompts[1:]:
        workspace.reverts.revert(session, prompt)
        seen.append(contents(workspace.folder).get("a"))
    workspace.reverts.unrevert(session)
    assert [*seen, contents(workspace.folder)["a"]] == ["0", "1", "2"]


# -- T7.4: ignored files, todos, commits -------------------------------------------------------------------------------


def test_t7_4_ignored_files_are_in_no_snapshot_and_are_not_restored(workspace: Workspace) -> None:
    write(workspace.folder, {".gitignore": "*.env\n", "a.env": "KEY=1\n"})
    session = workspace.session()
    prompt = turn(workspace, session, writes({"b": "1"}))
    write(workspace.folder, {"a.env": "KEY=2\n"})
    workspace.reverts.revert(session, prompt)
    assert contents(workspace.folder)["a.env"] == "KEY=2\n"
    workspace.reverts.unrevert(session)
    assert contents(workspace.folder)["a.env"] == "KEY=2\n"


def test_t7_4_the_list_of_things_to_do_goes_back_with_the_conversation(workspace: Workspace) -> None:
    first = [{"content": "look", "status": "pending", "priority": "high", "id": "1"}]
    second = [{"content": "look", "status": "completed", "priority": "high", "id": "1"}]
    session = workspace.session()
    start = turn(workspace, session, lambda _: call("todowrite", {"todos": first}, {"todos": first}))
    later = turn(workspace, session, lambda _: call("todowrite", {"todos": second}, {"todos": second}))
    workspace.sessions.set_todos(session, second)
    workspace.reverts.revert(session, later)
    assert workspace.sessions.todos(session) == second, "it can still be undone"
    workspace.reverts.cleanup(session)
    assert workspace.sessions.todos(session) == first
    workspace.reverts.revert(session, start)
    workspace.reverts.cleanup(session)
    assert workspace.sessions.todos(session) == []


def test_t7_4_undo_needs_no_commits_and_makes_none(workspace: Workspace) -> None:
    log = git(workspace.folder, "log", "--all", "--oneline")
    session = workspace.session()
    prompt = turn(workspace, session, writes({"a": "1"}))
    workspace.reverts.revert(session, prompt)
    assert git(workspace.folder, "log", "--all", "--oneline") == log
    assert git(workspace.folder, "stash", "list") == ""


# -- T8.1: size --------------------------------------------------------------------------------------------------------


def test_t8_1_data_that_git_does_not_track_is_not_copied(workspace: Workspace) -> None:
    (workspace.folder / "data.bin").write_bytes(os.urandom(3 << 20))
    assert workspace.snapshots.track() is not None
    assert workspace.snapshots.repository.size() < 1 << 20
    assert workspace.snapshots.note is not None
    assert "data.bin" in workspace.snapshots.note


def test_t8_1_what_the_users_repository_holds_is_not_stored_again(workspace: Workspace) -> None:
    (workspace.folder / "big.bin").write_bytes(os.urandom(1 << 20))
    git(workspace.folder, "add", "-A")
    git(workspace.folder, "commit", "-qm", "big")
    assert workspace.snapshots.track() is not None
    assert workspace.snapshots.repository.size() < 1 << 18


def test_t8_1_there_is_a_cap(workspace: Workspace) -> None:
    write(workspace.folder, {"noise": os.urandom(200_000).hex()})
    assert workspace.snapshots.track() is not None
    again = workspace.open_snapshots(limits=SnapshotLimits(store=1000))
    assert again.track() is None
    assert again.note is not None
    assert "doctor --tidy" in again.note


def test_t8_1_what_an_interrupted_gc_left_is_swept_up(workspace: Workspace) -> None:
    assert workspace.snapshots.track() is not None
    left = Path(workspace.snapshots.repository.store) / "objects" / "pack" / "tmp_pack_XYZ"
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(bytes(1 << 20))
    old = time.time() - 7200
    os.utime(left, (old, old))
    tidy_snapshots(workspace.snapshots.repository, set())
    assert not left.exists()


# -- T8.2: time --------------------------------------------------------------------------------------------------------


async def test_t8_2_the_first_word_does_not_wait_for_the_snapshot(workspace: Workspace) -> None:
    with workspace.snapshots.repository.index_lock().hold("index"):
        taking = workspace.begin_snapshot()  # it would never return if it waited for the lock
        assert not taking.done
    assert await taking is not None
    workspace.snapshots.close()


def test_t8_2_a_lock_left_behind_and_a_damaged_index_do_not_stop_it(workspace: Workspace) -> None:
    tree = workspace.snapshots.track()
    index = Path(workspace.snapshots.repository.index)
    Path(f"{index}.lock").touch()
    index.write_bytes(b"damaged")
    assert workspace.open_snapshots().track() == tree


# -- T8.3: harm to the user's repository -------------------------------------------------------------------------------


def test_t8_3_inside_a_hook_the_users_index_is_not_written(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = workspace.folder / ".git" / "index"
    before = index.read_bytes()
    monkeypatch.setenv("GIT_INDEX_FILE", str(index))
    monkeypatch.setenv("GIT_DIR", str(workspace.folder / ".git"))
    write(workspace.folder, {"new": "1"})
    session = workspace.session()
    prompt = turn(workspace, session, writes({"new": "2"}))
    workspace.reverts.revert(session, prompt)
    assert index.read_bytes() == before


# -- T8.4: the only remedy is to turn it off ---------------------------------------------------------------------------


async def test_t8_4_without_snapshots_what_tools_wrote_can_still_be_taken_back() -> None:
    git(Path(), "init", "-q")
    Path("a.txt").write_text("one\n")
    path = json.dumps(os.path.abspath("a.txt"))
    script = f'CALL read {{"filePath": {path}}}\n---\nCALL write {{"filePath": {path}, "content": "two"}}\n---\nSAY ok'
    async with open_harness(script, rules=ALLOW, config={"snapshot": False}) as harness:
        await harness.ask()
        assert harness.parts("patch") == []
        reverts = Reverts(harness.engine.sessions, harness.engine.components.snapshots)
        reverts.revert(harness.session, harness.messages()[0].info["id"])
        assert Path("a.txt").read_text() == "one\n"
        reverts.unrevert(harness.session)
        assert Path("a.txt").read_text() == "two"
