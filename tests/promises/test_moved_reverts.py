from __future__ import annotations

from pathlib import Path

import pytest

from opensesh.errors import RevertConflictError
from opensesh.workspace.revert import Reverts

from ..workspace.project_setup import FileChange, Workspace, contents, creates, edits, write
from ..workspace.test_revert_crash import Died, DyingDisk


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    folder = tmp_path / "work"
    folder.mkdir()
    return Workspace(tmp_path, folder)


def _turn(workspace: Workspace, session: str, *changes: FileChange) -> str:
    prompt = workspace.prompt(session)
    workspace.step(session, prompt, *changes)
    return prompt


def test_promise_6_a_file_that_cannot_be_brought_to_a_later_point_returns_to_its_origin_and_is_reported_so(
    workspace: Workspace,
) -> None:
    write(workspace.folder, {"a.txt": "one\n"})
    session = workspace.session()
    first = _turn(workspace, session, edits("a.txt", "two\n"))
    second = _turn(workspace, session, creates("a.txt", "three\n"))  # does not record what it overwrites
    workspace.reverts.revert(session, first)
    assert contents(workspace.folder) == {"a.txt": "one\n"}

    [file] = workspace.reverts.preview(session, second).plan.files
    assert (file.verdict, file.action) == ("lost", "restore")
    [left] = workspace.reverts.revert(session, second).left_alone
    assert left.reason.endswith("it returns to what it was before the session was reverted")
    assert contents(workspace.folder) == {"a.txt": "three\n"}
    [again] = workspace.reverts.revert(session, second).left_alone
    assert "returns" not in again.reason
    workspace.reverts.unrevert(session)
    assert contents(workspace.folder) == {"a.txt": "three\n"}


def test_promise_6_undoing_a_revert_leaves_alone_what_the_revert_did_not_change(workspace: Workspace) -> None:
    session = workspace.session()
    _turn(workspace, session, creates("a.txt", "one\n"))
    fork = workspace.sessions.fork(session).id
    (workspace.folder / "a.txt").unlink()
    workspace.reverts.revert(fork, workspace.history(fork)[0].info["id"])
    _turn(workspace, session, creates("a.txt", "two\n"))
    workspace.reverts.unrevert(fork)
    assert contents(workspace.folder) == {"a.txt": "two\n"}


def test_promise_7_a_revert_restores_what_another_session_wrote_before_the_first_change(workspace: Workspace) -> None:
    write(workspace.folder, {"b.txt": "one\n"})
    session, other = workspace.session(), workspace.session()
    before = _turn(workspace, session)
    _turn(workspace, other, edits("b.txt", "two\n"))
    _turn(workspace, session, edits("b.txt", "three\n"))
    workspace.reverts.revert(session, before)
    assert contents(workspace.folder) == {"b.txt": "two\n"}


@pytest.mark.parametrize("operation", range(1, 12))
def test_promise_6_a_forced_repetition_that_dies_is_done_completely_or_not_at_all(
    workspace: Workspace, operation: int
) -> None:
    write(workspace.folder, {"a.txt": "one\n"})
    session = workspace.session()
    prompt = _turn(workspace, session, edits("a.txt", "two\n"))
    workspace.reverts.revert(session, prompt)
    write(workspace.folder, {"a.txt": "the user's own\n"})
    dying = Reverts(workspace.sessions, workspace.snapshots, disk=DyingDisk(operation))
    try:
        dying.revert(session, prompt, force=True)
    except Died:
        workspace.reverts.recover(session)
        assert contents(workspace.folder)["a.txt"] in ("the user's own\n", "one\n")
    workspace.reverts.unrevert(session, force=True)
    assert contents(workspace.folder) == {"a.txt": "two\n"}


def test_promise_7_moving_a_revert_over_a_change_of_the_user_asks_as_a_direct_revert_does(workspace: Workspace) -> None:
    write(workspace.folder, {"a.txt": "one\n"})
    session = workspace.session()
    first = _turn(workspace, session, edits("a.txt", "two\n"))
    write(workspace.folder, {"a.txt": "the user's own\n"})
    second = _turn(workspace, session, edits("a.txt", "three\n"))
    with pytest.raises(RevertConflictError):
        workspace.reverts.revert(session, first)
    workspace.reverts.revert(session, second)
    with pytest.raises(RevertConflictError, match="changed outside the session while it ran"):
        workspace.reverts.revert(session, first)
    assert contents(workspace.folder) == {"a.txt": "the user's own\n"}
    done = workspace.reverts.revert(session, first, force=True)
    assert contents(workspace.folder) == {"a.txt": "one\n"}
    assert (Path(done.kept) / "a.txt").read_text() == "the user's own\n"
    workspace.reverts.unrevert(session)
    assert contents(workspace.folder) == {"a.txt": "three\n"}
