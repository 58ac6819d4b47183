from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from opensesh import ids
from opensesh.errors import BusyError, NotFoundError, ReadOnlyStoreError, RevertConflictError, SnapshotError, WriteError
from opensesh.records import Document, dumps
from opensesh.storage.disk import Disk
from opensesh.storage.leases import FileLeases
from opensesh.storage.memory import Memory
from opensesh.storage.protocol import Key
from opensesh.workspace.revert import Reverts

from .desk import Desk, FileChange, call, contents, creates, deletes, edits, git, new_repository, shell, write, writes

START = {"README.md": "hello\n", "src/main.py": "print(1)\n"}


def two_turns(desk: Desk) -> tuple[str, str, str]:
    """A session whose first turn makes a file and whose second changes it, another, and deletes a third."""
    session = desk.session()
    first = desk.prompt(session, "one")
    desk.step(session, first, writes({"new.txt": "1\n"}))
    second = desk.prompt(session, "two")
    desk.step(session, second, writes({"new.txt": "2\n", "README.md": "changed\n"}))
    desk.step(session, second, deletes("src/main.py"))
    return session, first, second


AFTER_ONE = START | {"new.txt": "1\n"}
AFTER_TWO = {"README.md": "changed\n", "new.txt": "2\n"}


def test_files_and_record_go_back_and_forth(desk: Desk) -> None:
    session, first, second = two_turns(desk)
    done = desk.reverts.revert(session, second)
    assert contents(desk.folder) == AFTER_ONE
    revert = done.session.document["revert"]
    assert list(revert) == ["messageID", "snapshot", "diff"]
    assert revert["messageID"] == second
    assert revert["diff"].startswith("diff --git a/README.md b/README.md\n")
    assert desk.sessions.get(session).document == done.session.document
    assert len(desk.history(session)) == 5

    done = desk.reverts.unrevert(session)
    assert contents(desk.folder) == AFTER_TWO
    assert "revert" not in done.session.document
    assert not (desk.home / "state" / "reverts").exists() or not list((desk.home / "state" / "reverts").rglob("*.json"))

    desk.reverts.revert(session, first)
    assert contents(desk.folder) == START


def test_the_summary_and_the_diff_are_of_what_is_taken_back(desk: Desk) -> None:
    session, _, second = two_turns(desk)
    heard = desk.bus.last
    done = desk.reverts.revert(session, second)
    assert done.session.document["summary"] == {"additions": 2, "deletions": 3, "files": 3}
    assert [diff["file"] for diff in desk.sessions.diff(session)] == ["README.md", "new.txt", "src/main.py"]
    told = [envelope.event.type for number in range(heard, desk.bus.last) if (envelope := desk.bus.next_after(number))]
    assert told == ["session.updated", "session.diff", "session.updated"]
    desk.reverts.unrevert(session)
    assert desk.sessions.get(session).document["summary"] == {"additions": 2, "deletions": 2, "files": 3}


def test_a_revert_moves_to_an_earlier_and_to_a_later_point(desk: Desk) -> None:
    session, first, second = two_turns(desk)
    snapshot = desk.reverts.revert(session, second).session.document["revert"]["snapshot"]
    assert contents(desk.folder) == AFTER_ONE
    moved = desk.reverts.revert(session, first).session.document["revert"]
    assert contents(desk.folder) == START
    assert moved["snapshot"] == snapshot
    again = desk.reverts.revert(session, second).session.document["revert"]
    assert contents(desk.folder) == AFTER_ONE
    assert (again["messageID"], again["snapshot"]) == (second, snapshot)
    desk.reverts.unrevert(session)
    assert contents(desk.folder) == AFTER_TWO


def test_a_revert_of_which_only_the_record_is_left_is_undone_and_moved_all_the_same(desk: Desk) -> None:
    session, first, second = two_turns(desk)
    desk.reverts.revert(session, second)
    shutil.rmtree(desk.home / "state")
    desk.reverts.revert(session, first)
    assert contents(desk.folder) == START
    shutil.rmtree(desk.home / "state")
    desk.reverts.unrevert(session)
    assert contents(desk.folder) == AFTER_TWO


