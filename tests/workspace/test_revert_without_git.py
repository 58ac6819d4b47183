from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from opensesh.errors import RevertConflictError
from opensesh.records import Document
from opensesh.workspace.files import file_state
from opensesh.workspace.originals import MAX_FILE_BYTES, Originals

from .project_setup import FileChange, Workspace, call, contents, creates, edits, write, writes


def turn(workspace: Workspace, *changes: FileChange) -> tuple[str, str]:
    session = workspace.session()
    prompt = workspace.prompt(session)
    workspace.step(session, prompt, *changes)
    return session, prompt


def test_recorded_edits_are_undone_and_done_again(plain: Workspace) -> None:
    write(plain.folder, {"a.txt": "one\n"})
    session = plain.session()
    first = plain.prompt(session)
    plain.step(session, first, edits("a.txt", "two\n"), creates("new/b.txt", "b\n"))
    second = plain.prompt(session)
    plain.step(session, second, edits("a.txt", "three\n"), edits("new/b.txt", "bb\n"))

    done = plain.reverts.revert(session, second)
    assert contents(plain.folder) == {"a.txt": "two\n", "new/b.txt": "b\n"}
    assert done.session.document["revert"] == {"messageID": second}
    plain.reverts.revert(session, first)
    assert contents(plain.folder) == {"a.txt": "one\n"}
    plain.reverts.revert(session, second)
    assert contents(plain.folder) == {"a.txt": "two\n", "new/b.txt": "b\n"}
    plain.reverts.unrevert(session)
    assert contents(plain.folder) == {"a.txt": "three\n", "new/b.txt": "bb\n"}
    assert plain.sessions.get(session).document["summary"] == {"additions": 2, "deletions": 1, "files": 2}


def test_an_edit_is_undone_only_while_the_file_holds_what_it_left(plain: Workspace) -> None:
    write(plain.folder, {"a.txt": "one\n"})
    session, prompt = turn(plain, edits("a.txt", "two\n"))
    write(plain.folder, {"a.txt": "the user's own\n"})
    with pytest.raises(RevertConflictError):
        plain.reverts.revert(session, prompt)
    assert contents(plain.folder) == {"a.txt": "the user's own\n"}
    plain.reverts.revert(session, prompt, force=True)
    assert contents(plain.folder) == {"a.txt": "one\n"}
    plain.reverts.unrevert(session)
    assert contents(plain.folder) == {"a.txt": "the user's own\n"}


def test_a_change_between_two_edits_that_was_not_recorded_is_a_conflict(plain: Workspace) -> None:
    write(plain.folder, {"a.txt": "one\n"})
    session, prompt = turn(plain, edits("a.txt", "two\n"), writes({"a.txt": "shell\n"}), edits("a.txt", "three\n"))
    with pytest.raises(RevertConflictError):
        plain.reverts.revert(session, prompt)


def test_what_was_written_over_cannot_be_brought_back_and_is_reported(plain: Workspace) -> None:
    write(plain.folder, {"a.txt": "one\n"})
    session, prompt = turn(plain, creates("a.txt", "two\n"), creates("b.txt", "new\n"))
    done = plain.reverts.revert(session, prompt)
    assert [(item.name, item.action) for item in done.left_alone] == [("a.txt", "keep")]
    assert contents(plain.folder) == {"a.txt": "two\n"}
    plain.reverts.unrevert(session)
    assert contents(plain.folder) == {"a.txt": "two\n", "b.txt": "new\n"}


def test_a_write_that_recorded_what_it_wrote_over_is_undone(plain: Workspace) -> None:
    write(plain.folder, {"a.txt": "one\n"})

    def overwrite(folder: Path) -> Document:
        recorded = creates("a.txt", "two\n")(folder)
        assert recorded is not None
        diff = {"file": str(folder / "a.txt"), "before": "one\n", "after": "two\n"}
        recorded["state"]["metadata"]["filediff"] = diff
        return recorded

    session, prompt = turn(plain, overwrite)
    assert plain.reverts.revert(session, prompt).left_alone == ()
    assert contents(plain.folder) == {"a.txt": "one\n"}


