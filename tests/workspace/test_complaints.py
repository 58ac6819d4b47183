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

from ..engine.stage import stage
from .desk import Desk, FileChange, call, contents, edits, git, new_repository, write, writes
from .test_quota import age, is_there
from .test_revert_crash import Died, DyingDisk

ALLOW = [Rule(permission="*", pattern="*", action="allow")]


def turn(desk: Desk, session: str, *changes: FileChange) -> str:
    prompt = desk.prompt(session)
    desk.step(session, prompt, *changes)
    return prompt


# -- T7.1: it destroys the user's work ---------------------------------------------------------------------------------


def test_t7_1_a_file_that_was_there_before_is_never_deleted(desk: Desk) -> None:
    session = desk.session()
    prompt = turn(desk, session, edits("README.md", "edited\n"))
    desk.reverts.revert(session, prompt)
    assert contents(desk.folder)["README.md"] == "hello\n"


def test_t7_1_what_was_committed_meanwhile_stays(desk: Desk) -> None:
    session = desk.session()
    prompt = turn(desk, session, writes({"made.txt": "1\n"}))
    write(desk.folder, {"weeks.py": "of work\n" * 1300, "src/main.py": "print(2)\n"})
    git(desk.folder, "add", "-A")
    git(desk.folder, "commit", "-qm", "weeks of work")
    head = git(desk.folder, "rev-parse", "HEAD")
    desk.reverts.revert(session, prompt)
    assert "made.txt" not in contents(desk.folder)
    assert contents(desk.folder)["weeks.py"] == "of work\n" * 1300
    assert contents(desk.folder)["src/main.py"] == "print(2)\n"
    assert git(desk.folder, "rev-parse", "HEAD") == head


def test_t7_1_a_turn_that_changed_nothing_rewrites_nothing(desk: Desk) -> None:
    session = desk.session()
    turn(desk, session, writes({"a": "1"}))
    prompt = turn(desk, session)
    write(desk.folder, {"README.md": "the user's own\n"})
    before = {path: path.stat().st_mtime_ns for path in desk.folder.rglob("*") if path.is_file()}
    desk.reverts.revert(session, prompt)
    assert {path: path.stat().st_mtime_ns for path in desk.folder.rglob("*") if path.is_file()} == before


def test_t7_1_other_directories_of_a_monorepo_are_left_alone(tmp_path: Path) -> None:
    top = new_repository(tmp_path / "mono", {"one/a.txt": "1\n", "two/b.txt": "1\n"})
    desk = Desk(tmp_path / "home", top / "one")
    session = desk.session()
    prompt = turn(desk, session, writes({"a.txt": "2\n", "../two/b.txt": "2\n"}))
    write(top, {"two/c.txt": "the user's\n"})
    desk.reverts.revert(session, prompt)
    assert contents(top) == {"one/a.txt": "1\n", "two/b.txt": "2\n", "two/c.txt": "the user's\n"}


def test_t7_1_no_edit_is_lost_for_good(desk: Desk) -> None:
    session = desk.session()
    first = turn(desk, session, writes({"a": "1"}), edits("README.md", "edited\n"))
    turn(desk, session, writes({"a": "2", "b": "2"}))
    before = contents(desk.folder)
    desk.reverts.revert(session, first)
    desk.reverts.unrevert(session)
    assert contents(desk.folder) == before


def test_t7_1_what_the_user_changed_since_is_not_written_over(desk: Desk) -> None:
    session = desk.session()
    prompt = turn(desk, session, writes({"a": "1", "b": "1"}))
    write(desk.folder, {"a": "the user's own"})
    with pytest.raises(RevertConflictError):
        desk.reverts.revert(session, prompt)
    assert contents(desk.folder)["b"] == "1"


# -- T7.2: it claims success and does nothing --------------------------------------------------------------------------


async def test_t7_2_folders_without_git_are_reverted_too() -> None:
    Path("a.txt").write_text("one\n")
    path = json.dumps(os.path.abspath("a.txt"))
    script = f'CALL read {{"filePath": {path}}}\n---\nCALL write {{"filePath": {path}, "content": "two"}}\n---\nSAY ok'
    async with stage(script, rules=ALLOW) as on:
        await on.ask()
        Reverts(on.engine.sessions, on.engine.components.snapshots).revert(on.session, on.messages()[0].info["id"])
        assert Path("a.txt").read_text() == "one\n"