def test_a_preview_tells_all_and_touches_nothing(desk: Desk) -> None:
    session, _, second = two_turns(desk)
    stored = {str(key): desk.sessions.store.read(key) for key in desk.sessions.store.list()}
    before = {path: path.stat().st_mtime_ns for path in desk.folder.rglob("*")}
    preview = desk.reverts.preview(session, second)
    assert [(each.name, each.action, each.verdict) for each in preview.plan.files] == [
        ("README.md", "restore", "change"),
        ("new.txt", "restore", "change"),
        ("src/main.py", "create", "change"),
    ]
    assert preview.revert == {"messageID": second}
    assert preview.hidden == tuple(message.info["id"] for message in desk.history(session)[2:])
    assert dumps(preview.document)
    assert {path: path.stat().st_mtime_ns for path in desk.folder.rglob("*")} == before
    assert {str(key): desk.sessions.store.read(key) for key in desk.sessions.store.list()} == stored
    desk.reverts.revert(session, second)
    undo = desk.reverts.preview_unrevert(session)
    assert [(each.name, each.action) for each in undo.plan.files] == [
        ("README.md", "restore"),
        ("new.txt", "restore"),
        ("src/main.py", "delete"),
    ]


def test_files_that_the_session_did_not_change_are_never_touched(desk: Desk) -> None:
    session, _, second = two_turns(desk)
    write(desk.folder, {"mine.txt": "m", "src/mine.py": "m"})
    old = 1_700_000_000
    os.utime(desk.folder / "mine.txt", (old, old))
    desk.reverts.revert(session, second)
    desk.reverts.unrevert(session)
    assert contents(desk.folder) == AFTER_TWO | {"mine.txt": "m", "src/mine.py": "m"}
    assert (desk.folder / "mine.txt").stat().st_mtime == old


def test_a_turn_that_changed_nothing_leaves_every_file_as_it_is(desk: Desk) -> None:
    session = desk.session()
    prompt = desk.prompt(session)
    desk.step(session, prompt)
    write(desk.folder, {"README.md": "the user's own\n"})
    done = desk.reverts.revert(session, prompt)
    assert done.preview.plan.files == ()
    assert contents(desk.folder)["README.md"] == "the user's own\n"
    assert done.session.document["revert"]["diff"] == ""


def test_a_file_that_another_program_changed_is_a_conflict_and_nothing_is_touched(desk: Desk) -> None:
    session, _, second = two_turns(desk)
    write(desk.folder, {"README.md": "the user's own\n"})
    found = contents(desk.folder)
    stored = desk.sessions.get(session).document
    with pytest.raises(RevertConflictError) as caught:
        desk.reverts.revert(session, second)
    assert caught.value.files == ["README.md"]
    assert "README.md (changed since)" in caught.value.message
    assert contents(desk.folder) == found
    assert desk.sessions.get(session).document == stored


def test_force_overrides_a_conflict_and_can_still_be_undone(desk: Desk) -> None:
    session, _, second = two_turns(desk)
    write(desk.folder, {"README.md": "the user's own\n"})
    desk.reverts.revert(session, second, force=True)
    assert contents(desk.folder) == AFTER_ONE
    desk.reverts.unrevert(session)
    assert contents(desk.folder) == AFTER_TWO | {"README.md": "the user's own\n"}


def test_a_file_that_another_program_deleted_is_a_conflict(desk: Desk) -> None:
    session, _, second = two_turns(desk)
    (desk.folder / "new.txt").unlink()
    with pytest.raises(RevertConflictError, match="deleted since"):
        desk.reverts.revert(session, second)