def test_marks_line_ends_and_modes_survive(plain: Workspace) -> None:
    path = plain.folder / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    path.chmod(0o754)

    def edit(folder: Path) -> Document:
        path.write_bytes(b"\xef\xbb\xbfone\r\n2\r\n")
        diff = {"file": str(path), "before": "one\r\ntwo\r\n", "after": "one\r\n2\r\n"}
        return call("edit", {"oldString": "two"}, {"filediff": diff})

    session, prompt = turn(plain, edit)
    plain.reverts.revert(session, prompt)
    assert path.read_bytes() == b"\xef\xbb\xbfone\r\ntwo\r\n"
    assert path.stat().st_mode & 0o777 == 0o754
    plain.reverts.unrevert(session)
    assert path.read_bytes() == b"\xef\xbb\xbfone\r\n2\r\n"


def test_a_record_that_is_not_exact_is_not_written_back(plain: Workspace) -> None:
    path = plain.folder / "latin.txt"
    path.write_bytes(b"caf\xe9\n")

    def edit(folder: Path) -> Document:
        path.write_bytes(b"caf\xe9!\n")
        return call("edit", {}, {"filediff": {"file": str(path), "before": "caf\ufffd\n", "after": "caf\ufffd!\n"}})

    session, prompt = turn(plain, edit)
    done = plain.reverts.revert(session, prompt)
    assert [item.name for item in done.left_alone] == ["latin.txt"]
    assert path.read_bytes() == b"caf\xe9!\n"


def test_a_patch_that_moved_and_deleted_is_undone(plain: Workspace) -> None:
    write(plain.folder, {"old.txt": "1\n", "gone.txt": "g\n"})
    folder = plain.folder

    def patch(_: Path) -> Document:
        write(folder, {"new.txt": "2\n"})
        (folder / "old.txt").unlink()
        (folder / "gone.txt").unlink()
        files = [
            {"filePath": str(folder / "old.txt"), "movePath": str(folder / "new.txt"), "type": "move"}
            | {"before": "1\n", "after": "2\n"},
            {"filePath": str(folder / "gone.txt"), "type": "delete", "before": "g\n", "after": ""},
        ]
        return call("apply_patch", {}, {"files": files})

    session, prompt = turn(plain, patch)
    plain.reverts.revert(session, prompt)
    assert contents(folder) == {"old.txt": "1\n", "gone.txt": "g\n"}
    plain.reverts.unrevert(session)
    assert contents(folder) == {"new.txt": "2\n"}


def test_l1_files_outside_of_the_directory_are_left_alone_and_reported(plain: Workspace, tmp_path: Path) -> None:
    write(tmp_path, {"elsewhere.txt": "one\n"})
    session, prompt = turn(plain, edits("../elsewhere.txt", "two\n"), creates("a.txt", "1"))
    done = plain.reverts.revert(session, prompt)
    assert done.preview.outside == (str(plain.folder / "../elsewhere.txt"),)
    assert (tmp_path / "elsewhere.txt").read_text() == "two\n"
    assert contents(plain.folder) == {}


def test_what_a_subagent_edited_goes_back_with_the_call_that_sent_it(plain: Workspace) -> None:
    write(plain.folder, {"a.txt": "one\n"})
    child = plain.session()
    plain.step(child, plain.prompt(child), edits("a.txt", "two\n"))
    began, ended = (plain.history(child)[1].info["time"]["created"] + item for item in (-10, 10))
    plain.step(child, plain.prompt(child), edits("a.txt", "three\n"))
    task = call("task", {}, {"sessionId": child})
    task["state"]["time"] = {"start": began, "end": ended}
    write(plain.folder, {"a.txt": "two\n"})
    session, prompt = turn(plain, lambda _: task)
    plain.reverts.revert(session, prompt)
    assert contents(plain.folder) == {"a.txt": "one\n"}


