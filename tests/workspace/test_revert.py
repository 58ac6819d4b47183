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

from .project_setup import (
    FileChange,
    Workspace,
    call,
    contents,
    creates,
    deletes,
    edits,
    git,
    new_repository,
    shell,
    write,
    writes,
)

START = {"README.md": "hello\n", "src/main.py": "print(1)\n"}


def two_turns(workspace: Workspace) -> tuple[str, str, str]:
    """A session whose first turn makes a file and whose second changes it, another, and deletes a third."""
    session = workspace.session()
    first = workspace.prompt(session, "one")
    workspace.step(session, first, writes({"new.txt": "1\n"}))
    second = workspace.prompt(session, "two")
    workspace.step(session, second, writes({"new.txt": "2\n", "README.md": "changed\n"}))
    workspace.step(session, second, deletes("src/main.py"))
    return session, first, second


AFTER_ONE = START | {"new.txt": "1\n"}
AFTER_TWO = {"README.md": "changed\n", "new.txt": "2\n"}


def test_files_and_record_go_back_and_forth(workspace: Workspace) -> None:
    session, first, second = two_turns(workspace)
    done = workspace.reverts.revert(session, second)
    assert contents(workspace.folder) == AFTER_ONE
    revert = done.session.document["revert"]
    assert list(revert) == ["messageID", "snapshot", "diff"]
    assert revert["messageID"] == second
    assert revert["diff"].startswith("diff --git a/README.md b/README.md\n")
    assert workspace.sessions.get(session).document == done.session.document
    assert len(workspace.history(session)) == 5

    done = workspace.reverts.unrevert(session)
    assert contents(workspace.folder) == AFTER_TWO
    assert "revert" not in done.session.document
    assert not (workspace.state / "reverts").exists() or not list((workspace.state / "reverts").rglob("*.json"))

    workspace.reverts.revert(session, first)
    assert contents(workspace.folder) == START


def test_the_summary_and_the_diff_are_of_what_is_taken_back(workspace: Workspace) -> None:
    session, _, second = two_turns(workspace)
    received = workspace.bus.last
    done = workspace.reverts.revert(session, second)
    assert done.session.document["summary"] == {"additions": 2, "deletions": 3, "files": 3}
    assert [diff["file"] for diff in workspace.sessions.diff(session)] == ["README.md", "new.txt", "src/main.py"]
    reported = [
        envelope.event.type
        for number in range(received, workspace.bus.last)
        if (envelope := workspace.bus.next_after(number))
    ]
    assert reported == ["session.updated", "session.diff", "session.updated"]
    workspace.reverts.unrevert(session)
    assert workspace.sessions.get(session).document["summary"] == {"additions": 2, "deletions": 2, "files": 3}


def test_a_revert_moves_to_an_earlier_and_to_a_later_point(workspace: Workspace) -> None:
    session, first, second = two_turns(workspace)
    snapshot = workspace.reverts.revert(session, second).session.document["revert"]["snapshot"]
    assert contents(workspace.folder) == AFTER_ONE
    moved = workspace.reverts.revert(session, first).session.document["revert"]
    assert contents(workspace.folder) == START
    assert moved["snapshot"] == snapshot
    again = workspace.reverts.revert(session, second).session.document["revert"]
    assert contents(workspace.folder) == AFTER_ONE
    assert (again["messageID"], again["snapshot"]) == (second, snapshot)
    workspace.reverts.unrevert(session)
    assert contents(workspace.folder) == AFTER_TWO


def test_a_revert_of_which_only_the_record_is_left_is_undone_and_moved_all_the_same(workspace: Workspace) -> None:
    session, first, second = two_turns(workspace)
    workspace.reverts.revert(session, second)
    shutil.rmtree(workspace.state)
    workspace.reverts.revert(session, first)
    assert contents(workspace.folder) == START
    shutil.rmtree(workspace.state)
    workspace.reverts.unrevert(session)
    assert contents(workspace.folder) == AFTER_TWO


