from __future__ import annotations

from pathlib import Path

import pytest

from opensesh.errors import RevertConflictError
from opensesh.workspace.revert import Reverts

from ..workspace.desk import Desk, FileChange, contents, creates, edits, write
from ..workspace.test_revert_crash import Died, DyingDisk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    folder = tmp_path / "work"
    folder.mkdir()
    return Desk(tmp_path, folder)


def _turn(desk: Desk, session: str, *changes: FileChange) -> str:
    prompt = desk.prompt(session)
    desk.step(session, prompt, *changes)
    return prompt


def test_promise_6_a_file_that_cannot_be_brought_to_a_later_point_returns_to_its_origin_and_is_reported_so(
    desk: Desk,
) -> None:
    write(desk.folder, {"a.txt": "one\n"})
    session = desk.session()
    first = _turn(desk, session, edits("a.txt", "two\n"))
    second = _turn(desk, session, creates("a.txt", "three\n"))  # does not record what it overwrites
    desk.reverts.revert(session, first)
    assert contents(desk.folder) == {"a.txt": "one\n"}

    [file] = desk.reverts.preview(session, second).plan.files
    assert (file.verdict, file.action) == ("lost", "restore")
    [left] = desk.reverts.revert(session, second).left_alone
    assert left.reason.endswith("it returns to what it was before the session was reverted")
    assert contents(desk.folder) == {"a.txt": "three\n"}
    [again] = desk.reverts.revert(session, second).left_alone
    assert "returns" not in again.reason
    desk.reverts.unrevert(session)
    assert contents(desk.folder) == {"a.txt": "three\n"}


def test_promise_6_undoing_a_revert_leaves_alone_what_the_revert_did_not_change(desk: Desk) -> None:
    session = desk.session()
    _turn(desk, session, creates("a.txt", "one\n"))
    fork = desk.sessions.fork(session).id
    (desk.folder / "a.txt").unlink()
    desk.reverts.revert(fork, desk.history(fork)[0].info["id"])
    _turn(desk, session, creates("a.txt", "two\n"))
    desk.reverts.unrevert(fork)
    assert contents(desk.folder) == {"a.txt": "two\n"}


def test_promise_7_a_revert_restores_what_another_session_wrote_before_the_first_change(desk: Desk) -> None:
    write(desk.folder, {"b.txt": "one\n"})
    session, other = desk.session(), desk.session()
    before = _turn(desk, session)
    _turn(desk, other, edits("b.txt", "two\n"))
    _turn(desk, session, edits("b.txt", "three\n"))
    desk.reverts.revert(session, before)
    assert contents(desk.folder) == {"b.txt": "two\n"}


@pytest.mark.parametrize("operation", range(1, 12))
def test_promise_6_a_forced_repetition_that_dies_is_done_completely_or_not_at_all(desk: Desk, operation: int) -> None:
    write(desk.folder, {"a.txt": "one\n"})
    session = desk.session()
    prompt = _turn(desk, session, edits("a.txt", "two\n"))
    desk.reverts.revert(session, prompt)
    write(desk.folder, {"a.txt": "the user's own\n"})
    dying = Reverts(desk.sessions, desk.snapshots, disk=DyingDisk(operation), state=str(desk.home / "state"))
    try:
        dying.revert(session, prompt, force=True)
    except Died:
        desk.reverts.recover(session)
        assert contents(desk.folder)["a.txt"] in ("the user's own\n", "one\n")
    desk.reverts.unrevert(session, force=True)
    assert contents(desk.folder) == {"a.txt": "two\n"}


def test_promise_7_moving_a_revert_over_a_change_of_the_user_asks_as_a_direct_revert_does(desk: Desk) -> None:
    write(desk.folder, {"a.txt": "one\n"})
    session = desk.session()
    first = _turn(desk, session, edits("a.txt", "two\n"))
    write(desk.folder, {"a.txt": "the user's own\n"})
    second = _turn(desk, session, edits("a.txt", "three\n"))
    with pytest.raises(RevertConflictError):
        desk.reverts.revert(session, first)
    desk.reverts.revert(session, second)
    with pytest.raises(RevertConflictError, match="changed outside the session while it ran"):
        desk.reverts.revert(session, first)
    assert contents(desk.folder) == {"a.txt": "the user's own\n"}
    done = desk.reverts.revert(session, first, force=True)
    assert contents(desk.folder) == {"a.txt": "one\n"}
    assert (Path(done.kept) / "a.txt").read_text() == "the user's own\n"
    desk.reverts.unrevert(session)
    assert contents(desk.folder) == {"a.txt": "three\n"}