def test_a_file_that_was_changed_back_is_not_a_conflict(desk: Desk) -> None:
    session, _, second = two_turns(desk)
    write(desk.folder, {"README.md": "hello\n"})
    desk.reverts.revert(session, second)
    assert contents(desk.folder) == AFTER_ONE


def test_what_another_program_wrote_between_two_steps_is_not_lost_unseen(desk: Desk) -> None:
    session = desk.session()
    prompt = desk.prompt(session)
    desk.step(session, prompt, writes({"README.md": "session\n"}))
    write(desk.folder, {"README.md": "session\nuser\n"})
    desk.step(session, prompt, writes({"README.md": "session\nuser\nsession\n"}))
    with pytest.raises(RevertConflictError, match="outside the session while it ran"):
        desk.reverts.revert(session, prompt)
    desk.reverts.revert(session, prompt, force=True)
    assert contents(desk.folder) == START


def test_a_change_after_a_revert_stops_its_undoing(desk: Desk) -> None:
    session, _, second = two_turns(desk)
    desk.reverts.revert(session, second)
    write(desk.folder, {"README.md": "the user's own\n", "unrelated": "x"})
    with pytest.raises(RevertConflictError):
        desk.reverts.unrevert(session)
    assert contents(desk.folder)["README.md"] == "the user's own\n"
    desk.reverts.unrevert(session, force=True)
    assert contents(desk.folder) == AFTER_TWO | {"unrelated": "x"}


def test_a_change_after_a_revert_stops_its_moving_on(desk: Desk) -> None:
    session, first, second = two_turns(desk)
    desk.reverts.revert(session, second)
    write(desk.folder, {"new.txt": "the user's own\n"})
    with pytest.raises(RevertConflictError):
        desk.reverts.revert(session, first)


def test_a_step_that_was_broken_off_is_taken_back_unless_a_later_write_followed(desk: Desk) -> None:
    session = desk.session()
    prompt = desk.prompt(session)
    desk.step(session, prompt, writes({"README.md": "half\n"}), abort=True)
    long_ago = 1_700_000_000
    os.utime(desk.folder / "README.md", (long_ago, long_ago))
    assert desk.reverts.preview(session, prompt).plan.conflicts == []
    os.utime(desk.folder / "README.md")
    with pytest.raises(RevertConflictError, match="after the session changed it"):
        desk.reverts.revert(session, prompt)


def test_a_step_that_was_not_ended_ended_with_its_last_tool(desk: Desk) -> None:
    def act(folder: Path) -> Document:
        write(folder, {"README.md": "half\n"})
        tool = shell("echo half > README.md")
        tool["state"]["time"] = {"start": ids.now_ms()}
        return tool

    session = desk.session()
    prompt = desk.prompt(session)
    desk.step(session, prompt, act, abort=True)
    desk.reverts.revert(session, prompt)
    assert contents(desk.folder) == START


def test_a_command_of_a_step_that_died_is_named_because_its_changes_are_unknown(desk: Desk) -> None:
    session = desk.session()
    prompt = desk.prompt(session)
    message = desk.open_step(session, prompt)
    desk.part(session, message, {"type": "step-start", "snapshot": desk.snapshots.track()})
    write(desk.folder, {"made.txt": "x"})
    desk.part(session, message, call("bash", {"command": "make"}, {}))
    preview = desk.reverts.preview(session, prompt)
    assert preview.unwatched == ("make",)
    assert preview.plan.files == ()
    desk.close_step(session, message, None)
    assert desk.reverts.preview(session, prompt).unwatched == ()