def test_t7_2_the_first_run_in_a_repository_without_commits_is_reverted(tmp_path: Path) -> None:
    folder = tmp_path / "fresh"
    folder.mkdir()
    git(folder, "init", "-q")
    write(folder, {"a": "1"})
    desk = Desk(tmp_path / "home", folder)
    session = desk.session()
    prompt = turn(desk, session, writes({"a": "2"}))
    desk.reverts.revert(session, prompt)
    assert contents(folder) == {"a": "1"}


def test_t7_2_snapshots_outlive_a_week_and_opencodes_tidying(desk: Desk) -> None:
    session = desk.session()
    prompt = turn(desk, session, writes({"README.md": "changed\n"}))
    age(desk, 8)
    store = desk.snapshots.repository.store
    subprocess.run(("git", "gc", "--prune=7.days"), cwd=store, env=os.environ | {"GIT_DIR": store}, check=True)
    tree = next(part["snapshot"] for part in desk.history(session)[1].parts if "snapshot" in part)
    assert is_there(desk.snapshots, tree)
    desk.reverts.revert(session, prompt)
    assert contents(desk.folder)["README.md"] == "hello\n"


def test_t7_2_what_cannot_be_brought_back_is_named_with_its_reason(plain: Desk) -> None:
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


def test_t7_3_a_cleaning_that_is_interrupted_hides_its_messages_all_the_same(desk: Desk) -> None:
    session = desk.session()
    turn(desk, session, writes({"a": "1"}))
    second = turn(desk, session, writes({"a": "2"}))
    desk.reverts.revert(session, second)
    kept = [message.info["id"] for message in desk.history(session)[:2]]
    for point in range(1, 12):
        dying = Desk(desk.home, desk.folder, disk=DyingDisk(point))
        with suppress(Died):
            dying.reverts.cleanup(session)
        revert = desk.sessions.get(session).revert
        left = [message.info["id"] for message in desk.history(session)]
        assert left[:2] == kept
        assert left == kept or (revert is not None and revert.message_id == second), "the boundary goes last"
    desk.reverts.cleanup(session)
    assert [message.info["id"] for message in desk.history(session)] == kept


def test_t7_3_a_restore_that_broke_off_is_finished(desk: Desk) -> None:
    session = desk.session()
    prompt = turn(desk, session, writes({f"{number}.txt": "x" for number in range(6)}))
    before = contents(desk.folder)
    dying = Desk(desk.home, desk.folder, disk=DyingDisk(5))
    with pytest.raises(Died):
        dying.reverts.revert(session, prompt)
    desk.reverts.recover(session)
    assert contents(desk.folder) in (before, {"README.md": "hello\n", "src/main.py": "print(1)\n"})


def test_t7_3_redo_goes_forward(desk: Desk) -> None:
    session = desk.session()
    prompts = [turn(desk, session, writes({"a": str(number)})) for number in range(3)]
    desk.reverts.revert(session, prompts[0])
    seen: list[str | None] = []
    for prompt in prompts[1:]:
        desk.reverts.revert(session, prompt)
        seen.append(contents(desk.folder).get("a"))
    desk.reverts.unrevert(session)
    assert [*seen, contents(desk.folder)["a"]] == ["0", "1", "2"]


# -- T7.4: ignored files, todos, commits -------------------------------------------------------------------------------


def test_t7_4_ignored_files_are_in_no_snapshot_and_are_not_restored(desk: Desk) -> None:
    write(desk.folder, {".gitignore": "*.env\n", "a.env": "KEY=1\n"})
    session = desk.session()
    prompt = turn(desk, session, writes({"b": "1"}))
    write(desk.folder, {"a.env": "KEY=2\n"})
    desk.reverts.revert(session, prompt)
    assert contents(desk.folder)["a.env"] == "KEY=2\n"
    desk.reverts.unrevert(session)
    assert contents(desk.folder)["a.env"] == "KEY=2\n"


def test_t7_4_the_list_of_things_to_do_goes_back_with_the_conversation(desk: Desk) -> None:
    first = [{"content": "look", "status": "pending", "priority": "high", "id": "1"}]
    second = [{"content": "look", "status": "completed", "priority": "high", "id": "1"}]
    session = desk.session()
    start = turn(desk, session, lambda _: call("todowrite", {"todos": first}, {"todos": first}))
    later = turn(desk, session, lambda _: call("todowrite", {"todos": second}, {"todos": second}))
    desk.sessions.set_todos(session, second)
    desk.reverts.revert(session, later)
    assert desk.sessions.todos(session) == second, "it can still be undone"
    desk.reverts.cleanup(session)
    assert desk.sessions.todos(session) == first
    desk.reverts.revert(session, start)
    desk.reverts.cleanup(session)
    assert desk.sessions.todos(session) == []