def test_part_of_an_answer_can_stay_without_git_too(plain: Workspace) -> None:
    write(plain.folder, {"a.txt": "one\n"})
    session, _ = turn(plain, edits("a.txt", "two\n"), edits("a.txt", "three\n"))
    answer = plain.history(session)[1]
    second = [part["id"] for part in answer.parts if part["type"] == "tool"][1]
    plain.reverts.revert(session, answer.info["id"], second)
    assert contents(plain.folder) == {"a.txt": "two\n"}


def test_a_session_that_went_on_in_a_folder_within_is_one_session(plain: Workspace) -> None:
    write(plain.folder, {"sub/a.txt": "one\n"})
    session, prompt = turn(plain, edits("sub/a.txt", "two\n"))
    answer = plain.history(session)[1].info
    plain.sessions.update_message(answer | {"path": {"cwd": str(plain.folder / "sub"), "root": "/"}})
    plain.reverts.revert(session, prompt)
    assert contents(plain.folder) == {"sub/a.txt": "one\n"}


def test_what_a_final_revert_removed_is_not_listed_as_changed_any_more(plain: Workspace) -> None:
    write(plain.folder, {"a.txt": "one\n"})
    session = plain.session()
    plain.step(session, plain.prompt(session), edits("a.txt", "two\n"))
    second = plain.prompt(session)
    plain.step(session, second, creates("b.txt", "new\n"))
    plain.reverts.revert(session, second)
    plain.reverts.cleanup(session)
    assert [item["file"] for item in plain.sessions.diff(session)] == ["a.txt"]
    assert plain.sessions.get(session).document["summary"] == {"additions": 1, "deletions": 1, "files": 1}


def test_a_file_too_large_to_be_put_aside_is_not_even_read(plain: Workspace) -> None:
    path = plain.folder / "large"
    with path.open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    originals = Originals(plain.sessions.store)
    tracemalloc.start()
    assert originals.put(str(path)) is None
    file_state(str(path))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < MAX_FILE_BYTES // 8


def test_what_an_unrevert_cannot_restore_is_kept_and_named(plain: Workspace) -> None:
    session, prompt = turn(plain, creates("a.txt", "content\n"))
    plain.reverts.revert(session, prompt)
    (plain.folder / "a.txt").mkdir()
    done = plain.reverts.unrevert(session)
    [left] = done.left_alone
    assert left.reason.startswith("a folder is in its place; what it held is in ")
    kept = Path(left.reason.rpartition(" is in ")[2]) / "a.txt"
    assert kept.read_text() == "content\n"


def test_a_file_that_was_in_the_way_is_restored_once_it_is_gone(plain: Workspace) -> None:
    session = plain.session()
    first = plain.prompt(session)
    plain.step(session, first, creates("a.txt", "one\n"))
    second = plain.prompt(session)
    plain.step(session, second, edits("a.txt", "two\n"))
    plain.reverts.revert(session, first)
    (plain.folder / "a.txt").mkdir()
    assert [file.name for file in plain.reverts.revert(session, second).left_alone] == ["a.txt"]
    (plain.folder / "a.txt").rmdir()
    plain.reverts.revert(session, second)
    assert contents(plain.folder) == {"a.txt": "one\n"}
    plain.reverts.unrevert(session)
    assert contents(plain.folder) == {"a.txt": "two\n"}


def test_a_file_that_a_moved_revert_restored_may_be_changed_before_it_is_undone(plain: Workspace) -> None:
    session = plain.session()
    first = plain.prompt(session)
    plain.step(session, first, creates("a.txt", "a\n"))
    second = plain.prompt(session)
    plain.step(session, second, creates("b.txt", "b\n"))
    plain.reverts.revert(session, first)
    plain.reverts.revert(session, second)
    write(plain.folder, {"a.txt": "the user's own\n"})
    plain.reverts.unrevert(session)
    assert contents(plain.folder) == {"a.txt": "the user's own\n", "b.txt": "b\n"}