def test_part_of_an_answer_can_stay(desk: Desk) -> None:
    session = desk.session()
    prompt = desk.prompt(session)
    message = desk.step(
        session, prompt, edits("README.md", "one\n"), edits("src/main.py", "two\n"), edits("README.md", "three\n")
    )
    tools = [part for part in desk.history(session)[1].parts if part["type"] == "tool"]
    done = desk.reverts.revert(session, message, tools[1]["id"])
    assert contents(desk.folder) == {"README.md": "one\n", "src/main.py": "print(1)\n"}
    revert = done.session.document["revert"]
    assert list(revert) == ["messageID", "partID", "snapshot", "diff"]
    assert (revert["messageID"], revert["partID"]) == (message, tools[1]["id"])
    desk.reverts.revert(session, message, tools[2]["id"])
    assert contents(desk.folder) == {"README.md": "one\n", "src/main.py": "two\n"}
    desk.reverts.unrevert(session)
    assert contents(desk.folder) == {"README.md": "three\n", "src/main.py": "two\n"}


def test_a_file_that_only_the_part_that_stays_changed_stays(desk: Desk) -> None:
    session = desk.session()
    prompt = desk.prompt(session)
    message = desk.step(session, prompt, edits("README.md", "one\n"), writes({"src/main.py": "by a shell\n"}))
    tools = [part for part in desk.history(session)[1].parts if part["type"] == "tool"]
    desk.reverts.revert(session, message, tools[1]["id"])
    assert contents(desk.folder) == {"README.md": "one\n", "src/main.py": "print(1)\n"}


def test_an_answer_means_its_whole_turn(desk: Desk) -> None:
    session, _, second = two_turns(desk)
    last = desk.history(session)[-1].info["id"]
    assert desk.reverts.revert(session, last).session.document["revert"]["messageID"] == second
    assert contents(desk.folder) == AFTER_ONE


def test_modes_links_and_odd_names_come_back(desk: Desk) -> None:
    odd = os.fsdecode(b"-odd \xff\nname")
    write(desk.folder, {"run.sh": "#!/bin/sh\n", odd: "1"})
    (desk.folder / "run.sh").chmod(0o750)
    (desk.folder / "link").symlink_to("README.md")
    (desk.folder / "binary").write_bytes(b"\0\r\n\xff")

    def change(folder: Path) -> None:
        (folder / "run.sh").write_text("changed")
        (folder / "run.sh").chmod(0o640)
        (folder / "link").unlink()
        (folder / "link").write_text("a file")
        (folder / "binary").unlink()
        (folder / odd).write_text("2")

    session = desk.session()
    prompt = desk.prompt(session)
    desk.step(session, prompt, change)
    desk.reverts.revert(session, prompt, unattributed=True)
    assert (desk.folder / "run.sh").stat().st_mode & 0o777 == 0o750
    assert os.readlink(desk.folder / "link") == "README.md"
    assert (desk.folder / "binary").read_bytes() == b"\0\r\n\xff"
    assert (desk.folder / odd).read_text() == "1"
    desk.reverts.unrevert(session)
    assert (desk.folder / "run.sh").stat().st_mode & 0o777 == 0o640
    assert (desk.folder / "link").read_text() == "a file"
    assert not (desk.folder / "link").is_symlink()
    assert not (desk.folder / "binary").exists()


def test_line_ends_come_back_with_any_attributes(desk: Desk) -> None:
    write(desk.folder, {".gitattributes": "* text=auto\n", "win.txt": "1\r\n2\r\n"})
    session = desk.session()
    prompt = desk.prompt(session)
    desk.step(session, prompt, writes({"win.txt": "1\n"}))
    desk.reverts.revert(session, prompt)
    assert (desk.folder / "win.txt").read_bytes() == b"1\r\n2\r\n"


def test_a_file_that_became_a_folder_and_a_folder_that_became_a_file(desk: Desk) -> None:
    def swap(folder: Path) -> None:
        (folder / "README.md").unlink()
        write(folder, {"README.md/inside": "x"})
        (folder / "src" / "main.py").unlink()
        (folder / "src").rmdir()
        write(folder, {"src": "now a file"})

    session = desk.session()
    prompt = desk.prompt(session)
    desk.step(session, prompt, swap)
    desk.reverts.revert(session, prompt, unattributed=True)
    assert contents(desk.folder) == START
    desk.reverts.unrevert(session)
    assert contents(desk.folder) == {"README.md/inside": "x", "src": "now a file"}


