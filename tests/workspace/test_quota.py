from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from opensesh.storage.protocol import StoredMessage
from opensesh.workspace.diffs import snapshots_in
from opensesh.workspace.revert_journal import RevertTrash
from opensesh.workspace.snapshots import Snapshots
from opensesh.workspace.tidying import folder_size, tidy_snapshots

from .project_setup import Workspace, git, new_repository, since, write, writes

DAY = 86_400


def age(workspace: Workspace, days: int) -> None:
    """Make everything in the store look as if it had been there for so many days, its pins too."""
    store = Path(workspace.snapshots.repository.store)
    moment = time.time() - days * DAY
    for path in (store / "objects").rglob("*"):
        os.utime(path, (moment, moment))
    today = int(time.time()) // DAY
    pins = git(store, "--git-dir", str(store), "for-each-ref", "--format=%(refname)", "refs/opensesh").splitlines()
    for pin in pins:
        tree = pin.rsplit("/", 1)[1]
        git(store, "--git-dir", str(store), "update-ref", "-d", pin)
        git(store, "--git-dir", str(store), "update-ref", f"refs/opensesh/{today - days}/{tree}", tree)


def is_there(snapshots: Snapshots, tree: str) -> bool:
    with snapshots.objects() as objects:
        return objects.state(tree, "any") is not None


def snapshot(workspace: Workspace) -> str:
    result = workspace.snapshots.track()
    assert result is not None
    return result


def some_noise(workspace: Workspace) -> str:
    write(workspace.folder, {"noise": os.urandom(40_000).hex()})
    tree = snapshot(workspace)
    (workspace.folder / "noise").unlink()
    return tree


def test_sessions_name_the_snapshots_they_may_want(workspace: Workspace) -> None:
    session = workspace.session()
    prompt = workspace.prompt(session)
    workspace.step(session, prompt, writes({"a": "1"}))
    parts = workspace.history(session)[1].parts
    named = {part["snapshot"] for part in parts if "snapshot" in part}
    assert snapshots_in({}, workspace.history(session)) == named
    revert = workspace.reverts.revert(session, prompt).session.document["revert"]
    assert snapshots_in(revert, workspace.history(session)) == named | {revert["snapshot"]}
    trash = RevertTrash(workspace.sessions)
    assert trash.of_all_sessions() == []
    workspace.reverts.cleanup(session)
    assert snapshots_in({}, workspace.history(session)) == set()
    (trashed,) = trash.of_all_sessions()
    assert snapshots_in(trashed.revert, trashed.messages) == named | {revert["snapshot"]}


def test_a_file_in_the_trash_that_is_not_ours_costs_only_itself(workspace: Workspace) -> None:
    trash = RevertTrash(workspace.sessions)
    folder = Path(trash.add_messages(workspace.session(), {}, []))
    (folder / "messages.json").write_text('{"messages": [{}, {"info": 3, "parts": 4}, {"info": {}, "parts": [5]}]}')
    assert [item.messages for item in trash.of_all_sessions()] == [[StoredMessage({}, [])]]


def test_what_no_session_names_is_deleted_after_a_week_and_its_space_is_freed(workspace: Workspace) -> None:
    expected, unwanted = some_noise(workspace), some_noise(workspace)
    age(workspace, 8)
    before = workspace.snapshots.repository.size()
    assert tidy_snapshots(workspace.snapshots.repository, {expected}) == (1, None)
    assert workspace.snapshots.repository.size() < before
    assert is_there(workspace.snapshots, expected)
    assert not is_there(workspace.snapshots, unwanted)


def test_what_no_session_names_is_deleted_from_packs_too(workspace: Workspace) -> None:
    expected, unwanted = some_noise(workspace), some_noise(workspace)
    repository = workspace.snapshots.repository
    repository.store_git().run("gc", "--quiet")
    age(workspace, 8)
    before = folder_size(repository.store)
    assert tidy_snapshots(repository, {expected}) == (1, None)
    assert folder_size(repository.store) < before
    assert is_there(workspace.snapshots, expected)
    assert not is_there(workspace.snapshots, unwanted)


def test_tidying_a_few_snapshots_that_are_all_needed_takes_no_more_space(workspace: Workspace) -> None:
    tree = snapshot(workspace)
    before = folder_size(workspace.snapshots.repository.store)
    tidy_snapshots(workspace.snapshots.repository, {tree})
    assert folder_size(workspace.snapshots.repository.store) <= before


def test_what_is_young_stays_whether_or_not_a_session_names_it(workspace: Workspace) -> None:
    tree = some_noise(workspace)
    age(workspace, 6)
    assert tidy_snapshots(workspace.snapshots.repository, set())[0] == 0
    assert is_there(workspace.snapshots, tree)


def test_the_next_snapshot_after_tidying_is_whole(workspace: Workspace) -> None:
    write(workspace.folder, {"kept": "x" * 1000})
    tree = snapshot(workspace)
    age(workspace, 30)
    tidy_snapshots(workspace.snapshots.repository, set())
    assert not is_there(workspace.snapshots, tree)
    write(workspace.folder, {"README.md": "2"})
    again = workspace.open_snapshots()
    result = again.track()
    assert result is not None
    with again.objects() as objects:
        state = objects.state(result, "kept")
        assert state is not None
        assert objects.content(state.oid) == b"x" * 1000


def test_snapshots_of_a_repository_that_is_gone_do_not_stop_the_tidying(workspace: Workspace, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(workspace.folder), str(clone))
    write(clone, {"only-there": "x" * 1000})
    git(clone, "add", "-A")
    there = Workspace(workspace.home, clone)
    broken = snapshot(there)
    unwanted = some_noise(workspace)
    workspace.snapshots.repository.store_git().run("gc", "--quiet")
    age(workspace, 8)
    shutil.rmtree(clone)
    alternates = Path(workspace.snapshots.repository.store, "objects", "info", "alternates")
    assert str(clone) in alternates.read_text()
    _, note = tidy_snapshots(workspace.snapshots.repository, {broken})
    assert note is not None
    assert "1 snapshots are no longer complete" in note
    assert not is_there(workspace.snapshots, unwanted)
    assert alternates.read_text() == f"{workspace.folder}/.git/objects\n"


def test_leftovers_of_a_git_that_was_ended_are_swept_up(workspace: Workspace) -> None:
    snapshot(workspace)
    pack = Path(workspace.snapshots.repository.store, "objects", "pack")
    for name, hours in (("tmp_pack_old", 2), ("tmp_pack_new", 0)):
        (pack / name).write_bytes(b"x")
        moment = time.time() - hours * 3600
        os.utime(pack / name, (moment, moment))
    tidy_snapshots(workspace.snapshots.repository, set())
    assert [path.name for path in pack.glob("tmp_*")] == ["tmp_pack_new"]


def test_where_nothing_was_kept_there_is_nothing_to_tidy(workspace: Workspace) -> None:
    assert workspace.snapshots.repository.size() == 0
    assert tidy_snapshots(workspace.snapshots.repository, set()) == (0, None)


def test_snapshots_continue_when_a_project_has_moved_with_the_folders_above_it(tmp_path: Path) -> None:
    first = Workspace(tmp_path / "home", new_repository(tmp_path / "above" / "of" / "work"))
    tree = snapshot(first)
    (tmp_path / "above").rename(tmp_path / "elsewhere")
    moved = Workspace(tmp_path / "home", tmp_path / "elsewhere" / "of" / "work")
    write(moved.folder, {"new": "1"})
    assert since(moved.snapshots, tree).files == (str(moved.folder / "new"),)
    assert tidy_snapshots(moved.snapshots.repository, set()) == (0, None)