def test_a_preview_tells_all_and_touches_nothing(workspace: Workspace) -> None:
    session, _, second = two_turns(workspace)
    stored = {str(key): workspace.sessions.store.read(key) for key in workspace.sessions.store.list()}
    before = {path: path.stat().st_mtime_ns for path in workspace.folder.rglob("*")}
    preview = workspace.reverts.preview(session, second)
    assert [(file.name, file.action, file.verdict) for file in preview.plan.files] == [
        ("README.md", "restore", "change"),
        ("new.txt", "restore", "change"),
        ("src/main.py", "create", "change"),
    ]
    assert preview.revert == {"messageID": second}
    assert preview.hidden == tuple(message.info["id"] for message in workspace.history(session)[2:])
    assert dumps(preview.document)
    assert {path: path.stat().st_mtime_ns for path in workspace.folder.rglob("*")} == before
    assert {str(key): workspace.sessions.store.read(key) for key in workspace.sessions.store.list()} == stored
    workspace.reverts.revert(session, second)
    undo = workspace.reverts.preview_unrevert(session)
    assert [(file.name, file.action) for file in undo.plan.files] == [
        ("README.md", "restore"),
        ("new.txt", "restore"),
        ("src/main.py", "delete"),
    ]


def test_files_that_the_session_did_not_change_are_never_touched(workspace: Workspace) -> None:
    session, _, second = two_turns(workspace)
    write(workspace.folder, {"mine.txt": "m", "src/mine.py": "m"})
    old = 1_700_000_000
    os.utime(workspace.folder / "mine.txt", (old, old))
    workspace.reverts.revert(session, second)
    workspace.reverts.unrevert(session)
    assert contents(workspace.folder) == AFTER_TWO | {"mine.txt": "m", "src/mine.py": "m"}
    assert (workspace.folder / "mine.txt").stat().st_mtime == old


def test_a_turn_that_changed_nothing_leaves_every_file_as_it_is(workspace: Workspace) -> None:
    session = workspace.session()
    prompt = workspace.prompt(session)
    workspace.step(session, prompt)
    write(workspace.folder, {"README.md": "the user's own\n"})
    done = workspace.reverts.revert(session, prompt)
    assert done.preview.plan.files == ()
    assert contents(workspace.folder)["README.md"] == "the user's own\n"
    assert done.session.document["revert"]["diff"] == ""


def test_a_file_that_another_program_changed_is_a_conflict_and_nothing_is_touched(workspace: Workspace) -> None:
    session, _, second = two_turns(workspace)
    write(workspace.folder, {"README.md": "the user's own\n"})
    result = contents(workspace.folder)
    stored = workspace.sessions.get(session).document
    with pytest.raises(RevertConflictError) as caught:
        workspace.reverts.revert(session, second)
    assert caught.value.files == ["README.md"]
    assert "README.md (changed since)" in caught.value.message
    assert contents(workspace.folder) == result
    assert workspace.sessions.get(session).document == stored


def test_force_overrides_a_conflict_and_can_still_be_undone(workspace: Workspace) -> None:
    session, _, second = two_turns(workspace)
    write(workspace.folder, {"README.md": "the user's own\n"})
    workspace.reverts.revert(session, second, force=True)
    assert contents(workspace.folder) == AFTER_ONE
    workspace.reverts.unrevert(session)
    assert contents(workspace.folder) == AFTER_TWO | {"README.md": "the user's own\n"}


def test_a_file_that_another_program_deleted_is_a_conflict(workspace: Workspace) -> None:
    session, _, second = two_turns(workspace)
    (workspace.folder / "new.txt").unlink()
    with pytest.raises(RevertConflictError, match="deleted since"):
        workspace.reverts.revert(session, second)


def test_a_file_that_was_changed_back_is_not_a_conflict(workspace: Workspace) -> None:
    session, _, second = two_turns(workspace)
    write(workspace.folder, {"README.md": "hello\n"})
    workspace.reverts.revert(session, second)
    assert contents(workspace.folder) == AFTER_ONE


def test_what_another_program_wrote_between_two_steps_is_not_lost_unseen(workspace: Workspace) -> None:
    session = workspace.session()
    prompt = workspace.prompt(session)
    workspace.step(session, prompt, writes({"README.md": "session\n"}))
    write(workspace.folder, {"README.md": "session\nuser\n"})
    workspace.step(session, prompt, writes({"README.md": "session\nuser\nsession\n"}))
    with pytest.raises(RevertConflictError, match="outside the session while it ran"):
        workspace.reverts.revert(session, prompt)
    workspace.reverts.revert(session, prompt, force=True)
    assert contents(workspace.folder) == START