def test_t7_4_undo_needs_no_commits_and_makes_none(desk: Desk) -> None:
    log = git(desk.folder, "log", "--all", "--oneline")
    session = desk.session()
    prompt = turn(desk, session, writes({"a": "1"}))
    desk.reverts.revert(session, prompt)
    assert git(desk.folder, "log", "--all", "--oneline") == log
    assert git(desk.folder, "stash", "list") == ""


# -- T8.1: size --------------------------------------------------------------------------------------------------------


def test_t8_1_data_that_git_does_not_track_is_not_copied(desk: Desk) -> None:
    (desk.folder / "data.bin").write_bytes(os.urandom(3 << 20))
    assert desk.snapshots.track() is not None
    assert desk.snapshots.repository.size() < 1 << 20
    assert desk.snapshots.note is not None
    assert "data.bin" in desk.snapshots.note


def test_t8_1_what_the_users_repository_holds_is_not_stored_again(desk: Desk) -> None:
    (desk.folder / "big.bin").write_bytes(os.urandom(1 << 20))
    git(desk.folder, "add", "-A")
    git(desk.folder, "commit", "-qm", "big")
    assert desk.snapshots.track() is not None
    assert desk.snapshots.repository.size() < 1 << 18


def test_t8_1_there_is_a_cap(desk: Desk) -> None:
    write(desk.folder, {"noise": os.urandom(200_000).hex()})
    assert desk.snapshots.track() is not None
    again = desk.open_snapshots(limits=SnapshotLimits(store=1000))
    assert again.track() is None
    assert again.note is not None
    assert "doctor --tidy" in again.note


def test_t8_1_what_an_interrupted_gc_left_is_swept_up(desk: Desk) -> None:
    assert desk.snapshots.track() is not None
    left = Path(desk.snapshots.repository.store) / "objects" / "pack" / "tmp_pack_XYZ"
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(bytes(1 << 20))
    old = time.time() - 7200
    os.utime(left, (old, old))
    tidy_snapshots(desk.snapshots.repository, set())
    assert not left.exists()


# -- T8.2: time --------------------------------------------------------------------------------------------------------


async def test_t8_2_the_first_word_does_not_wait_for_the_snapshot(desk: Desk) -> None:
    with desk.snapshots.repository.index_lock().exclusive("index"):
        taking = desk.snapshots.begin()  # it would never return if it waited for the lock
        assert not taking.done
    assert await taking is not None
    desk.snapshots.close()


def test_t8_2_a_lock_left_behind_and_a_damaged_index_do_not_stop_it(desk: Desk) -> None:
    tree = desk.snapshots.track()
    index = Path(desk.snapshots.repository.index)
    Path(f"{index}.lock").touch()
    index.write_bytes(b"damaged")
    assert desk.open_snapshots().track() == tree


# -- T8.3: harm to the user's repository -------------------------------------------------------------------------------


def test_t8_3_inside_a_hook_the_users_index_is_not_written(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    index = desk.folder / ".git" / "index"
    before = index.read_bytes()
    monkeypatch.setenv("GIT_INDEX_FILE", str(index))
    monkeypatch.setenv("GIT_DIR", str(desk.folder / ".git"))
    write(desk.folder, {"new": "1"})
    session = desk.session()
    prompt = turn(desk, session, writes({"new": "2"}))
    desk.reverts.revert(session, prompt)
    assert index.read_bytes() == before


# -- T8.4: the only remedy is to turn it off ---------------------------------------------------------------------------


async def test_t8_4_without_snapshots_what_tools_wrote_can_still_be_taken_back() -> None:
    git(Path(), "init", "-q")
    Path("a.txt").write_text("one\n")
    path = json.dumps(os.path.abspath("a.txt"))
    script = f'CALL read {{"filePath": {path}}}\n---\nCALL write {{"filePath": {path}, "content": "two"}}\n---\nSAY ok'
    async with stage(script, rules=ALLOW, config={"snapshot": False}) as on:
        await on.ask()
        assert on.parts("patch") == []
        reverts = Reverts(on.engine.sessions, on.engine.components.snapshots)
        reverts.revert(on.session, on.messages()[0].info["id"])
        assert Path("a.txt").read_text() == "one\n"
        reverts.unrevert(on.session)
        assert Path("a.txt").read_text() == "two"