def test_folders_that_only_the_session_filled_go_with_their_files(desk: Desk) -> None:
    session = desk.session()
    prompt = desk.prompt(session)
    desk.step(session, prompt, writes({"deep/er/new.txt": "1", "src/new.py": "1"}))
    desk.reverts.revert(session, prompt)
    assert not (desk.folder / "deep").exists()
    assert (desk.folder / "src").is_dir()


def test_a_folder_in_the_place_of_a_file_is_left_alone_and_reported(desk: Desk) -> None:
    session = desk.session()
    prompt = desk.prompt(session)
    desk.step(session, prompt, deletes("README.md"), writes({"other": "1"}))
    write(desk.folder, {"README.md/mine": "m"})
    done = desk.reverts.revert(session, prompt, force=True)
    assert [(each.name, each.reason) for each in done.left_alone] == [("README.md", "a folder is in its place")]
    assert contents(desk.folder) == {"README.md/mine": "m", "src/main.py": "print(1)\n"}


def test_nothing_is_written_through_a_link_or_outside_of_the_project(desk: Desk, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    write(elsewhere, {"main.py": "print(1)\n", "x": "mine"})
    session = desk.session()
    prompt = desk.prompt(session)
    message = desk.step(session, prompt, deletes("src/main.py"))
    outside = [str(elsewhere / "x"), str(desk.folder / "../elsewhere/x"), str(desk.folder / ".git/config"), "x"]
    empty = desk.snapshots.git.run("mktree", "-z", stdin=b"").decode().strip()
    desk.part(session, message, {"type": "patch", "hash": empty, "files": outside})
    (desk.folder / "src").rmdir()
    (desk.folder / "src").symlink_to(elsewhere, target_is_directory=True)
    preview = desk.reverts.preview(session, prompt)
    assert preview.plan.files == ()
    assert set(preview.outside) == {*outside, str(desk.folder / "src/main.py")}
    desk.reverts.revert(session, prompt, force=True)
    assert contents(elsewhere) == {"main.py": "print(1)\n", "x": "mine"}
    assert (desk.folder / ".git" / "config").exists()


def test_a_snapshot_that_is_gone_is_reported_and_never_called_a_success(desk: Desk) -> None:
    session = desk.session()
    prompt = desk.prompt(session)
    message = desk.step(session, prompt, writes({}))
    desk.part(session, message, {"type": "patch", "hash": "1" * 40, "files": [str(desk.folder / "README.md")]})
    done = desk.reverts.revert(session, prompt, unattributed=True)
    assert [each.name for each in done.left_alone] == ["README.md"]
    assert contents(desk.folder) == START


def test_a_file_that_was_only_ignored_before_is_not_deleted(desk: Desk) -> None:
    write(desk.folder, {".gitignore": "*.env\n", "old.env": "KEY=1"})
    os.utime(desk.folder / "old.env", (1_700_000_000, 1_700_000_000))
    session = desk.session()
    prompt = desk.prompt(session)
    message = desk.step(session, prompt, writes({".gitignore": ""}))
    patch = desk.history(session)[1].parts[-1]
    assert patch["files"] == [str(desk.folder / ".gitignore")]
    # OpenCode lists it, for all that it knows the file is new.
    desk.sessions.update_part(patch | {"files": [*patch["files"], str(desk.folder / "old.env")]})
    desk.step(session, prompt, writes({"README.md": "2\n"}))
    done = desk.reverts.revert(session, message, unattributed=True)
    assert (desk.folder / "old.env").read_text() == "KEY=1"
    assert [(each.name, each.reason[:22]) for each in done.left_alone] == [("old.env", "it existed before but ")]


def test_what_the_snapshots_do_not_see_comes_back_from_the_tools_own_records(desk: Desk) -> None:
    write(desk.folder, {".gitignore": "*.env\n", "a.env": "KEY=1\n"})
    session = desk.session()
    prompt = desk.prompt(session)
    desk.step(session, prompt, edits("a.env", "KEY=2\n"), creates("b.env", "NEW=1\n"), edits("README.md", "x\n"))
    desk.reverts.revert(session, prompt)
    assert contents(desk.folder) == START | {".gitignore": "*.env\n", "a.env": "KEY=1\n"}
    desk.reverts.unrevert(session)
    expected = {"README.md": "x\n", "a.env": "KEY=2\n", "b.env": "NEW=1\n"}
    assert contents(desk.folder) == START | {".gitignore": "*.env\n"} | expected


def test_the_conversation_alone_can_go_back(desk: Desk) -> None:
    session, _, second = two_turns(desk)
    done = desk.reverts.revert(session, second, files=False)
    assert done.session.document["revert"] == {"messageID": second}
    assert contents(desk.folder) == AFTER_TWO
    desk.reverts.unrevert(session)
    assert contents(desk.folder) == AFTER_TWO
    desk.reverts.revert(session, second)
    desk.reverts.revert(session, second, files=False)
    assert contents(desk.folder) == AFTER_ONE
    desk.reverts.unrevert(session)
    assert contents(desk.folder) == AFTER_TWO


def test_a_project_that_has_moved_is_reverted_where_it_is_now(desk: Desk, tmp_path: Path) -> None:
    session, _, second = two_turns(desk)
    moved = tmp_path / "moved"
    desk.folder.rename(moved)
    there = Desk(desk.home, moved)
    there.reverts.revert(session, second)
    assert contents(moved) == AFTER_ONE
    there.reverts.unrevert(session)
    assert contents(moved) == AFTER_TWO


def test_a_project_is_the_same_by_another_name(desk: Desk, tmp_path: Path) -> None:
    session, _, second = two_turns(desk)
    alias = tmp_path / "alias"
    alias.symlink_to(desk.folder, target_is_directory=True)
    Desk(desk.home, alias).reverts.revert(session, second)
    assert contents(desk.folder) == AFTER_ONE


def test_a_session_of_another_checkout_is_not_played_out_here(desk: Desk, tmp_path: Path) -> None:
    session, _, second = two_turns(desk)
    linked = tmp_path / "linked"
    git(desk.folder, "worktree", "add", "-q", str(linked))
    there = Desk(desk.home, linked)
    with pytest.raises(SnapshotError, match=str(desk.folder)):
        there.reverts.revert(session, second)
    assert contents(linked) == START
    assert contents(desk.folder) == AFTER_TWO


def test_a_session_that_is_running_is_busy(desk: Desk) -> None:
    session, _, second = two_turns(desk)
    leases = FileLeases(str(desk.home / "leases"))
    reverts = Reverts(desk.sessions, desk.snapshots, leases=leases, state=str(desk.home / "state"))
    with leases.acquire(session, "someone"):
        with pytest.raises(BusyError):
            reverts.revert(session, second)
        with pytest.raises(BusyError):
            reverts.unrevert(session)
        assert reverts.preview(session, second).plan.files
    assert contents(desk.folder) == AFTER_TWO
    reverts.revert(session, second)
    assert contents(desk.folder) == AFTER_ONE


def test_what_is_not_there_is_not_found(desk: Desk) -> None:
    session, _, _ = two_turns(desk)
    with pytest.raises(NotFoundError):
        desk.reverts.revert(session, "msg_none")
    with pytest.raises(NotFoundError):
        desk.reverts.revert("ses_none", "msg_none")
    done = desk.reverts.unrevert(session)
    assert done.session.document == desk.sessions.get(session).document
    assert done.preview.plan.files == ()


class Sealed(Memory):
    """A store that is written to no more, once it is sealed."""

    sealed = False

    def write(self, key: Key, value: Any) -> None:
        self._check()
        super().write(key, value)

    def update(self, key: Key, edit: Any) -> Any:
        self._check()
        return super().update(key, edit)

    def _check(self) -> None:
        if self.sealed:
            raise ReadOnlyStoreError("this store is only read")


def test_a_store_that_is_only_read_keeps_the_files_as_they_are(tmp_path: Path) -> None:
    store = Sealed()
    desk = Desk(tmp_path / "home", new_repository(tmp_path / "work"), store=store)
    session, _, second = two_turns(desk)
    store.sealed = True
    with pytest.raises(ReadOnlyStoreError):
        desk.reverts.revert(session, second)
    assert contents(desk.folder) == AFTER_TWO
    store.sealed = False
    desk.reverts.recover(session)
    assert contents(desk.folder) == AFTER_TWO
    assert desk.sessions.get(session).revert is None


def test_ten_steps_back_need_no_more_than_ten_lists(desk: Desk) -> None:
    session = desk.session()
    prompts: list[str] = []
    for number in range(10):
        prompts.append(desk.prompt(session))
        desk.step(session, prompts[-1], writes({"README.md": f"{number}\n", f"f{number}": "x"}), lambda _: shell())
    for number in (7, 2, 9, 0, 5):
        desk.reverts.revert(session, prompts[number])
        assert contents(desk.folder)["README.md"] == (f"{number - 1}\n" if number else "hello\n")
        assert {name for name in contents(desk.folder) if name.startswith("f")} == {
            f"f{each}" for each in range(number)
        }
    desk.reverts.unrevert(session)
    assert contents(desk.folder)["README.md"] == "9\n"


def test_folders_that_come_back_are_made_as_the_user_makes_them(desk: Desk) -> None:
    write(desk.folder, {"public/pages/index.html": "x\n"})
    usual = [(desk.folder / name).stat().st_mode for name in ("public", "public/pages")]
    session = desk.session()
    prompt = desk.prompt(session)
    desk.step(session, prompt, lambda folder: shutil.rmtree(folder / "public"))
    desk.reverts.revert(session, prompt, unattributed=True)
    assert [(desk.folder / name).stat().st_mode for name in ("public", "public/pages")] == usual


def test_the_folder_a_session_works_in_stays_though_nothing_is_left_in_it(tmp_path: Path) -> None:
    repository = new_repository(tmp_path / "work")
    (repository / "new" / "below").mkdir(parents=True)
    desk = Desk(tmp_path / "home", repository / "new")
    session = desk.session()
    prompt = desk.prompt(session)
    desk.step(session, prompt, writes({"a.txt": "1", "below/b.txt": "2"}))
    desk.reverts.revert(session, prompt)
    assert (repository / "new").is_dir()
    assert not (repository / "new" / "below").exists()
    desk.step(session, prompt, writes({"a.txt": "1"}))
    assert desk.snapshots.note is None


class Refusing(Disk):
    """Will not have one file replaced, or taken away."""

    def __init__(self, name: str, code: int) -> None:
        super().__init__(durable=False)
        self._name = name
        self._code = code

    def rename(self, old: str, new: str) -> None:
        self._mind(new)
        super().rename(old, new)

    def unlink(self, path: str) -> None:
        self._mind(path)
        super().unlink(path)

    def _mind(self, path: str) -> None:
        if os.path.basename(path) == self._name:
            raise OSError(self._code, os.strerror(self._code), path)


@pytest.mark.parametrize(("name", "left"), [("README.md", {"README.md": "changed\n"}), ("new.txt", {"new.txt": "2\n"})])
def test_a_file_that_may_not_be_written_keeps_nothing_else_from_going_back(
    tmp_path: Path, name: str, left: dict[str, str]
) -> None:
    folder = new_repository(tmp_path / "work")
    desk = Desk(tmp_path / "home", folder, disk=Refusing(name, errno.EACCES))
    session, first, _ = two_turns(desk)
    done = desk.reverts.revert(session, first)
    assert [(each.name, each.reason) for each in done.left_alone] == [(name, "it cannot be written: Permission denied")]
    assert contents(folder) == START | left
    desk.reverts.unrevert(session)
    assert contents(folder) == AFTER_TWO


def test_a_full_disk_stops_a_revert_which_continues_when_there_is_space(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "work")
    desk = Desk(tmp_path / "home", folder, disk=Refusing("README.md", errno.ENOSPC))
    session, first, _ = two_turns(desk)
    with pytest.raises(WriteError):
        desk.reverts.revert(session, first)
    assert Desk(tmp_path / "home", folder).reverts.recover(session)
    assert contents(folder) == START


def test_what_cannot_be_read_is_left_alone_and_does_not_block(desk: Desk) -> None:
    session, first, _ = two_turns(desk)
    path = desk.folder / "new.txt"
    path.unlink()
    os.mkfifo(path)
    done = desk.reverts.revert(session, first, force=True)
    assert [(each.name, each.reason) for each in done.left_alone] == [("new.txt", "it cannot be read")]
    assert contents(desk.folder) == START


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is hidden from root")
def test_a_file_that_is_hidden_from_us_does_not_pass_for_an_empty_one(desk: Desk) -> None:
    session, first, _ = two_turns(desk)
    path = desk.folder / "new.txt"
    path.chmod(0o000)
    done = desk.reverts.revert(session, first, force=True)
    path.chmod(0o600)
    assert [(each.name, each.reason) for each in done.left_alone] == [("new.txt", "it cannot be read")]
    assert path.read_text() == "2\n"


def reads(folder: Path) -> Document:
    return call("read", {"filePath": str(folder / "README.md")}, {})


@pytest.mark.parametrize("given", [edits("README.md", "changed\n"), reads])
def test_what_the_user_changes_while_tools_are_at_work_that_say_what_they_do_stays(
    desk: Desk, given: FileChange
) -> None:
    session = desk.session()
    prompt = desk.prompt(session)

    def act(folder: Path) -> Document | None:
        write(folder, {"src/main.py": "the user's own\n", "mine.txt": "too\n"})
        return given(folder)

    desk.step(session, prompt, act)
    assert len(desk.parts(session, "patch")) == 1
    desk.reverts.revert(session, prompt)
    assert contents(desk.folder) == START | {"src/main.py": "the user's own\n", "mine.txt": "too\n"}


def test_what_a_tool_changed_through_another_name_of_a_folder_goes_back(desk: Desk) -> None:
    (desk.folder / "link").symlink_to("src")
    git(desk.folder, "add", "link")
    session = desk.session()
    prompt = desk.prompt(session)
    desk.step(session, prompt, edits("link/main.py", "changed\n"))
    desk.reverts.revert(session, prompt)
    assert (desk.folder / "src/main.py").read_text() == "print(1)\n"


def test_what_a_call_that_broke_off_changed_goes_back_with_the_rest_of_its_step(desk: Desk) -> None:
    session = desk.session()
    prompt = desk.prompt(session)

    def act(folder: Path) -> Document:
        write(folder, {"README.md": "half\n"})
        part = call("write", {"filePath": str(folder / "README.md")}, {})
        return part | {"state": part["state"] | {"status": "error", "error": "aborted"}}

    desk.step(session, prompt, act)
    desk.reverts.revert(session, prompt)
    assert contents(desk.folder) == START


def test_commands_that_ran_without_a_snapshot_are_named(desk: Desk) -> None:
    session = desk.session()
    prompt = desk.prompt(session)
    by_hand = desk.open_step(session, prompt)  # a command of the user's has no step around it
    desk.part(session, by_hand, call("bash", {"command": "make"}, {}))
    desk.snapshots.enabled = False
    desk.step(session, prompt, lambda folder: call("bash", {"command": "make clean"}, {}))
    desk.snapshots.enabled = True
    desk.step(session, prompt, lambda folder: call("bash", {"command": "make test"}, {}))
    assert desk.reverts.preview(session, prompt).unwatched == ("make", "make clean")