def test_a_change_after_a_revert_stops_its_undoing(workspace: Workspace) -> None:
    session, _, second = two_turns(workspace)
    workspace.reverts.revert(session, second)
    write(workspace.folder, {"README.md": "the user's own\n", "unrelated": "x"})
    with pytest.raises(RevertConflictError):
        workspace.reverts.unrevert(session)
    assert contents(workspace.folder)["README.md"] == "the user's own\n"
    workspace.reverts.unrevert(session, force=True)
    assert contents(workspace.folder) == AFTER_TWO | {"unrelated": "x"}


def test_a_change_after_a_revert_stops_its_moving_on(workspace: Workspace) -> None:
    session, first, second = two_turns(workspace)
    workspace.reverts.revert(session, second)
    write(workspace.folder, {"new.txt": "the user's own\n"})
    with pytest.raises(RevertConflictError):
        workspace.reverts.revert(session, first)


def test_a_step_that_was_broken_off_is_taken_back_unless_a_later_write_followed(workspace: Workspace) -> None:
    session = workspace.session()
    prompt = workspace.prompt(session)
    workspace.step(session, prompt, writes({"README.md": "half\n"}), abort=True)
    long_ago = 1_700_000_000
    os.utime(workspace.folder / "README.md", (long_ago, long_ago))
    assert workspace.reverts.preview(session, prompt).plan.conflicts == []
    os.utime(workspace.folder / "README.md")
    with pytest.raises(RevertConflictError, match="after the session changed it"):
        workspace.reverts.revert(session, prompt)


def test_a_step_that_was_not_ended_ended_with_its_last_tool(workspace: Workspace) -> None:
    def act(folder: Path) -> Document:
        write(folder, {"README.md": "half\n"})
        tool = shell("echo half > README.md")
        tool["state"]["time"] = {"start": ids.now_ms()}
        return tool

    session = workspace.session()
    prompt = workspace.prompt(session)
    workspace.step(session, prompt, act, abort=True)
    workspace.reverts.revert(session, prompt)
    assert contents(workspace.folder) == START


def test_a_command_of_a_step_that_died_is_named_because_its_changes_are_unknown(workspace: Workspace) -> None:
    session = workspace.session()
    prompt = workspace.prompt(session)
    message = workspace.open_step(session, prompt)
    workspace.part(session, message, {"type": "step-start", "snapshot": workspace.snapshots.track()})
    write(workspace.folder, {"made.txt": "x"})
    workspace.part(session, message, call("bash", {"command": "make"}, {}))
    preview = workspace.reverts.preview(session, prompt)
    assert preview.unwatched == ("make",)
    assert preview.plan.files == ()
    workspace.close_step(session, message, None)
    assert workspace.reverts.preview(session, prompt).unwatched == ()


def test_part_of_an_answer_can_stay(workspace: Workspace) -> None:
    session = workspace.session()
    prompt = workspace.prompt(session)
    message = workspace.step(
        session, prompt, edits("README.md", "one\n"), edits("src/main.py", "two\n"), edits("README.md", "three\n")
    )
    tools = [part for part in workspace.history(session)[1].parts if part["type"] == "tool"]
    done = workspace.reverts.revert(session, message, tools[1]["id"])
    assert contents(workspace.folder) == {"README.md": "one\n", "src/main.py": "print(1)\n"}
    revert = done.session.document["revert"]
    assert list(revert) == ["messageID", "partID", "snapshot", "diff"]
    assert (revert["messageID"], revert["partID"]) == (message, tools[1]["id"])
    workspace.reverts.revert(session, message, tools[2]["id"])
    assert contents(workspace.folder) == {"README.md": "one\n", "src/main.py": "two\n"}
    workspace.reverts.unrevert(session)
    assert contents(workspace.folder) == {"README.md": "three\n", "src/main.py": "two\n"}


def test_a_file_that_only_the_part_that_stays_changed_stays(workspace: Workspace) -> None:
    session = workspace.session()
    prompt = workspace.prompt(session)
    message = workspace.step(session, prompt, edits("README.md", "one\n"), writes({"src/main.py": "by a shell\n"}))
    tools = [part for part in workspace.history(session)[1].parts if part["type"] == "tool"]
    workspace.reverts.revert(session, message, tools[1]["id"])
    assert contents(workspace.folder) == {"README.md": "one\n", "src/main.py": "print(1)\n"}


def test_an_answer_means_its_whole_turn(workspace: Workspace) -> None:
    session, _, second = two_turns(workspace)
    last = workspace.history(session)[-1].info["id"]
    assert workspace.reverts.revert(session, last).session.document["revert"]["messageID"] == second
    assert contents(workspace.folder) == AFTER_ONE


def test_modes_links_and_odd_names_come_back(workspace: Workspace) -> None:
    odd = os.fsdecode(b"-odd \xff\nname")
    write(workspace.folder, {"run.sh": "#!/bin/sh\n", odd: "1"})
    (workspace.folder / "run.sh").chmod(0o750)
    (workspace.folder / "link").symlink_to("README.md")
    (workspace.folder / "binary").write_bytes(b"\0\r\n\xff")

    def change(folder: Path) -> None:
        (folder / "run.sh").write_text("changed")
        (folder / "run.sh").chmod(0o640)
        (folder / "link").unlink()
        (folder / "link").write_text("a file")
        (folder / "binary").unlink()
        (folder / odd).write_text("2")

    session = workspace.session()
    prompt = workspace.prompt(session)
    workspace.step(session, prompt, change)
    workspace.reverts.revert(session, prompt, unattributed=True)
    assert (workspace.folder / "run.sh").stat().st_mode & 0o777 == 0o750
    assert os.readlink(workspace.folder / "link") == "README.md"
    assert (workspace.folder / "binary").read_bytes() == b"\0\r\n\xff"
    assert (workspace.folder / odd).read_text() == "1"
    workspace.reverts.unrevert(session)
    assert (workspace.folder / "run.sh").stat().st_mode & 0o777 == 0o640
    assert (workspace.folder / "link").read_text() == "a file"
    assert not (workspace.folder / "link").is_symlink()
    assert not (workspace.folder / "binary").exists()


def test_line_ends_come_back_with_any_attributes(workspace: Workspace) -> None:
    write(workspace.folder, {".gitattributes": "* text=auto\n", "win.txt": "1\r\n2\r\n"})
    session = workspace.session()
    prompt = workspace.prompt(session)
    workspace.step(session, prompt, writes({"win.txt": "1\n"}))
    workspace.reverts.revert(session, prompt)
    assert (workspace.folder / "win.txt").read_bytes() == b"1\r\n2\r\n"


def test_a_file_that_became_a_folder_and_a_folder_that_became_a_file(workspace: Workspace) -> None:
    def swap(folder: Path) -> None:
        (folder / "README.md").unlink()
        write(folder, {"README.md/inside": "x"})
        (folder / "src" / "main.py").unlink()
        (folder / "src").rmdir()
        write(folder, {"src": "now a file"})

    session = workspace.session()
    prompt = workspace.prompt(session)
    workspace.step(session, prompt, swap)
    workspace.reverts.revert(session, prompt, unattributed=True)
    assert contents(workspace.folder) == START
    workspace.reverts.unrevert(session)
    assert contents(workspace.folder) == {"README.md/inside": "x", "src": "now a file"}


def test_folders_that_only_the_session_filled_go_with_their_files(workspace: Workspace) -> None:
    session = workspace.session()
    prompt = workspace.prompt(session)
    workspace.step(session, prompt, writes({"deep/er/new.txt": "1", "src/new.py": "1"}))
    workspace.reverts.revert(session, prompt)
    assert not (workspace.folder / "deep").exists()
    assert (workspace.folder / "src").is_dir()


def test_a_folder_in_the_place_of_a_file_is_left_alone_and_reported(workspace: Workspace) -> None:
    session = workspace.session()
    prompt = workspace.prompt(session)
    workspace.step(session, prompt, deletes("README.md"), writes({"other": "1"}))
    write(workspace.folder, {"README.md/mine": "m"})
    done = workspace.reverts.revert(session, prompt, force=True)
    assert [(item.name, item.reason) for item in done.left_alone] == [("README.md", "a folder is in its place")]
    assert contents(workspace.folder) == {"README.md/mine": "m", "src/main.py": "print(1)\n"}


def test_nothing_is_written_through_a_link_or_outside_of_the_project(workspace: Workspace, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    write(elsewhere, {"main.py": "print(1)\n", "x": "mine"})
    session = workspace.session()
    prompt = workspace.prompt(session)
    message = workspace.step(session, prompt, deletes("src/main.py"))
    outside = [
        str(elsewhere / "x"),
        str(workspace.folder / "../elsewhere/x"),
        str(workspace.folder / ".git/config"),
        "x",
    ]
    empty = workspace.snapshots.git.run("mktree", "-z", stdin=b"").decode().strip()
    workspace.part(session, message, {"type": "patch", "hash": empty, "files": outside})
    (workspace.folder / "src").rmdir()
    (workspace.folder / "src").symlink_to(elsewhere, target_is_directory=True)
    preview = workspace.reverts.preview(session, prompt)
    assert preview.plan.files == ()
    assert set(preview.outside) == {*outside, str(workspace.folder / "src/main.py")}
    workspace.reverts.revert(session, prompt, force=True)
    assert contents(elsewhere) == {"main.py": "print(1)\n", "x": "mine"}
    assert (workspace.folder / ".git" / "config").exists()


def test_a_snapshot_that_is_gone_is_reported_and_never_called_a_success(workspace: Workspace) -> None:
    session = workspace.session()
    prompt = workspace.prompt(session)
    message = workspace.step(session, prompt, writes({}))
    workspace.part(
        session, message, {"type": "patch", "hash": "1" * 40, "files": [str(workspace.folder / "README.md")]}
    )
    done = workspace.reverts.revert(session, prompt, unattributed=True)
    assert [item.name for item in done.left_alone] == ["README.md"]
    assert contents(workspace.folder) == START


def test_a_file_that_was_only_ignored_before_is_not_deleted(workspace: Workspace) -> None:
    write(workspace.folder, {".gitignore": "*.env\n", "old.env": "KEY=1"})
    os.utime(workspace.folder / "old.env", (1_700_000_000, 1_700_000_000))
    session = workspace.session()
    prompt = workspace.prompt(session)
    message = workspace.step(session, prompt, writes({".gitignore": ""}))
    patch = workspace.history(session)[1].parts[-1]
    assert patch["files"] == [str(workspace.folder / ".gitignore")]
    # OpenCode lists it, for all that it knows the file is new.
    workspace.sessions.update_part(patch | {"files": [*patch["files"], str(workspace.folder / "old.env")]})
    workspace.step(session, prompt, writes({"README.md": "2\n"}))
    done = workspace.reverts.revert(session, message, unattributed=True)
    assert (workspace.folder / "old.env").read_text() == "KEY=1"
    assert [(item.name, item.reason[:22]) for item in done.left_alone] == [("old.env", "it existed before but ")]


def test_what_the_snapshots_do_not_see_comes_back_from_the_tools_own_records(workspace: Workspace) -> None:
    write(workspace.folder, {".gitignore": "*.env\n", "a.env": "KEY=1\n"})
    session = workspace.session()
    prompt = workspace.prompt(session)
    workspace.step(session, prompt, edits("a.env", "KEY=2\n"), creates("b.env", "NEW=1\n"), edits("README.md", "x\n"))
    workspace.reverts.revert(session, prompt)
    assert contents(workspace.folder) == START | {".gitignore": "*.env\n", "a.env": "KEY=1\n"}
    workspace.reverts.unrevert(session)
    expected = {"README.md": "x\n", "a.env": "KEY=2\n", "b.env": "NEW=1\n"}
    assert contents(workspace.folder) == START | {".gitignore": "*.env\n"} | expected


def test_the_conversation_alone_can_go_back(workspace: Workspace) -> None:
    session, _, second = two_turns(workspace)
    done = workspace.reverts.revert(session, second, files=False)
    assert done.session.document["revert"] == {"messageID": second}
    assert contents(workspace.folder) == AFTER_TWO
    workspace.reverts.unrevert(session)
    assert contents(workspace.folder) == AFTER_TWO
    workspace.reverts.revert(session, second)
    workspace.reverts.revert(session, second, files=False)
    assert contents(workspace.folder) == AFTER_ONE
    workspace.reverts.unrevert(session)
    assert contents(workspace.folder) == AFTER_TWO


def test_a_project_that_has_moved_is_reverted_where_it_is_now(workspace: Workspace, tmp_path: Path) -> None:
    session, _, second = two_turns(workspace)
    moved = tmp_path / "moved"
    workspace.folder.rename(moved)
    there = Workspace(workspace.home, moved)
    there.reverts.revert(session, second)
    assert contents(moved) == AFTER_ONE
    there.reverts.unrevert(session)
    assert contents(moved) == AFTER_TWO


def test_a_project_is_the_same_by_another_name(workspace: Workspace, tmp_path: Path) -> None:
    session, _, second = two_turns(workspace)
    alias = tmp_path / "alias"
    alias.symlink_to(workspace.folder, target_is_directory=True)
    Workspace(workspace.home, alias).reverts.revert(session, second)
    assert contents(workspace.folder) == AFTER_ONE


def test_a_session_of_another_checkout_is_not_played_out_here(workspace: Workspace, tmp_path: Path) -> None:
    session, _, second = two_turns(workspace)
    linked = tmp_path / "linked"
    git(workspace.folder, "worktree", "add", "-q", str(linked))
    there = Workspace(workspace.home, linked)
    with pytest.raises(SnapshotError, match=str(workspace.folder)):
        there.reverts.revert(session, second)
    assert contents(linked) == START
    assert contents(workspace.folder) == AFTER_TWO


def test_a_session_that_is_running_is_busy(workspace: Workspace) -> None:
    session, _, second = two_turns(workspace)
    leases = FileLeases(str(workspace.home / "leases"))
    reverts = Reverts(workspace.sessions, workspace.snapshots, leases=leases)
    with leases.acquire(session, "someone"):
        with pytest.raises(BusyError):
            reverts.revert(session, second)
        with pytest.raises(BusyError):
            reverts.unrevert(session)
        assert reverts.preview(session, second).plan.files
    assert contents(workspace.folder) == AFTER_TWO
    reverts.revert(session, second)
    assert contents(workspace.folder) == AFTER_ONE


def test_what_is_not_there_is_not_found(workspace: Workspace) -> None:
    session, _, _ = two_turns(workspace)
    with pytest.raises(NotFoundError):
        workspace.reverts.revert(session, "msg_none")
    with pytest.raises(NotFoundError):
        workspace.reverts.revert("ses_none", "msg_none")
    done = workspace.reverts.unrevert(session)
    assert done.session.document == workspace.sessions.get(session).document
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
    workspace = Workspace(tmp_path / "home", new_repository(tmp_path / "work"), store=store)
    session, _, second = two_turns(workspace)
    store.sealed = True
    with pytest.raises(ReadOnlyStoreError):
        workspace.reverts.revert(session, second)
    assert contents(workspace.folder) == AFTER_TWO
    store.sealed = False
    workspace.reverts.recover(session)
    assert contents(workspace.folder) == AFTER_TWO
    assert workspace.sessions.get(session).revert is None


def test_ten_steps_back_need_no_more_than_ten_lists(workspace: Workspace) -> None:
    session = workspace.session()
    prompts: list[str] = []
    for number in range(10):
        prompts.append(workspace.prompt(session))
        workspace.step(session, prompts[-1], writes({"README.md": f"{number}\n", f"f{number}": "x"}), lambda _: shell())
    for number in (7, 2, 9, 0, 5):
        workspace.reverts.revert(session, prompts[number])
        assert contents(workspace.folder)["README.md"] == (f"{number - 1}\n" if number else "hello\n")
        assert {name for name in contents(workspace.folder) if name.startswith("f")} == {
            f"f{item}" for item in range(number)
        }
    workspace.reverts.unrevert(session)
    assert contents(workspace.folder)["README.md"] == "9\n"


def test_folders_that_come_back_are_made_as_the_user_makes_them(workspace: Workspace) -> None:
    write(workspace.folder, {"public/pages/index.html": "x\n"})
    usual = [(workspace.folder / name).stat().st_mode for name in ("public", "public/pages")]
    session = workspace.session()
    prompt = workspace.prompt(session)
    workspace.step(session, prompt, lambda folder: shutil.rmtree(folder / "public"))
    workspace.reverts.revert(session, prompt, unattributed=True)
    assert [(workspace.folder / name).stat().st_mode for name in ("public", "public/pages")] == usual


def test_the_folder_a_session_works_in_stays_though_nothing_is_left_in_it(tmp_path: Path) -> None:
    repository = new_repository(tmp_path / "work")
    (repository / "new" / "below").mkdir(parents=True)
    workspace = Workspace(tmp_path / "home", repository / "new")
    session = workspace.session()
    prompt = workspace.prompt(session)
    workspace.step(session, prompt, writes({"a.txt": "1", "below/b.txt": "2"}))
    workspace.reverts.revert(session, prompt)
    assert (repository / "new").is_dir()
    assert not (repository / "new" / "below").exists()
    workspace.step(session, prompt, writes({"a.txt": "1"}))
    assert workspace.snapshots.note is None


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
    workspace = Workspace(tmp_path / "home", folder, disk=Refusing(name, errno.EACCES))
    session, first, _ = two_turns(workspace)
    done = workspace.reverts.revert(session, first)
    assert [(item.name, item.reason) for item in done.left_alone] == [(name, "it cannot be written: Permission denied")]
    assert contents(folder) == START | left
    workspace.reverts.unrevert(session)
    assert contents(folder) == AFTER_TWO


def test_a_full_disk_stops_a_revert_which_continues_when_there_is_space(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "work")
    workspace = Workspace(tmp_path / "home", folder, disk=Refusing("README.md", errno.ENOSPC))
    session, first, _ = two_turns(workspace)
    with pytest.raises(WriteError):
        workspace.reverts.revert(session, first)
    assert Workspace(tmp_path / "home", folder).reverts.recover(session)
    assert contents(folder) == START


def test_what_cannot_be_read_is_left_alone_and_does_not_block(workspace: Workspace) -> None:
    session, first, _ = two_turns(workspace)
    path = workspace.folder / "new.txt"
    path.unlink()
    os.mkfifo(path)
    done = workspace.reverts.revert(session, first, force=True)
    assert [(item.name, item.reason) for item in done.left_alone] == [("new.txt", "it cannot be read")]
    assert contents(workspace.folder) == START


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is hidden from root")
def test_a_file_that_is_hidden_from_us_does_not_pass_for_an_empty_one(workspace: Workspace) -> None:
    session, first, _ = two_turns(workspace)
    path = workspace.folder / "new.txt"
    path.chmod(0o000)
    done = workspace.reverts.revert(session, first, force=True)
    path.chmod(0o600)
    assert [(item.name, item.reason) for item in done.left_alone] == [("new.txt", "it cannot be read")]
    assert path.read_text() == "2\n"


def reads(folder: Path) -> Document:
    return call("read", {"filePath": str(folder / "README.md")}, {})


@pytest.mark.parametrize("arguments", [edits("README.md", "changed\n"), reads])
def test_what_the_user_changes_while_tools_are_at_work_that_say_what_they_do_stays(
    workspace: Workspace, arguments: FileChange
) -> None:
    session = workspace.session()
    prompt = workspace.prompt(session)

    def act(folder: Path) -> Document | None:
        write(folder, {"src/main.py": "the user's own\n", "mine.txt": "too\n"})
        return arguments(folder)

    workspace.step(session, prompt, act)
    assert len(workspace.parts(session, "patch")) == 1
    workspace.reverts.revert(session, prompt)
    assert contents(workspace.folder) == START | {"src/main.py": "the user's own\n", "mine.txt": "too\n"}


def test_what_a_tool_changed_through_another_name_of_a_folder_goes_back(workspace: Workspace) -> None:
    (workspace.folder / "link").symlink_to("src")
    git(workspace.folder, "add", "link")
    session = workspace.session()
    prompt = workspace.prompt(session)
    workspace.step(session, prompt, edits("link/main.py", "changed\n"))
    workspace.reverts.revert(session, prompt)
    assert (workspace.folder / "src/main.py").read_text() == "print(1)\n"


def test_what_a_call_that_broke_off_changed_goes_back_with_the_rest_of_its_step(workspace: Workspace) -> None:
    session = workspace.session()
    prompt = workspace.prompt(session)

    def act(folder: Path) -> Document:
        write(folder, {"README.md": "half\n"})
        part = call("write", {"filePath": str(folder / "README.md")}, {})
        return part | {"state": part["state"] | {"status": "error", "error": "aborted"}}

    workspace.step(session, prompt, act)
    workspace.reverts.revert(session, prompt)
    assert contents(workspace.folder) == START


def test_commands_that_ran_without_a_snapshot_are_named(workspace: Workspace) -> None:
    session = workspace.session()
    prompt = workspace.prompt(session)
    by_hand = workspace.open_step(session, prompt)  # a command of the user's has no step around it
    workspace.part(session, by_hand, call("bash", {"command": "make"}, {}))
    workspace.snapshots.enabled = False
    workspace.step(session, prompt, lambda folder: call("bash", {"command": "make clean"}, {}))
    workspace.snapshots.enabled = True
    workspace.step(session, prompt, lambda folder: call("bash", {"command": "make test"}, {}))
    assert workspace.reverts.preview(session, prompt).unwatched == ("make", "make clean")
